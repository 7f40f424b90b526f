"""int8 matrices in panels of 64 outputs: packing, and the product for any number of rows. Knows no models.

Legend: M rows, N outputs, K inputs, P = ceil(N / 64), K4 = ceil(K / 4).
"""

from ctypes import byref

import torch
from torch import Tensor
from torch.nn import functional as F

from qwenvl.kernels.library import LinearTask, library, set_number

PANEL = 64
# sums of 255 * 127 over this many inputs still fit 32 bits
MOST_INPUTS = 65536
ACTIVATIONS = {"": 0, "gelu_tanh": 1}


def pack(weight: Tensor) -> Tensor:
    """int8 [N, K] -> uint8 panels [P, K4, 64, 4]: the same bytes serve one row and thousands."""
    N, K = weight.shape
    if K > MOST_INPUTS:
        raise ValueError(f"{K} inputs could overflow 32 bits; at most {MOST_INPUTS}")
    panels = torch.empty(-(-N // PANEL), -(-K // 4), PANEL, 4, dtype=torch.uint8)
    weight = weight.contiguous()
    library().qk_pack(weight.data_ptr(), N, K, panels.data_ptr(), torch.get_num_threads())
    return panels


def padded(values: Tensor) -> Tensor:
    """float32 [N] -> [P * 64] with zeros behind, as `multiply` wants scale and bias."""
    return F.pad(values.float(), (0, -len(values) % PANEL)).contiguous()


def weights(panels: Tensor, scale: Tensor, bias: Tensor | None, N: int, K: int) -> LinearTask:
    """The part of a task that is the same for all rows. The tensors must outlive it."""
    return LinearTask(
        panels=panels.data_ptr(), scale=scale.data_ptr(), bias=None if bias is None else bias.data_ptr(), N=N, K=K
    )


def multiply(
    x: Tensor,
    panels: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    N: int,
    *,
    activation: str = "",
    residual: Tensor | None = None,
) -> Tensor:
    """float32 [M, K] -> float32 [M, N]: activation(x @ weight.T + bias) + residual.

    Every row of x is quantised with a scale of its own, so its result is the same bits in any batch. `scale` and
    `bias` are `padded`; `panels` [P, K4, 64, 4] may be mapped from a file.
    """
    if x.dtype != torch.float32 or x.stride(1) != 1:
        x = x.float().contiguous()
    M, K = x.shape
    if panels.shape[:2] != (-(-N // PANEL), -(-K // 4)) or len(scale) != panels.shape[0] * PANEL:
        raise ValueError(f"rows of {K} and {N} outputs do not fit panels {tuple(panels.shape)}")
    out = torch.empty(M, N)
    if M == 0:
        return out
    if residual is not None:
        residual = residual.float().expand(M, N).contiguous()
    task = weights(panels, scale, bias, N, K)
    task.x, task.x_stride, task.out, task.M = x.data_ptr(), x.stride(0), out.data_ptr(), M
    task.residual = None if residual is None else residual.data_ptr()
    task.activation, task.threads = ACTIVATIONS[activation], torch.get_num_threads()
    if library().qk_linear(set_number(), byref(task)):
        raise MemoryError("no memory for the rows of an int8 product")
    return out
