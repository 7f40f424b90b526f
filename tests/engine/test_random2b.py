"""The random model between runs: only what is quantised stays, and a run that needs more makes it anew."""

import json

import pytest

from qwenvl import kernels
from qwenvl.__main__ import main
from qwenvl.engine import loading, random_model
from qwenvl.engine.bench import int4, random2b

SMALL_TEXT = dict(vocab_size=1024, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=32)  # fmt: skip
SMALL_VISION = dict(depth=2, hidden_size=64, intermediate_size=96, num_heads=2, out_hidden_size=128,
                    num_position_embeddings=64, deepstack_visual_indexes=[0])  # fmt: skip


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The same model with small shapes, in a home of its own."""
    rope = {"mrope_interleaved": True, "mrope_section": [6, 5, 5], "rope_type": "default"}
    monkeypatch.setitem(random_model.TEXT_SHAPE, "rope_scaling", rope)
    for key, value in SMALL_TEXT.items():
        monkeypatch.setitem(random_model.TEXT_SHAPE, key, value)
    for key, value in SMALL_VISION.items():
        monkeypatch.setitem(random_model.VISION_SHAPE, key, value)
    monkeypatch.setattr(random2b.constants, "HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.setattr(loading, "WORTH_KEEPING_BYTES", 0)
    return tmp_path / "qwenvl" / "random-2b"


def bench(capsys, *arguments) -> dict:
    assert main(["bench", "--users", "1", "--tokens", "2", *arguments]) == 0
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_only_the_quantised_form_stays_and_serves_the_next_run(small, capsys, monkeypatch):
    first = bench(capsys)
    assert sorted(path.name for path in small.iterdir()) == ["kept", "model"]
    assert len(list((small / "kept").iterdir())) == 1
    stored = sum(file.stat().st_size for file in small.rglob("*.safetensors"))
    assert stored < first["limits"]["peak_load_rss_gb"] * 1e9  # bytes of all numbers at one byte each
    assert "note" not in first

    monkeypatch.setattr(random2b, "random_model", lambda *_: pytest.fail("made anew"))
    second = bench(capsys)
    assert (second["load_s"], second["peak_load_rss_gb"]) == (first["load_s"], first["peak_load_rss_gb"])
    assert second["limits"]["peak_load_rss_gb"] == first["limits"]["peak_load_rss_gb"]
    assert "made" in second["note"] and second["warm_load_s"] > 0
    assert second["prompt_tokens"] == first["prompt_tokens"]


def test_other_kernels_or_settings_make_it_anew(small, capsys, monkeypatch):
    bench(capsys)
    before = list((small / "kept").iterdir())
    monkeypatch.setenv("QWENVL_FIDELITY_PERCENT", "7")
    assert "note" not in bench(capsys)
    assert len(list((small / "kept").iterdir())) == 1 and list((small / "kept").iterdir()) != before


@pytest.mark.skipif(not kernels.available(), reason="int4 needs kernels of our own")
def test_int4_beside_int8_keeps_both_and_serves_each_of_them(small, capsys, monkeypatch):
    # in a process of its own nothing this small would be kept
    monkeypatch.setattr(int4, "run_child", lambda module, job: int4.measure(json.loads(json.dumps(job))))
    bench(capsys)
    first = bench(capsys, "--int4")  # int8 alone was kept: made anew
    assert "note" not in first and first["int4"]["decode_ratio_by_users"]["1"] > 0
    assert len(list((small / "kept").iterdir())) == 2

    monkeypatch.setattr(random2b, "random_model", lambda *_: pytest.fail("made anew"))
    second = bench(capsys, "--int4")
    assert "note" in second and second["int4"]["step_bytes"] == first["int4"]["step_bytes"]
    assert "note" in bench(capsys)


@pytest.mark.skipif(not kernels.available(), reason="int4 needs kernels of our own")
def test_int4_alone_has_limits_of_its_own_bytes(small, capsys, monkeypatch):
    monkeypatch.setenv("QWENVL_QUANTIZATION", "int4")
    four = bench(capsys)
    assert four["quantization"] == "int4" and "note" in bench(capsys)
    monkeypatch.setenv("QWENVL_QUANTIZATION", "int8")
    eight = bench(capsys)
    read = [run["read_bandwidth_gb_s"] / run["limits"]["decode_tokens_per_s"] for run in (four, eight)]
    assert read[0] < 0.9 * read[1]


def test_what_an_interrupted_run_left_goes(small, capsys):
    (small / ".tmp-old").mkdir(parents=True)
    bench(capsys)
    assert sorted(path.name for path in small.iterdir()) == ["kept", "model"]
