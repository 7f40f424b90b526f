"""From logits to the next token: greedy, or by chance when a temperature is asked for. Knows nothing of sequences."""

import torch
from torch import Tensor

# as Qwen3-VL's generation config has them; they matter only with a temperature
TOP_K, TOP_P = 20, 0.8


def choose(logits: Tensor, temperature: float) -> int:
    """The next id from logits [V]. Temperature 0 is greedy; of equals the lowest id wins."""
    if temperature <= 0:
        return int(logits.argmax())
    top, ids = logits.topk(min(TOP_K, len(logits)))
    chances = (top / temperature).softmax(0)
    # the smallest set whose chances reach TOP_P; the first one always stays
    chances[chances.cumsum(0) - chances >= TOP_P] = 0.0
    return int(ids[torch.multinomial(chances, 1)])
