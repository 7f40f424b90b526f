"""How far every int8 product is from its float one, measured on real activations when a checkpoint is first quantised.

Some layers of real models do not survive int8: a few input channels are so large that their row's scale leaves the
others no digits. What is found over the limit is smoothed (the large channels are divided, in the norm or the product
that makes them, and the weights multiplied: Xiao et al. 2023, SmoothQuant), and if that is not enough the weights stay
in bfloat16. Knows products and what stands before them, nothing of towers and decoders.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from qwenvl.engine.linear import QUANTIZE_SLICE_ROWS, FloatLinear, Int8Linear, Linear, finish, quantize_rows

# how much of the large channels' range goes over to the weights, as an exponent
SMOOTHING = 0.5


@dataclass(frozen=True)
class LayerFidelity:
    """One product: mean relative error of its rows in int8, what was done (`int8`, `smoothed`, `bfloat16`), and the
    error after that."""

    name: str
    int8_error: float
    treatment: str
    error: float


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

    `read()` gives the stored weight [N, K], of which a slice at a time becomes float32; `final` is the product to keep.
    """

    rounds = False

    def __init__(self, name: str, read: Callable[[], Tensor], bias: Tensor | None, before: Before | None, limit: float):
        self.name, self.read, self.bias, self.before, self.limit = name, read, bias, before, limit
        self.final: Linear | None = None
        self.fidelity: LayerFidelity | None = None

    def __call__(self, x: Tensor, *, gelu: bool = False, residual: Tensor | None = None) -> Tensor:
        assert self.final is None, "what comes before is divided by now: a second pass would see other inputs"
        weight = self.read()
        exact = self._exact(x, weight)
        self.final = Int8Linear(*quantize_rows(weight), self.bias)
        int8_error = error = relative_error(self.final(x), exact)
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
        self.fidelity = LayerFidelity(self.name, round(int8_error, 5), treatment, round(error, 5))
        return finish(exact, gelu, residual)

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
    if isinstance(part, Probe):
        return part.final
    if isinstance(part, tuple):
        return tuple(settled(item) for item in part)
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {field.name: settled(getattr(part, field.name)) for field in dataclasses.fields(part)}
        return dataclasses.replace(part, **fields)
    return part


def summary(fidelity: tuple[LayerFidelity, ...]) -> dict:
    """In short, for /health."""
    if not fidelity:
        return {"checked": 0}
    worst = max(fidelity, key=lambda layer: layer.error)
    return {
        "checked": len(fidelity),
        "smoothed": sum(layer.treatment == "smoothed" for layer in fidelity),
        "bfloat16": sum(layer.treatment == "bfloat16" for layer in fidelity),
        "worst": worst.name,
        "worst_error": worst.error,
    }
