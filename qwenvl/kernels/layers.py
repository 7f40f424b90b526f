"""Whole decoder layers in one call of our own kernels. Knows weights and addresses, nothing of tokens.

Legend: M rows of any sequences, W width, H query heads, G key/value heads, D head width, L layers, C tokens of room.
"""

from collections.abc import Sequence
from ctypes import addressof, byref
from dataclasses import dataclass

import torch
from torch import Tensor

from qwenvl.kernels.attention import Sequences, serves_heads
from qwenvl.kernels.decoder import serves_place
from qwenvl.kernels.library import LayersTask, LayerWeights, LinearTask, available, library, set_number
from qwenvl.kernels.store import Scales, width_of


@dataclass(frozen=True)
class Weights:
    """What one layer multiplies with: norms as (weight, eps), products as tasks without rows; `alive` owns them."""

    norms: tuple[tuple[Tensor, float], ...]  # before qkv, of queries, of keys, before gate_up
    products: tuple[LinearTask, ...]  # qkv, out, gate_up, down
    alive: object


class Layers:
    """The layers of one model, in order; None for one that cannot be done here. They stay as they are from now on."""

    def __init__(self, layers: Sequence[Weights | None]):
        self._layers = tuple(layers)
        self._weights = (LayerWeights * len(layers))(*(_weights(layer) for layer in layers))

    def has(self, layer: int) -> bool:
        return self._layers[layer] is not None

    @staticmethod
    def serves(H: int, D: int, keys: Tensor, values: Tensor, scales: Scales | None = None) -> bool:
        """Whether `run` can do these heads over one layer's store, on this CPU."""
        return available() and serves_place(D, keys, values, scales) and serves_heads(H, D, keys, values, scales)

    def run(
        self, layers: range, x: Tensor, angles: tuple[Tensor, Tensor], slots: Tensor, store: tuple[Tensor, Tensor],
        sequences: Sequences, H: int, scales: Scales | None = None,
    ) -> Tensor:  # fmt: skip
        """float32 x [M, W] through some neighbouring layers -> [M, W]; keys and values of its rows go to the store.

        `angles` are cos and sin [M, D], `slots` int64 [M] rows of the store, `store` keys and values [L, G, C, D]; in
        int8 they have `scales` [L, G, C] each; of pairs they are [L, G, C, D / 2].
        """
        x = x.float().clone(memory_format=torch.contiguous_format)
        (cos, sin), (keys, values) = (t.float().contiguous() for t in angles), store
        slots, D = slots.long().contiguous(), width_of(keys)
        if not len(x) == len(slots) == len(cos) == len(sin) or cos.shape[1] != D:
            raise ValueError(f"{tuple(x.shape)} rows and {len(slots)} slots do not fit a store {tuple(keys.shape)}")
        if not len(keys) == len(self._layers) or not all(self.has(layer) for layer in layers):
            raise ValueError(f"layers {layers} cannot be done in one call, or have no store")
        first = layers.start
        task = LayersTask(
            layers=addressof(self._weights[first]), count=len(layers), x=x.data_ptr(), M=len(x), cos=cos.data_ptr(),
            sin=sin.data_ptr(), slots=slots.data_ptr(), layer_bytes=keys.stride(0) * keys.element_size(),
            attention=sequences.task(keys[first], values[first], H, D, scales and (scales[0][first], scales[1][first])),
            scale_layer=scales[0].stride(0) if scales else 0,
        )  # fmt: skip
        if len(x) and library().qk_layers(set_number(), byref(task)):
            raise MemoryError("no memory for the rows of a decoder layer")
        return x


def _weights(layer: Weights | None) -> LayerWeights:
    if layer is None:
        return LayerWeights()
    (norm1, eps), (q_norm, head_eps), (k_norm, _), (norm2, _) = layer.norms
    return LayerWeights(
        norm1.data_ptr(), q_norm.data_ptr(), k_norm.data_ptr(), norm2.data_ptr(), *layer.products, eps, head_eps
    )
