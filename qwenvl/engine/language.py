"""The text decoder: rows of any number of sequences through all layers at once. Knows no tokens, prompts or policies.

One pass serves everything: a prefill chunk is many rows of one sequence, a decode step one row of each of many.
Matrices see all rows together, so eight people's next tokens cost what one person's costs; only attention looks at
each sequence alone. Legend: R rows of all sequences together, H width, D head width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise

import torch
from torch import Tensor

from qwenvl.engine.attention import paged_attention, place
from qwenvl.engine.kv import KV, KVStore
from qwenvl.engine.linear import Linear, rms_norm, silu_mul
from qwenvl.engine.rope import text_rope
from qwenvl.kernels import layers as own
from qwenvl.kernels.attention import Sequences


@dataclass(frozen=True)
class RMSNorm:
    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., K], normalised over its last dimension."""
        return rms_norm(x.reshape(-1, x.shape[-1]), self.weight, self.eps).view(x.shape)


@dataclass(frozen=True)
class Layer:
    """`qkv` and `gate_up` are several matrices of the checkpoint stacked: their rows have their own scales anyway."""

    norm1: RMSNorm
    qkv: Linear
    q_norm: RMSNorm
    k_norm: RMSNorm
    out: Linear
    norm2: RMSNorm
    gate_up: Linear
    down: Linear

    def weights(self, attended: int) -> own.Weights | None:
        """What our own kernels need to do the whole layer in one call; None where a product is not theirs.

        `attended` is the width of what attention gives.
        """
        width, norms = len(self.norm1.weight), (self.norm1, self.q_norm, self.k_norm, self.norm2)
        products = [self.qkv.task(width), self.out.task(attended), self.gate_up.task(width)]
        if None not in products:
            products.append(self.down.task(self.gate_up.out_features // 2))
        if None in products:
            return None
        return own.Weights(tuple((norm.weight, norm.eps) for norm in norms), tuple(products), alive=self)


@dataclass(frozen=True)
class Rows:
    """The next rows of one sequence: embeddings [T, H], M-RoPE positions [3, T], where they go.

    `visual` picks the rows (by index) that are picture tokens, `levels` are their DeepStack additions [len(visual), H].
    """

    x: Tensor
    positions: Tensor
    kv: KV
    visual: Tensor | None = None
    levels: tuple[Tensor, ...] = field(default=())


@dataclass(frozen=True)
class Where:
    """Where the rows of one pass stand: their rotary angles, their `slots` in the store, and for each sequence its
    pages, its length with the new rows, and how many these are."""

    angles: tuple[Tensor, Tensor]
    slots: Tensor
    store: KVStore
    pages: list[Tensor]
    lengths: list[int]
    counts: list[int]


@dataclass(frozen=True)
class TextModel:
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    rope_sections: tuple[int, ...]
    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: RMSNorm
    head: Linear

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that one decode step reads."""
        return self.head.nbytes + sum(m.nbytes for b in self.layers for m in (b.qkv, b.out, b.gate_up, b.down))

    def embed(self, ids: Tensor) -> Tensor:
        """ids [T] -> float32 [T, H]. The table stays mapped from its file: only the rows asked for are read."""
        return self.embedding[ids].float()

    def forward(self, batch: Sequence[Rows]) -> Tensor:
        """All rows through all layers -> normalised hidden states [R, H]; every KV has grown by its rows."""
        x = torch.cat([rows.x for rows in batch])
        where = self._where(batch)
        # layers go through together up to where something is added to the picture's rows
        stops = [i + 1 for i in range(max(len(rows.levels) for rows in batch))]
        for first, last in pairwise(dict.fromkeys((0, *stops, len(self.layers)))):
            for layers, together in self._runs(range(first, last), where):
                x = self._together(layers, x, where) if together else self._one_by_one(layers, x, where)
            x = _add_deepstack(x, last - 1, batch)
        for rows in batch:
            rows.kv.advance(len(rows.x))
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [R, H] -> [R, vocabulary]."""
        return self.head(hidden)

    def _where(self, batch: Sequence[Rows]) -> Where:
        positions = torch.cat([rows.positions for rows in batch], 1)
        counts = [len(rows.x) for rows in batch]
        return Where(
            angles=text_rope(positions, self.head_dim, self.rope_theta, self.rope_sections),
            slots=torch.cat([rows.kv.slots(count) for rows, count in zip(batch, counts, strict=True)]),
            store=batch[0].kv.store,
            pages=[rows.kv.table for rows in batch],
            lengths=[rows.kv.length + count for rows, count in zip(batch, counts, strict=True)],
            counts=counts,
        )

    @cached_property
    def _own(self) -> own.Layers:
        """The layers in the form in which our own kernels do several in one call."""
        return own.Layers([layer.weights(self.heads * self.head_dim) for layer in self.layers])

    def _runs(self, layers: range, where: Where) -> Iterator[tuple[range, bool]]:
        """Neighbours that can be done in one call, and those that have to be done one by one."""
        store = where.store
        serves = own.Layers.serves(self.heads, self.head_dim, store.keys[0], store.values[0], store.scales_of(0))
        for together, run in groupby(layers, lambda i: serves and self._own.has(i)):
            numbers = list(run)
            yield range(numbers[0], numbers[-1] + 1), together

    def _together(self, layers: range, x: Tensor, where: Where) -> Tensor:
        sequences = Sequences(where.pages, where.lengths, where.counts, len(x))
        store = where.store.keys, where.store.values
        return self._own.run(layers, x, where.angles, where.slots, store, sequences, self.heads, where.store.scales)

    def _one_by_one(self, layers: range, x: Tensor, where: Where) -> Tensor:
        for i in layers:
            layer = self.layers[i]
            x = layer.out(_attend(i, layer, layer.norm1(x), where), residual=x)
            x = layer.down(silu_mul(layer.gate_up(layer.norm2(x))), residual=x)
        return x


def _attend(i: int, layer: Layer, x: Tensor, where: Where) -> Tensor:
    keys, values, scales = where.store.keys[i], where.store.values[i], where.store.scales_of(i)
    q = place(layer.qkv(x), (layer.q_norm, layer.k_norm), where.angles, where.slots, keys, values, scales)
    return paged_attention(q, keys, values, where.pages, where.lengths, where.counts, scales)


def _add_deepstack(x: Tensor, layer: int, batch: Sequence[Rows]) -> Tensor:
    """Add the picture's level `layer` to its rows."""
    start = 0
    for rows in batch:
        if rows.visual is not None and layer < len(rows.levels):
            x = x.index_add(0, rows.visual + start, rows.levels[layer])
        start += len(rows.x)
    return x
