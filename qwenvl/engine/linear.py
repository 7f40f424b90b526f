"""The seam where the kernel of a matrix product is chosen. Knows rows and weights, nothing of models.

Every kind is called with float32 rows `[M, K]` and gives float32 rows `[M, N]`; if asked to, their GELU (by tanh) or
their sum with a `residual` [M, N], which our own kernel does on the way.

Why int8 is done this way: stock dynamic quantisation takes one activation scale for a whole tensor. A single outlier
row, and language models always have one, then costs every other row nearly all its precision, and a person's answer
depends on who else is in the batch. Here each output channel of the weights and each row of the activations has a
scale of its own:

    y[m, n] = sx[m] * sw[n] * sum_k round(x[m, k] / sx[m]) * round(w[n, k] / sw[n])
    sx[m] = max_k |x[m, k]| / 127,  sw[n] = max_k |w[n, k]| / 127

In 4 bits, which only our own kernel does, round(w[n, k] / sw[n]) is rounded once more, to a whole multiple of a step
that every 32 inputs of a channel have for themselves; the sums above stay integers.
"""

import dataclasses
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from qwenvl import kernels
from qwenvl.kernels import decoder
from qwenvl.kernels import panels as own
from qwenvl.kernels.library import LinearTask


class Linear(Protocol):
    """A matrix ready to be multiplied with; `nbytes` is what one product reads of it."""

    out_features: int
    nbytes: int
    rounds: bool  # to fewer bits than float32 has

    def __call__(self, x: Tensor, *, gelu: bool = False, residual: Tensor | None = None) -> Tensor: ...

    def task(self, inputs: int) -> LinearTask | None:
        """The product of `inputs` columns as a step of a whole layer in our own kernels; None if it is not theirs."""


# rows of a large weight are quantised a slice at a time, so that its float32 form never exists as a whole
QUANTIZE_SLICE_ROWS = 8192


class FloatLinear:
    """A product in the weight's own dtype (float32 or bfloat16), bias added in that dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias = weight, bias
        self.out_features, self.nbytes = weight.shape[0], weight.nbytes
        self.rounds = weight.dtype != torch.float32

    def __call__(self, x: Tensor, *, gelu: bool = False, residual: Tensor | None = None) -> Tensor:
        return finish(F.linear(x.to(self.weight.dtype), self.weight, self.bias).float(), gelu, residual)

    def task(self, inputs: int) -> None:
        return None


class Int8Linear:
    """Symmetric int8 weights per output channel and activations per row, in the form whose kernel this CPU has.

    `bits` says in how many a weight is kept: 8 or, by our own kernel only, 4.
    """

    rounds = True

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None = None):
        """`weight` int8 [N, K], `scale` float32 [N], `bias` float32 [N]."""
        self._hold((Panels if kernels.available() else Rows).of(weight, scale), bias)

    @classmethod
    def in_four_bits(cls, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> "Int8Linear":
        """From the same, with weights kept in 4 bits."""
        return cls.restored({"panels": own.pack_nibbles(weight), "scale": scale}, bias)

    @classmethod
    def restored(cls, tensors: dict[str, Tensor], bias: Tensor | None = None) -> "Int8Linear":
        """From what `stored` gave, perhaps mapped from a file: panels are then used where they lie."""
        return cls.holding((Panels if "panels" in tensors else Rows.of)(**tensors), bias)

    @classmethod
    def holding(cls, matrix: "Panels | Rows", bias: Tensor | None) -> "Int8Linear":
        """Of a matrix in a form of its own."""
        linear = cls.__new__(cls)
        linear._hold(matrix, bias)
        return linear

    def _hold(self, matrix: "Panels | Rows", bias: Tensor | None) -> None:
        self.matrix, self.bias = matrix, bias if bias is None else matrix.prepared(bias)
        self.out_features, self.nbytes, self.limit = matrix.out_features, matrix.nbytes, matrix.limit
        self.bits = matrix.bits

    def stored(self) -> dict[str, Tensor]:
        """What `restored` needs to make this product again; its layout is `stored_form()`."""
        return self.matrix.stored()

    def __call__(self, x: Tensor, *, gelu: bool = False, residual: Tensor | None = None) -> Tensor:
        return self.matrix(x, self.bias, gelu, residual)

    def task(self, inputs: int) -> LinearTask | None:
        return self.matrix.task(self.bias, inputs)


class Panels:
    """Our own kernel's form: panels of 64 outputs in bytes or nibbles, exact in 32 bits on every CPU it runs on."""

    limit = 127

    def __init__(self, panels: Tensor, scale: Tensor):
        self.panels, self.scale, self.padded_scale = panels, scale, self.prepared(scale)
        self.out_features, self.nbytes = len(scale), panels.nbytes + scale.nbytes
        self.bits = 4 if own.is_nibbles(panels) else 8

    @classmethod
    def of(cls, weight: Tensor, scale: Tensor) -> "Panels":
        return cls(own.pack(weight), scale)

    @staticmethod
    def prepared(values: Tensor) -> Tensor:
        return own.padded(values)

    def stored(self) -> dict[str, Tensor]:
        return {"panels": self.panels, "scale": self.scale}

    def task(self, bias: Tensor | None, inputs: int) -> LinearTask:
        return own.weights(self.panels, self.padded_scale, bias, self.out_features, inputs)

    def __call__(self, x: Tensor, bias: Tensor | None, gelu: bool, residual: Tensor | None) -> Tensor:
        return own.multiply(
            x, self.panels, self.padded_scale, bias, self.out_features,
            activation="gelu_tanh" if gelu else "", residual=residual,
        )  # fmt: skip


class Rows:
    """Stock torch's form: FBGEMM's packed kernel underneath."""

    bits = 8

    def __init__(self, packed, out_features: int, nbytes: int):
        self.packed, self.out_features, self.nbytes = packed, out_features, nbytes
        self.limit = activation_limit()

    @classmethod
    def of(cls, weight: Tensor, scale: Tensor) -> "Rows":
        return cls(_pack(weight, scale), len(weight), weight.nbytes + scale.nbytes)

    @staticmethod
    def prepared(values: Tensor) -> Tensor:
        return values

    def stored(self) -> dict[str, Tensor]:
        weight, _ = torch.ops.quantized.linear_unpack(self.packed)
        return {"weight": weight.int_repr(), "scale": weight.q_per_channel_scales().float()}

    def task(self, bias: Tensor | None, inputs: int) -> None:
        return None

    def __call__(self, x: Tensor, bias: Tensor | None, gelu: bool, residual: Tensor | None) -> Tensor:
        # dividing by the row's scale first makes the kernel's one scale, 1.0, right for every row
        scale = x.abs().amax(1, keepdim=True).div_(self.limit).clamp_(min=1e-30)
        y = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x / scale, 1.0, self.limit + 1, self.packed
        )
        y.mul_(scale)
        return finish(y if bias is None else y.add_(bias), gelu, residual)


def finish(y: Tensor, gelu: bool, residual: Tensor | None) -> Tensor:
    """What a product may be asked to do behind itself, by stock operators."""
    y = F.gelu(y, approximate="tanh") if gelu else y
    return y if residual is None else y.add_(residual)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Float32 rows [M, K] over their root mean square, times weight [K]: what stands before most products."""
    if kernels.available():
        return decoder.rms_norm(x, weight, eps)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def silu_mul(gate_up: Tensor) -> Tensor:
    """[M, 2 I] -> [M, I]: silu of the first half times the second."""
    if kernels.available():
        return decoder.silu_mul(gate_up)
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def replaced(part: Any, kind: type, make: Callable[[Any], Linear]) -> Any:
    """A tower or decoder in which `make` has stood something else in the place of every product of a `kind`."""
    if isinstance(part, kind):
        return make(part)
    if isinstance(part, tuple):
        return tuple(replaced(item, kind, make) for item in part)
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {field.name: replaced(getattr(part, field.name), kind, make) for field in dataclasses.fields(part)}
        return dataclasses.replace(part, **fields)
    return part


def stored_form(quantization: str = "int8") -> str:
    """The form in which stored weights are laid out; weights of another form are of no use."""
    if quantization == "int4":
        return "nibbles64-v2"
    return "panels64-v1" if kernels.available() else "rows-v1"


def kernel_name() -> str:
    """What multiplies int8 matrices here, for logs and /health."""
    return f"own {kernels.current()}" if kernels.available() else f"stock, {activation_limit().bit_length() + 1} bits"


def quantize_rows(weight: Tensor, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """A float matrix [N, K], its columns times `factors` [K], as int8 [N, K] and float32 scales [N]; ties to even."""
    rows, columns = weight.shape
    quantized, scales = torch.empty(rows, columns, dtype=torch.int8), torch.empty(rows)
    for start in range(0, rows, QUANTIZE_SLICE_ROWS):
        part = weight[start : start + QUANTIZE_SLICE_ROWS].float()
        part = part if factors is None else part * factors
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


def int8_available() -> bool:
    """Whether there is a kernel for int8: our own, or this build of torch's (some ARM builds have none)."""
    return kernels.available() or bool({"x86", "fbgemm"} & set(torch.backends.quantized.supported_engines))


@cache
def activation_limit() -> int:
    """127, or 63 on CPUs whose u8 x s8 products saturate in 16 bits (no VNNI). Found by trying the worst case."""
    packed = _pack(torch.full((16, 64), 127, dtype=torch.int8), torch.ones(16))
    rows = torch.full((1, 64), 127.0)
    got = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(rows, 1.0, 128, packed)
    return 127 if bool((got == 127 * 127 * 64).all()) else 63
