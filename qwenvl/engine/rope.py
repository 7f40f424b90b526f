"""Rotary positions: 2-D for patches, interleaved M-RoPE (time, height, width) for tokens. Pure functions of integers.

Source: the Qwen3-VL technical report and transformers' `modeling_qwen3_vl`, with which the tests compare.
Legend: T tokens, N patches, D head width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the halves of x [R, H, D] by angles given as cos and sin [R, D]."""
    a, b = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-b, a), -1) * sin[:, None]


def patch_coordinates(h: int, w: int, merge: int) -> tuple[Tensor, Tensor]:
    """Row and column [N] of each patch of an h x w grid, in the processor's order: blocks of merge x merge patches."""
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")

    def blocks(t: Tensor) -> Tensor:
        return t.reshape(h // merge, merge, w // merge, merge).transpose(1, 2).flatten()

    return blocks(rows), blocks(columns)


def vision_rope(h: int, w: int, merge: int, head_dim: int, theta: float = 10000.0) -> tuple[Tensor, Tensor]:
    """cos and sin [N, D] for the patches of one picture: half of the angles from the row, half from the column."""
    half = head_dim // 2
    inverse = 1.0 / theta ** (torch.arange(0, half, 2, dtype=torch.float32) / half)
    rows, columns = patch_coordinates(h, w, merge)
    angles = torch.cat((rows[:, None] * inverse, columns[:, None] * inverse), 1).repeat(1, 2)
    return angles.cos(), angles.sin()


def text_rope(positions: Tensor, head_dim: int, theta: float, sections: Sequence[int]) -> tuple[Tensor, Tensor]:
    """cos and sin [T, D] for positions [3, T].

    Frequency i belongs to height if i % 3 == 1 and to width if i % 3 == 2, up to three times the section's length;
    all others belong to time.
    """
    inverse = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = positions[:, :, None].float() * inverse
    mixed = angles[0].clone()
    for axis in (1, 2):
        own = slice(axis, sections[axis] * 3, 3)
        mixed[:, own] = angles[axis][:, own]
    mixed = mixed.repeat(1, 2)
    return mixed.cos(), mixed.sin()


def token_positions(segments: Sequence[int | tuple[int, int]]) -> tuple[Tensor, int]:
    """M-RoPE positions [3, T] of a prompt, and the next free position (which is not the length).

    `segments` in order: an int is so many text tokens; a pair (h, w) is a picture of h x w merged tokens, whose
    tokens share one time and after which counting goes on from the larger side.
    """
    parts, start = [], 0
    for segment in segments:
        if isinstance(segment, int):
            parts.append(torch.arange(start, start + segment).expand(3, -1))
            start += segment
        else:
            h, w = segment
            rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            parts.append(torch.stack((torch.zeros(h * w, dtype=torch.long), rows.flatten(), columns.flatten())) + start)
            start += max(h, w)
    return torch.cat(parts, 1), start
