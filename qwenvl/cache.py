"""A cache that counts bytes: the least recently used entries leave when the budget is spent.

Does not know what it holds. Entries must be immutable, because a hit hands out the very object that was put in.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from qwenvl.native import Lock


@dataclass(frozen=True)
class CacheStats:
    entries: int
    bytes: int
    max_bytes: int
    hits: int
    misses: int


class ByteLRU:
    """Least-recently-used entries within `max_bytes`. One thread writes; others may read `stats()` at any time."""

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = self._hits = self._misses = 0
        self._lock = Lock()

    def __contains__(self, key: Hashable) -> bool:
        """Whether it is there, which neither counts nor makes it the most recently used."""
        return key in self._entries

    def get(self, key: Hashable) -> Any | None:
        """The value, now the most recently used; None when it is not there."""
        with self._lock:
            if key not in self._entries:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Store `value` as `nbytes` bytes. What is larger than the whole budget is not stored."""
        with self._lock:
            self._remove(key)
            if nbytes > self.max_bytes:
                return
            self._entries[key] = (value, nbytes)
            self._bytes += nbytes
            while self._bytes > self.max_bytes:
                self._remove(next(iter(self._entries)))

    def drop(self, predicate: Callable[[Hashable], bool]) -> int:
        """Remove every entry whose key satisfies `predicate`; the number removed."""
        with self._lock:
            doomed = [key for key in self._entries if predicate(key)]
            for key in doomed:
                self._remove(key)
            return len(doomed)

    def stats(self) -> CacheStats:
        """Counters since the start."""
        with self._lock:
            return CacheStats(len(self._entries), self._bytes, self.max_bytes, self._hits, self._misses)

    def _remove(self, key: Hashable) -> None:
        _, nbytes = self._entries.pop(key, (None, 0))
        self._bytes -= nbytes
