"""Between the products of a decoder layer: every instruction set against float64, alone as in company."""

import pytest
import torch

from qwenvl import kernels
from qwenvl.engine import attention
from qwenvl.engine.language import RMSNorm
from qwenvl.kernels import decoder
from qwenvl.kernels.store import PAIRS, read_pairs, write_pairs

EPS = 1e-6


@pytest.fixture(params=kernels.supported())
def isa(request):
    before = kernels.current()
    kernels.use(request.param)
    yield request.param
    kernels.use(before or "stock")


def exact_norm(x, weight):
    x = x.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight.double()


def exact_rotation(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos[:, None].double() + torch.cat((-b, a), -1) * sin[:, None].double()


@pytest.mark.parametrize("M,K", [(1, 2048), (3, 96), (40, 37), (17, 16), (1, 1)])
def test_rms_norm(isa, M, K):
    x, weight = torch.randn(M, K) * 5, torch.randn(K)
    got = decoder.rms_norm(x, weight, EPS)
    torch.testing.assert_close(got.double(), exact_norm(x, weight), rtol=2e-6, atol=2e-6)
    assert torch.equal(decoder.rms_norm(x[M // 2 :][:1], weight, EPS)[0], got[M // 2])


@pytest.mark.parametrize("M,width", [(1, 6144), (5, 33), (30, 64)])
def test_silu_mul(isa, M, width):
    gate_up = torch.randn(M, 2 * width) * 8
    gate, up = gate_up.double().chunk(2, -1)
    got = decoder.silu_mul(gate_up)
    torch.testing.assert_close(got.double(), gate * gate.sigmoid() * up, rtol=2e-6, atol=1e-6)
    assert torch.equal(decoder.silu_mul(gate_up[-1:])[0], got[-1])
    extremes = torch.tensor([[-200.0, 200.0, float("nan"), 0.0, 1.0, 1.0, 1.0, 1.0]])
    assert decoder.silu_mul(extremes)[0, [0, 1, 3]].tolist() == pytest.approx([0, 200, 0], abs=1e-30)
    assert decoder.silu_mul(extremes)[0, 2].isnan()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("M,H,G,D", [(1, 16, 8, 128), (5, 6, 2, 32), (33, 4, 4, 64), (2, 3, 1, 6)])
def test_place(isa, dtype, M, H, G, D):
    """Queries come back; keys and values land in their slots of one layer, and nowhere else."""
    qkv, norms = torch.randn(M, (H + 2 * G) * D), (torch.rand(D) + 0.5, torch.rand(D) + 0.5)
    angle = torch.rand(M, D // 2).repeat(1, 2) * 6
    cos, sin = angle.cos(), angle.sin()
    store = torch.full((2, 3, G, 100, D), 7.0, dtype=dtype)
    slots = torch.randperm(100)[:M]
    got = decoder.place(qkv, norms, EPS, (cos, sin), slots, store[0, 1], store[1, 1])
    q, k, v = qkv.view(M, H + 2 * G, D).split((H, G, G), 1)
    torch.testing.assert_close(got.double(), exact_rotation(exact_norm(q, norms[0]), cos, sin), rtol=1e-5, atol=5e-6)
    kept, expected = store[0, 1][:, slots].transpose(0, 1), exact_rotation(exact_norm(k, norms[1]), cos, sin)
    tolerance = dict(rtol=1e-5, atol=5e-6) if dtype == torch.float32 else dict(rtol=4e-3, atol=1e-5)
    torch.testing.assert_close(kept.double(), expected, **tolerance)
    assert torch.equal(store[1, 1][:, slots].transpose(0, 1), v.to(dtype))
    others = torch.ones(100, dtype=torch.bool)
    others[slots] = False
    assert (store[:, 1][:, :, others] == 7).all() and (store[:, [0, 2]] == 7).all()
    alone = decoder.place(qkv[-1:], norms, EPS, (cos[-1:], sin[-1:]), slots[-1:], store[0, 2], store[1, 2])
    assert torch.equal(alone[0], got[-1]) and torch.equal(store[:, 2][:, :, slots[-1]], store[:, 1][:, :, slots[-1]])


@pytest.mark.parametrize("M,H,G,D", [(1, 16, 8, 128), (5, 6, 2, 32), (33, 4, 4, 64), (2, 3, 1, 6)])
def test_place_in_pairs(isa, M, H, G, D):
    """The same numbers as in bfloat16, each in its half of a word; with torch's operators too; nothing else changes."""
    qkv, norms = torch.randn(M, (H + 2 * G) * D), (RMSNorm(torch.rand(D) + 0.5, EPS), RMSNorm(torch.rand(D) + 0.5, EPS))
    angle = torch.rand(M, D // 2).repeat(1, 2) * 6
    angles, slots = (angle.cos(), angle.sin()), torch.randperm(128)[:M]
    rows, pairs = torch.full((2, G, 128, D), 7.0, dtype=torch.bfloat16), torch.zeros(2, G, 128, D // 2, dtype=PAIRS)
    write_pairs(*pairs, torch.arange(128), tuple(rows))
    torchs = pairs.clone()
    q = attention.place(qkv, norms, angles, slots, *rows)
    assert torch.equal(attention.place(qkv, norms, angles, slots, *pairs), q)
    assert torch.equal(torch.stack(read_pairs(*pairs, torch.arange(2))), rows)
    kernels.use("stock")
    attention.place(qkv, norms, angles, slots, *torchs)
    off = torch.stack(read_pairs(*torchs, torch.arange(2))).float() - rows.float()
    assert off[:, :, slots].abs().max() < 0.05 and off.count_nonzero() < off.numel() / 100


@pytest.mark.parametrize("M,H,G,D", [(1, 16, 8, 128), (5, 6, 2, 32), (33, 4, 4, 64), (2, 3, 1, 6)])
def test_place_in_int8(isa, M, H, G, D):
    """Each key and value in whole numbers of its own, to the nearest; the same bits as without kernels of our own."""
    qkv, norms = torch.randn(M, (H + 2 * G) * D) * 10, (torch.rand(D) + 0.5, torch.rand(D) + 0.5)
    qkv[0, -D:] = 0
    angle = torch.rand(M, D // 2).repeat(1, 2) * 6
    angles, slots = (angle.cos(), angle.sin()), torch.randperm(100)[:M]
    keys, values = torch.full((2, G, 100, D), 7, dtype=torch.int8)
    scales = torch.full((2, 3, G, 100), 7.0)[:, 1]  # of one of three layers
    q = decoder.place(qkv, norms, EPS, angles, slots, keys, values, tuple(scales))
    floats = torch.zeros(2, G, 100, D)
    assert torch.equal(q, decoder.place(qkv, norms, EPS, angles, slots, *floats))
    for got, scale, wanted in zip((keys, values), scales, floats, strict=True):
        rows = torch.zeros(2, G, 100, D, dtype=torch.int8), torch.zeros(2, G, 100)
        attention._write(rows[0][0], rows[1][0], slots, wanted[:, slots])
        assert torch.equal(got[:, slots], rows[0][0][:, slots]) and torch.equal(scale[:, slots], rows[1][0][:, slots])
        largest = wanted[:, slots].abs().amax(-1)
        assert torch.equal(got[:, slots].abs().amax(-1), (largest > 0) * torch.tensor(127, dtype=torch.int8))
        off = (got[:, slots] * scale[:, slots, None] - wanted[:, slots]).abs().amax(-1)
        assert (off <= largest / 127 * 0.5001).all()
        others = torch.ones(100, dtype=torch.bool)
        others[slots] = False
        assert (got[:, others] == 7).all() and (scale[:, others] == 7).all()


def test_numbers_too_small_or_too_large_for_int8(isa):
    """Nothing becomes nothing; what is no number stays none."""
    D = 8
    qkv = torch.zeros(4, 3 * D)
    qkv[1, -D:], qkv[2, -1], qkv[3, -2] = 1e-33, torch.nan, torch.inf
    keys, values = torch.zeros(2, 1, 4, D, dtype=torch.int8)
    scales = torch.ones(2, 1, 4)
    angles = torch.ones(4, D), torch.zeros(4, D)
    decoder.place(qkv, (torch.ones(D),) * 2, EPS, angles, torch.arange(4), keys, values, tuple(scales))
    assert scales[1, 0, :2].tolist() == [0, 0] and not values[0, :2].any() and scales[1, 0, 2:].isnan().all()


def test_shapes_that_do_not_fit_are_refused():
    store = torch.zeros(2, 8, 32)
    with pytest.raises(ValueError, match="do not fit"):
        decoder.place(torch.zeros(3, 8 * 32), (torch.ones(32),) * 2, EPS, (torch.zeros(2, 32),) * 2,
                      torch.zeros(3, dtype=torch.long), store, store)  # fmt: skip
