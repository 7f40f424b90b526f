"""Guessing ahead changes when tokens come, never which."""

import dataclasses

import pytest
from PIL import Image, ImageDraw, ImageFont

from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import DEMO
from qwenvl.engine.loading import load_model
from qwenvl.engine.speculation import LONGEST_PAUSE, MOST_ROWS, Guesser
from qwenvl.images import Picture
from qwenvl.messages import Turn
from tests.engine.conftest import noise, question, run, silent


def card(text: str) -> Picture:
    image = Image.new("RGB", (256, 128), "white")
    ImageDraw.Draw(image).text((30, 40), text, fill="black", font=ImageFont.load_default(36))
    return Picture(image, text, "balanced", *image.size)


def with_engine(model, asked, **settings) -> tuple:
    engine = Engine(model, **settings)
    return engine, engine.start(asked)


TABLE = "a, b, c, d, e, f; a, b, c, d, e, f; a, b, c, d, e"


def answers(model, speculation_tokens: int, **options):
    """The same questions, a repetitive one among them, alone and together; and how many steps all took."""
    engine, steps = Engine(model, speculation_tokens=speculation_tokens), 0
    asked = [question(text=TABLE, max_new_tokens=60), question(noise(300, 200), text="What?", max_new_tokens=40)]
    said = []
    for group in ([asked[0]], [asked[1]], asked):
        sequences = [engine.start(q) for q in group]
        while any(s.kv is not None or s.encoded is None for s in sequences):
            engine.step()
            steps += 1
        said += [s.tokens for s in sequences]
    return said, steps


@pytest.mark.parametrize("kind", ["float_model", "int8_model"])
def test_greedy_answers_are_identical_with_and_without(request, kind):
    model = request.getfixturevalue(kind)
    (with_guesses, fewer), (without, more) = answers(model, 7), answers(model, 0)
    assert with_guesses == without
    assert fewer < more


def test_an_earlier_answer_said_again_takes_few_steps():
    """The demo model reads a card aloud twice in one conversation."""
    model = load_model(DEMO, "int8", "", silent)
    asked = question(card("PAID 4711"), text="What does it say?", max_new_tokens=40)
    first = run(*with_engine(model, asked))[0].answer
    asked = dataclasses.replace(asked, history=(Turn("user", asked.text), Turn("assistant", first.response)))
    steps = {}
    for speculation_tokens in (0, 7):
        engine, sequence = with_engine(model, asked, speculation_tokens=speculation_tokens)
        while not sequence.tokens:
            engine.step()
        steps[speculation_tokens] = sum(1 for _ in iter(engine.step, []))
        assert "".join(sequence.pieces) == first.response and len(sequence.tokens) >= 8
    assert steps[7] <= 0.6 * steps[0]


def test_a_wrong_guess_leaves_no_trace(int8_model, monkeypatch):
    """Guesses that are always wrong: same tokens, same keys and values in use, and the next question shares them."""
    monkeypatch.setattr(Guesser, "guess", lambda self, limit: [11, 12, 13][: max(limit, 0)])
    wrong = Engine(int8_model)
    plain = Engine(int8_model, speculation_tokens=0)
    one = question(noise(300, 200), max_new_tokens=9)
    got, expected = (run(engine, engine.start(one))[0].answer for engine in (wrong, plain))
    assert got.response == expected.response
    more = question(noise(300, 200), text="And then?", max_new_tokens=9)
    got, expected = (run(engine, engine.start(more))[0].answer for engine in (wrong, plain))
    assert (got.response, got.usage) == (expected.response, expected.usage)


def test_an_answer_ends_at_its_limit_whatever_was_guessed(int8_model):
    for limit in (1, 2, 5):
        answer = run(*with_engine(int8_model, question(text=TABLE, max_new_tokens=limit)))[0].answer
        assert (answer.finish_reason, answer.usage.completion_tokens) == ("length", limit)


def test_it_guesses_what_followed_last_time():
    guesser = Guesser([1, 2, 3, 4, 5, 1, 2, 3, 9, 8, 1, 2, 3])
    assert guesser.guess(7) == [9, 8]
    assert guesser.guess(1) == [9] and guesser.guess(0) == []
    guesser.push(7)
    assert guesser.guess(7) == []


def test_it_asks_for_more_while_right_and_rests_when_wrong():
    guesser = Guesser([*range(20), *range(20), 0, 1, 2])
    widths = []
    for _ in range(4):
        widths.append(len(guesser.guess(MOST_ROWS)))
        guesser.learn(widths[-1], widths[-1])
    assert widths == [2, 4, 8, 8]
    rests = []
    for _ in range(7):
        guesser.learn(2, 0)
        rests.append(next(i for i in range(100) if guesser.guess(MOST_ROWS)))
    assert rests == sorted(rests) and rests[0] < rests[-1] == LONGEST_PAUSE
