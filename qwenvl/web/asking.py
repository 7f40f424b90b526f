"""What HTTP and Socket.IO share before an answer: the fields of a question, and opening its pictures off the hub.

Knows the service's verbs; knows neither transport.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qwenvl.errors import InvalidRequest
from qwenvl.images import decode_base64
from qwenvl.messages import Question
from qwenvl.service import Service, Shown
from qwenvl.uploads import Upload
from qwenvl.web.mailbox import Bridge, Workshop


@dataclass(frozen=True)
class Web:
    """What handlers need: the service, the way back from its thread, and threads for slow work."""

    service: Service
    bridge: Bridge
    workshop: Workshop


@dataclass(frozen=True)
class Fields:
    """A question as it came in, unchecked. Pictures are file bytes, base64 text, or ids of uploads."""

    images: Sequence[bytes | str] = ()
    image_ids: Sequence[Any] = ()
    question: Any = None
    history: Any = None
    detail: Any = None
    max_new_tokens: Any = None
    temperature: Any = None


@dataclass(frozen=True)
class Prepared:
    """A checked question and the upload ids of its pictures, in their order."""

    question: Question
    image_ids: tuple[str, ...]


def prepare(web: Web, fields: Fields, client: str) -> Prepared:
    """Check a question and open its pictures; raise the error that says what is wrong with it."""
    service = web.service
    service.check_open(client)
    service.check_picture_count(len(fields.images) + len(fields.image_ids))
    options = service.options(
        detail=fields.detail, max_new_tokens=fields.max_new_tokens, temperature=fields.temperature
    )
    shown = [web.workshop.run(_show, service, image_id, options.detail) for image_id in fields.image_ids]
    shown += [web.workshop.run(_take, service, image, options.detail) for image in fields.images]
    question = service.question([one.picture for one in shown], fields.question, fields.history, options)
    return Prepared(question, tuple(one.id for one in shown))


def open_bytes(image: Any) -> bytes:
    """A picture's file from bytes or base64 text."""
    if isinstance(image, (bytes, bytearray)):
        return bytes(image)
    if not isinstance(image, str):
        raise InvalidRequest("image must be a picture's file, or its base64 text.")
    if image.lstrip()[:8].lower().startswith(("http:", "https:", "file:", "ftp:")):
        raise InvalidRequest("Pictures are not fetched from addresses. Send the file itself, or its base64 text.")
    return decode_base64(image)


def keep_upload(service: Service, image: Any) -> Upload:
    """Keep a picture for later questions. Slow."""
    return service.add_upload(open_bytes(image))


def _take(service: Service, image: Any, detail: str) -> Shown:
    return service.take_picture(open_bytes(image), detail)


def _show(service: Service, image_id: Any, detail: str) -> Shown:
    if not isinstance(image_id, str):
        raise InvalidRequest("image_id must be text.")
    return service.show_upload(image_id, detail)
