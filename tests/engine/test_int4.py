"""Weights in 4 bits: where they are used, what is kept of them, and what happens where there is no kernel for them."""

import pytest
import torch

from qwenvl import kernels
from qwenvl.__main__ import main
from qwenvl.engine import builder, fidelity, loading
from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import DEMO_FOLDER, Source
from qwenvl.engine.linear import FloatLinear, Int8Linear, quantize_rows
from qwenvl.engine.loading import load_model
from tests.engine.conftest import ask, noise, silent

pytestmark = pytest.mark.skipif(not kernels.available(), reason="no kernels of our own here")


@pytest.fixture(scope="module")
def model(folder):
    return load_model(Source(folder, "random"), "int4", "", silent)


def layers(model) -> list[Int8Linear]:
    return [m for layer in model.text.layers for m in (layer.qkv, layer.out, layer.gate_up, layer.down)]


def test_the_decoder_is_in_four_bits_its_head_and_the_vision_tower_are_not(model):
    assert model.quantization == "int4"
    assert [product.bits for product in layers(model)] == [4] * 4 * len(model.text.layers)
    assert model.text.head.bits == 8 and {block.fc1.bits for block in model.vision.blocks} == {8}


def test_half_the_bytes_and_a_sixteenth():
    """Where nothing has to be filled up: 4.25 bits a weight, and a float a channel."""
    product = Int8Linear.in_four_bits(*quantize_rows(torch.randn(128, 256)))
    assert product.nbytes == 128 * 256 * 4.25 / 8 + 128 * 4


def test_close_to_float():
    make = torch.Generator().manual_seed(3)
    weight, rows = torch.randn(192, 256, generator=make), torch.randn(9, 256, generator=make)
    bias = torch.linspace(-1, 1, 192)
    got, wanted = Int8Linear.in_four_bits(*quantize_rows(weight), bias)(rows), FloatLinear(weight, bias)(rows)
    assert ((got - wanted).norm(dim=1) / wanted.norm(dim=1)).max() < 0.1


def test_layers_on_the_skip_list_stay_in_float(folder):
    skipping = load_model(Source(folder, "random"), "int4", "down_proj", silent)
    assert {type(layer.down) for layer in skipping.text.layers} == {FloatLinear}
    assert {layer.out.bits for layer in skipping.text.layers} == {4}


def test_without_our_kernels_it_is_int8_and_one_line_says_so(folder, caplog):
    before = kernels.current()
    kernels.use("stock")
    try:
        model = load_model(Source(folder, "random"), "int4", "", silent)
        assert model.quantization == "int8" and ask(Engine(model), noise(64, 64))
    finally:
        kernels.use(before)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "int4 needs kernels of our own, which are not built or not in use here: running in int8"
    ]


def test_both_forms_are_kept_side_by_side_and_serve_the_next_start(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "WORTH_KEEPING_BYTES", 0)

    def load(quantization: str):
        return load_model(Source(folder, "random"), quantization, "", silent, kept=tmp_path, fidelity_limit=0.05)

    first = {quantization: load(quantization) for quantization in ("int4", "int8")}
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(builder, "quantize_rows", lambda weight: pytest.fail("quantised again"))
    for quantization, model in first.items():
        again = load(quantization)
        assert again.quantization == quantization and again.fidelity == model.fidelity
        assert [product.bits for product in layers(again)] == [product.bits for product in layers(model)]
        assert ask(Engine(again), noise(300, 200)) == ask(Engine(model), noise(300, 200))


def test_the_guard_says_of_each_product_what_it_is_and_would_be(monkeypatch, capsys):
    model = load_model(Source(DEMO_FOLDER, "demo"), "int4", "", silent, fidelity_limit=0.05)
    for layer in model.fidelity:
        if "language_model.layers" not in layer.name:
            assert layer.treatment == "int8" and layer.int4_error is None
        elif layer.treatment == "int4":
            assert layer.int8_error < layer.error == layer.int4_error <= 0.125
        else:
            assert layer.treatment == "int8" and layer.int4_error > 0.125 and layer.error == layer.int8_error
    short = Engine(model).info()["fidelity"]
    assert short["int4"] == sum(product.bits == 4 for product in layers(model)) > 0
    monkeypatch.setenv("QWENVL_MODEL", "demo")
    monkeypatch.setenv("QWENVL_QUANTIZATION", "int4")
    assert main(["fidelity"]) == 0
    out = capsys.readouterr().out
    assert out.count("   int4: ") == short["int4"]
    assert out.count("   int8; int4 would be ") == len(layers(model)) - short["int4"]


def test_a_stricter_guard_keeps_all_of_them_in_int8(monkeypatch):
    """What 4 bits may be off is so little here that even bell-shaped weights are over it."""
    monkeypatch.setattr(fidelity, "FOUR_BITS_MAY", 0.5)
    model = load_model(Source(DEMO_FOLDER, "demo"), "int4", "", silent, fidelity_limit=0.05)
    tried = [layer for layer in model.fidelity if layer.int4_error is not None]
    assert len(tried) == len(layers(model)) and {layer.treatment for layer in tried} == {"int8"}
    assert {product.bits for product in layers(model)} == {8}
