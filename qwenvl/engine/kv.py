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

    @property
    def nbytes_used(self) -> int:
        """Bytes of the tokens in use."""
        return (self.keys.nbytes + self.values.nbytes) // self.capacity * self.length

    def take(self, other: "KV", length: int) -> None:
        """Begin with a copy of another sequence's first `length` tokens."""
        self.keys[:, :, :length] = other.keys[:, :, :length]
        self.values[:, :, :length] = other.values[:, :, :length]
        self.length = length

    def clone(self, capacity: int) -> "KV":
        """A copy of the tokens in use, with room for `capacity`."""
        layers, heads, _, head_dim = self.keys.shape
        copy = KV(layers, heads, head_dim, capacity, self.keys.dtype)
        copy.take(self, self.length)
        return copy

    def advance(self, tokens: int) -> None:
        self.length += tokens
