"""Decoder layers in one call give, to the bit, what their steps give one after another: in every instruction set."""

from dataclasses import replace

import pytest
import torch

from qwenvl import kernels
from qwenvl.engine.kv import KVStore
from qwenvl.engine.language import Layer, RMSNorm, Rows, TextModel
from qwenvl.engine.linear import FloatLinear, Int8Linear, quantize_rows
from qwenvl.kernels import attention
from qwenvl.kernels import layers as own
from qwenvl.kernels.store import PAIRS

H, G, D, W, WIDE, DEPTH = 4, 2, 32, 72, 100, 4


@pytest.fixture(autouse=True)
def best_kernels(isa):
    """Weights are packed for our own kernels whatever the set."""


def make_layer(generator: torch.Generator) -> Layer:
    def product(N: int, K: int) -> Int8Linear:
        return Int8Linear(*quantize_rows(torch.randn(N, K, generator=generator) * K**-0.5))

    def norm(width: int) -> RMSNorm:
        return RMSNorm(torch.rand(width, generator=generator) + 0.5, 1e-6)

    return Layer(
        norm(W), product((H + 2 * G) * D, W), norm(D), norm(D), product(W, H * D), norm(W), product(2 * WIDE, W),
        product(W, WIDE),
    )  # fmt: skip


def make_model() -> TextModel:
    generator = torch.Generator().manual_seed(3)
    return TextModel(
        heads=H, kv_heads=G, head_dim=D, rope_theta=10000.0, rope_sections=(6, 5, 5), embedding=torch.zeros(1, W),
        layers=tuple(make_layer(generator) for _ in range(DEPTH)), norm=RMSNorm(torch.ones(W), 1e-6),
        head=FloatLinear(torch.eye(W)),
    )  # fmt: skip


def run(model: TextModel, dtype: torch.dtype, counts: tuple[int, ...] = (70, 1, 3)) -> torch.Tensor:
    """Two passes of several sequences, the first one with a picture in it: all hidden states and all that was kept."""
    generator = torch.Generator().manual_seed(5)
    pairs = dtype == PAIRS
    store = KVStore(DEPTH, G, D, 1 << 20, torch.bfloat16 if pairs else dtype, least_tokens=1000, pairs=pairs)
    for t in (store.keys, store.values, *(store.scales or ())):
        t.zero_()
    kvs, out = [store.begin(200) for _ in counts], []
    for turn in range(2):
        batch = []
        for i, (kv, count) in enumerate(zip(kvs, counts, strict=True)):
            x = torch.randn(count, W, generator=generator)
            positions = torch.arange(kv.length, kv.length + count).expand(3, -1)
            visual, levels = None, ()
            if turn == i == 0:
                visual = torch.arange(3, 20)
                levels = tuple(torch.randn(17, W, generator=generator) for _ in range(2))
            batch.append(Rows(x, positions, kv, visual, levels))
        out.append(model.forward(batch))
    return torch.cat([t.double().flatten() for t in (*out, store.keys, store.values, *(store.scales or ()))])


def one_by_one(monkeypatch, model: TextModel, dtype: torch.dtype) -> torch.Tensor:
    with monkeypatch.context() as patched:
        patched.setattr(own.Layers, "serves", staticmethod(lambda *facts: False))
        return run(model, dtype)


@pytest.fixture(params=[torch.bfloat16, torch.float32, torch.int8, PAIRS], ids=str)
def dtype(request, isa) -> torch.dtype:
    if request.param == PAIRS and not attention.prefers_pairs(D):
        pytest.skip(f"{isa} takes no pairs")
    return request.param


def test_together_is_one_by_one(monkeypatch, dtype):
    model = make_model()
    calls = []
    real = own.Layers.run
    monkeypatch.setattr(own.Layers, "run", lambda self, layers, *a: calls.append(layers) or real(self, layers, *a))
    got = run(model, dtype)
    assert calls == [range(0, 1), range(1, 2), range(2, 4), range(0, 4)]  # it stops where a picture's rows are added to
    assert torch.equal(got, one_by_one(monkeypatch, model, dtype))


def test_a_layer_that_is_not_ours_is_done_between_the_others(monkeypatch):
    model = make_model()
    strange = FloatLinear(torch.randn(2 * WIDE, W, dtype=torch.bfloat16))
    layers = list(model.layers)
    layers[1] = replace(layers[1], gate_up=strange)
    model = replace(model, layers=tuple(layers))
    assert torch.equal(run(model, torch.bfloat16), one_by_one(monkeypatch, model, torch.bfloat16))


def test_threads_change_no_bit(dtype):
    model, before = make_model(), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = run(model, dtype)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(alone, run(model, dtype))


def test_what_does_not_fit_is_refused():
    model = make_model()
    store = torch.zeros(DEPTH, G, 64, D)
    angles, slots = (torch.ones(2, D),) * 2, torch.arange(2)
    sequences = own.Sequences([torch.zeros(1, dtype=torch.int32)], [2], [2], 2)
    with pytest.raises(ValueError, match="do not fit"):
        model._own.run(range(0, 4), torch.zeros(3, W), angles, slots, (store, store), sequences, H)
    with pytest.raises(ValueError, match="cannot be done"):
        model._own.run(range(0, 2), torch.zeros(2, W), angles, slots, (store[:3], store[:3]), sequences, H)


def test_the_kernels_of_this_cpu_do_whole_layers():
    store = torch.zeros(G, 64, D)
    assert own.Layers.serves(H, D, store, store) == kernels.available()
