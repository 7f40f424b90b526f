"""Keys and values of finished answers, kept so that the next question starts where an earlier one agrees with it.

A prompt is known by one number a token: the id of a word, or a number of its own for each picture, because the
placeholder ids of two pictures are the same. Two prompts share what their numbers share from the start on, and never a
token more. Knows no model and no policy beyond the bytes it may use.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from qwenvl.cache import ByteLRU, CacheStats
from qwenvl.engine.kv import KV
from qwenvl.engine.prompt import Prompt

# below this, looking the tokens up costs about what computing them does
LEAST_TOKENS = 16


@dataclass(frozen=True, eq=False)
class Prefix:
    """What `kv` holds: a number for each token [n], and the SHA-256 of every picture in it."""

    numbers: np.ndarray
    pictures: frozenset[str]
    kv: KV

    def common(self, numbers: np.ndarray) -> int:
        """Tokens from the start that are the same in both, as far as they are computed."""
        n = min(self.kv.length, len(self.numbers), len(numbers))
        different = np.flatnonzero(self.numbers[:n] != numbers[:n])
        return int(different[0]) if len(different) else n


class PrefixCache:
    """Least-recently-used prefixes within `max_bytes`. What is found is copied out, so nothing in use is ever lost."""

    def __init__(self, max_bytes: int):
        self._store = ByteLRU(max_bytes)

    def find(self, numbers: np.ndarray, running: Iterable[Prefix] = ()) -> tuple[KV | None, int]:
        """The keys and values that agree longest with a prompt, here or in a running answer, and for how many tokens.

        At least one token is left over: the one whose logits are wanted.
        """
        kept = self._store.find(lambda prefix: self._useful(prefix, numbers))
        candidates = [*running] if kept is None else [kept, *running]
        best = max(candidates, key=lambda prefix: prefix.common(numbers), default=None)
        length = 0 if best is None else self._useful(best, numbers)
        return (best.kv, length) if length else (None, 0)

    @staticmethod
    def _useful(prefix: Prefix, numbers: np.ndarray) -> int:
        length = min(prefix.common(numbers), len(numbers) - 1)
        return length if length >= LEAST_TOKENS else 0

    def put(self, prefix: Prefix) -> None:
        """Keep a copy without the unused room. Prefixes that it wholly contains are not needed any more."""
        if prefix.kv.nbytes_used > self._store.max_bytes or prefix.kv.length < LEAST_TOKENS:
            return
        self._store.drop(lambda old: old.kv.length == old.common(prefix.numbers) <= prefix.kv.length)
        kv = prefix.kv.clone(prefix.kv.length)
        self._store.put(Prefix(prefix.numbers, prefix.pictures, kv), None, kv.nbytes_used)

    def forget(self, sha256: str) -> None:
        """Drop everything that has seen a picture."""
        self._store.drop(lambda prefix: sha256 in prefix.pictures)

    def stats(self) -> CacheStats:
        return self._store.stats()


def token_numbers(prompt: Prompt, picture_numbers: Sequence[int]) -> np.ndarray:
    """A number for each token of a prompt; all tokens of a picture have that picture's, which is below zero."""
    numbers = np.array(prompt.ids, dtype=np.int64)
    grids = [segment for segment in prompt.segments if not isinstance(segment, int)]
    for start, (h, w), number in zip(prompt.picture_starts, grids, picture_numbers, strict=True):
        numbers[start : start + h * w] = number
    return numbers
