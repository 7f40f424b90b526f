"""How far every int8 product is from its float one, measured on real activations when a checkpoint is first quantised.

Some layers of real models do not survive int8: a few input channels are so large that their row's scale leaves the
others no digits. What is found over the limit is smoothed (the large channels are divided, in the norm or the product
that makes them, and the weights multiplied: Xiao et al. 2023, SmoothQuant), and if that is not enough the weights stay
in bfloat16. Products that may be kept in 4 bits are tried so first, and go on as above where that is too far off.
Knows products and what stands before them, nothing of towers and decoders.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from qwenvl.engine.linear import QUANTIZE_SLICE_ROWS, FloatLinear, Int8Linear, Linear, finish, quantize_rows, replaced
from qwenvl.memory import give_back

# how much of the large channels' range goes over to the weights, as an exponent
SMOOTHING = 0.5
# times int8's limit is what 4 bits may be off: 15 steps over 32 bell-shaped weights make 7 to 8 % by themselves, so
# with the usual 5 % a product is sensitive from 12.5 % on, half as much again as a harmless one
FOUR_BITS_MAY = 2.5
# a weight, of whose copies nothing should be left before the next one comes
LARGE_BYTES = 16 << 20


@dataclass(frozen=True)
class LayerFidelity:
    """One product: mean relative error of its rows in int8, what was done (`int4`, `int8`, `smoothed`, `bfloat16`), the
    error after that, and the error in int4 if that was tried."""

    name: str
    int8_error: float
    treatment: str
    error: float
    int4_error: float | None = None


@dataclass(frozen=True)
class Before:
    """What makes a product's inputs: `divide` takes one factor for each of its channels.

    The inputs [K] are `shape` = (outer, copies, inner) channels of which the copies come from the same source.
    """

    shape: tuple[int, int, int]
    divide: Callable[[Tensor], None]

    def largest(self, values: Tensor) -> Tensor:
        """The largest of every source channel's copies, for each copy: [K] -> [K]."""
        return values.view(self.shape).amax(1, keepdim=True).expand(self.shape).reshape(-1)

    def source(self, factors: Tensor) -> Tensor:
        """One factor a source channel: [K] -> [outer * inner]."""
        return factors.view(self.shape)[:, 0].reshape(-1)


def divide_norm(norm: Any, copies: int = 1) -> Before:
    """A norm before a product, of which `copies` rows lie side by side in one input."""

    def divide(factors: Tensor) -> None:
        norm.weight.div_(factors)
        if hasattr(norm, "bias"):
            norm.bias.div_(factors)

    return Before((1, copies, len(norm.weight)), divide)


def divide_rows(product: Linear, start: int, shape: tuple[int, int, int]) -> Before | None:
    """Another product before it, from whose row `start` on the inputs come, changed by nothing but sums or factors."""
    if not isinstance(product, Probe):
        return None
    return Before(shape, lambda factors: product.divide_rows(slice(start, start + len(factors)), factors))


class Probe:
    """Stands where an int8 product will stand, for one call: answers in float and finds out what int8 does.

    `read()` gives the stored weight [N, K], of which a slice at a time becomes float32; `bits` is 4 where those may do;
    `final` is the product to keep.
    """

    rounds = False

    def __init__(self, name: str, read: Callable[[], Tensor], bias: Tensor | None, before: Before | None, bits: int,
                 limit: float):  # fmt: skip
        self.name, self.read, self.bias, self.before, self.bits, self.limit = name, read, bias, before, bits, limit
        self.final: Linear | None = None
        self.fidelity: LayerFidelity | None = None

    def __call__(self, x: Tensor, *, gelu: bool = False, residual: Tensor | None = None) -> Tensor:
        assert self.final is None, "what comes before is divided by now: a second pass would see other inputs"
        weight = self.read()
        exact = self._exact(x, weight)
        quantized = quantize_rows(weight)
        self.final = Int8Linear(*quantized, self.bias)
        int8_error = error = relative_error(self.final(x), exact)
        int4_error = self._try_four_bits(x, exact, quantized) if self.bits == 4 else None
        if int4_error is not None and int4_error <= FOUR_BITS_MAY * self.limit:
            treatment, error = "int4", int4_error
        else:
            treatment, error = self._mend(x, exact, weight, error)
        tried = None if int4_error is None else round(int4_error, 5)
        self.fidelity = LayerFidelity(self.name, round(int8_error, 5), treatment, round(error, 5), tried)
        if weight.nbytes >= LARGE_BYTES:
            del weight, quantized
            give_back()
        return finish(exact, gelu, residual)

    def _try_four_bits(self, x: Tensor, exact: Tensor, quantized: tuple[Tensor, Tensor]) -> float:
        """The error in 4 bits; under the limit that is what is kept."""
        four = Int8Linear.in_four_bits(*quantized, self.bias)
        error = relative_error(four(x), exact)
        if error <= FOUR_BITS_MAY * self.limit:
            self.final = four
        return error

    def _mend(self, x: Tensor, exact: Tensor, weight: Tensor, error: float) -> tuple[str, float]:
        """What has to be done to a product whose error in int8 is known, and the error after it."""
        treatment = "int8"
        if error > self.limit and self.before is not None:
            factors = _factors(x, weight, self.before)
            smoothed = Int8Linear(*quantize_rows(weight, factors), self.bias)
            error = relative_error(smoothed(x / factors), exact)
            if error <= self.limit:
                self.before.divide(self.before.source(factors))
                self.final, treatment = smoothed, "smoothed"
        if error > self.limit:
            bias = self.bias if self.bias is None else self.bias.bfloat16()
            self.final, treatment = FloatLinear(weight.bfloat16(), bias), "bfloat16"
            error = relative_error(self.final(x), exact)
        return treatment, error

    def task(self, inputs: int) -> None:
        return None

    def _exact(self, x: Tensor, weight: Tensor) -> Tensor:
        parts = [F.linear(x, part.float()) for part in weight.split(QUANTIZE_SLICE_ROWS)]
        exact = torch.cat(parts, 1)
        return exact if self.bias is None else exact + self.bias

    def divide_rows(self, rows: slice, factors: Tensor) -> None:
        """Make some of the outputs smaller by these factors, exactly: by the scales of their rows."""
        self.final = divided_rows(self.final, rows, factors)
        self.bias = _divided(self.bias, rows, factors)


def relative_error(got: Tensor, exact: Tensor) -> float:
    """Mean over rows of |got - exact| / |exact|: a few outlier rows must not hide what all the others suffer."""
    return float(((got - exact).norm(dim=1) / exact.norm(dim=1).clamp(min=1e-20)).mean())


def _factors(x: Tensor, weight: Tensor, before: Before) -> Tensor:
    """By how much to divide each input channel [K]: only the large ones, those that cost the others their digits."""
    inputs = before.largest(x.abs().amax(0)).clamp(min=1e-9)
    weights = before.largest(_largest_column(weight)).clamp(min=1e-9)
    factors = (inputs**SMOOTHING) / (weights ** (1 - SMOOTHING))
    factors = factors / factors.median()
    return factors.clamp(min=1.0)


def _largest_column(weight: Tensor) -> Tensor:
    """max |w| of each input channel [K]."""
    return torch.stack([part.float().abs().amax(0) for part in weight.split(QUANTIZE_SLICE_ROWS)]).amax(0)


def divided_rows(linear: Linear, rows: slice, factors: Tensor) -> Linear:
    """The same product with the outputs `rows` divided by `factors` [rows]."""
    if isinstance(linear, FloatLinear):
        weight = linear.weight.clone()
        weight[rows] = (weight[rows].float() / factors[:, None]).to(weight.dtype)
        return FloatLinear(weight, _divided(linear.bias, rows, factors))
    tensors = linear.stored()
    bias = None if linear.bias is None else linear.bias[: linear.out_features]
    return Int8Linear.restored(
        {**tensors, "scale": _divided(tensors["scale"], rows, factors)}, _divided(bias, rows, factors)
    )


def _divided(values: Tensor | None, rows: slice, factors: Tensor) -> Tensor | None:
    if values is None:
        return None
    values = values.clone()
    values[rows] = (values[rows].float() / factors).to(values.dtype)
    return values


def settled(part: Any) -> Any:
    """A tower or decoder with every probe in it replaced by the product it found."""
    return replaced(part, Probe, lambda probe: probe.final)


def summary(fidelity: tuple[LayerFidelity, ...]) -> dict:
    """In short, for /health."""
    if not fidelity:
        return {"checked": 0}
    worst = max(fidelity, key=lambda layer: layer.error)
    return {
        "checked": len(fidelity),
        "int4": sum(layer.treatment == "int4" for layer in fidelity),
        "smoothed": sum(layer.treatment == "smoothed" for layer in fidelity),
        "bfloat16": sum(layer.treatment == "bfloat16" for layer in fidelity),
        "worst": worst.name,
        "worst_error": worst.error,
    }
