"""From folder to model: every quantisation answers, the skip list is obeyed, progress is told, int8 stays close."""

import dataclasses

import pytest
import torch

from qwenvl.config import QUANTIZATIONS, Settings
from qwenvl.engine import loading
from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import DEMO, Source
from qwenvl.engine.linear import FloatLinear, Int8Linear
from qwenvl.engine.loading import load_engine, load_model
from qwenvl.kernels.store import PAIRS
from tests.engine.conftest import ask, noise, question, silent


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_every_quantization_answers(folder, quantization):
    settings = Settings(model=str(folder), quantization=quantization, threads=1)
    engine = load_engine(settings, silent)
    assert ask(engine, noise(300, 200))
    info = engine.info()
    assert info["quantization"] == quantization and info["threads"] == 1 and info["model"] == folder.name
    assert set(info["kernels"]) == {"int8", "vision_attention", "text_attention"}


def first_logits(engine: Engine) -> torch.Tensor:
    sequence = engine.start(question(noise(300, 200)))
    while sequence.logits is None:
        engine.step()
    return sequence.logits


@pytest.mark.parametrize("quantization,tolerance", [("int8", 0.06), ("bfloat16", 0.05)])
def test_reduced_precision_stays_close_to_float(folder, float_engine, quantization, tolerance):
    """Relative error of all logits after 4 vision and 4 text layers of random weights."""
    reduced = first_logits(Engine(load_model(Source(folder, "x"), quantization, "", silent)))
    exact = first_logits(float_engine)
    assert (reduced - exact).norm() / exact.norm() < tolerance


@pytest.mark.parametrize("wanted,kept", [("auto", "bfloat16"), ("float32", "float32"), ("int8", "int8")])
def test_keys_and_values_are_kept_as_the_settings_say(folder, wanted, kept):
    engine = load_engine(Settings(model=str(folder), threads=1, kv_dtype=wanted), silent)
    assert engine.store.dtype == engine.reader.kv_dtype == getattr(torch, kept)
    assert engine.store.keys.dtype in (engine.store.dtype, PAIRS)
    assert ask(engine, noise(300, 200))


def test_keys_and_values_in_int8_stay_close_to_float(float_model, float_engine):
    """Relative error of all logits after 4 layers of random weights, all else in float."""
    reduced, exact = first_logits(Engine(float_model, kv_dtype=torch.int8)), first_logits(float_engine)
    assert 0 < (reduced - exact).norm() / exact.norm() < 0.02


def test_the_skip_list_keeps_layers_in_float(folder):
    model = load_model(Source(folder, "x"), "int8", "visual.merger, lm_head", silent)
    assert isinstance(model.vision.merger.fc1, FloatLinear) and isinstance(model.text.head, FloatLinear)
    assert isinstance(model.vision.patch_embed, FloatLinear)  # always
    assert isinstance(model.vision.deepstack[0].fc1, Int8Linear)
    assert all(isinstance(layer.gate_up, Int8Linear) for layer in model.text.layers)


def test_a_tied_head_is_known_as_lm_head():
    tied = load_model(DEMO, "int8", "lm_head", silent).text
    assert isinstance(tied.head, FloatLinear)
    assert tied.head.out_features == len(tied.embedding)


def test_progress_grows_to_the_end(folder):
    seen = []
    load_model(Source(folder, "x"), "int8", "", lambda stage, fraction: seen.append(fraction))
    assert seen == sorted(seen) and seen[-1] == 1.0 and len(seen) > 50


def test_without_int8_kernels_it_runs_unquantised_and_says_so(folder, monkeypatch, caplog):
    monkeypatch.setattr(loading, "int8_available", lambda: False)
    model = load_model(Source(folder, "x"), "int8", "", silent)
    assert model.quantization == "none" and "no int8 kernels" in caplog.text


def test_the_embedding_is_mapped_not_copied(folder):
    """A tied head would double it: the table must be the file's own pages."""
    embedding = load_model(Source(folder, "x"), "int8", "", silent).text.embedding
    with open("/proc/self/maps") as maps:
        regions = [line.split() for line in maps if line.rstrip().endswith("model.safetensors")]
    start = embedding.data_ptr()
    assert any(int(r[0].split("-")[0], 16) <= start < int(r[0].split("-")[1], 16) for r in regions)


def test_settings_reach_the_engine(folder):
    settings = Settings(model=str(folder), threads=1, feature_cache_bytes=123, max_context_tokens=99)
    engine = load_engine(settings, silent)
    assert engine.features.max_bytes == 123 and engine.max_context_tokens == 99
    assert dataclasses.asdict(engine.features.stats())["entries"] == 0
