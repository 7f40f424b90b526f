"""The vision tower: patches of one picture in, merged tokens and DeepStack levels out. Knows no text and no cache.

Legend: N patches, n = N / 4 merged tokens, D vision width, W text width.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from qwenvl.engine.attention import full_attention
from qwenvl.engine.linear import Linear
from qwenvl.engine.rope import patch_coordinates, rotate, vision_rope

# a picture of 1024 x 768: a tenth to half of a second a layer, and nobody else's answer should wait longer
PATCHES_A_SLICE = 3072

# rows of a layer that go through its matrices together: what is in between stays in the cache, and its memory comes
# from the heap again and again (over 32 MB it would be mapped anew each time, which costs more than the product)
ROW_BLOCK = 512


@dataclass(frozen=True)
class Features:
    """One encoded picture: merged tokens [n, W], DeepStack levels each [n, W], and its merged grid (h, w)."""

    merged: Tensor
    levels: tuple[Tensor, ...]
    grid: tuple[int, int]

    @property
    def tokens(self) -> int:
        return self.merged.shape[0]

    @property
    def nbytes(self) -> int:
        return self.merged.nbytes + sum(level.nbytes for level in self.levels)


@dataclass(frozen=True)
class LayerNorm:
    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-6)


@dataclass(frozen=True)
class Block:
    norm1: LayerNorm
    qkv: Linear
    proj: Linear
    norm2: LayerNorm
    fc1: Linear
    fc2: Linear


@dataclass(frozen=True)
class Merger:
    """2x2 neighbouring patches become one token. DeepStack mergers normalise after joining, the last one before."""

    norm: LayerNorm
    fc1: Linear
    fc2: Linear
    norm_after_join: bool

    def __call__(self, x: Tensor, joined: int) -> Tensor:
        """x [N, D] -> [N / 4, W]; `joined` is the width of four patches side by side."""
        x = self.norm(x.view(-1, joined)) if self.norm_after_join else self.norm(x).view(-1, joined)
        return self.fc2(F.gelu(self.fc1(x)))


@dataclass(frozen=True)
class VisionTower:
    """All weights of the tower. `patch_embed` has the two temporal halves of its kernel added up already."""

    heads: int
    merge: int
    deepstack_after: tuple[int, ...]
    patch_embed: Linear
    position_table: Tensor
    blocks: tuple[Block, ...]
    merger: Merger
    deepstack: tuple[Merger, ...]

    def encode(self, pixels: Tensor, h: int, w: int) -> Generator[float, None, Features]:
        """Encode pixels [N, 3 * patch * patch] of an h x w grid; yields the fraction done after each slice.

        A generator, so that whoever drives it decides after every slice what to do next. A slice is a layer, or some
        rows of it where the picture is large: a row's result does not depend on how they are cut.
        """
        x = self.patch_embed(pixels) + self._positions(h, w)
        width = x.shape[1]
        cos, sin = vision_rope(h, w, self.merge, width // self.heads)
        joined, levels = width * self.merge**2, []
        q, k, v = (torch.empty(len(x), self.heads, width // self.heads) for _ in range(3))
        for i, block in enumerate(self.blocks):
            for rows in _row_blocks(len(x)):
                parts = block.qkv(block.norm1(x[rows])).view(-1, 3, self.heads, q.shape[2]).unbind(1)
                q[rows], k[rows] = rotate(parts[0], cos[rows], sin[rows]), rotate(parts[1], cos[rows], sin[rows])
                v[rows] = parts[2]
            for own in _slices(len(x)):
                self._rest_of_layer(block, x[own], q[own], k, v)
                yield (i + own.stop / len(x)) / (len(self.blocks) + 1)
            if i in self.deepstack_after:
                levels.append(self.deepstack[self.deepstack_after.index(i)](x, joined))
        return Features(self.merger(x, joined), tuple(levels), (h // self.merge, w // self.merge))

    def slices(self, patches: int) -> int:
        """How often `encode` yields for a picture of so many patches."""
        return len(self.blocks) * len(_slices(patches))

    @property
    def width(self) -> int:
        return self.position_table.shape[1]

    @staticmethod
    def _rest_of_layer(block: Block, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Some rows x [n, D] and their queries through the layer, in place, over the keys and values of all rows."""
        attended = full_attention(q, k, v, exact=not block.qkv.rounds)
        for rows in _row_blocks(len(x)):
            y = block.proj(attended[rows], residual=x[rows])
            x[rows] = block.fc2(block.fc1(block.norm2(y), gelu=True), residual=y)

    def _positions(self, h: int, w: int) -> Tensor:
        """The square table of learnt positions, read bilinearly at the h x w patches (corners on corners) [N, D]."""
        side = math.isqrt(len(self.position_table))
        rows, columns = patch_coordinates(h, w, self.merge)
        y, x = (t * ((side - 1) / max(size - 1, 1)) for t, size in ((rows.float(), h), (columns.float(), w)))
        y0, x0 = y.floor().long(), x.floor().long()
        y1, x1 = (y0 + 1).clamp_(max=side - 1), (x0 + 1).clamp_(max=side - 1)
        fy, fx = (y - y0)[:, None], (x - x0)[:, None]

        def row(v: Tensor) -> Tensor:
            return self.position_table[v * side + x0] * (1 - fx) + self.position_table[v * side + x1] * fx

        return row(y0) * (1 - fy) + row(y1) * fy


def _row_blocks(rows: int) -> list[slice]:
    return [slice(start, min(start + ROW_BLOCK, rows)) for start in range(0, rows, ROW_BLOCK)]


def _slices(rows: int) -> list[slice]:
    """Pieces of a layer's rows whose attention takes about as long as that of a whole picture of PATCHES_A_SLICE."""
    pieces = max(1, round((rows / PATCHES_A_SLICE) ** 2))
    size = -(-rows // pieces)
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
