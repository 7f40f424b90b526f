"""What gunicorn itself says to requests that it cannot parse: JSON with a code and an id, like every other error.

Knows sockets; knows nothing of the application, which never sees these requests.
"""

import json
import logging
import secrets
from typing import Any

from gunicorn import util

log = logging.getLogger(__name__)

_SENTENCES = {
    414: "The address is too long. Send fields in the body of a POST.",
    431: "The request's headers are too long.",
    500: "Something went wrong on the server. Try again; its log says more.",
}


def answer_in_json() -> None:
    """Put ours in the place of gunicorn's page of HTML. Call it in the process that serves."""
    util.write_error = write_error


def write_error(sock: Any, status: int, reason: str, _message: str) -> None:
    """Answer and let the connection end. The message may hold pieces of the request, so it goes nowhere."""
    request_id, code = secrets.token_hex(8), "internal" if status >= 500 else "invalid_request"
    sentence = _SENTENCES.get(status, "This is not an HTTP request that the server understands.")
    body = json.dumps({"error": sentence, "code": code, "request_id": request_id}).encode()
    log.info("refused id=%s client=- code=%s", request_id, code)
    head = (
        f"HTTP/1.1 {status} {reason}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nX-Request-ID: {request_id}\r\nX-Content-Type-Options: nosniff\r\n\r\n"
    )
    util.write_nonblock(sock, head.encode("latin-1") + body)
