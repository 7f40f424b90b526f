"""The server: joins the engine and the web side, and is the only file that knows both.

gunicorn -k gevent -w 1 'app:create_app()'      as `make run` and the container do
python app.py                                   for development
"""

if __name__ == "__main__":
    # Before anything else is imported, as gunicorn's gevent worker does.
    from gevent import monkey

    monkey.patch_all()

import logging
import sys
from typing import NoReturn

from qwenvl import memory, web
from qwenvl.config import Settings
from qwenvl.engine import load
from qwenvl.errors import QwenVLError
from qwenvl.service import Service
from qwenvl.web.closing import GRACE_S, close_on_sigterm, farewell

GUNICORN_DO_NOT_RETRY = 4  # the exit code by which gunicorn knows that starting the worker again will not help


def create_app(settings: Settings | None = None):
    """The WSGI application of this process; the model loads in the background, and `/health` says how far it is."""
    settings = settings or read_settings()
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it would log the addresses of downloads, signed for us
    service = open_service(settings)
    service.start()
    app = web.create_app(service)
    close_on_sigterm(app)
    return app


def open_service(settings: Settings) -> Service:
    try:
        settings = memory.fit(settings)
        return Service(settings, lambda report: load(settings, report))
    except QwenVLError as error:
        refuse_to_start(error)


def read_settings() -> Settings:
    """The environment's settings, or one line that says which variable is wrong."""
    try:
        return Settings.from_env()
    except QwenVLError as error:
        refuse_to_start(error)


def refuse_to_start(error: QwenVLError) -> NoReturn:
    print(f"qwenvl: {error}", file=sys.stderr)
    raise SystemExit(GUNICORN_DO_NOT_RETRY) from None


def serve() -> None:
    """Serve with gevent's own server until Ctrl-C or SIGTERM."""
    import gevent
    from gevent.pywsgi import WSGIHandler, WSGIServer

    class Handler(WSGIHandler):
        def get_environ(self):
            return {**super().get_environ(), "qwenvl.socket": self.socket}

    settings = read_settings()
    app = create_app(settings)
    server = WSGIServer((settings.host, settings.port), app, log=None, handler_class=Handler)
    gevent.signal_handler(15, lambda: gevent.spawn(stop, app, server))
    print(f"http://{settings.host}:{settings.port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        stop(app, server)


def stop(app, server) -> None:
    """End answers, then the server."""
    farewell(app, GRACE_S)
    server.stop(timeout=1)


if __name__ == "__main__":
    serve()
