"""Laws of the pages: nothing is lost, nothing is held twice by mistake, what is shared is never written to."""

import random

import pytest
import torch

from qwenvl.engine.kv import PAGE_TOKENS, KVStore, pages_for

LAYERS, HEADS, WIDTH = 2, 3, 4


def make_store(tokens: int = 10 * PAGE_TOKENS, dtype: torch.dtype = torch.float32) -> KVStore:
    return KVStore(LAYERS, HEADS, WIDTH, 1, dtype, least_tokens=tokens)


def write(kv, tokens: int, mark: float) -> None:
    """So many rows of one value."""
    rows = torch.full((tokens, HEADS, WIDTH), mark).to(kv.store.keys.dtype)
    for layer in range(LAYERS):
        kv.store.keys[layer][:, kv.slots(tokens)] = (rows + layer).transpose(0, 1)
        kv.store.values[layer][:, kv.slots(tokens)] = -(rows + layer).transpose(0, 1)
        for scale in kv.store.scales_of(layer) or ():
            scale[:, kv.slots(tokens)] = mark
    kv.advance(tokens)


def read(kv, layer: int) -> torch.Tensor:
    """The keys of the tokens in use, in order [length, G, D]; their values must be their opposites."""
    length, kv.length = kv.length, 0
    slots = kv.slots(length)
    kv.length = length
    keys, values = kv.store.keys[layer][:, slots], kv.store.values[layer][:, slots]
    assert torch.equal(keys, -values)
    for scale in kv.store.scales_of(layer) or ():
        assert torch.equal(scale[:, slots], keys[..., 0].float() - layer)
    return keys.transpose(0, 1)


def test_rows_come_back_in_order_across_pages():
    kv = make_store().begin(3 * PAGE_TOKENS)
    for part, tokens in enumerate((1, PAGE_TOKENS, 5, PAGE_TOKENS)):
        write(kv, tokens, float(part))
    expected = torch.tensor([0.0] + [1.0] * PAGE_TOKENS + [2.0] * 5 + [3.0] * PAGE_TOKENS)
    assert torch.equal(read(kv, 1)[:, 0, 0], expected + 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=str)
def test_a_shared_beginning_is_one_and_stays_as_it_was(dtype):
    store = make_store(dtype=dtype)
    first = store.begin(2 * PAGE_TOKENS)
    write(first, PAGE_TOKENS + 10, 1.0)
    kept = store.hold(first)
    first.release()
    heirs = [store.begin(3 * PAGE_TOKENS, kept, PAGE_TOKENS + 5) for _ in range(2)]
    assert {heir.pages[0] for heir in heirs} == {kept.pages[0]} and heirs[0].pages[1] != heirs[1].pages[1]
    for i, heir in enumerate(heirs):
        write(heir, 20, 10.0 + i)
    assert torch.equal(read(kept, 0)[:, 0, 0].float(), torch.ones(PAGE_TOKENS + 10))
    for i, heir in enumerate(heirs):
        assert torch.equal(read(heir, 0)[:, 0, 0].float(), torch.tensor([1.0] * (PAGE_TOKENS + 5) + [10.0 + i] * 20))
    for holder in (kept, *heirs):
        holder.release()
    assert store.free_pages == store.page_count


@pytest.mark.parametrize("dtype,bytes_a_head", [(torch.float32, 16), (torch.bfloat16, 8), (torch.int8, 4 + 4)], ids=str)
def test_a_page_counts_all_that_it_holds(dtype, bytes_a_head):
    """Keys and values of every layer and head, and in int8 their scales."""
    store = make_store(dtype=dtype)
    assert store.page_bytes == 2 * LAYERS * HEADS * PAGE_TOKENS * bytes_a_head
    held = [store.keys, store.values, *(s for i in range(LAYERS) for s in store.scales_of(i) or ())]
    assert sum(t.nbytes for t in held) == store.page_count * store.page_bytes
    assert KVStore(LAYERS, HEADS, WIDTH, 50 * store.page_bytes, dtype, least_tokens=1).page_count == 50


def test_no_room_takes_nothing():
    store = make_store(4 * PAGE_TOKENS)
    first = store.begin(3 * PAGE_TOKENS)
    assert store.begin(3 * PAGE_TOKENS) is None and store.free_pages == 2
    first.release()
    assert store.begin(5 * PAGE_TOKENS).capacity == 5 * PAGE_TOKENS


def test_neighbours_are_preferred():
    """Pages side by side are read as one piece, so holes too small are left to those whom they fit."""
    store = make_store()
    hole, keeper = store.begin(2 * PAGE_TOKENS), store.begin(PAGE_TOKENS)
    hole.release()
    assert store.begin(3 * PAGE_TOKENS).pages == [3, 4, 5]
    assert store.begin(2 * PAGE_TOKENS).pages == [0, 1]
    keeper.advance(PAGE_TOKENS)
    assert store.begin(3 * PAGE_TOKENS, keeper, PAGE_TOKENS).pages == [2, 6, 7]


def test_any_order_of_begin_share_and_release_ends_with_all_pages_free():
    rng, store, holders = random.Random(4), make_store(), []
    for _ in range(500):
        if holders and rng.random() < 0.5:
            holders.pop(rng.randrange(len(holders))).release()
        elif holders and rng.random() < 0.3:
            holders.append(store.hold(rng.choice(holders)))
        else:
            parent = rng.choice(holders) if holders else None
            length = rng.randint(0, parent.length) if parent else 0
            kv = store.begin(length + rng.randint(1, 200), parent, length)
            if kv is not None:
                kv.advance(rng.randint(0, kv.capacity - length))
                holders.append(kv)
        used = {page for kv in holders for page in kv.pages}
        assert store.free_pages == store.page_count - len(used)
        owned = [page for kv in holders for page in kv.pages[pages_for(kv.length) :]]
        assert len(owned) == len(set(owned)), "room to write in belongs to one only"
    for kv in holders:
        kv.release()
    assert store.free_pages == store.page_count
