"""What the scheduler shows to other threads: how far loading is, and the ticket of a question that was taken in.

Knows no engine and no queue.
"""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qwenvl.messages import Answer, Message, Question, Transfer

FEW = 0.02  # of a stage must be done before its pace says anything


@dataclass(frozen=True)
class LoadState:
    """How far loading has come; `error` says why it ended without an engine.

    `began` is when this stage began, and at which fraction.
    """

    stage: str = "starting"
    fraction: float = 0.0
    error: str | None = None
    transfer: Transfer | None = None
    eta_s: float | None = None
    began: tuple[float, float] = (0.0, 0.0)

    def moved(self, stage: str, fraction: float, transfer: Transfer | None, now: float) -> "LoadState":
        """The state after a report, with the seconds that are left of this stage where its pace is known."""
        began = self.began if stage == self.stage and fraction >= self.began[1] else (now, fraction)
        return LoadState(stage, fraction, None, transfer, _seconds_left(fraction, transfer, began, now), began)

    def fields(self) -> dict[str, Any]:
        """What `/health` says of it."""
        known = {"eta_s": self.eta_s} if self.eta_s is not None else {}
        moving = dataclasses.asdict(self.transfer) if self.transfer else {}
        return {"stage": self.stage, "fraction": self.fraction, **known, **moving}


def _seconds_left(fraction: float, transfer: Transfer | None, began: tuple[float, float], now: float) -> float | None:
    if transfer is not None:
        left = transfer.bytes_total - transfer.bytes_done
        return round(left / transfer.rate_bytes_s, 1) if transfer.rate_bytes_s > 0 else None
    seconds, done = now - began[0], fraction - began[1]
    return round(seconds * (1.0 - fraction) / done, 1) if done >= FEW else None


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
