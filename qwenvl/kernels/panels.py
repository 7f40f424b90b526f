"""int8 matrices in panels of 64 outputs, in 8 or in 4 bits: packing, and the product for any number of rows. Knows no
models.

Legend: M rows, N outputs, K inputs, P = ceil(N / 64), K4 = ceil(K / 4), G = ceil(K / 32).
"""

from ctypes import byref

import torch
from torch import Tensor
from torch.nn import functional as F

from qwenvl.kernels.library import LinearTask, library, set_number

PANEL = 64
GROUP, GROUP_LINES = 32, 17  # of the nibbles: inputs that share a step and a zero, cache lines of a group
# sums of 255 * 127 over this many inputs still fit 32 bits
MOST_INPUTS = 65536
ACTIVATIONS = {"": 0, "gelu_tanh": 1}


def pack(weight: Tensor) -> Tensor:
    """int8 [N, K] -> uint8 panels [P, K4, 64, 4]: the same bytes serve one row and thousands."""
    N, K = _checked(weight)
    panels = torch.empty(-(-N // PANEL), -(-K // 4), PANEL, 4, dtype=torch.uint8)
    weight = weight.contiguous()
    library().qk_pack(weight.data_ptr(), N, K, panels.data_ptr(), torch.get_num_threads())
    return panels


def pack_nibbles(weight: Tensor) -> Tensor:
    """int8 [N, K] -> uint8 panels [P, G, 17, 64]: 4 bits a weight, and 8 for each output and 32 of its inputs.

    Those 8 are a whole step s of 1 to 16 and a zero z of 0 to 15, chosen by the least squared error of (q - z) * s. The
    layout is in src/linear.h.
    """
    N, K = _checked(weight)
    panels = torch.empty(-(-N // PANEL), -(-K // GROUP), GROUP_LINES, PANEL, dtype=torch.uint8)
    weight = weight.contiguous()
    library().qk_pack_nibbles(weight.data_ptr(), N, K, panels.data_ptr(), torch.get_num_threads())
    return panels


def unpack(panels: Tensor, N: int) -> Tensor:
    """The int8 [N, 4 K4] that panels of bytes stand for, with zeros behind the K inputs."""
    weight = panels.permute(0, 2, 1, 3).reshape(len(panels) * PANEL, -1)[:N]
    return (weight ^ 128).view(torch.int8)


def unpack_nibbles(panels: Tensor, N: int, K: int) -> Tensor:
    """The int8 [N, K] that panels of nibbles stand for. For looking at them: products never need it."""
    P, G = panels.shape[:2]
    step, zero = ((panels[:, :, 0] & 15) + 1).int(), (panels[:, :, 0] >> 4).int()  # [P, G, 64]
    fours = panels[:, :, 1:].view(P, G, 4, PANEL, 4)
    q = torch.stack([fours & 15, fours >> 4], 2).int()  # [P, G, half, 4, 64, 4]
    q = q.permute(0, 4, 1, 2, 3, 5).reshape(P, PANEL, G, GROUP)
    weight = (q - zero.permute(0, 2, 1)[..., None]) * step.permute(0, 2, 1)[..., None]
    return weight.to(torch.int8).reshape(P * PANEL, G * GROUP)[:N, :K]


def _checked(weight: Tensor) -> tuple[int, int]:
    N, K = weight.shape
    if K > MOST_INPUTS:
        raise ValueError(f"{K} inputs could overflow 32 bits; at most {MOST_INPUTS}")
    return N, K


def is_nibbles(panels: Tensor) -> bool:
    """Which of the two layouts panels have: one is [P, K4, 64, 4], the other [P, G, 17, 64]."""
    return panels.shape[2:] == (GROUP_LINES, PANEL)


def padded(values: Tensor) -> Tensor:
    """float32 [N] -> [P * 64] with zeros behind, as `multiply` wants scale and bias."""
    return F.pad(values.float(), (0, -len(values) % PANEL)).contiguous()


def weights(panels: Tensor, scale: Tensor, bias: Tensor | None, N: int, K: int) -> LinearTask:
    """The part of a task that is the same for all rows. The tensors must outlive it."""
    return LinearTask(
        panels=panels.data_ptr(), scale=scale.data_ptr(), bias=None if bias is None else bias.data_ptr(), N=N, K=K,
        format=int(is_nibbles(panels)),
    )  # fmt: skip


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
    `bias` are `padded`; `panels`, of `pack` or of `pack_nibbles`, may be mapped from a file.
    """
    if x.dtype != torch.float32 or x.stride(1) != 1:
        x = x.float().contiguous()
    M, K = x.shape
    nibbles = is_nibbles(panels)
    if panels.shape[:2] != (-(-N // PANEL), -(-K // (GROUP if nibbles else 4))) or len(scale) != len(panels) * PANEL:
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
