"""int8 with a scale per row and channel: close to float, the same in any batch, where the stock scheme breaks."""

import pytest
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic

from qwenvl import kernels
from qwenvl.engine import linear
from qwenvl.engine.linear import FloatLinear, Int8Linear, quantize_rows

pytestmark = pytest.mark.skipif(not linear.int8_available(), reason="this torch has no int8 kernels")


def error(got: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Relative error of each row."""
    return (got - wanted).norm(dim=1) / wanted.norm(dim=1)


@pytest.fixture(params=["own", "stock"], autouse=True)
def kind(request) -> str:
    """Every test runs with our own kernels and with torch's."""
    before = kernels.current()
    if request.param == "stock":
        kernels.use("stock")
    elif before is None:
        pytest.skip("no kernels of our own here")
    yield request.param
    kernels.use(before or "stock")


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.randn(192, 256, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randn(9, 256, generator=torch.Generator().manual_seed(4))


def test_close_to_float(weight, rows):
    bias = torch.linspace(-1, 1, 192)
    got = Int8Linear(*quantize_rows(weight), bias)(rows)
    assert error(got, FloatLinear(weight, bias)(rows)).max() < 0.015


def test_exact_integer_arithmetic(weight, rows):
    """The kernel's product is the integer product of what was rounded, nothing else."""
    quantized, scale = quantize_rows(weight)
    matrix = Int8Linear(quantized, scale)
    row_scale = rows.abs().amax(1, keepdim=True) / matrix.limit
    integers = (rows / row_scale).round().double() @ quantized.double().T
    wanted = integers * row_scale.double() * scale.double()
    torch.testing.assert_close(matrix(rows).double(), wanted, rtol=2e-6, atol=1e-6)


def test_a_row_is_the_same_in_any_batch(weight, rows):
    matrix = Int8Linear(*quantize_rows(weight))
    together = matrix(rows)
    for i in range(len(rows)):
        assert torch.equal(matrix(rows[i : i + 1])[0], together[i])
    assert torch.equal(matrix(rows.flip(0)).flip(0), together)


@pytest.mark.filterwarnings(
    "ignore:torch.ao.quantization is deprecated", "ignore:.*quantized tensor creation functions"
)
def test_an_outlier_row_spoils_stock_quantisation_but_not_ours(weight, rows):
    """A language model's first token is such a row. Stock dynamic quantisation has one scale for the whole tensor."""
    rows[0] *= 1000
    layer = nn.Linear(256, 192, bias=False)
    layer.weight.data = weight
    wanted = layer(rows).detach()
    stock = quantize_dynamic(nn.Sequential(layer), {nn.Linear}, dtype=torch.qint8)(rows)
    ours = Int8Linear(*quantize_rows(weight))(rows)
    assert error(stock, wanted)[1:].min() > 0.5
    assert error(ours, wanted).max() < 0.015


def test_zero_rows_and_zero_channels_stay_zero(weight, rows):
    weight[5], rows[2] = 0, 0
    got = Int8Linear(*quantize_rows(weight))(rows)
    assert got[2].abs().max() == 0 and got[:, 5].abs().max() == 0 and got.isfinite().all()


def test_seven_bits_where_products_would_saturate(weight, rows, monkeypatch):
    """On CPUs without VNNI two u8 x s8 products share 16 bits; 63 levels can never overflow them."""
    kernels.use("stock")
    monkeypatch.setattr(linear, "activation_limit", lambda: 63)
    matrix = Int8Linear(*quantize_rows(weight))
    assert error(matrix(rows), rows @ weight.T).max() < 0.025
    assert matrix.limit == 63


def test_large_weights_are_quantised_in_slices(monkeypatch, weight):
    untouched = weight.clone()
    whole = quantize_rows(weight)
    monkeypatch.setattr(linear, "QUANTIZE_SLICE_ROWS", 50)
    assert all(torch.equal(a, b) for a, b in zip(quantize_rows(weight), whole, strict=True))
    assert torch.equal(weight, untouched)
    assert torch.equal(quantize_rows(weight.bfloat16())[0], quantize_rows(weight.bfloat16().float())[0])


def test_stored_and_restored_is_the_same_product(weight, rows):
    bias = torch.linspace(-1, 1, 192)
    matrix = Int8Linear(*quantize_rows(weight), bias)
    stored = matrix.stored()
    again = Int8Linear.restored({name: tensor.clone() for name, tensor in stored.items()}, bias)
    assert torch.equal(again(rows), matrix(rows))
    assert (again.out_features, again.nbytes) == (matrix.out_features, matrix.nbytes)
    assert all(type(tensor) is torch.Tensor and tensor.is_contiguous() for tensor in stored.values())


def test_the_form_says_which_kernel_the_stored_bytes_are_for(kind):
    assert linear.stored_form() == {"own": "panels64-v1", "stock": "rows-v1"}[kind]
    assert linear.stored_form("int4") == "nibbles64-v2"
    assert kind in linear.kernel_name()
