"""Whose slice is next while several questions are being read: short ones are not held up, long ones are not starved."""

import itertools
import random
from types import SimpleNamespace

import pytest
import torch

from qwenvl.engine.engine import Engine
from qwenvl.engine.newcomers import Newcomers, Work
from qwenvl.errors import ImageTooLarge
from qwenvl.messages import Finished, Progress
from tests.engine.conftest import ask, noise, question, run

LARGE = [noise(400, 300, seed=seed) for seed in range(8)]
SMALL = noise(64, 64, seed=99)


class World:
    """Newcomers whose reading takes no time, and the slices after which each was done."""

    def __init__(self, max_bytes=1000, rooms=1000, slots=8):
        self.newcomers, self.rooms = Newcomers(max_bytes, slots), rooms
        self.names = itertools.count()
        self.done_at: dict[int, int] = {}
        self.most_held = self.slices = 0

    def add(self, slices, nbytes=0, pictures=(), rooms=0) -> int:
        name, sequence = next(self.names), SimpleNamespace(kv=None)
        self.newcomers.add(sequence, Work(slices, nbytes, frozenset(pictures)), self._read(sequence, slices, rooms))
        return name

    def _read(self, sequence, slices, rooms):
        while self.rooms < rooms:
            yield None
        self.rooms -= rooms
        sequence.kv = rooms
        for _ in range(slices):
            yield Progress("prefill")

    def step(self) -> None:
        for newcomer in self.newcomers.in_turn():
            try:
                if next(newcomer.reading) is None:
                    continue
                self.newcomers.note_slice()
                self.slices += 1
            except StopIteration:
                self.newcomers.finish(newcomer)
                self.rooms += newcomer.sequence.kv
                self.done_at[newcomer.arrival - 1] = self.slices
            held = sum(n.work.nbytes for n in self.newcomers._all if n.begun)
            self.most_held = max(self.most_held, held)
            return

    def run(self) -> list[int]:
        while len(self.newcomers):
            self.step()
        return sorted(self.done_at, key=lambda name: (self.done_at[name], name))


def test_equals_keep_their_order_and_a_short_one_overtakes():
    world = World()
    for slices in (50, 50, 50, 3):
        world.add(slices)
    assert world.run() == [3, 0, 1, 2]
    assert world.done_at[3] == 3


def turns_only(arrivals: list[tuple[int, int]]) -> list[float]:
    """When each would be read if all took turns; arrivals are (after so many slices, slices), in their order."""
    left, ends, now = dict[int, float](), {}, 0
    while len(ends) < len(arrivals):
        left |= {name: work for name, (at, work) in enumerate(arrivals) if at == now}
        if not left:
            now = next(at for at, _ in arrivals if at > now)
            continue
        share = 1 / len(left)
        left = {name: work - share for name, work in left.items()}
        now += 1
        ends |= {name: now for name, work in left.items() if work < 1e-6}
        left = {name: work for name, work in left.items() if name not in ends}
    return [ends[name] for name in range(len(arrivals))]


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_later_than_if_all_took_turns_and_most_are_earlier(seed):
    chance = random.Random(seed)
    world, arrivals = World(slots=100), []
    while len(arrivals) < 60:
        if len(world.newcomers) < 8 and (chance.random() < 0.1 or not len(world.newcomers)):
            arrivals.append((world.slices, chance.choice((1, 2, 3, 10, 60, 300))))
            world.add(arrivals[-1][1])
        world.step()
    world.run()
    fair = turns_only(arrivals)
    assert all(world.done_at[name] <= end + 1 for name, end in enumerate(fair))
    waits = [sum(end - at for end, (at, _) in zip(ends, arrivals, strict=True)) for ends in
             ([world.done_at[name] for name in range(60)], fair)]  # fmt: skip
    assert waits[0] < waits[1]


def test_a_long_one_is_not_starved_by_an_endless_stream_of_short_ones():
    world = World()
    long = world.add(100)
    while long not in world.done_at:
        while len(world.newcomers) < 8:  # as many as there are slots
            world.add(2)
        world.step()
    assert world.done_at[long] <= 100 * (8 + 1)


def test_those_who_are_read_together_keep_within_the_memory_and_one_alone_may_have_all():
    world = World(max_bytes=100)
    for slices, nbytes in ((60, 100), (50, 60), (40, 40), (30, 30), (20, 30), (10, 100)):
        world.add(slices, nbytes)
        world.step()
    assert len(world.run()) == 6 and world.most_held <= 100


def test_a_picture_that_is_being_encoded_is_waited_for_and_others_pass_by():
    world = World()
    first = world.add(20, pictures=["a"])
    world.step()
    again, other = world.add(2, pictures=["a"]), world.add(2, pictures=["b"])
    assert world.run() == [other, first, again]


def test_who_finds_no_room_for_its_answer_holds_up_nobody_that_has_some_and_is_not_passed_by():
    world = World(rooms=10)
    running = world.add(30, rooms=6)
    world.step()
    large, small = world.add(4, rooms=8), world.add(5, rooms=2)
    order = world.run()
    assert order == [running, large, small]


def test_who_gives_up_is_as_if_it_had_never_been_there():
    world, other = World(), World()
    for here in (world, other):
        here.add(10)
    world.add(500)
    world.newcomers.give_up(world.newcomers._all[-1].sequence)
    for here in (world, other):
        here.step()
    assert world.newcomers._turns == other.newcomers._turns and world.newcomers._sharing == other.newcomers._sharing


# --- with the engine ---


def slices_until_read(engine, sequence) -> int:
    for count in range(1, 5000):
        engine.step()
        if sequence.tokens or sequence.kv is None and sequence.logits is not None:
            return count
    raise AssertionError("it was never read")


def test_a_short_question_does_not_wait_for_eight_large_pictures(int8_model):
    alone = Engine(int8_model)
    own = slices_until_read(alone, alone.start(question(SMALL, text="Short?")))
    engine = Engine(int8_model)
    long = engine.start(question(*LARGE))
    for _ in range(5):
        engine.step()
    short = engine.start(question(SMALL, text="Short?"))
    assert slices_until_read(engine, short) <= own + 1
    assert not long.tokens and long.encoded is None
    assert all(isinstance(end, Finished) for end in run(engine, long, short))


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_the_same_whatever_is_read_between_their_slices(int8_model, seed):
    asked = [question(*LARGE[:3]), question(SMALL), question(LARGE[1], SMALL, text="Both?"), question(text="Hello")]
    expected = [ask(Engine(int8_model), *q.pictures, text=q.text) for q in asked]
    chance, engine, sequences = random.Random(seed), Engine(int8_model), []
    order = chance.sample(range(4), 4)
    for i in order:
        sequences.append(engine.start(asked[i]))
        for _ in range(chance.randrange(6)):
            engine.step()
    ends = run(engine, *[s for s in sequences if s.kv is not None or not s.tokens])
    assert [end.answer.response for end in ends] == [expected[i] for i in order]


def test_two_who_show_the_same_new_picture_have_it_encoded_once(int8_engine, monkeypatch):
    shown = []
    pixels = type(int8_engine.reader).pixels
    monkeypatch.setattr(int8_engine.reader, "pixels", lambda p: shown.append(p) or pixels(int8_engine.reader, p))
    first = int8_engine.start(question(LARGE[0], text="A long question about it " * 8))
    int8_engine.step()
    second = int8_engine.start(question(LARGE[0]))
    assert all(isinstance(end, Finished) for end in run(int8_engine, first, second))
    assert len(shown) == 1


def test_a_picture_for_which_there_is_no_memory_is_refused_and_smaller_ones_are_read(int8_model):
    needed = Engine(int8_model).reader.plan(Engine(int8_model).start(question(SMALL)), ()).nbytes
    engine = Engine(int8_model, reading_bytes=needed)
    with pytest.raises(ImageTooLarge, match="memory"):
        engine.start(question(*LARGE))
    assert ask(engine, SMALL) == ask(Engine(int8_model), SMALL)
    assert ask(engine, text="no picture at all")


def test_what_was_read_before_is_no_work_again(int8_engine):
    new = int8_engine.reader.plan(int8_engine.start(question(LARGE[0])), ())
    run(int8_engine, int8_engine.start(question(LARGE[0])))
    known = int8_engine.reader.plan(int8_engine.start(question(LARGE[0])), ())
    assert new.pictures and not known.pictures
    assert known.slices == 1 < new.slices and known.nbytes == 0 < new.nbytes


def test_the_plan_counts_the_slices_that_reading_takes(int8_model):
    engine = Engine(int8_model)
    sequence = engine.start(question(LARGE[0], SMALL))
    planned = engine.reader.plan(sequence, ()).slices
    taken = 0
    while sequence.logits is None:
        taken += len(engine.step())
    assert abs(planned - taken) <= 1


def test_numbers_of_pictures_are_forgotten_and_never_given_twice(int8_engine, monkeypatch):
    from qwenvl.engine import reading

    monkeypatch.setattr(reading, "KNOWN_PICTURES", 3)
    numbers = [int8_engine.reader._number(picture) for picture in [*LARGE, *LARGE]]
    assert len(set(numbers)) == 16 and len(int8_engine.reader._picture_numbers) == 3
    assert torch.equal(torch.tensor(numbers), -torch.arange(1, 17))
