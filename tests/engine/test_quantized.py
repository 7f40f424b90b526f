"""Kept weights: the same model comes back, whole or not at all, and only for the bytes it was made from."""

import json
import logging
import os
import shutil
import time
import weakref

import pytest
import torch

from qwenvl.config import Settings
from qwenvl.engine import builder, loading, quantized
from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import Source, cache_folder
from qwenvl.engine.loading import load_engine, load_model
from qwenvl.engine.quantized import WeightsWriter, open_saved, open_writer, version_of
from tests.engine.conftest import ask, noise, silent


@pytest.fixture(autouse=True)
def even_small_ones(monkeypatch):
    monkeypatch.setattr(loading, "WORTH_KEEPING_BYTES", 0)


@pytest.fixture
def model_folder(folder, tmp_path):
    """A checkpoint of its own, to be changed."""
    return shutil.copytree(folder, tmp_path / "model")


def load(folder, kept, skip: str = ""):
    return load_model(Source(folder, "x"), "int8", skip, silent, kept=kept)


def sets(kept) -> list:
    return sorted(kept.iterdir())


def test_the_second_start_maps_what_the_first_one_made(model_folder, tmp_path, monkeypatch):
    kept = tmp_path / "kept"
    first = load(model_folder, kept)
    assert [path.name.split("-")[0] for path in sets(kept)] == ["model"]
    monkeypatch.setattr(builder, "quantize_rows", lambda weight: pytest.fail("quantised again"))
    second = load(model_folder, kept)
    answers = [ask(Engine(model), noise(300, 200)) for model in (first, second)]
    assert answers[0] == answers[1] and answers[0]
    with open("/proc/self/maps") as maps:
        assert any(line.rstrip().endswith("weights.bin") for line in maps)


@pytest.mark.parametrize("limit", [0.0, 0.1])
def test_a_first_start_lets_go_of_what_it_made_once_that_is_kept(model_folder, tmp_path, monkeypatch, limit):
    """Served is what is mapped: two copies of a large model would not fit. With and without a first question."""
    made, real = [], loading._quantized

    def remember(*args):
        model, build = real(*args)
        made.extend(map(weakref.ref, (model.text.layers[0].qkv, model.vision, model.text.head)))
        return model, build

    monkeypatch.setattr(loading, "_quantized", remember)
    model = load_model(Source(model_folder, "x"), "int8", "", silent, kept=tmp_path / "kept", fidelity_limit=limit)
    assert len(made) == 3 and [ref() for ref in made] == [None] * 3
    assert ask(Engine(model), noise(300, 200))


def test_another_checkpoint_or_skip_list_is_quantised_anew_and_the_old_one_leaves(model_folder, tmp_path):
    kept = tmp_path / "kept"
    load(model_folder, kept)
    one = sets(kept)
    load(model_folder, kept, skip="visual.merger")
    two = sets(kept)
    os.utime(model_folder / "model.safetensors", ns=(1, 1))
    load(model_folder, kept)
    three = sets(kept)
    assert len(one) == len(two) == len(three) == 1 and len({*one, *two, *three}) == 3


def test_other_models_and_writers_at_work_stay_interrupted_ones_go(model_folder, tmp_path):
    kept = tmp_path / "kept"
    load(shutil.copytree(model_folder, tmp_path / "another"), kept)
    for name, age in ((".tmp-now", 0), (".tmp-old", quantized.ABANDONED_S + 60)):
        (kept / name).mkdir()
        os.utime(kept / name, (time.time() - age,) * 2)
    load(model_folder, kept)
    assert [path.name.split("-")[0] for path in sets(kept)] == [".tmp", "another", "model"]
    assert (kept / ".tmp-now").is_dir()


@pytest.mark.parametrize("damage", ["cut", "no index", "bad index"])
def test_damaged_weights_are_made_again(model_folder, tmp_path, damage, caplog):
    kept = tmp_path / "kept"
    expected = ask(Engine(load(model_folder, kept)), noise(300, 200))
    (folder,) = sets(kept)
    if damage == "cut":
        os.truncate(folder / "weights.bin", 1000)
    elif damage == "no index":
        (folder / "index.json").unlink()
    else:
        (folder / "index.json").write_text("{")
    assert ask(Engine(load(model_folder, kept)), noise(300, 200)) == expected
    assert open_saved(folder) is not None


def test_an_interrupted_start_leaves_nothing(model_folder, tmp_path, monkeypatch):
    kept = tmp_path / "kept"
    calls = iter(range(10))
    real = builder.quantize_rows
    monkeypatch.setattr(builder, "quantize_rows", lambda weight: real(weight) if next(calls) < 9 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        load(model_folder, kept)
    assert not kept.exists() or sets(kept) == []


def test_without_a_place_to_write_it_runs_and_says_so(model_folder, tmp_path, caplog, monkeypatch):
    (tmp_path / "a file").write_text("")
    assert load(model_folder, tmp_path / "a file" / "kept").text
    assert "not kept" in caplog.text
    caplog.clear()
    monkeypatch.setattr(quantized, "SPARE_BYTES", 1 << 60)
    assert load(model_folder, tmp_path / "kept").text
    assert "no space left" in caplog.text and not any((tmp_path / "kept").glob("*"))


def test_a_disk_that_fills_up_meanwhile_ends_the_writing_only(tmp_path, caplog):
    writer = open_writer(tmp_path / "kept" / "x", "me", 1)
    writer.add("a", {"weight": torch.ones(3)})
    writer._file.close()
    writer._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115 (the writer closes it)
    writer.add("b", {"weight": torch.ones(3)})
    writer.add("c", {"weight": torch.ones(3)})
    writer.finish()
    assert "not kept" in caplog.text and sets(tmp_path / "kept") == []


def test_two_starts_at_once_keep_one_set(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    writers = [WeightsWriter(tmp_path / "kept" / "x", "me") for _ in range(2)]
    for i, writer in enumerate(writers):
        writer.add("a", {"weight": torch.full((5,), float(i)), "scale": torch.ones(2, dtype=torch.int8)})
        writer.finish()
    assert [path.name for path in sets(tmp_path / "kept")] == ["x"]
    saved = open_saved(tmp_path / "kept" / "x")
    assert torch.equal(saved.get("a")["weight"], torch.zeros(5)) and saved.get("b") is None


def test_every_dtype_and_shape_comes_back_aligned(tmp_path):
    tensors = {
        "a": torch.arange(35, dtype=torch.uint8).view(5, 7), "b": torch.randn(3, 1, 2), "c": torch.tensor(7),
        "d": torch.randn(9).bfloat16(), "e": torch.randn(4, 6).T,
    }  # fmt: skip
    writer = WeightsWriter(tmp_path / "kept" / "x", "me")
    writer.add("all", tensors)
    writer.finish()
    saved = open_saved(tmp_path / "kept" / "x")
    saved.warm(lambda fraction: None, step=64)
    for part, tensor in saved.get("all").items():
        assert torch.equal(tensor, tensors[part]) and tensor.data_ptr() % 64 == 0


def test_the_version_sees_content_name_and_facts(tmp_path):
    a = tmp_path / "a"
    a.write_bytes(bytes(10_000_000))
    versions = {version_of([a], "int8"), version_of([a], "int8", ""), version_of([a], "other")}
    status = a.stat()
    with open(a, "r+b") as file:
        file.seek(9_990_000)
        file.write(b"x")
    os.utime(a, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(versions | {version_of([a], "int8")}) == 4


def test_the_setting_names_the_folder(model_folder, tmp_path):
    settings = Settings(model=str(model_folder), cache_dir=str(tmp_path / "here"), threads=1)
    load_engine(settings, silent)
    (folder,) = sets(tmp_path / "here")
    assert json.loads((folder / "index.json").read_text())["owner"] == str(model_folder)
    assert cache_folder("off") is None and cache_folder("").name == "qwenvl"
