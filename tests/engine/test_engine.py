"""Laws of the engine: caches, batches and cancellations never change an answer."""

import pytest
import torch

from qwenvl.engine import vision
from qwenvl.engine.engine import Engine
from qwenvl.errors import ContextLengthExceeded
from qwenvl.messages import Failed, Finished, Progress, Turn
from tests.engine.conftest import ask, noise, question, run

PICTURE, OTHER, WIDE = noise(300, 200), noise(300, 200, seed=9), noise(420, 40, seed=3)


def states(engine: Engine, sequence) -> str:
    if sequence.encoded is None:
        return "encode"
    return "prefill" if sequence.logits is None else "decode"


def test_feature_hit_equals_miss(int8_model):
    engine = Engine(int8_model, prefix_cache_bytes=0)
    first, second = (run(engine, engine.start(question(PICTURE)))[0].answer for _ in range(2))
    assert first.response == second.response and first.response
    assert (first.images[0].cached, second.images[0].cached) == (False, True)
    stats = engine.features.stats()
    assert (stats.entries, stats.hits) == (1, 1)
    features = engine.features.get(engine.reader.feature_key(PICTURE))
    assert stats.bytes == features.merged.nbytes * (1 + len(features.levels))


def test_a_hit_skips_the_vision_tower(int8_engine):
    ask(int8_engine, PICTURE)
    sequence = int8_engine.start(question(PICTURE, text="And now?"))
    stages = {m.stage for s, m in int8_engine.step() if s is sequence}
    assert stages == {"prefill"}


def test_two_pictures_with_one_question_differ(int8_engine):
    """Their prompts are the same ids; only the pixels tell them apart."""
    logits = []
    for picture in (PICTURE, OTHER, PICTURE):
        sequence = int8_engine.start(question(picture))
        while sequence.logits is None:
            int8_engine.step()
        logits.append(sequence.logits.clone())
        int8_engine.cancel(sequence, "cancelled")
    assert not torch.allclose(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])


def test_another_detail_is_another_entry(int8_engine):
    import dataclasses

    ask(int8_engine, PICTURE)
    ask(int8_engine, dataclasses.replace(PICTURE, detail="fine"))
    assert int8_engine.features.stats().entries == 2
    int8_engine.forget(PICTURE.sha256)
    assert int8_engine.features.stats().entries == 0


@pytest.mark.parametrize("kind", ["float_engine", "int8_engine"])
def test_answers_in_company_equal_answers_alone(request, kind):
    engine = request.getfixturevalue(kind)
    asked = [question(PICTURE), question(OTHER, WIDE, text="How many?"), question(text="Hello"), question(WIDE)]
    alone = [run(engine, engine.start(q))[0].answer.response for q in asked]
    together = [m.answer.response for m in run(engine, *[engine.start(q) for q in asked])]
    assert together == alone and len(set(alone)) > 1


@pytest.mark.parametrize("stage", ["encode", "prefill", "decode"])
def test_cancel_in_any_stage_leaves_everything_intact(int8_model, stage):
    engine = Engine(int8_model, prefill_chunk_tokens=8)
    expected = ask(Engine(int8_model, prefill_chunk_tokens=8), PICTURE)
    doomed = engine.start(question(PICTURE))
    while True:
        engine.step()
        if states(engine, doomed) == stage:
            break
    answer = engine.cancel(doomed, "cancelled")
    assert answer.finish_reason == "cancelled"
    assert engine.step() == [] and doomed.kv is None
    assert engine.features.stats().entries == (0 if stage == "encode" else 1)
    assert ask(engine, PICTURE) == expected


def test_cancelled_text_is_a_prefix(int8_engine):
    whole = ask(int8_engine, PICTURE, max_new_tokens=12)
    sequence = int8_engine.start(question(PICTURE))
    while len(sequence.tokens) < 5:
        int8_engine.step()
    answer = int8_engine.cancel(sequence, "cancelled")
    assert answer.response and whole.startswith(answer.response.rstrip("\ufffd"))


def test_a_failing_answer_fails_alone(int8_engine, monkeypatch):
    """An exception in the picture's stage, then one in the common decode step."""
    expected = ask(int8_engine, PICTURE)
    good = int8_engine.start(question(PICTURE))
    bad_picture = int8_engine.start(question(OTHER))
    monkeypatch.setattr(int8_engine.reader, "pixels", lambda picture: 1 / 0)
    results = run(int8_engine, good, bad_picture)
    monkeypatch.undo()
    assert results[0].answer.response == expected
    assert isinstance(results[1], Failed) and "zero" not in str(results[1].error)

    good, bad = int8_engine.start(question(PICTURE)), int8_engine.start(question(text="Hello"))
    while len(good.tokens) < 2 or len(bad.tokens) < 2:
        int8_engine.step()
    bad.kv.table = None
    results = run(int8_engine, good, bad)
    assert results[0].answer.response == expected and isinstance(results[1], Failed)
    assert ask(int8_engine, PICTURE) == expected


@pytest.mark.parametrize("stage", ["encode", "decode"])
def test_a_traceback_in_the_log_has_the_requests_name_and_nothing_of_what_was_asked(
    int8_engine, monkeypatch, caplog, stage
):
    good, bad = (int8_engine.start(question(p, text="my secret"), n) for p, n in ((PICTURE, "good"), (OTHER, "bad-7")))
    if stage == "encode":
        pixels = type(int8_engine.reader).pixels
        monkeypatch.setattr(
            int8_engine.reader, "pixels", lambda p: pixels(int8_engine.reader, p) if p is not OTHER else 1 / 0
        )
    else:
        while len(bad.tokens) < 2:
            int8_engine.step()
        bad.kv.table = None
    assert [type(end) for end in run(int8_engine, good, bad)] == [Finished, Failed]
    tracebacks = [record.getMessage() for record in caplog.records if record.exc_info]
    assert len(tracebacks) == 1 and "bad-7" in tracebacks[0] and "good" not in tracebacks[0]
    assert "secret" not in caplog.text


def test_a_newcomer_and_running_answers_take_turns(int8_engine):
    running = int8_engine.start(question(PICTURE, max_new_tokens=40))
    while not running.tokens:
        int8_engine.step()
    newcomer = int8_engine.start(question(OTHER))
    for _ in range(4):
        before = len(running.tokens)
        events = int8_engine.step() + int8_engine.step()
        assert len(running.tokens) == before + 1 or running.kv is None
        assert any(s is newcomer and isinstance(m, Progress) for s, m in events)


def test_a_large_picture_is_read_in_smaller_slices_to_the_same_end(int8_model, monkeypatch):
    """Rows of a layer may be cut anywhere; more slices, the same features bit for bit."""

    def read() -> tuple:
        engine = Engine(int8_model)
        sequence, slices = engine.start(question(PICTURE)), 0
        while sequence.encoded is None:
            slices += len(engine.step())
        return engine.features.get(engine.reader.feature_key(PICTURE)), slices

    whole, few = read()
    monkeypatch.setattr(vision, "PATCHES_A_SLICE", 70)
    parts, many = read()
    assert many > 2 * few
    assert all(
        torch.equal(a, b) for a, b in zip((whole.merged, *whole.levels), (parts.merged, *parts.levels), strict=True)
    )


def test_progress_only_grows(int8_engine):
    sequence = int8_engine.start(question(PICTURE, OTHER))
    seen = []
    while sequence.logits is None:
        seen += [(m.stage, m.fraction) for _, m in int8_engine.step() if isinstance(m, Progress)]
    assert seen == sorted(seen, key=lambda p: (p[0] != "encoding", p[1])) and {s for s, _ in seen} == {
        "encoding",
        "prefill",
    }
    assert all(0 < fraction <= 1 for _, fraction in seen)


def test_length_and_usage(int8_engine):
    answer = run(int8_engine, int8_engine.start(question(PICTURE, max_new_tokens=3)))[0].answer
    assert answer.finish_reason == "length" and answer.usage.completion_tokens == 3
    h, w = int8_engine.model.grid(PICTURE)
    assert answer.images[0].tokens == h * w and answer.images[0].width == w * 32
    assert answer.timings.encode_s > 0 and answer.timings.total_s >= answer.timings.first_token_s > 0


def test_end_of_text_stops(int8_engine, monkeypatch):
    from qwenvl.engine import engine as module

    script = iter([5, 6, next(iter(int8_engine.model.end_ids))])
    monkeypatch.setattr(module, "choose", lambda logits, temperature: next(script))
    answer = run(int8_engine, int8_engine.start(question(PICTURE)))[0].answer
    assert answer.finish_reason == "stop" and answer.usage.completion_tokens == 2


def test_picture_tokens_are_never_written(int8_engine):
    sequence = int8_engine.start(question(PICTURE))
    while not sequence.tokens:
        int8_engine.step()
    assert len(int8_engine.model.suppressed) == 4
    assert all(sequence.logits[i] == -torch.inf for i in int8_engine.model.suppressed)


def test_too_long_is_refused_with_the_limit(int8_model):
    engine = Engine(int8_model, max_context_tokens=64)
    with pytest.raises(ContextLengthExceeded, match="63"):
        engine.start(question(PICTURE, text="long " * 100))
    answer = run(engine, engine.start(question(text="Hi", max_new_tokens=500)))[0].answer
    assert answer.usage.prompt_tokens + answer.usage.completion_tokens <= 64


def test_an_earlier_turn_changes_the_answer_and_keeps_the_picture(int8_engine):
    import dataclasses

    plain = question(PICTURE, text="And?")
    talk = dataclasses.replace(plain, history=(Turn("user", "What color?"), Turn("assistant", "red")))
    a, b = int8_engine.start(plain), int8_engine.start(talk)
    assert a.prompt.picture_starts == b.prompt.picture_starts and len(b.prompt.ids) > len(a.prompt.ids)
    assert all(isinstance(m, Finished) for m in run(int8_engine, a, b))


def test_temperature_samples_and_greedy_repeats(int8_engine):
    assert ask(int8_engine, PICTURE) == ask(int8_engine, PICTURE)
    torch.manual_seed(0)
    assert len({ask(int8_engine, PICTURE, temperature=2.0) for _ in range(4)}) > 1
