"""Keys and values of finished answers, kept so that the next question starts where an earlier one agrees with it.

A prompt is known by one number a token: the id of a word, or a number of its own for each picture, because the
placeholder ids of two pictures are the same. Two prompts share what their numbers share from the start on, and never a
token more. Knows no model and no policy beyond the bytes it may use.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from qwenvl.cache import CacheStats
from qwenvl.engine.kv import KV, KVStore
from qwenvl.engine.prompt import Prompt
from qwenvl.native import Lock

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
    """Least-recently-used prefixes, in pages that they hold together with whoever goes on from them.

    They use at most `max_bytes`, and less when running answers need the room: `make_room` lets the oldest go. One
    thread changes it; others may read `stats()` at any time.
    """

    def __init__(self, store: KVStore, max_bytes: int):
        self.store, self.max_bytes = store, max_bytes
        self._kept: OrderedDict[int, Prefix] = OrderedDict()  # by number of arrival, the least recently used first
        self._pages: Counter[int] = Counter()
        self._arrivals = self._hits = self._misses = 0
        self._lock = Lock()

    def find(self, numbers: np.ndarray, running: Iterable[Prefix] = ()) -> tuple[KV | None, int]:
        """The keys and values that agree longest with a prompt, here or in a running answer, and for how many tokens.

        At least one token is left over: the one whose logits are wanted.
        """
        best, key, length = self._longest(numbers, running)
        with self._lock:
            if length < LEAST_TOKENS:
                self._misses += 1
                return None, 0
            self._hits += 1
            if key is not None:
                self._kept.move_to_end(key)
        return best.kv, length

    def length(self, numbers: np.ndarray, running: Iterable[Prefix] = ()) -> int:
        """For how many tokens `find` would have keys and values now; looking is not using."""
        length = self._longest(numbers, running)[2]
        return length if length >= LEAST_TOKENS else 0

    def _longest(self, numbers: np.ndarray, running: Iterable[Prefix]) -> tuple[Prefix | None, int | None, int]:
        candidates = [*((prefix, key) for key, prefix in self._kept.items()), *((prefix, None) for prefix in running)]
        best, key = max(candidates, key=lambda found: found[0].common(numbers), default=(None, None))
        return best, key, 0 if best is None else min(best.common(numbers), len(numbers) - 1)

    def put(self, prefix: Prefix) -> None:
        """Keep what a sequence holds, which writes no more. Prefixes that it wholly contains leave."""
        if prefix.kv.length < LEAST_TOKENS:
            return
        self._drop(lambda old: old.kv.length == old.common(prefix.numbers) <= prefix.kv.length)
        kv = self.store.hold(prefix.kv)
        with self._lock:
            self._arrivals += 1
            self._kept[self._arrivals] = Prefix(prefix.numbers, prefix.pictures, kv)
            self._pages.update(kv.pages)
        while self._bytes() > self.max_bytes:
            self._drop_oldest()

    def make_room(self, pages: int) -> bool:
        """Let the oldest prefixes go until so many pages are free; False if without any of them there are fewer."""
        while self.store.free_pages < pages and self._kept:
            self._drop_oldest()
        return self.store.free_pages >= pages

    def forget(self, sha256: str) -> None:
        """Drop everything that has seen a picture."""
        self._drop(lambda prefix: sha256 in prefix.pictures)

    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(len(self._kept), self._bytes(), self.max_bytes, self._hits, self._misses)

    def _bytes(self) -> int:
        return len(self._pages) * self.store.page_bytes

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._kept.values()))
        self._drop(lambda prefix: prefix is oldest)

    def _drop(self, doomed) -> None:
        with self._lock:
            for key, prefix in [(key, prefix) for key, prefix in self._kept.items() if doomed(prefix)]:
                del self._kept[key]
                self._pages -= Counter(prefix.kv.pages)
                prefix.kv.release()


def token_numbers(prompt: Prompt, picture_numbers: Sequence[int]) -> np.ndarray:
    """A number for each token of a prompt; all tokens of a picture have that picture's, which is below zero."""
    numbers = np.array(prompt.ids, dtype=np.int64)
    grids = [segment for segment in prompt.segments if not isinstance(segment, int)]
    for start, (h, w), number in zip(prompt.picture_starts, grids, picture_numbers, strict=True):
        numbers[start : start + h * w] = number
    return numbers
