"""What the kernels can keep keys and values in. Knows dtypes and strides, no models.

Legend: G key/value heads, C tokens of room (P pages of 64), D head width. int8 has scales beside it: float32 [G, C] for
keys and for values, so that a number is its int8 times the scale of its token and head.

`PAIRS`, int32 [G, C, D / 2], are bfloat16, two to a word, each page in the order in which products of pairs take them:
of keys [D / 2, 64], elements 2 i and 2 i + 1 of each token; of values [32, D], each element of tokens 2 j and 2 j + 1.
"""

import torch
from torch import Tensor

PAGE = 64
PAIRS = torch.int32
# numbers as in src/kinds.h
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2, PAIRS: 3}
Scales = tuple[Tensor, Tensor]


def width_of(keys: Tensor) -> int:
    """D of a store [..., C, D], or [..., C, D / 2] of pairs."""
    return keys.shape[-1] * (2 if keys.dtype == PAIRS else 1)


def by_token(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Views of pairs [G, C, D / 2] with an index for tokens: keys [G, P, 64, D / 2, 2], values [G, P, 32, 2, D]."""
    G, C, words = keys.shape
    keys = keys.view(torch.bfloat16).view(G, C // PAGE, words, PAGE, 2).transpose(2, 3)
    return keys, values.view(torch.bfloat16).view(G, C // PAGE, PAGE // 2, 2 * words, 2).transpose(3, 4)


def write_pairs(keys: Tensor, values: Tensor, slots: Tensor, fresh: tuple[Tensor, Tensor]) -> None:
    """`fresh` keys and values [G, R, D] to rows `slots` [R] of a store of pairs."""
    key_tokens, value_tokens = by_token(keys, values)
    k, v = (rows.bfloat16() for rows in fresh)
    page, token = slots // PAGE, slots % PAGE
    key_tokens[:, page, token] = k.unflatten(2, (-1, 2))
    value_tokens[:, page, token // 2, token % 2] = v


def read_pairs(keys: Tensor, values: Tensor, pages: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of some pages [n] of a store of pairs: bfloat16 [G, n * 64, D]."""
    key_tokens, value_tokens = by_token(keys, values)
    return key_tokens[:, pages].flatten(3).flatten(1, 2), value_tokens[:, pages].flatten(1, 3)


def serves_store(keys: Tensor, values: Tensor, scales: Scales | None) -> bool:
    """Whether keys and values [G, C, D] are of one kind and lie as the kernels want them."""
    return (
        keys.dtype == values.dtype
        and keys.dtype in KINDS
        and keys.stride() == values.stride()
        and keys.stride(2) == 1
        and (keys.dtype == torch.int8) == (scales is not None)
        and (scales is None or _fit(keys, *scales))
    )


def _fit(keys: Tensor, key_scales: Tensor, value_scales: Tensor) -> bool:
    return (
        key_scales.dtype == value_scales.dtype == torch.float32
        and key_scales.shape == value_scales.shape == keys.shape[:2]
        and key_scales.stride() == value_scales.stride()
        and key_scales.stride(1) == 1
    )


def scale_fields(scales: Scales | None) -> tuple[int | None, int | None, int]:
    """The last three fields of a task: two addresses and the step between heads."""
    if scales is None:
        return None, None, 0
    return scales[0].data_ptr(), scales[1].data_ptr(), scales[0].stride(0)
