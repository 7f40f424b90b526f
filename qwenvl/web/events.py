"""The Socket.IO side: a page asks, reads the answer as it is written, stops it, and resumes after a lost connection.

Knows nothing of models. Each handler parses and calls one verb; `kept` renders the answer. A page says who it is by
`auth: {client_id}`, a random text that only it knows; only the same page may stop or resume an answer. Where keys are
needed it also sends `auth: {api_key}`.
"""

import logging
import re
import secrets
from dataclasses import dataclass
from typing import Any

import gevent
from flask import request
from flask_socketio import ConnectionRefusedError, SocketIO

from qwenvl.errors import ImageFileTooLarge, Internal, InvalidRequest, QwenVLError
from qwenvl.messages import Failed, Finished
from qwenvl.tickets import Asker
from qwenvl.web.access import greet
from qwenvl.web.asking import Fields, Web, prepare
from qwenvl.web.kept import KeptAnswer, KeptAnswers
from qwenvl.web.mailbox import Mailbox
from qwenvl.web.render import error_fields

log = logging.getLogger(__name__)

MAX_SOCKET_IMAGE_BYTES = 1_000_000  # larger ones go by HTTP, where they do not delay everything else on the socket
MAX_ID_CHARS = 128
REFUSED_S = 2.0  # after which a connection is closed that was refused and has not gone by itself


@dataclass(frozen=True)
class Page:
    """Who is behind a connection: the page's own secret, by which it finds its answers, and the client it counts as."""

    key: str
    client: str


class Events:
    """The handlers, and which page is behind which connection."""

    def __init__(self, socketio: SocketIO, web: Web, resume_grace_s: float):
        self._socketio = socketio
        self._web = web
        self._pages: dict[str, Page] = {}
        self._kept = KeptAnswers(self._send, resume_grace_s)
        for name in ("connect", "disconnect", "ask_question", "stop", "resume"):
            socketio.on_event(name, getattr(self, f"on_{name}"))
        socketio.on_error_default(self._refuse)

    def on_connect(self, auth: Any = None) -> None:
        """Sent by Socket.IO when a page opens, and again after a lost connection."""
        try:
            client = greet(self._web.service, auth)
        except ConnectionRefusedError:
            eio = self._socketio.server.eio
            stranger = self._socketio.server.manager.eio_sid_from_sid(request.sid, request.namespace)
            gevent.spawn_later(REFUSED_S, eio.disconnect, stranger)
            raise
        client_id = auth.get("client_id") if isinstance(auth, dict) else None
        if not isinstance(client_id, str) or not 8 <= len(client_id) <= MAX_ID_CHARS:
            client_id = secrets.token_urlsafe(18)  # nobody can resume under it
        self._pages[request.sid] = Page(client_id, client)

    def on_disconnect(self, reason: str = "") -> None:
        """Sent by Socket.IO when a page leaves (for good) or its connection is lost (it may come back)."""
        self._pages.pop(request.sid, None)
        self._kept.leave(request.sid, for_good=reason == self._socketio.server.reason.CLIENT_DISCONNECT)

    def on_ask_question(self, *args: Any) -> None:
        """Sent by the page for every question. Ends with one `answer_done` or `answer_error`."""
        data = _object(args)
        page = self._pages[request.sid]
        self._web.service.count_request(page.client)
        kept = self._kept.open(page.key, _request_id(data), request.sid)
        try:
            self._answer(kept, data, page.client)
        finally:
            self._kept.close(page.key, kept)

    def on_stop(self, *args: Any) -> None:
        """Sent by the page's stop button. The answer ends with the text so far; unknown ones have ended already."""
        kept = self._kept.find(self._pages[request.sid].key, _request_id(_object(args)))
        if kept is not None:
            kept.stop()

    def on_resume(self, *args: Any) -> None:
        """Sent by the page after a reconnection: replays the pieces from `from_index` and goes on from there."""
        data = _object(args)
        from_index = data.get("from_index", 0)
        if isinstance(from_index, bool) or not isinstance(from_index, int) or from_index < 0:
            raise InvalidRequest("from_index must be a whole number, 0 or more.")
        kept = self._kept.find(self._pages[request.sid].key, _request_id(data))
        if kept is None:
            raise InvalidRequest("This answer is not kept (any more). Ask again.")
        kept.attach(request.sid, from_index)

    def _answer(self, kept: KeptAnswer, data: dict[str, Any], client: str) -> None:
        mailbox = Mailbox(self._web.bridge)
        try:
            prepared = prepare(self._web, _fields(data), client)
            kept.image_ids = prepared.image_ids
            asker = Asker(client, _name_for_log(kept.request_id))
            kept.run_as(self._web.service.ask(prepared.question, mailbox.put, asker))
        except Exception as error:
            kept.accept(Failed(self._reject(error, kept.request_id, client)))
            return
        message = None
        while not isinstance(message, (Finished, Failed)):
            message = mailbox.get()
            kept.accept(message)

    def _refuse(self, error: Exception) -> None:
        """A handler raised: the page is told, whatever it had sent."""
        args = request.event["args"]
        request_id = args[0].get("request_id") if args and isinstance(args[0], dict) else None
        request_id = request_id if isinstance(request_id, str) else None
        client = self._pages[request.sid].client if request.sid in self._pages else "-"
        error = self._reject(error, request_id or "-", client)
        self._send("answer_error", {"request_id": request_id, **error_fields(error)}, request.sid)

    def _reject(self, error: Exception, request_id: str, client: str) -> QwenVLError:
        """Count and log a refusal; what the page may be told."""
        name = _name_for_log(request_id)
        if not isinstance(error, QwenVLError):
            log.error("Request %s failed in a socket's handler.", name, exc_info=error)
            error = Internal("Something went wrong on the server. Try again; its log says more.")
        self._web.service.metrics.rejected(error.code)
        log.info("refused id=%s client=%s code=%s", name, client, error.code)
        return error

    def _send(self, event: str, fields: dict[str, Any], sid: str) -> None:
        self._socketio.emit(event, fields, to=sid)


def _name_for_log(request_id: str) -> str:
    """The page chose it, so it may hold anything, line breaks too."""
    return request_id if re.fullmatch(r"[\w.:-]{1,128}", request_id, re.ASCII) else "unprintable"


def _object(args: tuple) -> dict[str, Any]:
    if len(args) != 1 or not isinstance(args[0], dict):
        raise InvalidRequest("Send one object with named fields.")
    return args[0]


def _request_id(data: dict[str, Any]) -> str:
    request_id = data.get("request_id")
    if not isinstance(request_id, str) or not 1 <= len(request_id) <= MAX_ID_CHARS:
        raise InvalidRequest(f"request_id must be text of 1 to {MAX_ID_CHARS} characters.")
    return request_id


def _fields(data: dict[str, Any]) -> Fields:
    """The fields of `ask_question`, unchecked but for the size of a picture sent on the socket itself."""
    if data.get("image_url"):
        raise InvalidRequest("Pictures are not fetched from addresses. Send the file to POST /images.")
    images = _listed(data, "image", "images")
    if sum(_size(image) for image in images) > MAX_SOCKET_IMAGE_BYTES:
        raise ImageFileTooLarge(
            "Pictures over 1 MB do not go by socket. Send the file to POST /images and its id here."
        )
    return Fields(
        images=images,
        image_ids=_listed(data, "image_id", "image_ids"),
        question=data.get("question"),
        history=data.get("history"),
        detail=data.get("detail"),
        max_new_tokens=data.get("max_new_tokens"),
        temperature=data.get("temperature"),
    )


def _size(image: Any) -> float:
    """Bytes of a picture; base64 text carries three in four characters."""
    if isinstance(image, str):
        return len(image) * 3 / 4
    return len(image) if isinstance(image, (bytes, bytearray)) else 0


def _listed(data: dict[str, Any], *names: str) -> list[Any]:
    found: list[Any] = []
    for name in names:
        value = data.get(name)
        found += value if isinstance(value, list) else [value]
    return [value for value in found if value is not None and value != "" and value != b""]
