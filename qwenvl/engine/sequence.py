"""The state of one answer on its way: what was asked, how far it is, what was written. No computing, no policy."""

import time
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from qwenvl.engine.detokenizer import Detokenizer
from qwenvl.engine.kv import KV
from qwenvl.engine.prompt import Prompt
from qwenvl.engine.repetition import Repetition
from qwenvl.engine.speculation import Guesser
from qwenvl.messages import Answer, AnsweredPicture, Piece, Question, Timings, Usage


@dataclass(eq=False)
class Sequence:
    """One answer. `next_position` is the M-RoPE position of the token to come, which is not the number of tokens.

    `name`: what the log calls it.
    `numbers` [prompt]: what each token of the prompt is, with pictures told apart (see `prefix`).
    `forgotten`: one of its pictures was forgotten meanwhile, so nothing it reads may be kept.
    """

    question: Question
    prompt: Prompt
    grids: tuple[tuple[int, int], ...]
    detokenizer: Detokenizer
    guesser: Guesser
    repetition: Repetition
    name: str = "-"
    numbers: np.ndarray | None = None
    kv: KV | None = None
    next_position: int = 0
    logits: Tensor | None = None
    tokens: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    max_tokens: int = 1
    cached_tokens: int = 0
    forgotten: bool = False
    cached_pictures: set[int] = field(default_factory=set)
    started: float = field(default_factory=time.monotonic)
    encoded: float | None = None
    prefilled: float | None = None
    first_piece: float | None = None

    def add_text(self, text: str) -> list[Piece]:
        """Keep what can be printed now; at most one piece."""
        if not text:
            return []
        if self.first_piece is None:
            self.first_piece = time.monotonic()
        self.pieces.append(text)
        return [Piece(len(self.pieces) - 1, text)]

    def answer(self, reason: str, model: str, token_side: int) -> Answer:
        """The answer as it stands, ended for `reason`. `token_side`: pixels on a side of a picture's token."""
        pictures = tuple(
            AnsweredPicture(picture.sha256[:16], w * token_side, h * token_side, h * w, i in self.cached_pictures)
            for i, (picture, (h, w)) in enumerate(zip(self.question.pictures, self.grids, strict=True))
        )
        usage = Usage(len(self.prompt.ids), len(self.tokens), self.cached_tokens)
        return Answer("".join(self.pieces), reason, model, pictures, usage, self._timings())

    def _timings(self) -> Timings:
        now = time.monotonic()
        encoded = self.encoded or now
        prefilled = self.prefilled or max(now, encoded)
        writing = now - prefilled
        return Timings(
            encode_s=round(encoded - self.started, 4),
            prefill_s=round(prefilled - encoded, 4),
            first_token_s=round((self.first_piece or now) - self.started, 4),
            total_s=round(now - self.started, 4),
            tokens_per_s=round(len(self.tokens) / writing, 2) if self.tokens and writing > 0 else 0.0,
        )
