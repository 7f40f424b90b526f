"""Sharing what was read before changes how long an answer takes, never what it says."""

import dataclasses

import pytest
import torch

from qwenvl.engine.engine import Engine
from qwenvl.messages import Turn
from tests.engine.conftest import ask, noise, question, run

PICTURE, OTHER = noise(300, 200), noise(300, 200, seed=9)


def logits_of(engine: Engine, asked) -> tuple[torch.Tensor, int]:
    """The first logits of a question, and how many tokens were not computed for them."""
    sequence = engine.start(asked)
    while sequence.logits is None:
        engine.step()
    logits, cached = sequence.logits.clone(), sequence.cached_tokens
    engine.cancel(sequence, "cancelled")
    return logits, cached


def pictures_end(engine: Engine) -> int:
    """Tokens up to the end of one picture: the opening, the picture, the mark behind it."""
    sequence = engine.start(question(PICTURE))
    engine.cancel(sequence, "cancelled")
    h, w = engine.model.grid(PICTURE)
    return sequence.prompt.picture_starts[0] + h * w + 1


@pytest.mark.parametrize("chunk", [8, 128])
def test_a_follow_up_on_a_picture_reads_its_own_words_only(int8_model, chunk):
    """Bit for bit what it would be without the cache, with the boundary of a chunk inside the picture too."""
    fresh, engine = (Engine(int8_model, prefill_chunk_tokens=chunk) for _ in range(2))
    ask(engine, PICTURE, text="What is this?")
    hit, cached = logits_of(engine, question(PICTURE, text="Where is it?"))
    miss, nothing = logits_of(fresh, question(PICTURE, text="Where is it?"))
    assert (cached, nothing) == (pictures_end(engine), 0)
    assert torch.equal(hit, miss)


def test_the_same_picture_never_stands_for_another(int8_engine, int8_model):
    ask(int8_engine, PICTURE)
    got, cached = logits_of(int8_engine, question(OTHER))
    assert cached == 0 and torch.equal(got, logits_of(Engine(int8_model), question(OTHER))[0])
    bigger = dataclasses.replace(PICTURE, detail="fine")
    assert logits_of(int8_engine, question(bigger))[1] == 0


def test_a_shared_first_picture_is_shared_and_the_second_one_is_read(int8_engine, int8_model):
    ask(int8_engine, PICTURE)
    got, cached = logits_of(int8_engine, question(PICTURE, OTHER))
    assert 0 < cached < pictures_end(int8_engine) + 1
    expected = logits_of(Engine(int8_model), question(PICTURE, OTHER))[0]
    assert (got - expected).norm() / expected.norm() < 0.03  # the chunks fall otherwise: not the same bits


def test_a_conversation_goes_on_from_where_it_stopped(int8_engine, int8_model):
    first = run(int8_engine, int8_engine.start(question(PICTURE, max_new_tokens=6)))[0].answer
    history = (Turn("user", "What is this?"), Turn("assistant", first.response))
    asked = dataclasses.replace(question(PICTURE, text="And why?"), history=history)
    got, cached = logits_of(int8_engine, asked)
    assert cached >= first.usage.prompt_tokens
    expected = logits_of(Engine(int8_model), asked)[0]
    # the answer's tokens were decoded in one case and read in the other: kernels that round differently
    assert (got - expected).norm() / expected.norm() < 0.02


def test_a_running_answer_shares_what_it_has_read(int8_engine):
    running = int8_engine.start(question(PICTURE, max_new_tokens=40))
    while not running.tokens:
        int8_engine.step()
    second = run(int8_engine, int8_engine.start(question(PICTURE, text="Where?", max_new_tokens=4)))[0].answer
    assert second.usage.cached_tokens == pictures_end(int8_engine) and second.images[0].cached
    assert int8_engine.features.stats().entries == 1


def test_other_peoples_traffic_in_between_changes_nothing(int8_engine):
    expected = ask(int8_engine, PICTURE)
    for seed in range(20, 24):
        ask(int8_engine, noise(100, 260, seed=seed))
    assert ask(int8_engine, PICTURE) == expected


def test_forgetting_a_picture_forgets_its_prefixes(int8_engine):
    ask(int8_engine, PICTURE)
    ask(int8_engine, OTHER)
    int8_engine.forget(PICTURE.sha256)
    assert logits_of(int8_engine, question(PICTURE))[1] == 0
    assert logits_of(int8_engine, question(OTHER, text="Where?"))[1] > 0


@pytest.mark.parametrize("stage", ["reading", "writing"])
def test_a_picture_forgotten_meanwhile_is_not_kept(int8_engine, stage):
    sequence = int8_engine.start(question(PICTURE))
    int8_engine.step()
    while stage == "writing" and not sequence.tokens:
        int8_engine.step()
    int8_engine.forget(PICTURE.sha256)
    assert run(int8_engine, sequence)[0].answer.response
    assert int8_engine.features.stats().entries == 0 and int8_engine.prefixes.stats().entries == 0


def test_an_answer_given_up_while_reading_leaves_nothing(int8_model):
    engine = Engine(int8_model, prefill_chunk_tokens=8)
    doomed = engine.start(question(PICTURE))
    while doomed.kv is None or doomed.kv.length < 16:
        engine.step()
    engine.cancel(doomed, "cancelled")
    assert engine.prefixes.stats().entries == 0


def test_bytes_are_bounded_and_contained_prefixes_leave(int8_model):
    engine = Engine(int8_model)
    ask(engine, PICTURE, max_new_tokens=4)
    one = engine.prefixes.stats()
    assert one.entries == 1 and one.bytes > 0
    ask(engine, PICTURE, max_new_tokens=8)  # the same words and more: the shorter one is within it
    assert engine.prefixes.stats().entries == 1
    small = Engine(int8_model, prefix_cache_bytes=one.bytes * 2)
    for seed in range(5):
        ask(small, noise(300, 200, seed=seed), max_new_tokens=4)
        assert small.prefixes.stats().bytes <= one.bytes * 2
    assert small.prefixes.stats().entries == 2


def test_what_two_answers_share_is_held_once(int8_model):
    """A second question on a picture adds the pages of its own words only; they are free when all is forgotten."""
    engine = Engine(int8_model)
    pictures = noise(420, 300), noise(300, 420)  # over 64 tokens, so that there is a whole page to share
    ask(engine, *pictures, text="What is this?", max_new_tokens=4)
    one = engine.prefixes.stats().bytes
    ask(engine, *pictures, text="Where?", max_new_tokens=4)
    both = engine.prefixes.stats()
    assert both.entries == 2 and one < both.bytes < 2 * one
    assert engine.store.free_pages == engine.store.page_count - both.bytes // engine.store.page_bytes
    engine.forget(pictures[0].sha256)
    assert engine.store.free_pages == engine.store.page_count


def test_answers_wait_for_room_and_kept_prefixes_make_it(int8_model):
    """Room for little more than one answer: prefixes go, newcomers wait, everybody is answered as alone."""
    pictures = [noise(300, 200, seed=seed) for seed in range(4)]
    expected = [ask(Engine(int8_model), picture) for picture in pictures]
    engine = Engine(int8_model, kv_bytes=1, max_context_tokens=192)
    assert engine.store.page_count == 4
    for _ in range(2):
        sequences = [engine.start(question(picture)) for picture in pictures]
        assert [message.answer.response for message in run(engine, *sequences)] == expected
    kept = engine.prefixes.stats()
    assert kept.entries >= 1 and engine.store.free_pages == 4 - kept.bytes // engine.store.page_bytes
