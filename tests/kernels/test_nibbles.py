"""4-bit products: the bits of int8 with the weights they stand for, in every set of kernels; packing by least error."""

import pytest
import torch

from qwenvl.kernels import panels

# rows, outputs, inputs: every number of rows that has code of its own, whole groups, and nothing that is whole
SHAPES = [(M, 70, 130) for M in range(1, 10)]
SHAPES += [(1, 64, 64), (1, 1, 1), (5, 128, 2048), (13, 200, 1027), (25, 63, 5), (97, 65, 300), (200, 64, 544)]
SHAPES += [(1030, 70, 33)]  # more rows than are quantised at once


def case(M: int, N: int, K: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    make = torch.Generator().manual_seed(M * 7919 + N * 31 + K)
    weight = torch.randint(-127, 128, (N, K), dtype=torch.int8, generator=make)
    return torch.randn(M, K, generator=make), weight, panels.padded(torch.rand(N, generator=make) + 0.5)


def bell(N: int = 64, K: int = 512) -> torch.Tensor:
    """Weights as they are: a channel's largest is 127."""
    weight = torch.randn(N, K, generator=torch.Generator().manual_seed(9))
    return (weight / weight.abs().amax(1, keepdim=True) * 127).round().to(torch.int8)


def error(weight: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """Squared, of every weight."""
    return (panels.unpack_nibbles(packed, *weight.shape).float() - weight.float()).square()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_bit_is_that_of_int8_with_the_same_weights(isa, shape):
    x, weight, scale = case(*shape)
    N, K = weight.shape
    packed = panels.pack_nibbles(weight)
    same = panels.pack(panels.unpack_nibbles(packed, N, K))
    bias, residual = panels.padded(torch.arange(N)), x[:, :1].expand(len(x), N)
    for options in ({}, {"activation": "gelu_tanh", "residual": residual}):
        got, wanted = (panels.multiply(x, form, scale, bias, N, **options) for form in (packed, same))
        assert torch.equal(got, wanted)


def test_fuzzed_shapes(isa):
    draw = torch.Generator().manual_seed(17)
    for _ in range(40):
        M, N, K = (int(torch.randint(1, most, (1,), generator=draw)) for most in (40, 200, 400))
        x, weight, scale = case(M, N, K)
        packed = panels.pack_nibbles(weight)
        same = panels.pack(panels.unpack_nibbles(packed, N, K))
        got, wanted = (panels.multiply(x, form, scale, None, N) for form in (packed, same))
        assert torch.equal(got, wanted), (M, N, K)


def test_the_largest_sums_do_not_saturate(isa):
    for sign in (1, -1):
        weight = torch.full((64, 4096), 120 * sign, dtype=torch.int8)
        got = panels.multiply(torch.full((2, 4096), 127.0), panels.pack_nibbles(weight), torch.ones(64), None, 64)
        assert (got == 127.0 * 120 * 4096 * sign).all()


def test_a_row_is_the_same_in_any_batch(isa):
    x, weight, scale = case(29, 130, 260)
    packed = panels.pack_nibbles(weight)
    together = panels.multiply(x, packed, scale, None, 130)
    for rows in (slice(0, 1), slice(3, 11), slice(11, 12), slice(4, 29)):
        assert torch.equal(panels.multiply(x[rows], packed, scale, None, 130), together[rows])


def test_the_number_of_threads_changes_nothing(isa):
    x, weight, scale = case(40, 200, 96)
    before = torch.get_num_threads()
    packed = panels.pack_nibbles(weight)
    wanted = panels.multiply(x, packed, scale, None, 200)
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(panels.pack_nibbles(weight), packed)
            assert torch.equal(panels.multiply(x, packed, scale, None, 200), wanted)
    finally:
        torch.set_num_threads(before)


def test_panels_serve_from_any_address(isa):
    x, weight, scale = case(9, 70, 64)
    packed = panels.pack_nibbles(weight)
    moved = torch.empty(packed.numel() + 1, dtype=torch.uint8)[1:].view(packed.shape)
    moved.copy_(packed)
    for rows in (x, x[:3]):
        got, wanted = (panels.multiply(rows, form, scale, None, 70) for form in (moved, packed))
        assert torch.equal(got, wanted)


def test_a_row_that_is_no_number_harms_nobody_else(isa):
    x, weight, scale = case(6, 70, 64)
    packed = panels.pack_nibbles(weight)
    wanted = panels.multiply(x, packed, scale, None, 70)
    x[2], x[4, 5] = 0, float("nan")
    got = panels.multiply(x, packed, scale, None, 70)
    assert not got[2].any() and not got[4].isfinite().any() and torch.equal(got[[0, 1, 3, 5]], wanted[[0, 1, 3, 5]])


# --- packing: the same plain code whatever the instruction set ---


def test_four_and_a_quarter_bits_a_weight():
    assert panels.pack_nibbles(bell()).numel() * 8 == 64 * 512 * 4.25


def test_what_16_values_can_say_is_said_exactly():
    """Groups whose weights are whole multiples of a step around a zero; zeros stay zeros."""
    for step, zero in ((1, 0), (3, 7), (8, 15), (16, 8)):
        values = (torch.arange(16) - zero) * step
        values = values[(values >= -128) & (values <= 127)].repeat(32)[:32].to(torch.int8)
        weight = values.repeat(5, 4)
        assert torch.equal(panels.unpack_nibbles(panels.pack_nibbles(weight), 5, 128), weight)
    assert not panels.unpack_nibbles(panels.pack_nibbles(torch.zeros(3, 40, dtype=torch.int8)), 3, 40).any()


def test_no_other_step_and_zero_would_be_better():
    """Against every step and zero there is, on bell-shaped weights."""
    weight = bell(8, 256)
    groups = weight.view(8, 8, 32).float()
    best = torch.full((8, 8), float("inf"))
    for step in range(1, 17):
        for zero in range(16):
            q = (groups / step).round().clamp(-min(zero, 128 // step), min(15 - zero, 127 // step))
            best = torch.minimum(best, (q * step - groups).square().sum(2))
    found = error(weight, panels.pack_nibbles(weight)).view(8, 8, 32).sum(2)
    assert (found >= best).all()
    # steps far from the range are not tried
    assert found.sum() <= 1.01 * best.sum()


def test_bell_shaped_weights_lose_seven_or_eight_percent():
    weight = bell(256, 2048)
    off = (error(weight, panels.pack_nibbles(weight)).sum() / weight.float().square().sum()).sqrt()
    assert 0.06 < off < 0.085


def test_shapes_that_do_not_fit_are_refused(isa):
    packed = panels.pack_nibbles(bell())
    with pytest.raises(ValueError, match="do not fit"):
        panels.multiply(torch.zeros(1, 480), packed, torch.ones(64), None, 64)
    with pytest.raises(ValueError, match="overflow"):
        panels.pack_nibbles(torch.zeros(1, 70000, dtype=torch.int8))
