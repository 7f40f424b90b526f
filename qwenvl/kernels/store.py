"""What the kernels can keep keys and values in. Knows dtypes and strides, no models.

Legend: G key/value heads, C tokens of room, D head width. int8 has scales beside it: float32 [G, C] for keys and for
values, so that a number is its int8 times the scale of its token and head.
"""

import torch
from torch import Tensor

# numbers as in src/kinds.h
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
Scales = tuple[Tensor, Tensor]


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
