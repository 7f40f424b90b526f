"""The guard finds the layers that int8 hurts, exactly those, and mends them: planted in the demo model."""

import dataclasses
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from demo_model.accuracy import answers, held_out
from qwenvl import kernels
from qwenvl.__main__ import main
from qwenvl.engine import loading
from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import DEMO_FOLDER, Source
from qwenvl.engine.linear import FloatLinear
from qwenvl.engine.loading import load_model
from tests.engine.conftest import silent

LIMIT = 0.05
LARGE = 1024.0  # a power of two: planting changes no digit of a bfloat16 weight
CHANNELS = [3, 50, 101]
TEXT, VISION = "model.language_model.layers.", "model.visual.blocks."
PLANTED = {
    f"{TEXT}2.self_attn.q_proj+{TEXT}2.self_attn.k_proj+{TEXT}2.self_attn.v_proj": "smoothed",
    f"{TEXT}1.self_attn.o_proj": "smoothed",
    f"{TEXT}3.mlp.down_proj": "smoothed",
    f"{VISION}1.mlp.linear_fc1": "smoothed",
    f"{VISION}0.attn.proj": "smoothed",
    f"{VISION}2.mlp.linear_fc2": "bfloat16",
}


def plant(tensors: dict[str, torch.Tensor]) -> None:
    """Large channels that change nothing of what the model computes in float."""
    # after norms
    tensors[TEXT + "2.input_layernorm.weight"][CHANNELS] *= LARGE
    for part in "qkv":
        tensors[f"{TEXT}2.self_attn.{part}_proj.weight"][:, CHANNELS] /= LARGE
    for part in ("weight", "bias"):
        tensors[f"{VISION}1.norm2.{part}"][CHANNELS] *= LARGE
    tensors[VISION + "1.mlp.linear_fc1.weight"][:, CHANNELS] /= LARGE
    # in the rows of the product before: values (three query heads share each), the upper half of the MLP
    tensors[TEXT + "1.self_attn.v_proj.weight"][[5, 40]] *= LARGE
    columns = [head * 32 + 5 for head in range(3)] + [head * 32 + 8 for head in range(3, 6)]
    tensors[TEXT + "1.self_attn.o_proj.weight"][:, columns] /= LARGE
    tensors[TEXT + "3.mlp.up_proj.weight"][CHANNELS] *= LARGE
    tensors[TEXT + "3.mlp.down_proj.weight"][:, CHANNELS] /= LARGE
    for part in ("weight", "bias"):
        tensors[f"{VISION}0.attn.qkv.{part}"][[256 + 7, 256 + 90]] *= LARGE
    tensors[VISION + "0.attn.proj.weight"][:, [7, 90]] /= LARGE
    # behind a GELU, where nothing can be divided: a channel that is always large and means nothing
    tensors[VISION + "2.mlp.linear_fc1.weight"][9] = 0
    tensors[VISION + "2.mlp.linear_fc1.bias"][9] = 300
    tensors[VISION + "2.mlp.linear_fc2.weight"][:, 9] = 0


@pytest.fixture(scope="module")
def planted_folder(tmp_path_factory):
    folder = shutil.copytree(DEMO_FOLDER, tmp_path_factory.mktemp("planted") / "model")
    tensors = load_file(folder / "model.safetensors")
    plant(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def guarded(planted_folder):
    return load_model(Source(planted_folder, "planted"), "int8", "", silent, fidelity_limit=LIMIT)


def treated(model) -> dict[str, str]:
    return {layer.name: layer.treatment for layer in model.fidelity if layer.treatment != "int8"}


def test_the_demo_itself_needs_no_treatment():
    model = load_model(Source(DEMO_FOLDER, "demo"), "int8", "", silent, fidelity_limit=LIMIT)
    assert len(model.fidelity) > 30 and treated(model) == {}
    assert all(0 < layer.error == layer.int8_error < LIMIT for layer in model.fidelity)


def test_it_finds_exactly_what_was_planted(guarded):
    assert treated(guarded) == PLANTED
    for layer in guarded.fidelity:
        assert layer.error <= LIMIT
        assert (layer.int8_error > LIMIT) == (layer.name in PLANTED)


@pytest.mark.skipif(not kernels.available(), reason="int4 needs kernels of our own")
def test_what_is_planted_is_found_in_int4_too(planted_folder):
    """It is mended as in int8; everything else in the decoder's layers is in 4 bits."""
    model = load_model(Source(planted_folder, "planted"), "int4", "", silent, fidelity_limit=LIMIT)
    by_name = {layer.name: layer.treatment for layer in model.fidelity}
    assert {name: by_name[name] for name in PLANTED} == PLANTED
    for name in by_name.keys() - PLANTED.keys():
        assert by_name[name] == ("int4" if name.startswith(TEXT) else "int8")


def test_answers_stay(planted_folder, guarded):
    """As the planted model answers in float; without the guard they do not."""
    asked = list(held_out(60, "fidelity"))

    def said(model) -> list[str]:
        return answers(Engine(model, slots=16), asked)

    exact = said(load_model(Source(planted_folder, "planted"), "none", "", silent))
    bare = said(load_model(Source(planted_folder, "planted"), "int8", "", silent))

    def different(got) -> int:
        return sum(a != b for a, b in zip(got, exact, strict=True))

    assert different(said(guarded)) <= 3 < 10 < different(bare)


def test_what_was_done_is_kept(planted_folder, guarded, tmp_path, monkeypatch):
    """The second start has the same treatments, weights and notes without looking at the checkpoint's matrices."""
    monkeypatch.setattr(loading, "WORTH_KEEPING_BYTES", 0)
    source = Source(planted_folder, "planted")
    first, second = (
        load_model(source, "int8", "", silent, kept=tmp_path / "kept", fidelity_limit=LIMIT) for _ in range(2)
    )
    assert first.fidelity == second.fidelity == guarded.fidelity
    assert isinstance(second.vision.blocks[2].fc2, FloatLinear)
    asked = list(held_out(20, "kept"))
    assert answers(Engine(first, slots=16), asked) == answers(Engine(second, slots=16), asked)


def test_health_has_it_in_short(guarded):
    short = Engine(guarded).info()["fidelity"]
    assert (short["checked"], short["smoothed"], short["bfloat16"]) == (len(guarded.fidelity), 5, 1)
    assert short["worst_error"] == max(layer.error for layer in guarded.fidelity)
    unchecked = dataclasses.replace(guarded, fidelity=())
    assert Engine(unchecked).info()["fidelity"] == {"checked": 0}


def test_a_command_has_it_in_full(planted_folder, monkeypatch, capsys):
    monkeypatch.setenv("QWENVL_MODEL", str(planted_folder))
    assert main(["fidelity"]) == 0
    out = capsys.readouterr().out
    assert all(name.split("+")[0].removeprefix("model.") in out for name in PLANTED)
    assert out.count("smoothed") == 5 and out.count("bfloat16") == 1
    assert main(["fidelity", "--json"]) == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out) if row["treatment"] != "int8"} == set(PLANTED)
