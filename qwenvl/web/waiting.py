"""Waiting for an answer over HTTP, and noticing when nobody waits any more.

Knows sockets and mailboxes; knows nothing of requests' fields.
"""

import _socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

from qwenvl.messages import Answer, Failed, Finished, Message
from qwenvl.tickets import Ticket
from qwenvl.web.mailbox import Mailbox
from qwenvl.web.render import sse

LOOK_EVERY_S = 0.5
KEEP_ALIVE_S = 15.0  # proxies close connections on which nothing moves, many after 30 or 60 s
QUIET_S = 60.0  # that a client may take nothing of what it is sent, or send nothing of what it has announced
SOCKET_KEYS = ("gunicorn.socket", "qwenvl.socket", "werkzeug.socket")


class ClientGone(Exception):
    """The client has closed its connection; nobody will read the answer."""


def _socket_of(environ: dict[str, Any]) -> Any:
    return next((environ[key] for key in SOCKET_KEYS if key in environ), None)


def bound_silence(environ: dict[str, Any]) -> None:
    """From now on, reading from the client and writing to it fail when nothing moves for a while."""
    if (sock := _socket_of(environ)) is not None:
        sock.settimeout(QUIET_S)


def client_gone(environ: dict[str, Any]) -> bool:
    """Whether the peer has closed its side, looked up without reading or waiting. False where it cannot be known."""
    sock = _socket_of(environ)
    if sock is None or hasattr(sock, "pending"):  # TLS records hide the end of the stream
        return False
    try:
        # A plain socket object on the same descriptor: gevent's would wait, and this one must not close it.
        plain = _socket.socket(fileno=sock.fileno())
    except OSError:
        return True
    try:
        return plain.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        plain.detach()


def messages(mailbox: Mailbox, environ: dict[str, Any]) -> Iterator[Message | None]:
    """Messages up to the last one, None whenever there is a pause; raise `ClientGone`."""
    looked_at = time.monotonic()
    message = None
    while not isinstance(message, (Finished, Failed)):
        message = mailbox.get(LOOK_EVERY_S)
        if time.monotonic() - looked_at >= LOOK_EVERY_S:
            looked_at = time.monotonic()
            if client_gone(environ):
                raise ClientGone
        yield message


def wait_for_answer(mailbox: Mailbox, ticket: Ticket, environ: dict[str, Any]) -> Answer:
    """The whole answer; raise the error it ended with, or `ClientGone`."""
    try:
        *_, last = messages(mailbox, environ)
    finally:
        ticket.cancel()
    if isinstance(last, Failed):
        raise last.error
    return last.answer


def event_stream(
    mailbox: Mailbox, ticket: Ticket, environ: dict[str, Any], image_ids: Sequence[str]
) -> Iterator[bytes]:
    """Server-sent events as the messages come, with a comment in long pauses."""
    yield b": the answer follows\n\n"
    spoke_at = time.monotonic()
    try:
        for message in messages(mailbox, environ):
            if message is not None:
                yield sse(message, image_ids, ticket.asker.request_id)
            elif time.monotonic() - spoke_at >= KEEP_ALIVE_S:
                yield b": still working\n\n"
            else:
                continue
            spoke_at = time.monotonic()
    except ClientGone:
        return
    finally:
        ticket.cancel()
