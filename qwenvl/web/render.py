"""Messages and errors as the fields that contracts promise, the same for JSON, SSE and Socket.IO.

Knows field names; knows neither Flask nor who asked.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from qwenvl.errors import QwenVLError
from qwenvl.messages import Answer, Failed, Finished, Message, Piece, Progress


def progress_fields(progress: Progress) -> dict[str, Any]:
    return {
        "stage": progress.stage,
        "position": progress.position,
        "fraction": round(progress.fraction, 4),
        "eta_s": progress.eta_s,
    }


def piece_fields(index: int, text: str) -> dict[str, Any]:
    return {"token": text, "index": index}


def error_fields(error: QwenVLError) -> dict[str, Any]:
    fields = {"error": str(error), "code": error.code}
    return fields if error.retry_after_s is None else {**fields, "retry_after_s": error.retry_after_s}


def answer_fields(answer: Answer, image_ids: Sequence[str] = ()) -> dict[str, Any]:
    """The whole answer. `image_ids` are the upload ids of its pictures, in their order."""
    fields = dataclasses.asdict(answer)
    for image, image_id in zip(fields["images"], image_ids, strict=False):
        image["id"] = image_id
    fields["images"] = list(fields["images"])
    fields["timings"] = {name: round(value, 4) for name, value in fields["timings"].items()}
    return fields


def to_json(fields: dict[str, Any]) -> str:
    """JSON on one line, its text as people wrote it."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def sse(message: Message, image_ids: Sequence[str], request_id: str) -> bytes:
    """One server-sent event. Pieces and the whole answer are `data` alone; progress and errors also carry a name.

    Both kinds of end carry the request's id.
    """
    match message:
        case Piece(index, text):
            name, fields = "", piece_fields(index, text)
        case Progress():
            name, fields = "event: progress\n", progress_fields(message)
        case Finished(answer):
            name, fields = "", {"request_id": request_id, **answer_fields(answer, image_ids)}
        case Failed(error):
            name, fields = "event: error\n", {"request_id": request_id, **error_fields(error)}
    return f"{name}data: {to_json(fields)}\n\n".encode("utf-8", "replace")
