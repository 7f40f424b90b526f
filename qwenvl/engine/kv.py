"""Keys and values of every sequence, in pages of one store that is laid out once. Knows no model and no policy.

A page is room for `PAGE_TOKENS` tokens in every layer. Sequences that begin alike hold the same pages: a page counts
its holders and is free again when the last one lets go. A page that is held twice is full or never written again, so
nobody needs a copy of it. Legend: L layers, G key/value heads, C tokens of the whole store, D head width.

Pairs are bfloat16 in the order in which this CPU's products take them (kernels/store.py). In int8 each token's key and
value of each head is D whole numbers and one float32 scale that they are multiplied with.
"""

from __future__ import annotations

from bisect import bisect_left

import torch
from torch import Tensor

from qwenvl.kernels.store import PAGE as PAGE_TOKENS
from qwenvl.kernels.store import PAIRS


class KVStore:
    """Keys and values [L, G, C, D] in `dtype`: about `max_bytes`, but always room for one of `least_tokens`.

    In int8 their scales [L, G, C] lie beside them; else there are none. As `pairs`, bfloat16 is [L, G, C, D / 2].

    Memory that no sequence has touched yet is only reserved. Free pages are given out lowest first, side by side where
    that can be, because neighbouring pages can be read as one piece.
    """

    def __init__(
        self, layers: int, heads: int, head_dim: int, max_bytes: int, dtype: torch.dtype, *, least_tokens: int,
        pairs: bool = False,
    ):  # fmt: skip
        self.dtype = dtype
        scale_bytes = torch.float32.itemsize if dtype == torch.int8 else 0
        self.page_bytes = 2 * layers * heads * PAGE_TOKENS * (head_dim * dtype.itemsize + scale_bytes)
        # one to spare: a sequence that fills the store may have to copy its shared last page
        self.page_count = max(max_bytes // self.page_bytes, pages_for(least_tokens) + 1)
        kept, width = (PAIRS, head_dim // 2) if pairs else (dtype, head_dim)
        self.keys = torch.empty(layers, heads, self.page_count * PAGE_TOKENS, width, dtype=kept)
        self.values = torch.empty_like(self.keys)
        made = torch.empty(2, *self.keys.shape[:3]) if scale_bytes else None
        self.scales = None if made is None else (made[0], made[1])  # of keys and of values
        self._holders = [0] * self.page_count
        self.free_pages = self.page_count

    def scales_of(self, layer: int) -> tuple[Tensor, Tensor] | None:
        """Those of a layer's keys and values [G, C]; None where they have none."""
        return self.scales and (self.scales[0][layer], self.scales[1][layer])

    def begin(self, tokens: int, shared: KV | None = None, length: int = 0) -> KV | None:
        """Room for `tokens` tokens, of which the first `length` are those of `shared`; None if there is no room now."""
        whole, rest = divmod(length, PAGE_TOKENS)
        old = shared.pages[:whole] if shared is not None else []
        wanted = pages_for(tokens) - whole
        if wanted > self.free_pages:
            return None
        self._hold(old)
        fresh = self._take(wanted, after=old[-1] if old else -1)
        if rest:
            self._copy_page(shared.pages[whole], fresh[0])
        return KV(self, old + fresh, length)

    def hold(self, kv: KV) -> KV:
        """The tokens of a sequence, for somebody else to keep; it must not write behind them any more."""
        pages = kv.pages[: pages_for(kv.length)]
        self._hold(pages)
        return KV(self, pages, kv.length)

    def let_go(self, pages: list[int]) -> None:
        for page in pages:
            self._holders[page] -= 1
            self.free_pages += self._holders[page] == 0

    def _hold(self, pages: list[int]) -> None:
        for page in pages:
            self._holders[page] += 1

    def _take(self, count: int, after: int) -> list[int]:
        """Free pages: right behind `after`, else the lowest run that is long enough, else the lowest ones there are."""
        free = [page for page, holders in enumerate(self._holders) if not holders]
        behind = bisect_left(free, after + 1)
        starts = range(len(free)) if free[behind : behind + 1] != [after + 1] else (behind, *range(len(free)))
        start = next((i for i in starts if _is_run(free[i : i + count], count)), 0)
        taken = free[start : start + count]
        self._hold(taken)
        self.free_pages -= count
        return taken

    def _copy_page(self, source: int, target: int) -> None:
        a, b = (slice(page * PAGE_TOKENS, (page + 1) * PAGE_TOKENS) for page in (source, target))
        for tensor in (self.keys, self.values, *(self.scales or ())):
            tensor[:, :, b] = tensor[:, :, a]


class KV:
    """One sequence's keys and values: `length` tokens are in use of what its pages have room for."""

    def __init__(self, store: KVStore, pages: list[int], length: int):
        self.store, self.pages, self.length = store, pages, length
        self.table = torch.tensor(pages, dtype=torch.int32)

    @property
    def capacity(self) -> int:
        return len(self.pages) * PAGE_TOKENS

    def slots(self, tokens: int) -> Tensor:
        """Where the next `tokens` tokens go, as rows of the store [tokens]. They count once `advance` says so."""
        at = torch.arange(self.length, self.length + tokens)
        return self.table[at // PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS

    def advance(self, tokens: int) -> None:
        """So many more tokens are in use; fewer, when it is below zero."""
        self.length += tokens

    def release(self) -> None:
        """Let go of every page. Nothing can be read any more."""
        self.store.let_go(self.pages)
        self.pages, self.length = [], 0


def pages_for(tokens: int) -> int:
    return -(-tokens // PAGE_TOKENS)


def _is_run(pages: list[int], count: int) -> bool:
    """Whether these are `count` neighbours."""
    return len(pages) == count and (count == 0 or pages[-1] - pages[0] == count - 1)
