"""The network in training: transformers' own modules, and the batched forward pass for pictures of one size.

The general forward pass handles every picture alone; this special case of it trains several times faster. The two give
the same numbers, so what is learnt here is a plain `Qwen3VLForConditionalGeneration`.
Shapes: B pictures or rows, N patches, D vision width, T tokens.
"""

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

from demo_model.drawing import SHAPES
from demo_model.printing import CHARACTERS
from demo_model.tokenizer import SPECIALS

MERGE, PATCH = 2, 16
SLOTS = 3  # characters that one patch may name
CHAR_IDS = {c: i + 1 for i, c in enumerate(CHARACTERS)}
SHAPE_IDS = {s: i + 1 for i, s in enumerate(SHAPES)}


def make_config(tokenizer: Tokenizer) -> Qwen3VLConfig:
    ids = {name: tokenizer.token_to_id(name) for name in SPECIALS}
    vocab = -(-tokenizer.get_vocab_size() // 64) * 64
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    return Qwen3VLConfig(
        text_config=dict(
            vocab_size=vocab, hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=4096, rms_norm_eps=1e-6, rope_parameters=rope,
            bos_token_id=None, eos_token_id=ids["<|im_end|>"], pad_token_id=None, tie_word_embeddings=True,
        ),
        vision_config=dict(
            depth=4, hidden_size=128, intermediate_size=512, num_heads=4, patch_size=PATCH, spatial_merge_size=MERGE,
            temporal_patch_size=2, out_hidden_size=192, num_position_embeddings=256, deepstack_visual_indexes=[1, 2],
        ),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )  # fmt: skip


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def attention(q, k, v, causal: bool = False):
    """Plain attention. For rows this short torch's fused kernel takes most of a training step in its backward pass."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf, dtype=scores.dtype).triu(1)
    return scores.softmax(-1).to(v.dtype) @ v


class Trainee(nn.Module):
    """transformers' model and a throw-away head that names the characters in a patch."""

    def __init__(self, config: Qwen3VLConfig):
        super().__init__()
        self.model = Qwen3VLForConditionalGeneration(config)
        self.chars = nn.Linear(config.vision_config.hidden_size, SLOTS * (len(CHAR_IDS) + 1))
        self.tables: dict = {}

    def _vision_tables(self, h: int, w: int):
        """Interpolation and rotary tables of one grid, made once by transformers' own helpers."""
        if (h, w) not in self.tables:
            grid, visual = torch.tensor([[1, h, w]]), self.model.model.visual
            index, weight = get_vision_interpolation_indices_and_weights(
                grid, visual.num_grid_per_side, mode="bilinear", align_corners=True, spatial_merge_size=MERGE
            )
            cos, sin = visual.rotary_pos_emb(torch.zeros(1), get_vision_position_ids(grid, MERGE))
            self.tables[h, w] = index, weight, cos[None, None], sin[None, None]
        return self.tables[h, w]

    def encode(self, images: torch.Tensor):
        """uint8 [B, H, W, 3] -> merged [B, N/4, text width], the DeepStack levels, last hidden [B, N, D]."""
        visual = self.model.model.visual
        B, H, W, _ = images.shape
        h, w = H // PATCH, W // PATCH
        x = images.reshape(B, h // 2, 2, PATCH, w // 2, 2, PATCH, 3).permute(0, 1, 4, 2, 5, 7, 3, 6)
        x = x.reshape(B, h * w, 3 * PATCH * PATCH).float() / 127.5 - 1
        conv = visual.patch_embed.proj
        index, weight, cos, sin = self._vision_tables(h, w)
        x = F.linear(x, conv.weight.sum(2).flatten(1), conv.bias)  # both temporal halves see the same still picture
        x = x + (visual.pos_embed(index) * weight[:, :, None]).sum(1)
        levels = []
        for i, block in enumerate(visual.blocks):
            x = self._vision_block(block, x, cos, sin)
            if i in visual.deepstack_visual_indexes:
                merger = visual.deepstack_merger_list[visual.deepstack_visual_indexes.index(i)]
                levels.append(merger(x.reshape(-1, x.shape[-1])).view(B, h * w // 4, -1))
        merged = visual.merger(x.reshape(-1, x.shape[-1])).view(B, h * w // 4, -1)
        return merged, levels, x

    @staticmethod
    def _vision_block(block, x, cos, sin):
        B, N, D = x.shape
        q, k, v = block.attn.qkv(block.norm1(x)).view(B, N, 3, block.attn.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        out = attention(q, k, v)
        x = x + block.attn.proj(out.transpose(1, 2).reshape(B, N, D))
        return x + block.mlp(block.norm2(x))

    def decode(self, ids, position_ids, spans, merged, levels):
        """ids [B, T], position_ids [3, B, T], spans [(start, end)] of the pictures -> last hidden [B, T, width]."""
        text = self.model.model.language_model
        x = text.embed_tokens(ids)
        if spans:
            x = self._put(x, spans, merged, torch.zeros_like(x), 0.0)
        cos, sin = (t[:, None] for t in text.rotary_emb(x, position_ids))
        for i, layer in enumerate(text.layers):
            x = self._text_layer(layer, x, cos, sin)
            if spans and i < len(levels):
                x = self._put(x, spans, levels[i], x, 1.0)
        return text.norm(x)

    @staticmethod
    def _put(x, spans, values, base, keep: float):
        """Replace (keep=0) or add to (keep=1) the rows of the pictures; same places in every row of the batch."""
        parts, at, used = [], 0, 0
        per = values.view(x.shape[0], -1, values.shape[-1])
        for start, end in spans:
            parts += [x[:, at:start], base[:, start:end] * keep + per[:, used : used + end - start]]
            at, used = end, used + end - start
        return torch.cat([p.to(x.dtype) for p in (*parts, x[:, at:])], 1)

    @staticmethod
    def _text_layer(layer, x, cos, sin):
        B, T, _ = x.shape
        attn, y = layer.self_attn, layer.input_layernorm(x)
        q = attn.q_norm(attn.q_proj(y).view(B, T, -1, attn.head_dim)).transpose(1, 2)
        k = attn.k_norm(attn.k_proj(y).view(B, T, -1, attn.head_dim)).transpose(1, 2)
        v = attn.v_proj(y).view(B, T, -1, attn.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        groups = attn.num_key_value_groups
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        out = attention(q, k, v, causal=True)
        x = x + attn.o_proj(out.transpose(1, 2).reshape(B, T, -1))
        return x + layer.mlp(layer.post_attention_layernorm(x))

    def char_loss(self, hidden, targets):
        """hidden [B, N, D], targets [B, N, SLOTS]; empty patches weigh little, as they are most."""
        logits = self.chars(hidden).view(-1, len(CHAR_IDS) + 1).float()
        weight = torch.ones(len(CHAR_IDS) + 1)
        weight[0] = 0.15
        return F.cross_entropy(logits, targets.reshape(-1), weight=weight), logits


class ShapeHead(nn.Linear):
    """Names the shape that a merged token shows and the ninth that shape lies in; thrown away like the character head.

    Without it the tower gathers "a star, a red one" wherever it likes, far from the star, and of several shapes the
    place of a named one cannot be told: whoever finds the star has not found where it is.
    """

    def __init__(self, width: int):
        super().__init__(width, len(SHAPE_IDS) + 1 + 9)
        self.optimizer = torch.optim.AdamW(self.parameters(), lr=2e-3)

    def loss(self, merged, targets) -> tuple[torch.Tensor, float]:
        """merged [B, n, width], targets [B, n, 2] -> the loss, and how many shapes are named right with their ninth."""
        logits, targets = self(merged).float().flatten(0, 1), targets.flatten(0, 1)
        shapes, cells = logits.split((len(SHAPE_IDS) + 1, 9), 1)
        weight = torch.tensor([0.15] + [1.0] * len(SHAPE_IDS))
        loss = F.cross_entropy(shapes, targets[:, 0], weight=weight, ignore_index=-1)
        shown = targets[:, 0] > 0
        if not shown.any():
            return loss, float("nan")
        loss = loss + F.cross_entropy(cells[shown], targets[shown, 1])
        right = (shapes.argmax(1) == targets[:, 0]) & (cells.argmax(1) == targets[:, 1])
        return loss, right[shown].float().mean().item()
