"""The bench: every figure it promises, beside limits and other engines that really ran, all with the demo model."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen3VLConfig

from qwenvl import kernels
from qwenvl.__main__ import main
from qwenvl.config import Settings
from qwenvl.engine import linear
from qwenvl.engine.bench import baseline, limits, machine, ours, plot, report, run
from qwenvl.engine.bench.child import run_child
from qwenvl.engine.bench.figures import Figures
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.hub import DEMO_FOLDER
from qwenvl.engine.random_model import TEXT_SHAPE, VISION_SHAPE
from qwenvl.errors import QwenVLError
from tests.engine.conftest import noise

NUMBERS = """read_bandwidth_gb_s peak_gop_s load_s warm_load_s peak_load_rss_gb peak_rss_gb encode_s prefill_s
    first_token_s followup_first_token_s decode_tokens_per_s decode_fraction_of_limit""".split()
SHARED = "load_s encode_s prefill_s first_token_s decode_tokens_per_s peak_load_rss_gb peak_rss_gb".split()


# --- one whole run ---


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """Everything at once; its output, its JSON and the plot's bytes."""
    drawn = tmp_path_factory.mktemp("bench") / "stages.png"
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(["bench", "--model", "demo", "--users", "2", "--tokens", "4", "--baseline", "--tables",
                       "--int4", "--plot", str(drawn)])  # fmt: skip
    assert status == 0, err.getvalue()
    text = out.getvalue()
    last = text.strip().splitlines()[-1]
    return SimpleNamespace(text=text, progress=err.getvalue(), json=json.loads(last), plot=drawn.read_bytes())


def test_the_last_line_has_every_figure(whole_run):
    figures = whole_run.json
    for name in NUMBERS:
        assert figures[name] > 0, name
    assert figures["picture"] == "1024x768" and figures["model"] == "demo" and figures["quantization"] == "int8"
    assert figures["kernel"] == linear.kernel_name()
    assert set(figures["decode_tokens_per_s_by_users"]) == {"1", "2"}
    assert figures["followup_first_token_s"] < figures["first_token_s"]
    limit = figures["limits"]["decode_tokens_per_s"]
    assert figures["decode_fraction_of_limit"] == pytest.approx(figures["decode_tokens_per_s"] / limit, abs=1e-4)


def test_no_figure_is_better_than_its_limit(whole_run):
    figures, best = whole_run.json, whole_run.json["limits"]
    for name in set(NUMBERS) & set(best) - {"decode_tokens_per_s"}:
        assert 0 <= best[name] < figures[name], name
    assert figures["decode_tokens_per_s"] < best["decode_tokens_per_s"]
    for users, rate in figures["decode_tokens_per_s_by_users"].items():
        assert rate < best["decode_tokens_per_s_by_users"][users]


def test_the_baselines_ran_and_ours_is_divided_by_them(whole_run):
    figures = whole_run.json
    assert set(figures["baselines"]) == set(baseline.BASELINES) == set(figures["ratios"])
    for name, theirs in figures["baselines"].items():
        for field in SHARED:
            assert theirs[field] > 0, (name, field)
            assert figures["ratios"][name][field] == pytest.approx(figures[field] / theirs[field], rel=0.01)
        assert theirs["first_token_s"] == pytest.approx(theirs["encode_s"] + theirs["prefill_s"], abs=0.001)


@pytest.mark.skipif(not kernels.available(), reason="int4 needs kernels of our own")
def test_int4_is_measured_in_the_same_run(whole_run):
    four = whole_run.json["int4"]
    for name in ("load_s", "prefill_s", "first_token_s", "decode_tokens_per_s", "read_bandwidth_gb_s", "peak_rss_gb"):
        assert four[name] > 0, name
    assert set(four["decode_tokens_per_s_by_users"]) == set(four["decode_ratio_by_users"]) == {"1", "2"}
    for users, ratio in four["decode_ratio_by_users"].items():
        rates = (four[f"{kind}decode_tokens_per_s_by_users"][users] for kind in ("", "int8_"))
        assert ratio == pytest.approx(next(rates) / next(rates), abs=1e-3)
    # the head is in int8 and larger than the demo's layers
    checkpoint = Checkpoint(DEMO_FOLDER)
    head = checkpoint.config.text_config.vocab_size * checkpoint.config.text_config.hidden_size
    assert four["step_bytes"] < head + 0.6 * limits.layer_weights(checkpoint.config) + 100_000
    assert "int4 / int8" in whole_run.text


def test_the_tables(whole_run):
    rows = whole_run.json["by_stage"]
    assert [row["stage"] for row in rows] == [stage.name for stage in ours.STAGES]
    assert [row["quantization"] for row in rows] == [stage.quantization for stage in ours.STAGES]
    assert [row["users"] for row in rows] == [1, 1, 1, 1, 2]
    for row in rows:
        assert 0 < row["first_token_s"] < row["first_answer_s"] and row["streaming"] is True
        assert 0 < row["followup_first_token_s"] < row["followup_answer_s"] and row["peak_rss_gb"] > 0
    assert list(whole_run.json["by_picture_size"]) == ["512x512", "800x800", "1024x1024"]
    for row in whole_run.json["by_picture_size"].values():
        assert row["picture_tokens"] > 0 and row["first_answer_s"] > 0 and row["tokens_per_s"] > 0


def test_people_read_the_same(whole_run):
    for said in ("of limit", "transformers_float32", "quantize_dynamic", "2 users", "+ batching", "800x800", "(x"):
        assert said in whole_run.text, said
    for said in ("loading demo", "writing for 2 at once", "table by stage: + int8", "table by picture size: 800x800"):
        assert said in whole_run.progress.splitlines()


def test_the_plot_is_a_png(whole_run):
    assert whole_run.plot.startswith(b"\x89PNG\r\n\x1a\n")
    assert Image.open(io.BytesIO(whole_run.plot)).width > 800


# --- what one question costs ---


def test_multiply_adds_of_the_real_shape():
    """1024x768: vision matrices 928, attention 464, mergers and patch embedding 80, text about 1,130 GMAC."""
    config = Qwen3VLConfig(text_config=TEXT_SHAPE, vision_config=VISION_SHAPE)
    assert limits.picture_macs(config, 3072) / 1e9 == pytest.approx(928 + 464 + 80, rel=0.002)
    assert limits.prompt_macs(config, 780) / 1e9 == pytest.approx(1134, rel=0.002)
    together = limits.prompt_macs(config, 500) + limits.prompt_macs(config, 280, 500)
    assert together == limits.prompt_macs(config, 780) + TEXT_SHAPE["vocab_size"] * TEXT_SHAPE["hidden_size"]


def test_multiply_adds_are_those_that_torch_counts(reference, float_engine):
    picture = noise(300, 200)
    prompt = float_engine.start(ours.sample_question(picture)).prompt
    inputs = float_engine.model.processor(images=[picture.rgb], return_tensors="pt")
    ids = torch.tensor([prompt.ids])
    kinds = (ids == reference.config.image_token_id).int()
    # fused attention would not be counted
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        reference(input_ids=ids, mm_token_type_ids=kinds, logits_to_keep=1, **inputs)
    config, patches, T = reference.config, len(inputs["pixel_values"]), len(prompt.ids)
    counted = limits.picture_macs(config, patches) + limits.prompt_macs(config, T)
    # torch also counts the second frame of the picture, and what a causal mask hides
    c, v = config.text_config, config.vision_config
    frame = patches * v.hidden_size * 3 * v.patch_size**2
    hidden = c.num_hidden_layers * c.num_attention_heads * c.head_dim * T * (T - 1)
    assert counted + frame + hidden == pytest.approx(counter.get_total_flops() / 2, rel=0.001)


def test_parameters_are_read_from_headers():
    stored = load_file(DEMO_FOLDER / "model.safetensors")
    assert limits.parameters(Checkpoint(DEMO_FOLDER)) == sum(tensor.numel() for tensor in stored.values())


def test_eight_users_share_the_weights_but_not_the_keys():
    figures = Figures(read_bandwidth_gb_s=10.0, peak_gop_s=100.0, prompt_tokens=100)
    figures.decode_tokens_per_s_by_users = {"1": 1.0, "8": 1.0}
    work = limits.Work(disk_bytes=20_000_000_000, weight_bytes=2_000_000_000, step_bytes=900_000_000,
                       kv_bytes=1_000_000, picture_macs=500_000_000_000, prompt_macs=50_000_000_000,
                       followup_macs=1)  # fmt: skip
    best = limits.limits(figures, work)
    assert best["decode_tokens_per_s_by_users"] == {"1": 10.0, "8": pytest.approx(8 * 10 / 1.7, rel=0.001)}
    assert (best["load_s"], best["encode_s"], best["prefill_s"], best["first_token_s"]) == (2, 10, 1, 11)
    assert best["followup_first_token_s"] == 0.09  # nothing is quicker than reading the weights once


# --- loading cold and warm ---


def test_the_cache_of_a_run_is_empty_at_first_and_gone_at_last(tmp_path):
    (tmp_path / "kept").mkdir()
    with run.empty_cache(Settings(cache_dir=str(tmp_path))) as settings:
        inside = Path(settings.cache_dir)
        assert inside.parent == tmp_path and list(inside.iterdir()) == []
        (inside / "weights").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_without_a_cache_every_load_is_cold(tmp_path):
    (tmp_path / "file").touch()
    for folder in ("off", str(tmp_path / "file" / "below")):
        with run.empty_cache(Settings(cache_dir=folder)) as settings:
            assert settings.cache_dir == "off"


# --- what can go wrong ---


def test_a_baseline_that_has_no_memory_says_so(monkeypatch):
    monkeypatch.setattr(machine, "free_gb", lambda: 0.5)
    with pytest.raises(QwenVLError, match=r"needs about 1\.3 GB of memory, 0\.5 GB are free"):
        baseline.load("transformers_float32", Checkpoint(DEMO_FOLDER))


@pytest.mark.filterwarnings("ignore")
def test_quantize_dynamic_works_in_place_when_a_copy_does_not_fit(monkeypatch):
    monkeypatch.setattr(baseline, "free_gb", lambda: 0.001)
    model, note = baseline.load(baseline.QUANTIZED, Checkpoint(DEMO_FOLDER))
    assert "in place" in note["note"]
    assert "dynamic" in type(model.lm_head).__module__


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("answer_job(lambda job: 1 / job['x'])", "ZeroDivisionError: division by zero"),
        ("answer_job(lambda job: sys.exit(3))", "ended with status 3 and no figures"),
        ("os.kill(os.getpid(), 9)", "ended by signal 9, most likely for want of memory"),
    ],
)
def test_a_child_that_fails_is_an_error_in_a_sentence(tmp_path, monkeypatch, source, said):
    (tmp_path / "failing.py").write_text(f"import os, sys\nfrom qwenvl.engine.bench.child import answer_job\n{source}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run_child("failing", {"x": 0}) == {"error": said}


def test_what_failed_is_in_the_tables_and_the_rest_is_not_lost(tmp_path):
    figures = Figures(model="m", decode_tokens_per_s=2.0, first_token_s=1.0, encode_s=0.5, prefill_s=0.5)
    figures.decode_tokens_per_s_by_users = {"1": 2.0}
    figures.limits = {"decode_tokens_per_s_by_users": {"1": 4.0}, "decode_tokens_per_s": 4.0}
    good = {"first_token_s": 2.0, "encode_s": 1.0, "prefill_s": 1.0, "decode_tokens_per_s": 1.0}
    figures.compare({"transformers_float32": {"error": "needs about 9 GB"}, "transformers_bfloat16": good})
    figures.by_stage = [{"stage": "float32", "error": "no room"}]
    assert figures.ratios["transformers_float32"] == {}
    assert figures.ratios["transformers_bfloat16"]["first_token_s"] == 0.5
    figures.beside({"error": "int4 needs kernels of our own"})
    text = report.text(figures, 32)
    for said in (
        "transformers_float32: needs about 9 GB",
        "float32: no room",
        "int4: int4 needs",
        "2.00 s (x0.50)",
        "tokens/s (x2.00)",
    ):
        assert said in text, said
    plot.draw(figures, 32, tmp_path / "some.png")
    assert len(plot.bars(figures, 32)) == 3 and (tmp_path / "some.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--plot", "stages.jpg"], "PNG"),
        (["--plot", "/no/such/folder/stages.png"], "/no/such/folder"),
        (["--tokens", "1"], "--tokens"),
        (["--tokens", "1000"], "--tokens"),
        (["--users", "0"], "--users"),
        (["--model", "/no/such/model"], "/no/such/model"),
    ],
)
def test_wrong_arguments_are_one_line_before_anything_is_measured(capsys, arguments, said):
    assert main(["bench", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("qwenvl: ") and said in err and err.count("\n") == 1


def test_int4_beside_something_else_than_int8_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("QWENVL_QUANTIZATION", "bfloat16")
    assert main(["bench", "--model", "demo", "--int4"]) == 1
    assert "QWENVL_QUANTIZATION is bfloat16" in capsys.readouterr().err


def test_a_missing_matplotlib_is_one_line(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["bench", "--plot", "stages.png"]) == 1
    assert "requirements-plot.txt" in capsys.readouterr().err
