"""Moving the vision tower to oneDNN changes no integer, is decided by measuring once, and only where there is AMX."""

import json

import pytest
import torch
from PIL import Image, ImageDraw

from qwenvl import kernels
from qwenvl.config import Settings
from qwenvl.engine import loading, many_rows
from qwenvl.engine.linear import Int8Linear, quantize_rows
from qwenvl.images import Picture
from tests.engine.conftest import ask

pytestmark = pytest.mark.skipif(not kernels.available(), reason="no kernels of our own here")


def red_circle() -> Picture:
    image = Image.new("RGB", (200, 200), "white")
    ImageDraw.Draw(image).ellipse((50, 50, 150, 150), fill="red")
    return Picture(image, "circle", "balanced", 200, 200)


@pytest.mark.parametrize("shape", [(50, 64, 96), (3, 130, 66), (1, 65, 37)], ids=str)
@pytest.mark.parametrize("gelu", [False, True])
def test_the_same_product(shape, gelu):
    M, N, K = shape
    generator = torch.Generator().manual_seed(M)
    rows, residual = torch.randn(M, K, generator=generator), torch.randn(M, N, generator=generator)
    product = Int8Linear(*quantize_rows(torch.randn(N, K, generator=generator)), torch.randn(N, generator=generator))
    moved = many_rows.moved(product)
    assert isinstance(moved.matrix, many_rows.OneDNN)
    wanted = product(rows, gelu=gelu, residual=residual)
    torch.testing.assert_close(moved(rows, gelu=gelu, residual=residual), wanted, rtol=1e-5, atol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(moved.stored().values(), product.stored().values(), strict=True))


def test_a_row_is_the_same_in_any_batch():
    product = many_rows.moved(Int8Linear(*quantize_rows(torch.randn(64, 96))))
    rows = torch.randn(20, 96)
    assert torch.equal(product(rows[7:8])[0], product(rows)[7])


def test_nothing_is_measured_without_amx(monkeypatch, tmp_path):
    monkeypatch.setattr(many_rows, "has_amx", lambda: False)
    monkeypatch.setattr(many_rows, "measured", lambda: pytest.fail("measured"))
    assert not many_rows.onednn_is_faster(tmp_path)


def test_it_is_measured_once_and_kept(monkeypatch, tmp_path):
    """The real measurement of this CPU, whichever side wins."""
    monkeypatch.setattr(many_rows, "has_amx", lambda: True)
    first = many_rows.onednn_is_faster(tmp_path)
    (times,) = json.loads((tmp_path / many_rows.FILE).read_text()).values()
    assert first == (times["onednn_s"] < many_rows.WORTH * times["own_s"])
    monkeypatch.setattr(many_rows, "measured", lambda: pytest.fail("measured again"))
    assert many_rows.onednn_is_faster(tmp_path) == first


@pytest.mark.parametrize("times", [{"own_s": 1.0, "onednn_s": 0.4}, {"own_s": 1.0, "onednn_s": 0.95}], ids=str)
def test_the_faster_one_serves_and_answers_the_same(monkeypatch, tmp_path, times):
    monkeypatch.setattr(many_rows, "has_amx", lambda: True)
    monkeypatch.setattr(many_rows, "measured", lambda: times)
    settings = Settings(model="demo", cache_dir=str(tmp_path))
    engine = loading.load_engine(settings, lambda *progress: None)
    assert ("vision_int8" in engine.info()["kernels"]) == (times["onednn_s"] < 0.9)
    assert ask(engine, red_circle(), text="What color is the circle?") == "The circle is red."


def test_a_broken_file_is_measured_again(monkeypatch, tmp_path):
    monkeypatch.setattr(many_rows, "has_amx", lambda: True)
    monkeypatch.setattr(many_rows, "measured", lambda: {"own_s": 1.0, "onednn_s": 0.5})
    (tmp_path / many_rows.FILE).write_text("{")
    assert many_rows.onednn_is_faster(tmp_path)
