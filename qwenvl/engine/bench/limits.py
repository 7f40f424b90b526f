"""What one question costs by the model's shape, and how fast this machine could be at best. Knows no clock.

Reading every weight once per token bounds writing; multiply-adds at the measured rate of the engine's own product bound
reading. Attention is not done in int8, so the true compute limit of the first token lies a little higher.

Legend: N patches, n merged tokens, T prompt tokens, D vision width, H text width.
"""

from dataclasses import dataclass

from safetensors import safe_open
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig

from qwenvl.engine.bench.figures import Figures
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.engine import Engine
from qwenvl.engine.kv import PAGE_TOKENS
from qwenvl.messages import Answer

# of int4, whose decoder layers alone have fewer, `weight_bytes` counts what was saved
WEIGHT_BYTES = {"int8": 1, "int4": 1, "bfloat16": 2, "none": 4}


def parameters(checkpoint: Checkpoint) -> int:
    """Numbers in the checkpoint, from the headers of its files."""
    total = 0
    for path in set(checkpoint.shards.values()):
        with safe_open(path, framework="pt") as shard:
            for name in shard.keys():  # noqa: SIM118 (a shard is no dict)
                size = 1
                for side in shard.get_slice(name).get_shape():
                    size *= side
                total += size
    return total


def picture_macs(config: Qwen3VLConfig, patches: int) -> int:
    """Multiply-adds of one still picture of N patches through the vision tower.

    A layer has four matrices, N (4 D^2 + 2 D F), F being the width of its MLP, and two attention products of N^2 D. A
    merger joins m^2 patches to rows of J = m^2 D: n (J^2 + J H); there is one, and one more for each DeepStack level.
    The patch embedding is N D times the 3 p^2 pixel values of a patch.
    """
    c, N, D = config.vision_config, patches, config.vision_config.hidden_size
    layer = N * (4 * D * D + 2 * D * c.intermediate_size) + 2 * N * N * D
    joined = D * c.spatial_merge_size**2
    merger = N // c.spatial_merge_size**2 * joined * (joined + c.out_hidden_size)
    embedding = N * D * c.in_channels * c.patch_size**2
    return c.depth * layer + (1 + len(c.deepstack_visual_indexes)) * merger + embedding


def prompt_macs(config: Qwen3VLConfig, tokens: int, before: int = 0) -> int:
    """Multiply-adds of T prompt tokens through the decoder when `before` tokens are there already, and one head.

    Of width H with Q of query heads, K of key heads and F of the MLP, a layer's matrices take T (2 H Q + 2 H K + 3 H F)
    and attention, where token i sees before + i tokens, 2 Q (T before + T (T + 1) / 2).
    """
    c, T = config.text_config, tokens
    attention = 2 * c.num_attention_heads * c.head_dim * (T * before + T * (T + 1) // 2)
    return T * layer_weights(config) + c.num_hidden_layers * attention + c.vocab_size * c.hidden_size


def layer_weights(config: Qwen3VLConfig) -> int:
    """Numbers in the matrices of the decoder's layers, its head not counted: H (2 Q + 2 K + 3 F) a layer."""
    c = config.text_config
    Q, K = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    return c.num_hidden_layers * c.hidden_size * (2 * Q + 2 * K + 3 * c.intermediate_size)


@dataclass(frozen=True)
class Work:
    """What has to be read (bytes) and computed (multiply-adds), whoever does it. `kv_bytes` are of one token."""

    disk_bytes: int
    weight_bytes: int
    step_bytes: int
    kv_bytes: int
    picture_macs: int
    prompt_macs: int
    followup_macs: int


@dataclass(frozen=True)
class Size:
    """Of a whole checkpoint: numbers in it, bytes of its files."""

    parameters: int
    disk_bytes: int


def size_of(checkpoint: Checkpoint) -> Size:
    return Size(parameters(checkpoint), sum(path.stat().st_size for path in checkpoint.files))


def work(engine: Engine, config: Qwen3VLConfig, size: Size, first: Answer, followup: Answer) -> Work:
    """The work of an answer about one new picture, and of a second one that goes on from it.

    Weights count as they are kept: `weight_bytes` all of them, `step_bytes` those that one decode step reads.
    """
    text, quantization = engine.model.text, engine.model.quantization
    saved = layer_weights(config) - (text.weight_bytes - text.head.nbytes) if quantization == "int4" else 0
    new, known = followup.usage.prompt_tokens - followup.usage.cached_tokens, followup.usage.cached_tokens
    return Work(
        disk_bytes=size.disk_bytes,
        weight_bytes=size.parameters * WEIGHT_BYTES[quantization] - saved,
        step_bytes=text.weight_bytes,
        kv_bytes=engine.store.page_bytes // PAGE_TOKENS,
        picture_macs=picture_macs(config, first.images[0].tokens * config.vision_config.spatial_merge_size**2),
        prompt_macs=prompt_macs(config, first.usage.prompt_tokens),
        followup_macs=prompt_macs(config, new, known),
    )


def limits(figures: Figures, work: Work) -> dict:
    """The best that a machine of these figures could do, under the names of `Figures`.

    Loading counts as if the files were in memory already: how fast a disk is, only a first start would tell.
    """
    bandwidth, rate = figures.read_bandwidth_gb_s * 1e9, figures.peak_gop_s * 1e9 / 2
    once = work.step_bytes / bandwidth
    encode, prefill = work.picture_macs / rate, max(work.prompt_macs / rate, once)
    context = work.kv_bytes * figures.prompt_tokens
    by_users = {
        users: round(int(users) * bandwidth / (work.step_bytes + int(users) * context), 2)
        for users in figures.decode_tokens_per_s_by_users
    }
    return {
        "load_s": round(work.disk_bytes / bandwidth, 4),
        "warm_load_s": round(work.weight_bytes / bandwidth, 4),
        "peak_load_rss_gb": round(work.weight_bytes / 1e9, 3),
        "peak_rss_gb": round((work.weight_bytes + context) / 1e9, 3),
        "encode_s": round(encode, 4),
        "prefill_s": round(prefill, 4),
        "first_token_s": round(encode + prefill, 4),
        "followup_first_token_s": round(max(work.followup_macs / rate, once), 4),
        "decode_tokens_per_s": by_users["1"],
        "decode_tokens_per_s_by_users": by_users,
    }
