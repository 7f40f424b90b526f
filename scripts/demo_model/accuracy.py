"""Held-out pictures and how many answers about them are right to the letter, by generation through the real engine."""

import hashlib
import random
from collections.abc import Iterator

from demo_model.questions import QA, questions
from demo_model.scenes import SIZE_WEIGHTS, SIZES, make_scene
from qwenvl.engine.engine import Engine
from qwenvl.images import Picture
from qwenvl.messages import Finished, Options, Question

# no training run uses this one: there the seeds are step numbers times a thousand
HELD_OUT_SEED = "held out"


def held_out(count: int, seed: str = HELD_OUT_SEED) -> Iterator[tuple[Picture, QA]]:
    """`count` pictures with one question each; the same ones for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        scene = make_scene(rng, rng.choices(SIZES, SIZE_WEIGHTS)[0])
        qa = rng.choice(questions(scene, rng, rng.random() < 0.5))
        sha256 = hashlib.sha256(scene.picture.tobytes()).hexdigest()
        yield Picture(scene.picture, sha256, "balanced", *scene.picture.size), qa


def answers(engine: Engine, asked: list[tuple[Picture, QA]]) -> list[str]:
    """The engine's greedy answers, as many at once as it has slots for."""
    waiting = [(i, Question((p,), qa.question, (), Options(max_new_tokens=96))) for i, (p, qa) in enumerate(asked)]
    waiting.reverse()
    running, said = {}, [""] * len(asked)
    while waiting or running:
        while waiting and len(running) < engine.slots:
            i, question = waiting.pop()
            running[engine.start(question)] = i
        for sequence, message in engine.step():
            if isinstance(message, Finished):
                said[running.pop(sequence)] = message.answer.response
    return said


def scores(asked: list[tuple[Picture, QA]], said: list[str]) -> dict[str, tuple[int, int]]:
    """(right, asked) by kind of question, and for `shapes` and `reading` as wholes."""
    table: dict[str, tuple[int, int]] = {}
    for (_, qa), answer in zip(asked, said, strict=True):
        right = answer == qa.answer
        for key in ("reading" if qa.reading else "shapes", f"  {qa.kind}{' (text)' if qa.reading else ''}"):
            hits, count = table.get(key, (0, 0))
            table[key] = hits + right, count + 1
    return table
