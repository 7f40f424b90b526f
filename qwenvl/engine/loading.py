"""From a folder to a running engine: tensors are read, quantised and packed one after another. The only place that
knows the checkpoint's names.

Memory never holds more than the finished int8 model and the tensor in hand. The embedding, which the tied head would
double, stays mapped from its file: the rows of a prompt's tokens are all that is ever read of it.
"""

import logging
import time
from pathlib import Path

import torch
from torch import Tensor

from qwenvl.config import Settings
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.detokenizer import TokenBytes
from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import Report, Source, cache_folder, find_model
from qwenvl.engine.language import Layer, RMSNorm, TextModel
from qwenvl.engine.linear import FloatLinear, Int8Linear, Linear, int8_available, int8_form, quantize_rows
from qwenvl.engine.model import Model
from qwenvl.engine.prompt import PromptBuilder
from qwenvl.engine.quantized import SavedWeights, WeightsWriter, open_saved, open_writer, version_of
from qwenvl.engine.threads import default_threads
from qwenvl.engine.vision import Block, LayerNorm, Merger, VisionTower

log = logging.getLogger(__name__)

TEXT, VISION = "model.language_model.", "model.visual."
# small, first in line and fed by raw pixels: not worth a rounding
ALWAYS_FLOAT = ("patch_embed",)
# a smaller checkpoint is quantised before anybody notices
WORTH_KEEPING_BYTES = 64 << 20


def load_engine(settings: Settings, report: Report) -> Engine:
    """Find, read and quantise the model of `settings`, reporting stage and fraction. Raises `ModelError`."""
    torch.set_num_threads(settings.threads or default_threads())
    source = find_model(settings.model, report)
    kept = cache_folder(settings.cache_dir)
    model = load_model(source, settings.quantization, settings.quantization_skip, report, kept=kept)
    return Engine(
        model,
        feature_cache_bytes=settings.feature_cache_bytes,
        prefix_cache_bytes=settings.prefix_cache_bytes,
        kv_bytes=settings.kv_bytes,
        max_context_tokens=settings.max_context_tokens,
        speculation_tokens=settings.speculation_tokens,
        kv_dtype=_kv_dtype(settings.kv_dtype, model.quantization),
    )


def _kv_dtype(wanted: str, quantization: str) -> torch.dtype:
    if wanted == "auto":
        wanted = "float32" if quantization == "none" else "bfloat16"
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[wanted]


def load_model(source: Source, quantization: str, skip: str, report: Report, *, kept: Path | None = None) -> Model:
    """A whole model from its folder. int8 weights are kept in the folder `kept` for the next time."""
    started = time.monotonic()
    checkpoint = Checkpoint(source.folder)
    if quantization == "int8" and not int8_available():
        log.warning("this build of torch has no int8 kernels: running unquantised, slower and with more memory")
        quantization = "none"
    if quantization == "int8":
        vision, text = _build_int8(checkpoint, skip, report, kept)
    else:
        build = Builder(checkpoint, quantization, skip, report)
        vision, text = build.vision(), build.text()
    config = checkpoint.config
    model = Model(
        name=source.name,
        demo=source.demo,
        quantization=quantization,
        vision=vision,
        text=text,
        processor=checkpoint.processor,
        prompts=PromptBuilder(checkpoint.tokenizer, config.image_token_id),
        token_bytes=TokenBytes(checkpoint.tokenizer),
        end_ids=checkpoint.end_ids,
        suppressed=(
            config.image_token_id, config.video_token_id, config.vision_start_token_id, config.vision_end_token_id,
        ),
    )  # fmt: skip
    log.info(
        "loaded %s as %s in %.1f s with %d threads",
        source.name, quantization, time.monotonic() - started, torch.get_num_threads(),
    )  # fmt: skip
    return model


def _build_int8(checkpoint: Checkpoint, skip: str, report: Report, kept: Path | None) -> tuple[VisionTower, TextModel]:
    """From the weights kept by an earlier start, or from the checkpoint, keeping them for the next one."""
    size = sum(path.stat().st_size for path in checkpoint.files)
    if kept is None or size < WORTH_KEEPING_BYTES:
        build = Builder(checkpoint, "int8", skip, report)
        return build.vision(), build.text()
    files = [checkpoint.folder / "config.json", *checkpoint.files]
    folder = kept / f"{checkpoint.folder.resolve().name}-{version_of(files, int8_form(), skip)}"
    if (saved := open_saved(folder)) is not None:
        build = Builder(checkpoint, "int8", skip, lambda stage, fraction: None, saved=saved)
        parts = build.vision(), build.text()
        saved.warm(lambda fraction: report("loading the model", fraction))
        return parts
    writer = open_writer(folder, owner=_owner(checkpoint.folder), size=size // 2)
    try:
        build = Builder(checkpoint, "int8", skip, report, writer=writer)
        parts = build.vision(), build.text()
        if writer is not None:
            writer.finish()
        return parts
    finally:
        if writer is not None:
            writer.abandon()


def _owner(folder: Path) -> str:
    """A checkpoint's name whatever its revision: in the Hub's cache each revision is a folder of its own."""
    folder = folder.resolve()
    return str(folder.parent.parent if folder.parent.name == "snapshots" else folder)


class Builder:
    """Makes the modules of a checkpoint. One `linear` decides for every matrix in what form it is kept."""

    def __init__(self, checkpoint: Checkpoint, quantization: str, skip: str, report: Report,
                 saved: SavedWeights | None = None, writer: WeightsWriter | None = None):  # fmt: skip
        self.checkpoint, self.quantization, self.report = checkpoint, quantization, report
        self.saved, self.writer = saved, writer
        self.skip = (*ALWAYS_FLOAT, *(part.strip() for part in skip.split(",") if part.strip()))
        self.float_dtype = torch.bfloat16 if quantization == "bfloat16" else torch.float32
        self.config = checkpoint.config
        self.done, self.total = 0, len(checkpoint.shards)

    def tensor(self, name: str) -> Tensor:
        """A tensor as float32 in memory of its own."""
        return self._read(name).float().clone()

    def _read(self, name: str) -> Tensor:
        self.done += 1
        self.report("loading the model", min(1.0, self.done / self.total))
        return self.checkpoint.tensor(name)

    def linear(self, *names: str, bias: bool = False, known_as: str = "") -> Linear:
        """One matrix, or several of equal width stacked, with its bias. The skip list may also say `known_as`."""
        biases = torch.cat([self.tensor(f"{n}.bias") for n in names]) if bias else None
        skipped = any(part in name for part in self.skip for name in (*names, known_as))
        if self.quantization == "int8" and not skipped:
            return self._int8(names, biases)
        weight = torch.cat([self._read(f"{n}.weight").to(self.float_dtype) for n in names])
        return FloatLinear(weight, biases if biases is None else biases.to(self.float_dtype))

    def _int8(self, names: tuple[str, ...], biases: Tensor | None) -> Int8Linear:
        key = "+".join(names)
        if self.saved is not None:
            return Int8Linear.restored(self.saved.get(key), biases)
        parts = [quantize_rows(self._read(f"{n}.weight")) for n in names]
        linear = Int8Linear(torch.cat([w for w, _ in parts]), torch.cat([s for _, s in parts]), biases)
        if self.writer is not None:
            self.writer.add(key, linear.stored())
        return linear

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
        return LayerNorm(self.tensor(name + ".weight"), self.tensor(name + ".bias"))

    def _block(self, prefix: str) -> Block:
        return Block(
            norm1=self._layer_norm(prefix + "norm1"),
            qkv=self.linear(prefix + "attn.qkv", bias=True),
            proj=self.linear(prefix + "attn.proj", bias=True),
            norm2=self._layer_norm(prefix + "norm2"),
            fc1=self.linear(prefix + "mlp.linear_fc1", bias=True),
            fc2=self.linear(prefix + "mlp.linear_fc2", bias=True),
        )

    def _merger(self, prefix: str, *, norm_after_join: bool) -> Merger:
        return Merger(
            self._layer_norm(prefix + "norm"),
            self.linear(prefix + "linear_fc1", bias=True),
            self.linear(prefix + "linear_fc2", bias=True),
            norm_after_join,
        )

    # --- text ---

    def text(self) -> TextModel:
        c = self.config.text_config
        rope = c.rope_parameters
        tied = "lm_head.weight" not in self.checkpoint
        return TextModel(
            heads=c.num_attention_heads,
            kv_heads=c.num_key_value_heads,
            head_dim=c.head_dim,
            rope_theta=rope["rope_theta"],
            rope_sections=tuple(rope.get("mrope_section", (24, 20, 20))),
            embedding=self._read(TEXT + "embed_tokens.weight"),
            head=self.linear(TEXT + "embed_tokens" if tied else "lm_head", known_as="lm_head"),
            layers=tuple(self._layer(f"{TEXT}layers.{i}.") for i in range(c.num_hidden_layers)),
            norm=self._rms_norm(TEXT + "norm"),
        )

    def _rms_norm(self, name: str) -> RMSNorm:
        return RMSNorm(self.tensor(name + ".weight"), self.config.text_config.rms_norm_eps)

    def _layer(self, prefix: str) -> Layer:
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        return Layer(
            norm1=self._rms_norm(prefix + "input_layernorm"),
            qkv=self.linear(attention + "q_proj", attention + "k_proj", attention + "v_proj"),
            q_norm=self._rms_norm(attention + "q_norm"),
            k_norm=self._rms_norm(attention + "k_norm"),
            out=self.linear(attention + "o_proj"),
            norm2=self._rms_norm(prefix + "post_attention_layernorm"),
            gate_up=self.linear(mlp + "gate_proj", mlp + "up_proj"),
            down=self.linear(mlp + "down_proj"),
        )
