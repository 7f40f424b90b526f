"""The keys and values of one sequence, preallocated once. Knows no model and no policy.

Legend: L layers, G key/value heads, C capacity in tokens, D head width.
"""

import torch
from torch import Tensor


class KV:
    """Room for `capacity` tokens: keys and values [L, G, C, D] in `dtype`. `length` tokens are in use."""

    def __init__(self, layers: int, heads: int, head_dim: int, capacity: int, dtype: torch.dtype):
        self.keys = torch.empty(layers, heads, capacity, head_dim, dtype=dtype)
        self.values = torch.empty_like(self.keys)
        self.capacity, self.length = capacity, 0

    def write(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Put rows k, v [T, G, D] behind the tokens in use; the whole [G, length + T, D] of that layer comes back.

        The rows count only once every layer has written them: `advance` says so.
        """
        end = self.length + len(k)
        self.keys[layer, :, self.length : end] = k.transpose(0, 1)
        self.values[layer, :, self.length : end] = v.transpose(0, 1)
        return self.keys[layer, :, :end], self.values[layer, :, :end]

    def advance(self, tokens: int) -> None:
        self.length += tokens
