"""From a checkpoint's names to modules. The only place that knows what its tensors are called.

Memory never holds more than the finished int8 model and the tensor in hand. The embedding, which the tied head would
double, stays mapped from its file: the rows of a prompt's tokens are all that is ever read of it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.fidelity import Before, divide_norm, divide_rows, settled
from qwenvl.engine.hub import Report
from qwenvl.engine.language import Layer, RMSNorm, TextModel
from qwenvl.engine.linear import FloatLinear, Int8Linear, Linear, quantize_rows
from qwenvl.engine.quantized import SavedWeights, WeightsWriter
from qwenvl.engine.vision import Block, LayerNorm, Merger, VisionTower

TEXT, VISION = "model.language_model.", "model.visual."
# small, first in line and fed by raw pixels: not worth a rounding
ALWAYS_FLOAT = ("patch_embed",)


# name, how its stored weight [N, K] is read, bias [N], what makes its inputs, bits a weight may be kept in -> product
Make = Callable[[str, Callable[[], Tensor], Tensor | None, Before | None, int], Linear]


def quantize(name: str, read: Callable[[], Tensor], bias: Tensor | None, before: Before | None, bits: int) -> Linear:
    """In 8 or 4 bits, come what may."""
    make = Int8Linear.in_four_bits if bits == 4 else Int8Linear
    return make(*quantize_rows(read()), bias)


class Builder:
    """Makes the modules of a checkpoint. One `linear` decides for every matrix in what form it is kept.

    `make` makes those that are to be quantised; `saved` has what an earlier start made of them.
    """

    def __init__(self, checkpoint: Checkpoint, quantization: str, skip: str, report: Report,
                 make: Make = quantize, saved: SavedWeights | None = None):  # fmt: skip
        self.checkpoint, self.quantization, self.report = checkpoint, quantization, report
        self.make, self.saved = make, saved
        self.skip = (*ALWAYS_FLOAT, *(part.strip() for part in skip.split(",") if part.strip()))
        self.float_dtype = torch.bfloat16 if quantization == "bfloat16" else torch.float32
        self.config = checkpoint.config
        self.done, self.total = 0, len(checkpoint.shards)
        self.products: dict[str, Linear] = {}
        self.norms: dict[str, RMSNorm | LayerNorm] = {}

    def tensor(self, name: str) -> Tensor:
        """A tensor as float32 in memory of its own."""
        return self._read(name).float().clone()

    def _read(self, name: str) -> Tensor:
        self.done += 1
        self.report("loading the model", min(1.0, self.done / self.total))
        return self.checkpoint.tensor(name)

    def linear(self, *names: str, bias: bool = False, known_as: str = "", before: Before | None = None,
               bits: int = 8) -> Linear:  # fmt: skip
        """One matrix, or several of equal width stacked, with its bias. The skip list may also say `known_as`.

        `bits` is 4 for those that writing waits for, where 4 are asked for: what is bound by arithmetic gains nothing.
        """
        skipped = any(part in name for part in self.skip for name in (*names, known_as))
        if self.quantization in ("int8", "int4") and not skipped:
            return self._quantized(names, bias, before, bits if self.quantization == "int4" else 8)
        biases = torch.cat([self.tensor(f"{n}.bias") for n in names]).to(self.float_dtype) if bias else None
        weight = torch.cat([self._read(f"{n}.weight").to(self.float_dtype) for n in names])
        return FloatLinear(weight, biases)

    def _quantized(self, names: tuple[str, ...], bias: bool, before: Before | None, bits: int) -> Linear:
        key = "+".join(names)
        if self.saved is not None:
            return _restored(self.saved.get(key))
        biases = torch.cat([self.tensor(f"{n}.bias") for n in names]) if bias else None
        self.products[key] = self.make(key, lambda: self._weight(names), biases, before, bits)
        return self.products[key]

    def _weight(self, names: tuple[str, ...]) -> Tensor:
        """As stored; a single one stays mapped from its file."""
        parts = [self._read(f"{n}.weight") for n in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def keep(self, writer: WeightsWriter) -> None:
        """Store every product and every norm as it has become."""
        for name, product in self.products.items():
            writer.add(name, _stored(settled(product)))
        for name, norm in self.norms.items():
            bias = {"bias": norm.bias} if isinstance(norm, LayerNorm) else {}
            writer.add(name, {"weight": norm.weight, **bias})

    def _norm(self, name: str, part: str) -> Tensor:
        kept = self.saved.get(name) if self.saved is not None else None
        return kept[part] if kept else self.tensor(f"{name}.{part}")

    # --- vision ---

    def vision(self) -> VisionTower:
        c = self.config.vision_config
        return VisionTower(
            heads=c.num_heads,
            merge=c.spatial_merge_size,
            deepstack_after=tuple(c.deepstack_visual_indexes),
            patch_embed=self._patch_embed(),
            position_table=self.tensor(VISION + "pos_embed.weight"),
            blocks=tuple(self._block(f"{VISION}blocks.{i}.") for i in range(c.depth)),
            merger=self._merger(VISION + "merger.", norm_after_join=False),
            deepstack=tuple(
                self._merger(f"{VISION}deepstack_merger_list.{i}.", norm_after_join=True)
                for i in range(len(c.deepstack_visual_indexes))
            ),
        )

    def _patch_embed(self) -> Linear:
        # [D, 3, 2, 16, 16]: a still picture is shown to both temporal halves, so their sum sees it once
        kernel = self.tensor(VISION + "patch_embed.proj.weight").sum(2).flatten(1)
        return FloatLinear(kernel, self.tensor(VISION + "patch_embed.proj.bias"))

    def _layer_norm(self, name: str) -> LayerNorm:
        self.norms[name] = LayerNorm(self._norm(name, "weight"), self._norm(name, "bias"))
        return self.norms[name]

    def _block(self, prefix: str) -> Block:
        norm1, norm2 = self._layer_norm(prefix + "norm1"), self._layer_norm(prefix + "norm2")
        qkv = self.linear(prefix + "attn.qkv", bias=True, before=divide_norm(norm1))
        width = len(norm1.weight)
        return Block(
            norm1=norm1,
            qkv=qkv,
            # what goes into it are sums of values, so dividing the rows that make those divides it
            proj=self.linear(prefix + "attn.proj", bias=True, before=divide_rows(qkv, 2 * width, (1, 1, width))),
            norm2=norm2,
            fc1=self.linear(prefix + "mlp.linear_fc1", bias=True, before=divide_norm(norm2)),
            fc2=self.linear(prefix + "mlp.linear_fc2", bias=True),
        )

    def _merger(self, prefix: str, *, norm_after_join: bool) -> Merger:
        norm = self._layer_norm(prefix + "norm")
        copies = 1 if norm_after_join else self.config.vision_config.spatial_merge_size**2
        return Merger(
            norm,
            self.linear(prefix + "linear_fc1", bias=True, before=divide_norm(norm, copies)),
            self.linear(prefix + "linear_fc2", bias=True),
            norm_after_join,
        )

    # --- text ---

    def text(self) -> TextModel:
        c = self.config.text_config
        rope = c.rope_parameters
        tied = "lm_head.weight" not in self.checkpoint
        norm = self._rms_norm(TEXT + "norm")
        head = TEXT + "embed_tokens" if tied else "lm_head"
        return TextModel(
            heads=c.num_attention_heads,
            kv_heads=c.num_key_value_heads,
            head_dim=c.head_dim,
            rope_theta=rope["rope_theta"],
            rope_sections=tuple(rope.get("mrope_section", (24, 20, 20))),
            embedding=self._read(TEXT + "embed_tokens.weight"),
            head=self.linear(head, known_as="lm_head", before=divide_norm(norm)),
            layers=tuple(self._layer(f"{TEXT}layers.{i}.") for i in range(c.num_hidden_layers)),
            norm=norm,
        )

    def _rms_norm(self, name: str) -> RMSNorm:
        self.norms[name] = RMSNorm(self._norm(name, "weight"), self.config.text_config.rms_norm_eps)
        return self.norms[name]

    def _layer(self, prefix: str) -> Layer:
        attention, mlp, c = prefix + "self_attn.", prefix + "mlp.", self.config.text_config
        norm1, norm2 = self._rms_norm(prefix + "input_layernorm"), self._rms_norm(prefix + "post_attention_layernorm")
        qkv = self.linear(*(f"{attention}{part}_proj" for part in "qkv"), before=divide_norm(norm1), bits=4)
        gate_up = self.linear(mlp + "gate_proj", mlp + "up_proj", before=divide_norm(norm2), bits=4)
        G, D, wide = c.num_key_value_heads, c.head_dim, c.intermediate_size
        group = c.num_attention_heads // G
        return Layer(
            norm1=norm1,
            qkv=qkv,
            q_norm=self._rms_norm(attention + "q_norm"),
            k_norm=self._rms_norm(attention + "k_norm"),
            # a value's row serves every query head of its group
            out=self.linear(attention + "o_proj", before=divide_rows(qkv, (group + 1) * G * D, (G, group, D)), bits=4),
            norm2=norm2,
            gate_up=gate_up,
            down=self.linear(mlp + "down_proj", before=divide_rows(gate_up, wide, (1, 1, wide)), bits=4),
        )


def _stored(linear: Linear) -> dict[str, Tensor]:
    form = linear.stored() if isinstance(linear, Int8Linear) else {"bfloat16": linear.weight}
    return form if linear.bias is None else form | {"bias": linear.bias[: linear.out_features]}


def _restored(tensors: dict[str, Tensor]) -> Linear:
    bias = tensors.pop("bias", None)
    return FloatLinear(tensors["bfloat16"], bias) if "bfloat16" in tensors else Int8Linear.restored(tensors, bias)
