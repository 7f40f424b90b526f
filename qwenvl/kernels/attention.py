"""Attention in kernels of our own: over the pages of many sequences. Knows addresses and strides, no models.

Legend: H query heads, G key/value heads (H a multiple of G), D head width, C tokens of room, B sequences,
S tokens of a sequence, T its query rows.
"""

from collections.abc import Sequence
from ctypes import addressof, byref, c_int64

import torch
from torch import Tensor

from qwenvl.kernels.library import FullTask, PagedTask, available, has_bfloat16, library, set_number
from qwenvl.kernels.store import KINDS, PAGE, PAIRS, Scales, scale_fields, serves_store, width_of

MOST_GROUP, MOST_WIDTH = 32, 256


def serves_pages(q: Tensor, keys: Tensor, values: Tensor, scales: Scales | None = None) -> bool:
    """Whether `paged_attention` can do these heads and this store, on this CPU."""
    return serves_heads(*q.shape[1:], keys, values, scales)


def serves_heads(H: int, D: int, keys: Tensor, values: Tensor, scales: Scales | None = None) -> bool:
    """The same for H query heads of width D."""
    group, rest = divmod(H, keys.shape[0])
    return (
        available()
        and rest == 0
        and group <= MOST_GROUP
        and width_of(keys) == D
        and D % 32 == 0
        and D <= MOST_WIDTH
        and (keys.dtype != PAIRS or has_bfloat16())
        and serves_store(keys, values, scales)
    )


def prefers_pairs(D: int) -> bool:
    """Whether bfloat16 keys and values of this width are best kept as pairs, on this CPU."""
    return has_bfloat16() and D % 32 == 0 and D <= MOST_WIDTH


class Sequences:
    """Where the tokens of some sequences lie, and how many of them are the queries' own; outlives every call with it.

    Raises `ValueError` unless all of it belongs to `R` query rows.
    """

    def __init__(self, pages: Sequence[Tensor], lengths: Sequence[int], rows: Sequence[int], R: int):
        if sum(rows) != R or not len(pages) == len(lengths) == len(rows):
            raise ValueError(f"{R} query rows for sequences of {list(rows)} rows")
        for table, S, T in zip(pages, lengths, rows, strict=True):
            if not 0 < T <= S <= PAGE * len(table) or table.stride() != (1,):
                raise ValueError("every sequence needs rows, and pages for all of its tokens")
        self.tables = [table if table.dtype is torch.int32 else table.int() for table in pages]
        self.numbers = (c_int64 * (3 * len(pages)))(*(table.data_ptr() for table in self.tables), *lengths, *rows)

    def task(self, keys: Tensor, values: Tensor, H: int, D: int, scales: Scales | None = None) -> PagedTask:
        """Everything but the queries and where their results go."""
        address, step = addressof(self.numbers), 8 * len(self.tables)
        key_scales, value_scales, scale_head = scale_fields(scales)
        return PagedTask(
            keys=keys.data_ptr(), values=values.data_ptr(), head=keys.stride(0), row=keys.stride(1),
            kind=KINDS[keys.dtype], threads=torch.get_num_threads(), pages=address,
            lengths=address + step, rows=address + 2 * step, B=len(self.tables), H=H, G=keys.shape[0], D=D,
            key_scales=key_scales, value_scales=value_scales, scale_head=scale_head,
        )  # fmt: skip


def paged_attention(
    q: Tensor, keys: Tensor, values: Tensor, pages: Sequence[Tensor], lengths: Sequence[int], rows: Sequence[int],
    scales: Scales | None = None,
) -> Tensor:  # fmt: skip
    """Causal attention of the last rows of each sequence: q [all T, H, D] -> float32 [all T, H * D].

    `keys` and `values` [G, C, D] hold pages of 64 tokens: token j of sequence i lies in row
    `pages[i][j // 64] * 64 + j % 64`. Sequence i has `lengths[i]` tokens there, of which the last `rows[i]` are the
    queries' own. Keys and values in int8 have `scales` [G, C] each; of pairs they are int32 [G, C, D / 2], and products
    are of bfloat16. A row's bits do not depend on the other sequences, nor on how many rows its own has.
    """
    R, H, D = q.shape
    if not serves_pages(q, keys, values, scales):
        raise ValueError(f"no kernel for q {tuple(q.shape)} over {keys.dtype} {tuple(keys.shape)}")
    if q.dtype != torch.float32 or q.stride(2) != 1:
        q = q.float().contiguous()
    out = torch.empty(R, H * D)
    # named, so that it outlives the call
    sequences = Sequences(pages, lengths, rows, R)
    task = sequences.task(keys, values, H, D, scales)
    task.q, task.q_row, task.q_head, task.out = q.data_ptr(), q.stride(0), q.stride(1), out.data_ptr()
    if R and library().qk_paged(set_number(), byref(task)):
        raise MemoryError("no memory for attention")
    return out


def serves_full(q: Tensor) -> bool:
    """Whether `full_attention` can do these heads, on this CPU."""
    return prefers_pairs(q.shape[2])


def full_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every row sees every key: q [T, H, D], k and v [S, H, D], any strides -> float32 [T, H * D].

    Products are of bfloat16, sums and weights float32: relative error 3e-3. A row's bits do not depend on the others.
    """
    (T, H, D), S = q.shape, k.shape[0]
    if not serves_full(q) or k.shape != v.shape or k.shape[1:] != (H, D) or S == 0:
        raise ValueError(f"no kernel for q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}")
    q, k, v = (t if t.dtype is torch.float32 and t.stride(2) == 1 else t.float().contiguous() for t in (q, k, v))
    out = torch.empty(T, H * D)
    task = FullTask(
        q.data_ptr(), k.data_ptr(), v.data_ptr(), *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], out.data_ptr(),
        T, S, H, D, torch.get_num_threads(),
    )  # fmt: skip
    if T and library().qk_full(byref(task)):
        raise MemoryError("no memory for attention")
    return out
