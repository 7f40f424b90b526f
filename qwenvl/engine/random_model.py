"""A model of Qwen3-VL-2B's exact shape with random weights, to measure on: speed does not depend on their values.

It is a whole folder in Hugging Face layout (4.3 GB in bfloat16, several shards) with the demo's tokenizer, so that
loading, quantising and answering take the very path of the real checkpoint.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from qwenvl.engine.hub import DEMO_FOLDER, Report

SHARD_BYTES = 1 << 30
TEXT_SHAPE = dict(
    model_type="qwen3_vl_text", vocab_size=151936, hidden_size=2048, intermediate_size=6144, num_hidden_layers=28,
    num_attention_heads=16, num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-6, hidden_act="silu",
    max_position_embeddings=262144, rope_theta=5000000, tie_word_embeddings=True, attention_bias=False,
    rope_scaling={"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
)  # fmt: skip
VISION_SHAPE = dict(
    model_type="qwen3_vl", depth=24, hidden_size=1024, intermediate_size=4096, num_heads=16, patch_size=16,
    spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=2048, num_position_embeddings=2304, in_channels=3,
    deepstack_visual_indexes=[5, 11, 17], hidden_act="gelu_pytorch_tanh",
)  # fmt: skip
PROCESSOR = dict(
    size={"shortest_edge": 65536, "longest_edge": 16777216}, patch_size=16, temporal_patch_size=2, merge_size=2,
    image_mean=[0.5] * 3, image_std=[0.5] * 3,
)  # fmt: skip


def random_model(folder: Path, report: Report) -> Path:
    """Make the folder: about a minute, 4.3 GB."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(DEMO_FOLDER / name, folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    demo = json.loads((DEMO_FOLDER / "config.json").read_text())
    ids = {key: value for key, value in demo.items() if key.endswith("_token_id")}
    text = TEXT_SHAPE | {"eos_token_id": demo["text_config"]["eos_token_id"]}
    config = {
        "model_type": "qwen3_vl",
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config | ids | {"text_config": text, "vision_config": VISION_SHAPE}))
    _write_shards(folder, report)
    return folder


def _write_shards(folder: Path, report: Report) -> None:
    shapes = dict(tensor_shapes())
    total, done, shard, where = sum(map(_count, shapes.values())), 0, {}, {}
    generator = torch.Generator().manual_seed(0)
    for i, (name, shape) in enumerate(shapes.items()):
        shard[name] = _values(name, shape, generator)
        done += _count(shape)
        report("making a random model", done / total)
        if sum(t.nbytes for t in shard.values()) > SHARD_BYTES or i == len(shapes) - 1:
            file = f"model-{len(set(where.values())) + 1:05d}.safetensors"
            save_file(shard, folder / file, metadata={"format": "pt"})
            where.update(dict.fromkeys(shard, file))
            shard = {}
    index = {"metadata": {"total_size": total * 2}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _count(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()


def _values(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """As at the start of a training: norms one, biases zero, small matrices, so that numbers stay finite."""
    if len(shape) == 1:
        return torch.full(shape, float(name.endswith(".weight")), dtype=torch.bfloat16)
    return torch.empty(shape, dtype=torch.bfloat16).normal_(0, 0.02, generator=generator)


def tensor_shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor of the checkpoint: name, shape."""
    yield from _vision_shapes("model.visual.")
    yield from _text_shapes("model.language_model.")


def _vision_shapes(prefix: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    v = VISION_SHAPE
    D, wide, out = v["hidden_size"], v["intermediate_size"], v["out_hidden_size"]
    yield prefix + "pos_embed.weight", (v["num_position_embeddings"], D)
    yield from _with_bias(prefix + "patch_embed.proj", D, (3, 2, 16, 16))
    for i in range(v["depth"]):
        block = f"{prefix}blocks.{i}."
        for name, rows, columns in (
            ("attn.qkv", 3 * D, D),
            ("attn.proj", D, D),
            ("mlp.linear_fc1", wide, D),
            ("mlp.linear_fc2", D, wide),
        ):
            yield from _with_bias(block + name, rows, (columns,))
        for name in ("norm1", "norm2"):
            yield from _with_bias(block + name, D, ())
    mergers = [("merger.", D)] + [
        (f"deepstack_merger_list.{i}.", 4 * D) for i in range(len(v["deepstack_visual_indexes"]))
    ]
    for name, norm in mergers:
        yield from _with_bias(prefix + name + "norm", norm, ())
        yield from _with_bias(prefix + name + "linear_fc1", 4 * D, (4 * D,))
        yield from _with_bias(prefix + name + "linear_fc2", out, (4 * D,))


def _with_bias(name: str, rows: int, rest: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield name + ".weight", (rows, *rest)
    yield name + ".bias", (rows,)


def _text_shapes(prefix: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    t = TEXT_SHAPE
    H, wide, D = t["hidden_size"], t["intermediate_size"], t["head_dim"]
    q, kv = t["num_attention_heads"] * D, t["num_key_value_heads"] * D
    yield prefix + "embed_tokens.weight", (t["vocab_size"], H)
    for i in range(t["num_hidden_layers"]):
        layer = f"{prefix}layers.{i}."
        for name, rows, columns in (("q_proj", q, H), ("k_proj", kv, H), ("v_proj", kv, H), ("o_proj", H, q)):
            yield f"{layer}self_attn.{name}.weight", (rows, columns)
        for name, rows, columns in (("gate_proj", wide, H), ("up_proj", wide, H), ("down_proj", H, wide)):
            yield f"{layer}mlp.{name}.weight", (rows, columns)
        yield from ((f"{layer}self_attn.{name}.weight", (D,)) for name in ("q_norm", "k_norm"))
        yield from ((f"{layer}{name}.weight", (H,)) for name in ("input_layernorm", "post_attention_layernorm"))
    yield prefix + "norm.weight", (H,)
