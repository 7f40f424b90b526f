"""WebSockets as Engine.IO serves them on gevent, with what it leaves out: a bound on what one message may take and on
what may wait for a client that does not read, and the difference between a page that left and a connection that broke.

Knows nothing of events or questions.
"""

import contextlib
import socket
from typing import Any

import gevent
from engineio.async_drivers.gevent import WebSocketWSGI
from flask_socketio import SocketIO
from gevent.lock import Semaphore
from wsproto.frame_protocol import CloseReason

from qwenvl.web import waiting

MOST_BEHIND = 10_000  # messages that may wait for a client that reads more slowly than they come

# A page that goes elsewhere closes with 1001, a program that has had enough with 1000. A lost network says neither.
LEAVING = (CloseReason.NORMAL_CLOSURE, CloseReason.GOING_AWAY)
# A page that is loaded anew goes like one whose tab is closed, but is back on a new connection by then; and the engine
# must be free within two seconds of a closed tab.
REFRESH_S = 1.5
GOODBYE_S = 2.0  # for the client to answer a closing frame


class WholeSends:
    """A WebSocket's own socket. What is sent goes out whole, one message after another, or the connection ends.

    The library calls `send` from several greenlets, and takes for granted that it sends everything.
    """

    def __init__(self, sock: Any):
        self._sock = sock
        self._turn = Semaphore()

    def send(self, data: bytes) -> None:
        late = OSError("The client takes nothing.")
        try:
            with gevent.Timeout(waiting.QUIET_S, late), self._turn:
                self._sock.sendall(data)
        except OSError:
            hang_up(self)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def hang_up(sock: Any) -> None:
    """End a connection now; `close()` alone would not wake whoever reads."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def bound_messages(socketio: SocketIO, max_bytes: int) -> None:
    """Serve this application's WebSockets with messages of at most `max_bytes`, counted while they arrive."""

    class BoundedWebSocket(WebSocketWSGI):
        def __init__(self, handler, server):
            super().__init__(handler, server)
            self.server_args["max_message_size"] = max_bytes

        def send(self, message):
            if not isinstance(self.ws.sock, WholeSends):
                self.ws.sock = WholeSends(self.ws.sock)
            if self.app.__self__.queue.qsize() > MOST_BEHIND:
                hang_up(self.ws.sock)
            return super().send(message)

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

        def close(self):
            """Whoever is gone without a word never answers the closing frame, and would hold a connection for good."""
            super().close()
            gevent.spawn_later(GOODBYE_S, hang_up, self.ws.sock)

    engine = socketio.server.eio
    engine._async = {**engine._async, "websocket": BoundedWebSocket}


def _left_for_good(engine_socket) -> None:
    """Whoever closes the socket on purpose says so in the closing frame: as good as disconnecting."""
    engine_socket.close(wait=False, abort=True, reason=engine_socket.server.reason.CLIENT_DISCONNECT)
