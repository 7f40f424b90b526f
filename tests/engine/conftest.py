"""A small random Qwen3-VL in Hugging Face layout, transformers' model of the same weights, and pictures to show
them."""

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import DEMO_FOLDER, Source
from qwenvl.engine.loading import load_model
from qwenvl.images import Picture
from qwenvl.messages import Finished, Options, Piece, Question

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
SIZES = ((300, 200), (100, 260), (64, 64), (420, 40))


def silent(stage: str, fraction: float) -> None:
    pass


def make_config() -> Qwen3VLConfig:
    """Shapes unlike the demo's: untied, one key head a query head group of 2, DeepStack after layers 0 and 2."""
    demo = Qwen3VLConfig.from_pretrained(DEMO_FOLDER)
    rope = {"rope_type": "default", "rope_theta": 50000.0, "mrope_section": [8, 4, 4], "mrope_interleaved": True}
    return Qwen3VLConfig(
        text_config=dict(
            vocab_size=demo.text_config.vocab_size, hidden_size=96, intermediate_size=160, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6, rope_parameters=rope,
            eos_token_id=demo.text_config.eos_token_id, bos_token_id=None, pad_token_id=None,
        ),
        vision_config=dict(
            depth=4, hidden_size=64, intermediate_size=96, num_heads=2, out_hidden_size=96, patch_size=16,
            spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=49, deepstack_visual_indexes=[0, 2],
        ),
        image_token_id=demo.image_token_id, video_token_id=demo.video_token_id,
        vision_start_token_id=demo.vision_start_token_id, vision_end_token_id=demo.vision_end_token_id,
        tie_word_embeddings=False,
    )  # fmt: skip


@pytest.fixture(autouse=True, scope="session")
def kept_in_int8():
    """With QWENVL_KV_DTYPE=int8 every engine that does not say otherwise keeps keys and values so."""
    defaults = Engine.__init__.__kwdefaults__
    before = defaults["kv_dtype"]
    if os.environ.get("QWENVL_KV_DTYPE") == "int8":
        defaults["kv_dtype"] = torch.int8
    yield
    defaults["kv_dtype"] = before


@pytest.fixture(scope="session")
def reference() -> Qwen3VLForConditionalGeneration:
    """transformers' model with random weights large enough that a wrong step shows."""
    torch.manual_seed(1)
    model = Qwen3VLForConditionalGeneration(make_config()).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if "norm" in name and name.endswith("weight") else 0.0, 0.1)
    return model


@pytest.fixture(scope="session")
def folder(reference, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("random-model")
    reference.save_pretrained(out)
    for name in TOKENIZER_FILES:
        shutil.copy(DEMO_FOLDER / name, out)
    sizes = '{"size": {"shortest_edge": 4096, "longest_edge": 65536}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "patch_size": 16, "merge_size": 2, "temporal_patch_size": 2}'  # noqa: E501
    (out / "preprocessor_config.json").write_text(sizes)
    return out


@pytest.fixture(scope="session")
def float_model(folder):
    return load_model(Source(folder, "random"), "none", "", silent)


@pytest.fixture(scope="session")
def int8_model(folder):
    """Quantised; in int4 where that is asked for, as it is when the laws are tried on every kind of kernel."""
    return load_model(Source(folder, "random"), os.environ.get("QWENVL_QUANTIZATION", "int8"), "", silent)


@pytest.fixture
def float_engine(float_model) -> Engine:
    return Engine(float_model, kv_dtype=torch.float32)


@pytest.fixture
def int8_engine(int8_model) -> Engine:
    return Engine(int8_model)


def noise(width: int, height: int, seed: int = 0) -> Picture:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Picture(Image.fromarray(pixels), hashlib.sha256(pixels.tobytes()).hexdigest(), "balanced", width, height)


def question(*pictures: Picture, text: str = "What is this?", **options) -> Question:
    return Question(tuple(pictures), text, (), Options(**{"max_new_tokens": 12, **options}))


def run(engine: Engine, *sequences) -> list:
    """Drive the engine until these sequences have ended; their last messages in order."""
    answers, pieces = {}, {s: [] for s in sequences}
    for _ in range(5000):
        for sequence, message in engine.step():
            if sequence not in pieces:
                continue
            if isinstance(message, Piece):
                pieces[sequence].append(message.text)
            elif not hasattr(message, "stage"):
                answers[sequence] = message
        if len(answers) == len(sequences):
            break
    for sequence, message in answers.items():
        if isinstance(message, Finished):
            assert message.answer.response.endswith("".join(pieces[sequence]))
    return [answers[s] for s in sequences]


def ask(engine: Engine, *pictures: Picture, **options) -> str:
    return run(engine, engine.start(question(*pictures, **options)))[0].answer.response
