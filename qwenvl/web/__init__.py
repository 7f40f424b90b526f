"""The application factory: the one place of the web side that knows all its parts. Knows nothing of the model.

`create_app(service)` works with any service, so tests hand it one with a fake engine.
"""

import logging
from pathlib import Path

import gevent
from flask import Flask
from flask_compress import Compress
from flask_socketio import SocketIO

from qwenvl.config import MIB
from qwenvl.images import ACCEPTED
from qwenvl.service import Service
from qwenvl.web import access, assets, bodies, guard, routes
from qwenvl.web.asking import Web
from qwenvl.web.events import Events
from qwenvl.web.mailbox import Bridge, Workshop
from qwenvl.web.sockets import bound_messages

ROOT = Path(__file__).resolve().parents[2]
RESUME_GRACE_S = 30.0
TIDY_EVERY_S = 60.0


def create_app(service: Service, *, resume_grace_s: float = RESUME_GRACE_S) -> Flask:
    """The WSGI application around a service, for gunicorn's gevent worker or gevent's own server."""
    app = Flask(__name__, static_folder=str(ROOT / "static"), template_folder=str(ROOT / "templates"))
    web = Web(service, Bridge(), Workshop())
    app.extensions["qwenvl"] = web
    _configure(app, service)
    guard.protect(app, _origins(service), service.metrics.rejected, service.receiving)
    access.control(app, service)
    Compress(app)  # by content type, so event streams are left alone
    app.register_blueprint(routes.bp)
    assets.serve(app)
    Events(_sockets(app, service), web, resume_grace_s)
    access.behind_proxies(app, service.settings.proxies)
    gevent.spawn(_tidy_forever, service)
    return app


def _configure(app: Flask, service: Service) -> None:
    settings = service.settings
    most = service.receiving.max_bytes // bodies.COPIES
    app.json.ensure_ascii = False
    app.json.sort_keys = False
    app.url_map.strict_slashes = False
    app.config.update(
        MAX_CONTENT_LENGTH=min(most, settings.max_images * settings.max_upload_bytes + MIB),
        MAX_JSON_BYTES=min(most, _base64_bytes(settings.max_upload_bytes)),
        MAX_FORM_MEMORY_SIZE=guard.MAX_FIELD_BYTES,
        MAX_FORM_PARTS=64,
        MAX_FILE_BYTES=settings.max_upload_bytes,
        LIMITS={
            "max_upload_bytes": settings.max_upload_bytes,
            "max_image_pixels": settings.max_image_pixels,
            "max_images": settings.max_images,
            "max_question_chars": settings.max_question_chars,
            "max_new_tokens": settings.max_new_tokens,
            "max_new_tokens_limit": settings.max_new_tokens_limit,
            "detail": settings.detail,
            "accepted": list(ACCEPTED),
        },
    )


def _base64_bytes(file_bytes: int) -> int:
    """Room for one file as base64 text and the fields around it."""
    return file_bytes * 4 // 3 + MIB


def _origins(service: Service) -> tuple[str, ...]:
    return tuple(origin.strip() for origin in service.settings.cors_origins.split(",") if origin.strip())


def _sockets(app: Flask, service: Service) -> SocketIO:
    allowed = _origins(service)
    # Room for any picture within the upload limit: events.py refuses what is over 1 MB, with a message. What is over
    # this limit closes the connection.
    max_bytes = _base64_bytes(service.settings.max_upload_bytes)
    socketio = SocketIO(
        app,
        async_mode="gevent",
        manage_session=False,
        engineio_logger=_faults_only(),
        max_http_buffer_size=max_bytes,
        cors_allowed_origins=lambda origin, environ: guard.same_origin(origin, environ, allowed),
    )
    bound_messages(socketio, max_bytes)
    return socketio


def _faults_only() -> logging.Logger:
    """Engine.IO's log less what it says of clients, which repeats what they have sent; faults have tracebacks."""
    logger = logging.getLogger("qwenvl.web.engineio")
    logger.filters = [lambda record: bool(record.exc_info)]
    return logger


def _tidy_forever(service: Service) -> None:
    while True:
        gevent.sleep(TIDY_EVERY_S)
        service.tidy()
