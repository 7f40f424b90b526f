"""What protects every answer: same-origin checks, bounded request bodies, security headers, errors as JSON.

Knows HTTP; knows no route.
"""

import logging
import re
import secrets
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import gevent
from flask import Flask, Response, current_app, g, jsonify, request
from werkzeug.exceptions import HTTPException

from qwenvl.errors import Internal, QwenVLError
from qwenvl.room import Room
from qwenvl.web.bodies import BoundedRequest
from qwenvl.web.waiting import bound_silence

log = logging.getLogger(__name__)

MAX_FIELD_BYTES = 1024 * 1024  # one form field that is not a file
DRAIN_BYTES, DRAIN_S = 512 * 1024 * 1024, 60.0

# Codes for what goes wrong before any handler runs; everything a handler raises brings its own.
_HTTP_CODES = {403: "forbidden_origin", 404: "not_found", 405: "method_not_allowed", 413: "image_file_too_large"}
_SENTENCES = {
    403: "This page may not use this server. Its operator can allow it with QWENVL_CORS_ORIGINS.",
    404: "There is nothing at this address.",
    405: "This address does not take this method.",
    413: f"The request is too large. Send fewer or smaller pictures; a text field may have {MAX_FIELD_BYTES} bytes.",
    415: "This content type is not understood. Send multipart/form-data or application/json.",
}


def same_origin(origin: str | None, environ: Mapping[str, str], allowed: tuple[str, ...] = ()) -> bool:
    """Whether a browser's page of `origin` may use this server: our own page, under whatever name, or one allowed.

    A proxy may change the scheme and the Host header, so only names and ports are compared, with `X-Forwarded-Host`
    too; and browsers say themselves, in a header that pages cannot forge, when page and address are one origin.
    """
    if not origin or "*" in allowed or origin in allowed or environ.get("HTTP_SEC_FETCH_SITE") == "same-origin":
        return True
    forwarded = environ.get("HTTP_X_FORWARDED_HOST", "").split(",")[0].strip()
    scheme = urlsplit(origin).scheme
    hosts = {_host_and_port(f"{scheme}://{host}") for host in (environ.get("HTTP_HOST"), forwarded) if host}
    return _host_and_port(origin) in hosts - {None}


def _host_and_port(url: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and port else None


def protect(app: Flask, allowed_origins: tuple[str, ...], rejected: Callable[[str], None], receiving: Room) -> None:
    """Install the guards on an application. `rejected(code)` hears of every request that was refused.

    `receiving` is the room for all requests' bodies.
    """
    app.request_class = BoundedRequest
    app.register_error_handler(QwenVLError, _known_error)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unknown_error)

    @app.before_request
    def check_request():
        g.request_id = secrets.token_hex(8)
        bound_silence(request.environ)
        request.count_body(receiving)
        request.max_content_length = _max_body_bytes(request.mimetype)
        origin = request.headers.get("Origin")
        unsafe = request.method not in ("GET", "HEAD", "OPTIONS")
        if unsafe and not same_origin(origin, request.environ, allowed_origins):
            return _json_error(_SENTENCES[403], _HTTP_CODES[403], 403)
        return None

    @app.after_request
    def finish(response: Response) -> Response:
        _drain(request.counted.stream if request.counted else None)
        request.forget_body()
        if "error_code" in g and "taken" not in g:  # how a question ends that was taken in is noted elsewhere
            rejected(g.error_code)
            log.info("refused id=%s client=%s code=%s", g.request_id, g.get("client", "-"), g.error_code)
        _add_headers(response, allowed_origins)
        return response


def _max_body_bytes(mimetype: str) -> int:
    """Files are read in pieces; other bodies are parsed whole, so they may be smaller only."""
    if mimetype == "application/x-www-form-urlencoded":
        return MAX_FIELD_BYTES
    config = current_app.config
    return config["MAX_CONTENT_LENGTH"] if mimetype == "multipart/form-data" else config["MAX_JSON_BYTES"]


def _drain(stream) -> None:
    """Read what is left of the body: a client that is still sending would otherwise never see our answer."""
    left = DRAIN_BYTES if stream is not None else 0
    try:
        with gevent.Timeout(DRAIN_S, False):
            while left > 0 and (data := stream.read(min(left, 64 * 1024))):
                left -= len(data)
    except (OSError, ValueError):
        return  # the client has gone


def _add_headers(response: Response, allowed_origins: tuple[str, ...]) -> None:
    headers = response.headers
    headers["X-Request-ID"] = g.get("request_id", "")
    headers["X-Content-Type-Options"] = "nosniff"
    headers["X-Frame-Options"] = "DENY"
    headers["Referrer-Policy"] = "no-referrer"
    headers["Content-Security-Policy"] = _content_security_policy(request.host)
    origin = request.headers.get("Origin")
    if origin and ("*" in allowed_origins or origin in allowed_origins):
        headers["Access-Control-Allow-Origin"] = origin
        headers["Access-Control-Allow-Methods"] = "GET, POST, DELETE, OPTIONS"
        headers["Access-Control-Allow-Headers"] = "Content-Type, Authorization"
        headers["Access-Control-Expose-Headers"] = "X-Request-ID, Retry-After"
        headers.add("Vary", "Origin")


def _content_security_policy(host: str) -> str:
    """No inline scripts, nothing from elsewhere. Older browsers do not count WebSockets as 'self': name them."""
    sockets = f" ws://{host} wss://{host}" if re.fullmatch(r"[\w.\-:\[\]]+", host) else ""
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
        f"connect-src 'self'{sockets}; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


def _known_error(error: QwenVLError):
    response, status = _json_error(str(error), error.code, error.status)
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response, status


def _http_error(error: HTTPException):
    status = error.code or 500
    if status < 400:
        return error
    sentence = _SENTENCES.get(status) or error.description or "The request cannot be answered."
    code = _HTTP_CODES.get(status, "invalid_request" if status < 500 else "internal")
    response, status = _json_error(sentence, code, status)
    if "Allow" in (headers := dict(error.get_headers())):
        response.headers["Allow"] = headers["Allow"]
    return response, status


def _unknown_error(error: Exception):
    log.error("Request %s failed.", g.get("request_id", ""), exc_info=error)
    return _known_error(Internal("Something went wrong on the server. Try again; its log says more."))


def _json_error(sentence: str, code: str, status: int):
    g.error_code = code
    return jsonify({"error": sentence, "code": code, "request_id": g.get("request_id", "")}), status
