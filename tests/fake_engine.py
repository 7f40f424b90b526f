"""An engine without a model: answers follow from the question and the pictures, slices last as long as it is told.

Certain words in a question make it misbehave, so that tests in another process can ask for trouble too:
`raise` breaks the whole step, `fail` fails this answer alone, `refuse` is refused at the start, `forever` never ends,
`hang` makes every slice of this answer last `hang_s`.
"""

import time
from dataclasses import dataclass, field

from qwenvl import native
from qwenvl.errors import ContextLengthExceeded, Internal
from qwenvl.messages import (
    Answer,
    AnsweredPicture,
    Failed,
    Finished,
    Message,
    Piece,
    Progress,
    Question,
    Timings,
    Usage,
)


def expected_answer(question: Question) -> str:
    """What the fake says: it names every picture and repeats the question."""
    seen = "".join(f"[{picture.sha256[:8]} {picture.width}x{picture.height}] " for picture in question.pictures)
    earlier = f"({len(question.history)} earlier) " if question.history else ""
    return f"{seen}{earlier}{question.text}"


@dataclass(eq=False)
class Handle:
    """One running answer."""

    question: Question
    pieces: list[str]
    stages: list[Progress]
    began_at: float = field(default_factory=time.monotonic)
    said: int = 0
    first_token_s: float = 0.0


class FakeEngine:
    """Honours the engine's interface; see the module's docstring for its moods."""

    def __init__(self, *, slots=1, slice_s=0.0, hang_s=3.0, slices_per_stage=2, piece_chars=4, say=expected_answer):
        self.slots = slots
        self.slice_s = slice_s
        self.hang_s = hang_s
        self.slices_per_stage = slices_per_stage
        self.piece_chars = piece_chars
        self.say = say
        self.running: list[Handle] = []
        self.seen: set[str] = set()
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.steps = 0

    def info(self) -> dict:
        cache = {"entries": len(self.seen), "bytes": 0, "max_bytes": 0, "hits": 0, "misses": len(self.seen)}
        return {
            "model": "fake",
            "engine": "fake",
            "quantization": "none",
            "threads": 1,
            "demo": True,
            "feature_cache": cache,
        }

    def start(self, question: Question, name: str = "-") -> Handle:
        if "refuse" in question.text:
            raise ContextLengthExceeded("This conversation is too long for the fake.")
        text = self.say(question)
        pieces = [text[at : at + self.piece_chars] for at in range(0, len(text), self.piece_chars)]
        handle = Handle(question, pieces, self._stages(question))
        self.started.append(question.text)
        self.running.append(handle)
        return handle

    def step(self) -> list[tuple[Handle, Message]]:
        self.steps += 1
        texts = [handle.question.text for handle in self.running]
        native.sleep(self.hang_s if any("hang" in text for text in texts) else self.slice_s)
        if any("raise" in text for text in texts):
            raise RuntimeError("the fake was told to raise")
        return [(handle, self._advance(handle)) for handle in list(self.running)]

    def cancel(self, handle: Handle, reason: str) -> Answer:
        self.running.remove(handle)
        self.cancelled.append(handle.question.text)
        return self._answer(handle, reason)

    def forget(self, sha256: str) -> None:
        self.seen.discard(sha256)

    def _stages(self, question: Question) -> list[Progress]:
        names = ["encoding"] * bool(question.pictures) + ["prefill"]
        count = self.slices_per_stage
        return [Progress(name, fraction=(k + 1) / count) for name in names for k in range(count)]

    def _advance(self, handle: Handle) -> Message:
        if handle.stages:
            return handle.stages.pop(0)
        if "fail" in handle.question.text:
            self.running.remove(handle)
            return Failed(Internal("The fake failed, as it was told."))
        if handle.said == 0:
            handle.first_token_s = time.monotonic() - handle.began_at
        if handle.said < len(handle.pieces) or "forever" in handle.question.text:
            piece = Piece(handle.said, handle.pieces[handle.said % len(handle.pieces)])
            handle.said += 1
            return piece
        self.running.remove(handle)
        self.seen.update(picture.sha256 for picture in handle.question.pictures)
        return Finished(self._answer(handle, "stop"))

    def _answer(self, handle: Handle, reason: str) -> Answer:
        pictures = tuple(
            AnsweredPicture(picture.sha256, picture.width, picture.height, 64, picture.sha256 in self.seen)
            for picture in handle.question.pictures
        )
        text = "".join(handle.pieces[index % len(handle.pieces)] for index in range(handle.said))
        timings = Timings(first_token_s=handle.first_token_s, total_s=time.monotonic() - handle.began_at)
        return Answer(text, reason, "fake", pictures, Usage(64 * len(pictures) + 8, handle.said, 0), timings)
