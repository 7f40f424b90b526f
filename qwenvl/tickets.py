"""What the scheduler shows to other threads: how far loading is, and the ticket of a question that was taken in.

Knows no engine and no queue.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from qwenvl.messages import Message, Question


@dataclass(frozen=True)
class LoadState:
    """How far loading has come; `error` says why it ended without an engine."""

    stage: str = "starting"
    fraction: float = 0.0
    error: str | None = None


class Ticket:
    """One question on its way to an answer. Everything but `cancel()` belongs to the engine thread."""

    def __init__(self, question: Question, deliver: Callable[[Message], None], timeout_s: float, wake: Callable):
        self.question = question
        self.deliver = deliver
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
