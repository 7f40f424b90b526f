"""Leaving politely: on SIGTERM, running answers finish or end with an error, sockets close, and the process exits 0.

Knows the service's shutdown and the socket server; knows nothing of what runs.
"""

import signal

import gevent
from flask import Flask

GRACE_S = 8.0  # container runtimes kill after 10 s


def close_on_sigterm(app: Flask, grace_s: float = GRACE_S) -> None:
    """Put a farewell before whatever the web server does on SIGTERM. Call it in the process that serves."""
    server_handler = signal.getsignal(signal.SIGTERM)

    def on_sigterm(signum, frame):
        gevent.spawn(farewell, app, grace_s)
        if callable(server_handler):
            server_handler(signum, frame)  # gunicorn: accept no more, leave when every connection has ended

    signal.signal(signal.SIGTERM, on_sigterm)


def farewell(app: Flask, grace_s: float) -> None:
    """End every answer within the grace period and then every socket, on which nothing would end by itself."""
    app.extensions["qwenvl"].service.shutdown(grace_s)
    gevent.sleep(0.2)  # the last messages leave
    app.extensions["socketio"].server.eio.disconnect()
