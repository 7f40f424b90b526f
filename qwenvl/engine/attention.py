"""The seam where the kernel of attention is chosen. Knows heads and keys, nothing of models, caches or positions.

Legend: T query rows, S keys, H query heads, G key/value heads (H a multiple of G), D head width.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from qwenvl import kernels
from qwenvl.engine.kv import PAGE_TOKENS
from qwenvl.engine.rope import rotate
from qwenvl.kernels import attention as own
from qwenvl.kernels import decoder
from qwenvl.kernels.store import PAIRS, Scales, read_pairs, width_of, write_pairs

FEW_ROWS = 8
# of a row in int8: the largest whole number, and the size under which all is zero
MOST_INT8, LEAST_SIZE = 127.0, 1e-30
HEADS_A_BLOCK, ROWS_A_BLOCK = 2, 128


def full_attention(q: Tensor, k: Tensor, v: Tensor, *, exact: bool = False) -> Tensor:
    """Every row sees every key: a picture's patches. q [T, H, D], k and v [S, H, D] -> [T, H * D].

    Products may be of bfloat16 (relative error 3e-3) unless they have to be `exact`.
    """
    if not exact and own.serves_full(q):
        return own.full_attention(q, k, v)
    if not exact and _multiplies_bfloat16():
        return _full_attention_in_blocks(q, k, v)
    out = F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (q, k, v)))
    return out[0].transpose(0, 1).flatten(1)


def _full_attention_in_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The fastest that stock operators give where the CPU multiplies bfloat16: scores of a few heads and rows, which
    stay in the cache, through two matrix products. 174 ms where the fused operator takes 267 (in either dtype)."""
    T, H, D = q.shape
    q, k, v = (t.transpose(0, 1).bfloat16().contiguous() for t in (q * D**-0.5, k, v))
    out = torch.empty(T, H, D)
    for head in range(0, H, HEADS_A_BLOCK):
        heads = slice(head, head + HEADS_A_BLOCK)
        for row in range(0, T, ROWS_A_BLOCK):
            rows = slice(row, row + ROWS_A_BLOCK)
            weights = (q[heads, rows] @ k[heads].transpose(1, 2)).softmax(-1)
            out[rows, heads] = (weights @ v[heads]).transpose(0, 1).float()
    return out.flatten(1)


@cache
def _multiplies_bfloat16() -> bool:
    """Whether torch's matrix products of bfloat16 are faster than those of float32 here."""
    return torch.cpu._is_avx512_bf16_supported()


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The last T of S positions see themselves and all before. q [T, H, D], k and v [G, S, D] -> float32 [T, H * D].

    Query heads that share keys are laid out as further rows of the same head, so the keys are read once and never
    copied.
    """
    T, H, D = q.shape
    G, S = k.shape[:2]
    rows = q.to(k.dtype).view(T, G, H // G, D).permute(1, 2, 0, 3).reshape(1, G, H // G * T, D)
    mask = None
    if T > 1:
        visible = torch.ones(T, S, dtype=torch.bool).tril_(S - T)
        mask = visible.repeat(H // G, 1)
    out = F.scaled_dot_product_attention(rows, k[None], v[None], attn_mask=mask)
    return out.view(G, H // G, T, D).permute(2, 0, 1, 3).reshape(T, H * D).float()


def paged_attention(q: Tensor, keys: Tensor, values: Tensor, pages: list, lengths: list, counts: list,
                    scales: Scales | None = None) -> Tensor:  # fmt: skip
    """Rows of several sequences, each over its own pages: q [R, H, D], keys and values [G, C, D] -> float32 [R, H * D].

    Of sequence i, `counts[i]` rows come in order in q; they are the last of its `lengths[i]` tokens, which lie in the
    pages `pages[i]`, 64 tokens each. Keys and values in int8 are to be multiplied with their `scales` [G, C].
    """
    if own.serves_pages(q, keys, values, scales):
        return own.paged_attention(q, keys, values, pages, lengths, counts, scales)
    out, start = [], 0
    for table, length, count in zip(pages, lengths, counts, strict=True):
        k, v = _read(keys, values, scales, table, length)
        # a few rows are guesses: each alone, so that its bits are what they are without guessing
        step = 1 if count <= FEW_ROWS else count
        for first in range(0, count, step):
            seen = length - count + first + step
            out.append(causal_attention(q[start + first : start + first + step], k[:, :seen], v[:, :seen]))
        start += count
    return torch.cat(out)


def place(qkv: Tensor, norms: tuple, angles: tuple[Tensor, Tensor], slots: Tensor, keys: Tensor, values: Tensor,
          scales: Scales | None = None) -> Tensor:  # fmt: skip
    """Before attention: qkv [R, (H + 2 G) D] -> queries [R, H, D], normalised and rotated; keys and values are kept.

    `norms` are those of queries and keys, `angles` cos and sin [R, D]; `slots` [R] say which rows of the store
    `keys`, `values` [G, C, D] the rows' keys and values become, with their `scales` [G, C] in int8.
    """
    G, D = len(keys), width_of(keys)
    if kernels.available() and decoder.serves_place(D, keys, values, scales):
        weights = norms[0].weight, norms[1].weight
        return decoder.place(qkv, weights, norms[0].eps, angles, slots, keys, values, scales)
    q, k, v = qkv.view(len(qkv), -1, D).split((qkv.shape[1] // D - 2 * G, G, G), 1)
    fresh = rotate(norms[1](k), *angles).transpose(0, 1), v.transpose(0, 1)
    if keys.dtype == PAIRS:
        write_pairs(keys, values, slots, fresh)
    else:
        for store, scale, rows in zip((keys, values), scales or (None, None), fresh, strict=True):
            _write(store, scale, slots, rows)
    return rotate(norms[0](q), *angles)


def _write(store: Tensor, scale: Tensor | None, slots: Tensor, rows: Tensor) -> None:
    """rows [G, R, D] to the store, each in whole numbers of its own where there are scales."""
    if scale is not None:
        largest = rows.abs().amax(-1)
        own_scale = torch.where(largest < LEAST_SIZE, 0.0, largest / MOST_INT8)
        # divided by as a tensor: a plain number would be multiplied by the reciprocal, which is another number
        up = torch.where(largest < LEAST_SIZE, 0.0, largest.new_tensor(MOST_INT8) / largest)
        rows = (rows * up[..., None]).round()
        scale.index_copy_(1, slots, own_scale)
    store.index_copy_(1, slots, rows.to(store.dtype))


def _read(keys: Tensor, values: Tensor, scales: Scales | None, table: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Keys and values of the first `length` rows of a sequence [G, length, D], as numbers."""
    if keys.dtype == PAIRS:
        k, v = read_pairs(keys, values, table[: -(-length // PAGE_TOKENS)].long())
        return k[:, :length], v[:, :length]
    k, v = (_gather(store, table, length) for store in (keys, values))
    if scales is None:
        return k, v
    key_scales, value_scales = (_gather(scale, table, length)[..., None] for scale in scales)
    return k * key_scales, v * value_scales


def _gather(store: Tensor, table: Tensor, length: int) -> Tensor:
    """The first `length` rows of a sequence [G, length, ...]: a view where its pages are neighbours."""
    first, used = int(table[0]), -(-length // PAGE_TOKENS)
    if int(table[used - 1]) - first == used - 1 and bool((table[1:used] > table[: used - 1]).all()):
        return store[:, first * PAGE_TOKENS : first * PAGE_TOKENS + length]
    rows = (table[:used, None].long() * PAGE_TOKENS + torch.arange(PAGE_TOKENS)).flatten()[:length]
    return store[:, rows]


def prefers_pairs(dtype: torch.dtype, D: int) -> bool:
    """Whether keys and values of this dtype and width are best kept as pairs, on this CPU."""
    return dtype == torch.bfloat16 and own.prefers_pairs(D)


def kernel_names() -> dict[str, str]:
    """What serves attention here, for logs and /health."""
    isa = f"own {kernels.current()}"
    return {
        "vision_attention": isa + " bf16" if own.has_bfloat16() else "stock",
        "text_attention": isa if kernels.available() else "stock",
    }
