"""WebSockets as Engine.IO serves them on gevent, with two things it leaves out: a bound on what one message may take,
and the difference between a page that left and a connection that broke.

Knows nothing of events or questions.
"""

import gevent
from engineio.async_drivers.gevent import WebSocketWSGI
from flask_socketio import SocketIO
from wsproto.frame_protocol import CloseReason

# A page that goes elsewhere closes with 1001, a program that has had enough with 1000. A lost network says neither.
LEAVING = (CloseReason.NORMAL_CLOSURE, CloseReason.GOING_AWAY)
# A page that is loaded anew goes like one whose tab is closed, but is back on a new connection by then; and the engine
# must be free within two seconds of a closed tab.
REFRESH_S = 1.5


def bound_messages(socketio: SocketIO, max_bytes: int) -> None:
    """Serve this application's WebSockets with messages of at most `max_bytes`, counted while they arrive."""

    class BoundedWebSocket(WebSocketWSGI):
        def __init__(self, handler, server):
            super().__init__(handler, server)
            self.server_args["max_message_size"] = max_bytes

        def wait(self):
            data = super().wait()
            if data is None:
                # What came just before the end, such as a goodbye, is in the hands of other greenlets: they go first.
                gevent.sleep(0)
                if self.ws.close_reason == CloseReason.GOING_AWAY:
                    gevent.sleep(REFRESH_S)
                if self.ws.close_reason in LEAVING:
                    _left_for_good(self.app.__self__)
            return data

    engine = socketio.server.eio
    engine._async = {**engine._async, "websocket": BoundedWebSocket}


def _left_for_good(engine_socket) -> None:
    """Whoever closes the socket on purpose says so in the closing frame: as good as disconnecting."""
    engine_socket.close(wait=False, abort=True, reason=engine_socket.server.reason.CLIENT_DISCONNECT)
