"""The HTTP side: upload-and-ask, pictures, health and the page. Parse, call one verb of the service, render.

Knows nothing of models. Long answers go out as server-sent events, or whole; either way a client that leaves is noticed
and its answer cancelled.
"""

import json
from typing import Any

from flask import Blueprint, Response, current_app, g, jsonify, render_template, request

from qwenvl.errors import InvalidRequest
from qwenvl.metrics import CONTENT_TYPE
from qwenvl.tickets import Asker
from qwenvl.web.asking import Fields, Prepared, Web, keep_upload, prepare
from qwenvl.web.mailbox import Mailbox
from qwenvl.web.render import answer_fields
from qwenvl.web.waiting import ClientGone, event_stream, wait_for_answer

bp = Blueprint("http", __name__)

FILE_FIELDS = ("image", "images", "file")
JSON_TYPES = ("application/json", "text/json")


def web() -> Web:
    """The application's service and its way back from other threads."""
    return current_app.extensions["qwenvl"]


@bp.get("/")
def page():
    """The page, asked for by a browser."""
    return render_template("index.html")


@bp.get("/health")
def health():
    """How the server is. Asked for by containers, proxies and the page, at any time."""
    ready, fields = web().service.health()
    response = jsonify({**fields, "limits": current_app.config["LIMITS"]})
    response.headers["Cache-Control"] = "no-store"
    if not ready:
        response.status_code = 503
        response.headers["Retry-After"] = "5"
    return response


@bp.get("/metrics")
def metrics():
    """Counters and times, asked for by Prometheus."""
    return Response(web().service.metrics.render(), content_type=CONTENT_TYPE)


@bp.post("/upload")
def upload():
    """A picture and a question in one request, from curl and scripts. Answers whole, or streams when asked to."""
    streamed = wants_stream()
    prepared = prepare(web(), question_fields(), g.client)
    forget_body()
    mailbox = Mailbox(web().bridge)
    ticket = web().service.ask(prepared.question, mailbox.put, Asker(g.client, g.request_id))
    g.taken = True
    if streamed:
        return stream(mailbox, ticket, prepared)
    answer = wait_for_answer(mailbox, ticket, request.environ)
    return jsonify({"request_id": g.request_id, **answer_fields(answer, prepared.image_ids)})


@bp.post("/images")
def add_image():
    """A picture for later questions, sent by the page as soon as it is chosen."""
    images = question_fields().images
    if len(images) != 1:
        raise InvalidRequest("Send exactly one picture, in the field `image`.")
    kept = web().workshop.run(keep_upload, web().service, images[0])
    return jsonify({"id": kept.id, "width": kept.width, "height": kept.height}), 201


@bp.delete("/images/<image_id>")
def forget_image(image_id: str):
    """Forget a picture, sent by the page when it is removed."""
    web().service.forget_upload(image_id)
    return "", 204


@bp.app_errorhandler(ClientGone)
def client_gone(_error):
    """Nobody reads this answer; the log shows why it is empty."""
    return "", 499


def stream(mailbox: Mailbox, ticket, prepared: Prepared) -> Response:
    """The answer as server-sent events, uncompressed and unbuffered."""
    body = event_stream(mailbox, ticket, request.environ, prepared.image_ids)
    response = Response(body, mimetype="text/event-stream")
    response.headers["Cache-Control"] = "no-cache, no-transform"
    response.headers["X-Accel-Buffering"] = "no"
    response.call_on_close(ticket.cancel)
    return response


def forget_body() -> None:
    """The question is ready: what it was read from would only lie in memory while it is answered."""
    g.pop("values", None)
    request.forget_body()


def wants_stream() -> bool:
    flag = str(_values().get("stream", request.args.get("stream", ""))).lower()
    accepts = [kind.lower() for kind, _ in request.accept_mimetypes]
    return flag in ("1", "true", "yes", "on") or "text/event-stream" in accepts


def question_fields() -> Fields:
    """The fields of a form or of a JSON body, unchecked."""
    values = _values()
    if values.get("image_url"):
        raise InvalidRequest("Pictures are not fetched from addresses. Send the file itself in the field `image`.")
    return Fields(
        images=[*_files(), *_listed(values, *FILE_FIELDS)],
        image_ids=_listed(values, "image_id", "image_ids"),
        question=values.get("question") or values.get("prompt"),
        history=_parsed(values.get("history")),
        detail=values.get("detail"),
        max_new_tokens=values.get("max_new_tokens"),
        temperature=values.get("temperature"),
    )


def _values() -> dict[str, Any]:
    """Everything but files: a JSON body's object, or the form's fields (lists where a field came several times)."""
    if "values" not in g:
        g.values = _read_values()
    return g.values


def _read_values() -> dict[str, Any]:
    if request.mimetype not in JSON_TYPES:
        lists = request.form.to_dict(flat=False)
        return {name: values[0] if len(values) == 1 else values for name, values in lists.items()}
    try:
        values = json.loads(request.get_data(cache=False))
    except (ValueError, RecursionError):
        raise InvalidRequest("The body is not valid JSON.") from None
    if not isinstance(values, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return values


def _files() -> list[bytes]:
    """The pictures' files. A file in a field of another name is an error, or it would be left out without a word."""
    for name in request.files:
        if name not in FILE_FIELDS:
            raise InvalidRequest("A file came in an unknown field. Send pictures in the field `image`.")
    files = [file for name in FILE_FIELDS for file in request.files.getlist(name)]
    # Browsers send a nameless empty part for a file input in which nothing was chosen.
    return [data for file in files if (data := file.read()) or file.filename]


def _listed(values: dict[str, Any], *names: str) -> list[Any]:
    """The values under several names, single or in lists, without the empty ones."""
    found = []
    for name in names:
        value = values.get(name)
        found += value if isinstance(value, list) else [value]
    return [value for value in found if value is not None and value != ""]


def _parsed(history: Any) -> Any:
    """Forms carry a conversation as JSON text."""
    if not isinstance(history, str) or not history.strip():
        return history or None
    try:
        return json.loads(history)
    except (ValueError, RecursionError):
        raise InvalidRequest("history is not valid JSON.") from None
