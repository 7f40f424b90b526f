"""What the scheduler shows to other threads: how far loading is, and the ticket of a question that was taken in.

Knows no engine and no queue.
"""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

from qwenvl.messages import Answer, Message, Question


@dataclass(frozen=True)
class LoadState:
    """How far loading has come; `error` says why it ended without an engine."""

    stage: str = "starting"
    fraction: float = 0.0
    error: str | None = None


@dataclass(frozen=True)
class Asker:
    """Whose question it is, for limits and turns, and the name by which the log knows it."""

    client: str = "unknown"
    request_id: str = "-"


class Ticket:
    """One question on its way to an answer. Everything but `cancel()` belongs to the engine thread."""

    def __init__(
        self, question: Question, deliver: Callable[[Message], None], asker: Asker, timeout_s: float, wake: Callable
    ):
        self.question = question
        self.deliver = deliver
        self.asker = asker
        self.asked_at = time.monotonic()
        self.deadline = self.asked_at + timeout_s
        self.started_at: float | None = None
        self.handle = None
        self.position = 0
        self.spoke = False
        self.cancelled = False
        self._wake = wake

    def cancel(self) -> None:
        """End the answer within one slice, from any thread. Harmless after the end."""
        self.cancelled = True
        self._wake()

    def with_queue_time(self, answer: Answer) -> Answer:
        """The engine counts from its start of the answer; people count from when they asked."""
        queue_s = self.started_at - self.asked_at
        timings = answer.timings
        first_token_s = timings.first_token_s and timings.first_token_s + queue_s
        timings = dataclasses.replace(
            timings, queue_s=queue_s, first_token_s=first_token_s, total_s=timings.total_s + queue_s
        )
        return dataclasses.replace(answer, timings=timings)
