"""The text decoder: rows of any number of sequences through all layers at once. Knows no tokens, prompts or policies.

One pass serves everything: a prefill chunk is many rows of one sequence, a decode step one row of each of many.
Matrices see all rows together, so eight people's next tokens cost what one person's costs; only attention looks at
each sequence alone. Legend: R rows of all sequences together, H width, D head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from qwenvl.engine.attention import paged_attention, place
from qwenvl.engine.kv import KV
from qwenvl.engine.linear import Linear, rms_norm, silu_mul
from qwenvl.engine.rope import text_rope


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
        positions = torch.cat([rows.positions for rows in batch], 1)
        angles = text_rope(positions, self.head_dim, self.rope_theta, self.rope_sections)
        slots = torch.cat([rows.kv.slots(len(rows.x)) for rows in batch])
        for i, layer in enumerate(self.layers):
            x = layer.out(self._attend(i, layer, layer.norm1(x), angles, slots, batch), residual=x)
            x = layer.down(silu_mul(layer.gate_up(layer.norm2(x))), residual=x)
            x = _add_deepstack(x, i, batch)
        for rows in batch:
            rows.kv.advance(len(rows.x))
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [R, H] -> [R, vocabulary]."""
        return self.head(hidden)

    def _attend(self, i: int, layer: Layer, x: Tensor, angles: tuple, slots: Tensor, batch: Sequence[Rows]) -> Tensor:
        store = batch[0].kv.store
        keys, values = store.keys[i], store.values[i]
        q = place(layer.qkv(x), (layer.q_norm, layer.k_norm), angles, slots, keys, values)
        counts = [len(rows.x) for rows in batch]
        lengths = [rows.kv.length + count for rows, count in zip(batch, counts, strict=True)]
        return paged_attention(q, keys, values, [rows.kv.table for rows in batch], lengths, counts)


def _add_deepstack(x: Tensor, layer: int, batch: Sequence[Rows]) -> Tensor:
    """Add the picture's level `layer` to its rows."""
    start = 0
    for rows in batch:
        if rows.visual is not None and layer < len(rows.levels):
            x = x.index_add(0, rows.visual + start, rows.levels[layer])
        start += len(rows.x)
    return x
