"""What stands between the products of a decoder layer, in kernels of our own: one call where torch needs many.

Knows addresses and strides, no models. Legend: M rows, K width, H query heads, G key/value heads, D head width,
C tokens of room in a store. A row's bits do not depend on the rows beside it.
"""

from ctypes import byref

import torch
from torch import Tensor

from qwenvl.kernels.library import PlaceTask, RmsNormTask, SiluMulTask, library, set_number
from qwenvl.kernels.store import KINDS, Scales, scale_fields, serves_store, width_of

MOST_WIDTH = 512


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """float32 x [M, K] / rms(x) * weight [K]."""
    x = _rows(x)
    out = torch.empty_like(x)
    task = RmsNormTask(x.data_ptr(), weight.data_ptr(), out.data_ptr(), *x.shape, eps, torch.get_num_threads())
    library().qk_rms_norm(set_number(), byref(task))
    return out


def silu_mul(gate_up: Tensor) -> Tensor:
    """float32 [M, 2 I] -> [M, I]: silu of the first half, times the second."""
    gate_up = _rows(gate_up)
    out = torch.empty(len(gate_up), gate_up.shape[1] // 2)
    task = SiluMulTask(gate_up.data_ptr(), out.data_ptr(), *out.shape, torch.get_num_threads())
    library().qk_silu_mul(set_number(), byref(task))
    return out


def serves_place(D: int, keys: Tensor, values: Tensor, scales: Scales | None = None) -> bool:
    """Whether `place` can do this width and this store."""
    fits = D % 2 == 0 and D <= MOST_WIDTH and width_of(keys) == D and keys.stride(1) == keys.shape[2]
    return fits and serves_store(keys, values, scales)


def place(qkv: Tensor, norms: tuple[Tensor, Tensor], eps: float, angles: tuple[Tensor, Tensor], slots: Tensor,
          keys: Tensor, values: Tensor, scales: Scales | None = None) -> Tensor:  # fmt: skip
    """qkv [M, (H + 2 G) D] -> queries [M, H, D], normalised and rotated; keys and values go to the store.

    `norms` are the weights of the queries' and the keys' norm [D], `angles` cos and sin [M, D], `slots` int64 [M] rows
    of the store `keys`, `values` [G, C, D], in bfloat16, float32, or int8 with `scales` [G, C] each; or of pairs, in
    int32 [G, C, D / 2].
    """
    qkv, slots = _rows(qkv), slots.contiguous()
    cos, sin = (_rows(t) for t in angles)
    G, D = len(keys), width_of(keys)
    M, H = len(qkv), qkv.shape[1] // D - 2 * G
    if len(slots) != M or cos.shape != (M, D) or sin.shape != (M, D) or not serves_place(D, keys, values, scales):
        raise ValueError(f"rows {tuple(qkv.shape)} do not fit a store {tuple(keys.shape)}")
    q = torch.empty(M, H, D)
    task = PlaceTask(
        qkv.data_ptr(), norms[0].data_ptr(), norms[1].data_ptr(), cos.data_ptr(), sin.data_ptr(), slots.data_ptr(),
        q.data_ptr(), keys.data_ptr(), values.data_ptr(), keys.stride(0), M, H, G, D, eps,
        KINDS[keys.dtype], torch.get_num_threads(), *scale_fields(scales),
    )  # fmt: skip
    library().qk_place(set_number(), byref(task))
    return q


def _rows(x: Tensor) -> Tensor:
    return x if x.dtype is torch.float32 and x.is_contiguous() else x.float().contiguous()
