"""The seam where the kernel of a matrix product is chosen. Knows rows and weights, nothing of models.

Every kind is called with float32 rows `[M, K]` and gives float32 rows `[M, N]`.

Why int8 is done this way: stock dynamic quantisation takes one activation scale for a whole tensor. A single outlier
row, and language models always have one, then costs every other row nearly all its precision, and a person's answer
depends on who else is in the batch. Here each output channel of the weights and each row of the activations has a
scale of its own:

    y[m, n] = sx[m] * sw[n] * sum_k round(x[m, k] / sx[m]) * round(w[n, k] / sw[n])
    sx[m] = max_k |x[m, k]| / 127,  sw[n] = max_k |w[n, k]| / 127
"""

import warnings
from functools import cache
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class Linear(Protocol):
    """A matrix ready to be multiplied with; `nbytes` is what one product reads of it."""

    out_features: int
    nbytes: int

    def __call__(self, x: Tensor) -> Tensor: ...


# rows of a large weight are quantised a slice at a time, so that its float32 form never exists as a whole
QUANTIZE_SLICE_ROWS = 8192


class FloatLinear:
    """A product in the weight's own dtype (float32 or bfloat16), bias added in that dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias = weight, bias
        self.out_features, self.nbytes = weight.shape[0], weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias).float()


class Int8Linear:
    """Symmetric int8 weights per output channel and activations per row; FBGEMM's packed kernel underneath."""

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None = None):
        """`weight` int8 [N, K], `scale` float32 [N], `bias` float32 [N]."""
        self.out_features, self.nbytes = weight.shape[0], weight.nbytes + scale.nbytes
        self.bias = bias
        self.limit = activation_limit()
        self.packed = _pack(weight, scale)

    def __call__(self, x: Tensor) -> Tensor:
        # dividing by the row's scale first makes the kernel's one scale, 1.0, right for every row
        scale = x.abs().amax(1, keepdim=True).div_(self.limit).clamp_(min=1e-30)
        y = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x / scale, 1.0, self.limit + 1, self.packed
        )
        y.mul_(scale)
        return y if self.bias is None else y.add_(self.bias)


    def stored(self) -> dict[str, Tensor]:
        """What `restored` needs to make this product again."""
        weight, _ = torch.ops.quantized.linear_unpack(self.packed)
        return {"weight": weight.int_repr(), "scale": weight.q_per_channel_scales().float()}

    @classmethod
    def restored(cls, tensors: dict[str, Tensor], bias: Tensor | None) -> "Int8Linear":
        return cls(tensors["weight"], tensors["scale"], bias)


def int8_form() -> str:
    """The form in which stored weights are laid out; weights of another form are of no use."""
    return "rows-v1"


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A float matrix [N, K] as int8 [N, K] and float32 scales [N]; ties round to even."""
    rows, columns = weight.shape
    quantized, scales = torch.empty(rows, columns, dtype=torch.int8), torch.empty(rows)
    for start in range(0, rows, QUANTIZE_SLICE_ROWS):
        part = weight[start : start + QUANTIZE_SLICE_ROWS].float()
        scale = part.abs().amax(1).div_(127).clamp_(min=1e-30)
        scales[start : start + len(part)] = scale
        # not in place: a float32 slice is a view of the caller's weight
        quantized[start : start + len(part)] = (part / scale[:, None]).round_().to(torch.int8)
    return quantized, scales


def _pack(weight: Tensor, scale: Tensor):
    """FBGEMM's blocked copy of an int8 weight."""
    with warnings.catch_warnings():
        # torch announces that quantised tensors will leave one day; torch is pinned, and only this file uses them
        warnings.simplefilter("ignore", UserWarning)
        zeros = torch.zeros(len(scale), dtype=torch.long)
        tensor = torch._make_per_channel_quantized_tensor(weight.contiguous(), scale.double(), zeros, 0)
        return torch.ops.quantized.linear_prepack(tensor, None)


@cache
def int8_available() -> bool:
    """Whether this build of torch has the packed int8 kernel (some ARM builds do not)."""
    return bool({"x86", "fbgemm"} & set(torch.backends.quantized.supported_engines))


@cache
def activation_limit() -> int:
    """127, or 63 on CPUs whose u8 x s8 products saturate in 16 bits (no VNNI). Found by trying the worst case."""
    packed = _pack(torch.full((16, 64), 127, dtype=torch.int8), torch.ones(16))
    rows = torch.full((1, 64), 127.0)
    got = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(rows, 1.0, 128, packed)
    return 127 if bool((got == 127 * 127 * 64).all()) else 63
