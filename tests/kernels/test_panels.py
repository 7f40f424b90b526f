"""int8 products: integers to the bit in every instruction set, any shape, the same row the same in any batch."""

import pytest
import torch

from qwenvl import kernels
from qwenvl.kernels import panels

# rows, outputs, inputs: whole tiles, one row, and nothing that is a multiple of anything
SHAPES = [
    (1, 64, 64),
    (6, 128, 256),
    (1, 1, 1),
    (7, 65, 130),
    (13, 200, 1027),
    (25, 63, 5),
    (3, 130, 66),
    (50, 64, 512),
]
SHAPES += [(1030, 70, 33)]  # more rows than are quantised at once


def case(M: int, N: int, K: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    make = torch.Generator().manual_seed(M * 7919 + N * 31 + K)
    weight = torch.randint(-127, 128, (N, K), dtype=torch.int8, generator=make)
    return (
        torch.randn(M, K, generator=make), weight, torch.rand(N, generator=make) + 0.5, torch.randn(N, generator=make),
    )  # fmt: skip


def multiply(x, weight, scale, bias=None, **options) -> torch.Tensor:
    bias = bias if bias is None else panels.padded(bias)
    return panels.multiply(x, panels.pack(weight), panels.padded(scale), bias, len(weight), **options)


def exactly(x, weight, scale, bias) -> torch.Tensor:
    """The definition, its integers in float64, its floats rounded after every operation as the kernels do."""
    row_scale = (x.abs().amax(1, keepdim=True) / 127).clamp(min=1e-30)
    integers = (x / row_scale).round().double() @ weight.double().T
    return integers.float() * scale * row_scale + bias


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_bit_is_that_of_the_definition(isa, shape):
    x, weight, scale, bias = case(*shape)
    assert torch.equal(multiply(x, weight, scale, bias), exactly(x, weight, scale, bias))


def test_the_largest_sums_do_not_saturate(isa):
    """Every product 127 * 127, which two at a time overflow 16 bits."""
    for sign in (1, -1):
        weight = torch.full((64, 4096), 127 * sign, dtype=torch.int8)
        got = multiply(torch.full((2, 4096), 127.0), weight, torch.ones(64))
        assert (got == 127.0 * 127 * 4096 * sign).all()


def test_a_row_is_the_same_in_any_batch(isa):
    x, weight, scale, bias = case(29, 130, 260)
    together = multiply(x, weight, scale, bias)
    for rows in (slice(0, 1), slice(3, 11), slice(11, 12), slice(4, 29)):
        assert torch.equal(multiply(x[rows], weight, scale, bias), together[rows])


def test_the_number_of_threads_changes_nothing(isa):
    x, weight, scale, bias = case(40, 200, 96)
    wanted, before = multiply(x, weight, scale, bias), torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(multiply(x, weight, scale, bias), wanted)
    finally:
        torch.set_num_threads(before)


def test_ties_round_to_even(isa):
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.0]])
    got = multiply(x, torch.eye(8, dtype=torch.int8), torch.ones(8))
    assert got.tolist() == [[127, 0, 2, 2, 0, -2, -2, 0]]


def test_rows_of_zeros_and_rows_that_are_no_numbers_harm_nobody_else(isa):
    x, weight, scale, bias = case(8, 70, 64)
    wanted = multiply(x, weight, scale, bias)
    x[2], x[4, 5], x[6, 7] = 0, float("nan"), float("inf")
    got = multiply(x, weight, scale, bias)
    assert torch.equal(got[2], bias) and not got[4].isfinite().any() and not got[6].isfinite().any()
    assert torch.equal(got[[0, 1, 3, 5, 7]], wanted[[0, 1, 3, 5, 7]])


def test_views_and_other_dtypes_of_rows(isa):
    x, weight, scale, bias = case(9, 70, 64)
    wanted = multiply(x, weight, scale, bias)
    wide = torch.cat([x, x], 1)
    assert torch.equal(multiply(wide[:, :64], weight, scale, bias), wanted)
    assert torch.equal(multiply(x.T.contiguous().T, weight, scale, bias), wanted)
    assert torch.equal(multiply(x.double(), weight, scale, bias), wanted)


def test_panels_serve_from_any_address(isa):
    x, weight, scale, bias = case(9, 70, 64)
    packed = panels.pack(weight)
    room = torch.empty(packed.numel() + 1, dtype=torch.uint8)
    moved = room[1:].view(packed.shape)
    moved.copy_(packed)
    args = panels.padded(scale), panels.padded(bias), 70
    assert torch.equal(panels.multiply(x, moved, *args), panels.multiply(x, packed, *args))


def test_gelu_and_residual_behind_the_product(isa):
    x, weight, scale, bias = case(11, 100, 64)
    x = x / 300
    plain = multiply(x, weight, scale, bias).double()
    residual = torch.randn(11, 100, generator=torch.Generator().manual_seed(1))
    got = multiply(x, weight, scale, bias, activation="gelu_tanh", residual=residual).double()
    wanted = torch.nn.functional.gelu(plain, approximate="tanh") + residual
    torch.testing.assert_close(got, wanted, rtol=2e-6, atol=2e-6)


def test_no_rows_give_no_rows(isa):
    _, weight, scale, bias = case(1, 70, 64)
    assert multiply(torch.empty(0, 64), weight, scale, bias).shape == (0, 70)


def test_shapes_that_do_not_fit_are_refused(isa):
    _, weight, scale, _ = case(1, 70, 64)
    with pytest.raises(ValueError, match="do not fit"):
        multiply(torch.zeros(1, 60), weight, scale)
    with pytest.raises(ValueError, match="overflow"):
        panels.pack(torch.zeros(1, 70000, dtype=torch.int8))


def test_without_a_choice_of_ours_the_kernels_say_so(isa):
    _, weight, scale, _ = case(1, 70, 64)
    packed = panels.pack(weight)
    kernels.use("stock")
    assert not kernels.available()
    with pytest.raises(RuntimeError, match="available"):
        panels.multiply(torch.zeros(1, 64), packed, panels.padded(scale), None, 70)
