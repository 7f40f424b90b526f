"""What crosses the borders between web, service and engine: frozen values, no behaviour, no tensors.

A question goes down; `Progress`, `Piece` and then exactly one of `Finished` or `Failed` come back up.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qwenvl.errors import QwenVLError

if TYPE_CHECKING:
    from qwenvl.images import Picture

DEFAULT_QUESTION = "请描述这张图片"


@dataclass(frozen=True)
class Options:
    """How to answer. `temperature` 0 is greedy; `max_new_tokens` counts model tokens."""

    detail: str = "balanced"
    max_new_tokens: int = 512
    temperature: float = 0.0


@dataclass(frozen=True)
class Turn:
    """One earlier message of a conversation. `role` is `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True)
class Question:
    """A checked question. Pictures belong to the first user turn of the conversation, in this order."""

    pictures: tuple["Picture", ...]
    text: str
    history: tuple[Turn, ...] = ()
    options: Options = Options()


@dataclass(frozen=True)
class Progress:
    """A sign of life before the first piece. `stage` is `queued`, `encoding` or `prefill`; `fraction` runs 0 to 1."""

    stage: str
    fraction: float = 0.0
    position: int = 0
    eta_s: float | None = None


@dataclass(frozen=True)
class Transfer:
    """How far a download is: bytes, and bytes a second over the last seconds."""

    bytes_done: int
    bytes_total: int
    rate_bytes_s: float


@dataclass(frozen=True)
class Piece:
    """The next printable text of the answer: whole characters, `index` counting from 0."""

    index: int
    text: str


@dataclass(frozen=True)
class AnsweredPicture:
    """What became of one picture: the size and number of tokens the model saw."""

    id: str
    width: int
    height: int
    tokens: int
    cached: bool


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True)
class Timings:
    """Seconds since the question came in, by stage, and the speed of writing."""

    queue_s: float = 0.0
    encode_s: float = 0.0
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    total_s: float = 0.0
    tokens_per_s: float = 0.0


@dataclass(frozen=True)
class Answer:
    """A whole answer, with the fields of `/upload`. `finish_reason`: stop, length, repetition, timeout or cancelled."""

    response: str
    finish_reason: str
    model: str
    images: tuple[AnsweredPicture, ...] = ()
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)


@dataclass(frozen=True)
class Finished:
    answer: Answer


@dataclass(frozen=True)
class Failed:
    error: QwenVLError


Message = Progress | Piece | Finished | Failed
