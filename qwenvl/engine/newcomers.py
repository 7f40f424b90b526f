"""Questions on their way to their first token: whose slice is next, and how many may hold memory at once.

Whoever would be read first if all took turns slice by slice is read first, and at one go: nobody is later than by
taking turns, and most are much earlier. Short questions overtake long ones, equals keep their order, nobody is starved.
(The fair sojourn protocol: Friedman and Henderson, 2003.) Knows of a question its `Work` and the generator that does
it; knows no pictures, no tensors and no clock.
"""

import bisect
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from qwenvl.engine.sequence import Sequence
from qwenvl.messages import Progress


@dataclass(frozen=True)
class Work:
    """What reading a question will take, roughly: slices, bytes that it holds meanwhile, pictures to be encoded."""

    slices: int
    nbytes: int = 0
    pictures: frozenset = frozenset()


@dataclass(order=True)
class Newcomer:
    """`reading` yields after every slice: None while it cannot begin, because there is no room for its answer.

    `due`: its slices, and those that each would have had before it came, if all took turns from the start on.
    """

    due: float
    arrival: int
    sequence: Sequence = field(compare=False)
    work: Work = field(compare=False)
    reading: Generator[Progress | None] = field(compare=False)

    @property
    def begun(self) -> bool:
        return self.sequence.kv is not None


class Newcomers:
    """Those that are read now hold `max_bytes` together, or one of them alone holds more.

    However fast others come and go, a question waits for `slots` times as many slices as it needs itself, at most.
    """

    def __init__(self, max_bytes: int, slots: int):
        self.max_bytes, self.slots = max_bytes, slots
        self._all: list[Newcomer] = []  # who is due first comes first
        self._arrivals = 0
        self._turns = 0.0  # slices that each would have had, if all took turns
        self._sharing: list[float] = []  # the dues of those who would not have been read yet

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Sequence]:
        return (newcomer.sequence for newcomer in self._all)

    def add(self, sequence: Sequence, work: Work, reading: Generator[Progress | None]) -> None:
        self._arrivals += 1
        due = self._turns + work.slices
        bisect.insort(self._sharing, due)
        bisect.insort(self._all, Newcomer(due, self._arrivals, sequence, work, reading))

    def in_turn(self) -> list[Newcomer]:
        """Whose slice is next, and whose if that one cannot begin: those that have begun, and one that may.

        Only one, or somebody who needs much room would see it given away bit by bit for ever.
        """
        begun = [newcomer for newcomer in self._all if newcomer.begun]
        # a picture that is being encoded is encoded once: others who ask about it find it in the cache
        busy = frozenset().union(*(newcomer.work.pictures for newcomer in begun))
        next_one = next((n for n in self._all if not n.begun and not n.work.pictures & busy), None)
        held = sum(newcomer.work.nbytes for newcomer in begun)
        if next_one is not None and begun and held + next_one.work.nbytes > self.max_bytes:
            next_one = None
        return [newcomer for newcomer in self._all if newcomer.begun or newcomer is next_one]

    def note_slice(self) -> None:
        """A slice of somebody's reading is done; taking turns, each would have had its part of it."""
        self._turns += 1 / max(1, min(self.slots, len(self._sharing)))
        del self._sharing[: bisect.bisect_right(self._sharing, self._turns)]

    def finish(self, newcomer: Newcomer) -> None:
        """One has been read. Taking turns it might not have been yet, so it keeps its share."""
        self._all = [other for other in self._all if other is not newcomer]

    def give_up(self, sequence: Sequence) -> None:
        """One leaves before it has been read; harmless for a sequence that is not here."""
        for newcomer in [newcomer for newcomer in self._all if newcomer.sequence is sequence]:
            newcomer.reading.close()
            self.finish(newcomer)
            if newcomer.due in self._sharing:
                self._sharing.remove(newcomer.due)
