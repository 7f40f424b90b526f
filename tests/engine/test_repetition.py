"""Loops are stopped and their text kept; what only looks like one survives."""

import itertools

import pytest

from qwenvl.engine import engine as engine_module
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.detokenizer import TokenBytes
from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import DEMO_FOLDER
from qwenvl.engine.repetition import LONGEST_CYCLE, LOOP_TOKENS, Repetition
from tests.engine.conftest import noise, question, run

ZEROS = "| 0 | 0.00 | 0 | 0.00 | 0 | 0.00 |\n" * 12
RECEIPT = "1 x Beer 4.00\n" * 9
POEM = "\n".join(f"On day {n} of Christmas my true love gave to me" for n in range(1, 13))


@pytest.fixture(scope="module")
def letters():
    return Checkpoint(DEMO_FOLDER).tokenizer


def stops_at(letters, text: str) -> int | None:
    """After how many tokens of a text it would be stopped; None if never."""
    watch = Repetition(TokenBytes(letters).text)
    ids = letters.encode(text, add_special_tokens=False)
    return next((i + 1 for i, token in enumerate(ids) if watch.push(token)), None)


@pytest.mark.parametrize(
    "cycle", ["a", "the ", "好的，", "Total: 5.00\n", "I see a picture of a picture of a picture. "]
)
def test_a_cycle_for_ever_is_stopped(letters, cycle):
    length = len(letters.encode(cycle * 10, add_special_tokens=False)) // 10
    assert LOOP_TOKENS <= stops_at(letters, "Here it is: " + cycle * 400) <= LOOP_TOKENS + 5 * length + 20


@pytest.mark.parametrize(
    "text", [ZEROS, RECEIPT, POEM, "0" * 300, "-" * 400, "Yes. " * 12, ", ".join(map(str, range(400)))]
)
def test_true_repeats_survive(letters, text):
    assert stops_at(letters, text) is None


def test_even_numbers_alone_do_not_go_on_for_ever(letters):
    assert stops_at(letters, "0 " * 2000) is not None


def test_a_cycle_longer_than_is_looked_for_is_left_to_the_limit():
    watch = Repetition(lambda ids: "letters")
    assert not any(watch.push(token) for _ in range(20) for token in range(LONGEST_CYCLE + 1))
    watch = Repetition(lambda ids: "letters")
    assert any(watch.push(token) for _ in range(20) for token in range(LONGEST_CYCLE))


def test_the_engine_ends_the_answer_and_keeps_its_text(int8_model, monkeypatch):
    """A model that says the same three tokens for ever."""
    cycle = itertools.cycle((70, 71, 72))
    monkeypatch.setattr(engine_module, "choose", lambda logits, temperature: next(cycle))
    engine = Engine(int8_model)
    sequence = engine.start(question(noise(300, 200), max_new_tokens=2000))
    answer = run(engine, sequence)[0].answer
    assert answer.finish_reason == "repetition"
    assert LOOP_TOKENS <= answer.usage.completion_tokens < LOOP_TOKENS + 8
    assert answer.response == "".join(sequence.pieces) and len(answer.response) > 100
