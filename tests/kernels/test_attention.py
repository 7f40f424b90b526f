"""Attention against float64: pages in any order, any lengths, heads that share keys; the same row, the same bits."""

import pytest
import torch
from torch import Tensor

from qwenvl import kernels
from qwenvl.engine import attention as seam
from qwenvl.kernels import attention
from qwenvl.kernels.store import PAIRS, by_token, read_pairs, write_pairs

PAGE = attention.PAGE
DTYPES = [torch.float32, torch.bfloat16, torch.int8, PAIRS]
# relative error of a row: float32 all the way, products of bfloat16, or of whole numbers of 16 bits with int8
FLOAT_ERROR, BFLOAT16_ERROR, INT8_ERROR = 2e-6, 8e-3, 1.5e-3

# lengths, rows: one token, page and span boundaries, few rows and many, several sequences
BATCHES = [
    ([1], [1]),
    ([64], [1]),
    ([65, 64, 1], [1, 1, 1]),
    ([257, 256, 31], [1, 2, 8]),
    ([8], [8]),
    ([300], [300]),
    ([700, 70, 130], [9, 70, 1]),
]
HEADS = [(2, 1, 32), (2, 2, 64), (1, 4, 128), (3, 3, 32), (2, 2, 128), (1, 5, 160), (2, 8, 256)]  # G, heads for each, D


class Case:
    """Random queries over fragmented pages, and what float64 says about them."""

    def __init__(self, lengths: list[int], rows: list[int], heads=(2, 2, 64), dtype=torch.bfloat16):
        G, group, D = heads
        make = torch.Generator().manual_seed(sum(lengths) * 31 + sum(rows))
        counts = [-(-S // PAGE) for S in lengths]
        order = torch.randperm(sum(counts) + 2, generator=make).int()
        self.lengths, self.rows, self.pages = lengths, rows, list(order[: sum(counts)].split(counts))
        room = (G, len(order) * PAGE, D)
        self.scales = None
        if dtype == torch.int8:
            self.keys, self.values = (torch.randint(-127, 128, room, generator=make, dtype=dtype) for _ in range(2))
            self.scales = tuple(torch.rand(room[:2], generator=make) * 0.03 for _ in range(2))
        else:
            floats = [torch.randn(room, generator=make) for _ in range(2)]
            self.keys, self.values = in_pairs(*floats) if dtype == PAIRS else (t.to(dtype) for t in floats)
        self.q = torch.randn(sum(rows), G * group, D, generator=make)
        self.starts = [sum(rows[:i]) for i in range(len(rows) + 1)]

    def run(self) -> Tensor:
        return attention.paged_attention(
            self.q, self.keys, self.values, self.pages, self.lengths, self.rows, self.scales
        )

    def run_part(self, i: int, first: int = 0, count: int | None = None) -> Tensor:
        """Some rows of one sequence, alone."""
        count = self.rows[i] - first if count is None else count
        q = self.q[self.starts[i] + first :][:count]
        length = self.lengths[i] - self.rows[i] + first + count
        return attention.paged_attention(q, self.keys, self.values, [self.pages[i]], [length], [count], self.scales)

    def numbers(self) -> tuple[Tensor, Tensor]:
        """Keys and values as they are meant, in float64."""
        keys, values = self.keys, self.values
        if keys.dtype == PAIRS:
            keys, values = read_pairs(keys, values, torch.arange(keys.shape[1] // PAGE))
        keys, values = keys.double(), values.double()
        if self.scales is None:
            return keys, values
        return keys * self.scales[0].double()[..., None], values * self.scales[1].double()[..., None]

    def wanted(self) -> Tensor:
        parts, stores = [], self.numbers()
        for i, (table, S, T) in enumerate(zip(self.pages, self.lengths, self.rows, strict=True)):
            slots = (table[:, None].long() * PAGE + torch.arange(PAGE)).flatten()[:S]
            k, v = (t[:, slots] for t in stores)
            q = self.q[self.starts[i] : self.starts[i + 1]].double()
            mask = torch.ones(T, S, dtype=torch.bool).tril(S - T)
            group = q.shape[1] // len(k)
            k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
            parts.append(softmax_attention(q.transpose(0, 1), k, v, mask))
        return torch.cat(parts)


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """The definition: q [H, T, D], k and v [H, S, D] -> [T, H * D]."""
    scores = q @ k.transpose(1, 2) / q.shape[2] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)


def error(got: Tensor, wanted: Tensor) -> float:
    """The largest relative error of a row."""
    return ((got - wanted).norm(dim=1) / wanted.norm(dim=1)).max().item()


def limit(case: Case) -> float:
    if case.keys.dtype == torch.int8:
        return INT8_ERROR
    return BFLOAT16_ERROR if case.keys.dtype == PAIRS else FLOAT_ERROR


def in_pairs(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values [G, C, D] as a store of pairs has them."""
    G, C, D = keys.shape
    store = torch.full((2, G, C, D // 2), -1, dtype=PAIRS)
    write_pairs(*store, torch.arange(C), (keys, values))
    return store[0], store[1]


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request, isa) -> torch.dtype:
    if request.param == PAIRS and not attention.prefers_pairs(32):
        pytest.skip(f"{isa} takes no pairs")
    return request.param


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_close_to_float64(isa, batch, heads, dtype):
    case = Case(*batch, heads, dtype)
    assert error(case.run(), case.wanted()) < limit(case)


def test_a_sequence_is_the_same_in_any_batch(isa, dtype):
    case = Case([300, 65, 700, 130], [1, 4, 40, 100], dtype=dtype)
    together = case.run()
    for i in range(4):
        assert torch.equal(case.run_part(i), together[case.starts[i] : case.starts[i + 1]])


def test_a_guessed_row_is_the_same_as_a_row_alone(isa, dtype):
    """Up to eight rows at once, across a page and a span: a right guess changes no answer."""
    case = Case([260], [8], dtype=dtype)
    together = case.run()
    for first in range(8):
        assert torch.equal(case.run_part(0, first, 1), together[first : first + 1])


def test_a_row_is_the_same_whether_read_in_a_chunk_or_decoded(isa, dtype):
    """A prefix that was answered is the same as one that was read."""
    case = Case([700], [500], dtype=dtype)
    together = case.run()
    cut = [case.run_part(0, first, count) for first, count in ((0, 100), (100, 390), (490, 9), (499, 1))]
    assert torch.equal(torch.cat(cut), together)


@pytest.mark.parametrize("batch", [([300, 65], [1, 4]), ([900, 40], [800, 30])], ids=str)
def test_the_number_of_threads_changes_nothing(isa, batch, dtype):
    case = Case(*batch, dtype=dtype)
    wanted, before = case.run(), torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert torch.equal(case.run(), wanted)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("rows", [1, 30], ids=str)
def test_what_lies_behind_a_sequence_is_never_seen(isa, rows):
    """The rest of its last page may hold anything, and so may every other page."""
    case = Case([100], [rows])
    wanted = case.run()
    own = case.pages[0].tolist()
    for t in (case.keys, case.values):
        kept = [t[:, page * PAGE : (page + 1) * PAGE].clone() for page in own]
        t.fill_(torch.nan)
        t[:, own[0] * PAGE : (own[0] + 1) * PAGE] = kept[0]
        t[:, own[1] * PAGE : own[1] * PAGE + 100 - PAGE] = kept[1][:, : 100 - PAGE]
    assert torch.equal(case.run(), wanted)


@pytest.mark.parametrize("rows", [1, 30], ids=str)
def test_what_lies_behind_a_sequence_in_int8_is_never_seen(isa, rows):
    """Scales of no number, in the rest of its last page and in every other one."""
    case = Case([100], [rows], dtype=torch.int8)
    wanted = case.run()
    slots = (case.pages[0][:, None].long() * PAGE + torch.arange(PAGE)).flatten()[:100]
    others = torch.ones(case.keys.shape[1], dtype=torch.bool)
    others[slots] = False
    for store, scale in zip((case.keys, case.values), case.scales, strict=True):
        store[:, others], scale[:, others] = 99, torch.nan
    assert torch.equal(case.run(), wanted)


@pytest.mark.parametrize("rows", [1, 30], ids=str)
@pytest.mark.parametrize("length", [100, 101, 1], ids=str)
def test_what_lies_behind_a_sequence_of_pairs_is_never_seen(isa, rows, length):
    """The other half of a word, the rest of its last page, and every other page may hold no numbers."""
    if not attention.prefers_pairs(64):
        pytest.skip(f"{isa} takes no pairs")
    case = Case([length], [min(rows, length)], dtype=PAIRS)
    wanted = case.run()
    keys, values = by_token(case.keys, case.values)
    mine = torch.zeros(keys.shape[1], PAGE, dtype=torch.bool)
    for at, page in enumerate(case.pages[0].tolist()):
        mine[page, : length - at * PAGE] = True
    keys[:, ~mine] = torch.nan
    values[:, ~mine.view(-1, PAGE // 2, 2)] = torch.nan
    assert torch.equal(case.run(), wanted)


def test_torch_reads_pairs_too():
    """Where a store was made for kernels that are not there any more."""
    case = Case([70, 130], [1, 30], dtype=PAIRS)
    args = case.keys, case.values, case.pages, case.lengths, case.rows
    before = kernels.current()
    kernels.use("stock")
    try:
        assert not attention.serves_pages(case.q, *args[:2])
        assert error(seam.paged_attention(case.q, *args), case.wanted()) < BFLOAT16_ERROR
    finally:
        kernels.use(before or "stock")


def test_a_token_of_no_numbers_in_int8_is_harmless_to_those_before_it(isa):
    """Its own row and all behind it are lost, in a chunk as alone."""
    case = Case([90], [20], dtype=torch.int8)
    wanted = case.run()
    last = int(case.pages[0][1]) * PAGE + 80 - PAGE
    for scale in case.scales:
        scale[:, last] = torch.nan
    got = case.run()
    assert got[10:].isnan().all() and torch.equal(got[:10], wanted[:10])


@pytest.mark.parametrize("heads", [(1, 1, 32), (2, 3, 96), (1, 2, 128)], ids=str)
def test_a_light_key_counts_beside_a_heavy_one_in_int8(isa, heads):
    """One key has most of the weight, 1,999 share the rest: whole numbers must not make nothing of them."""
    case = Case([2000], [1], heads, torch.int8)
    case.keys.zero_()
    case.keys[:, int(case.pages[0][3]) * PAGE + 5] = 127
    case.q.fill_(1.0)
    case.scales = torch.full_like(case.scales[0], 7 / 127 / heads[2] ** 0.5), case.scales[1]
    assert error(case.run(), case.wanted()) < INT8_ERROR


@pytest.mark.parametrize("rows", [1, 30], ids=str)
def test_large_scores_do_not_overflow(isa, rows):
    case = Case([200], [rows], dtype=torch.float32)
    case.q *= 1000
    assert error(case.run(), case.wanted()) < 1e-3


def test_a_sequence_of_no_numbers_harms_no_other(isa, dtype):
    case = Case([70, 90], [1, 20], dtype=dtype)
    wanted = case.run()
    case.q[0, 0, 0] = torch.nan
    got = case.run()
    assert not got[0, : case.q.shape[2]].isfinite().any() and torch.equal(got[1:], wanted[1:])


def test_views_of_queries_and_of_a_store(isa, dtype):
    case = Case([70, 90], [3, 20], dtype=dtype)
    wanted = case.run()
    case.q = torch.cat([case.q, case.q], 1)[:, : case.q.shape[1]]
    case.keys, case.values = (torch.cat([t, t], 1)[:, : t.shape[1]] for t in (case.keys, case.values))
    if case.scales:
        case.scales = tuple(torch.cat([t, t, t], 1)[:, : t.shape[1]] for t in case.scales)
    assert torch.equal(case.run(), wanted)


def test_calls_that_make_no_sense_are_refused(isa):
    case = Case([70], [3])
    for lengths, rows in (([70], [4]), ([2], [3]), ([200], [3]), ([70, 70], [3])):
        with pytest.raises(ValueError):
            attention.paged_attention(case.q, case.keys, case.values, case.pages, lengths, rows)
    assert not attention.serves_pages(case.q[:, :3], case.keys, case.values)
    assert not attention.serves_pages(case.q[:, :, :20], case.keys[:, :, :20], case.values[:, :, :20])
    assert not attention.serves_pages(case.q, case.keys.half(), case.values.half())
    scales = torch.ones(case.keys.shape[:2]), torch.ones(case.keys.shape[:2])
    whole = case.keys.char(), case.values.char()
    assert attention.serves_pages(case.q, *whole, scales) and not attention.serves_pages(case.q, *whole)
    assert not attention.serves_pages(case.q, *whole, (scales[0], scales[1].double()))
    assert not attention.serves_pages(case.q, *whole, (scales[0], scales[1][:, 1:]))
    assert not attention.serves_pages(case.q, case.keys, case.values, scales)


needs_bfloat16 = pytest.mark.skipif(not attention.has_bfloat16(), reason="no bfloat16 products here")


@needs_bfloat16
@pytest.mark.parametrize("shape", [(1, 1, 1, 32), (7, 65, 2, 64), (800, 1500, 2, 64), (33, 513, 3, 96)], ids=str)
def test_full_attention_is_close_to_float64(shape):
    T, S, H, D = shape
    make = torch.Generator().manual_seed(T)
    q, k, v = (torch.randn(n, H, D, generator=make) for n in (T, S, S))
    got = attention.full_attention(q, k, v)
    assert error(got, softmax_attention(*(t.double().transpose(0, 1) for t in (q, k, v)))) < BFLOAT16_ERROR


@needs_bfloat16
def test_full_attention_of_views_and_of_some_rows_is_the_same():
    qkv = torch.randn(900, 3, 2, 64, generator=torch.Generator().manual_seed(2))
    q, k, v = qkv.unbind(1)
    whole = attention.full_attention(q, k, v)
    assert torch.equal(attention.full_attention(*(t.contiguous() for t in (q, k, v))), whole)
    assert torch.equal(attention.full_attention(q[5:50], k, v), whole[5:50])
    assert torch.equal(attention.full_attention(q[890:], k, v), whole[890:])


def test_other_sets_than_the_best_do_not_round(isa):
    assert attention.has_bfloat16() <= (isa == "avx512_vnni")
    assert not attention.has_bfloat16() or kernels.current() == "avx512_vnni"
