"""What happens between two slices of the engine: who starts, who is told what, who has to end.

Knows of the engine only `start`, `step`, `cancel` and `slots`. Belongs to the engine's thread.
"""

import logging
import time
from typing import Any

from qwenvl.desk import Desk
from qwenvl.errors import AnswerTimeout, Internal, Loading, QwenVLError
from qwenvl.line import Line
from qwenvl.messages import Answer, Failed, Finished, Message, Piece, Progress
from qwenvl.tickets import Ticket

log = logging.getLogger(__name__)

STOPPING = "The server is restarting. Ask again in a moment."


class Turns:
    """Waiting and running questions of one engine. Others may only look at how many are `running`."""

    def __init__(self, engine: Any, desk: Desk):
        self.running: dict[Any, Ticket] = {}
        self._engine = engine
        self._desk = desk
        self._waiting = Line()
        self._model = str(engine.info().get("model", ""))
        self._typical_s: float | None = None

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self.running)

    def add(self, ticket: Ticket) -> None:
        """A question that was admitted gets in line."""
        self._waiting.add(ticket)

    def take(self, stop_at: float | None) -> None:
        """One turn, with one slice of the engine's work. From `stop_at` on nobody starts and nobody goes on."""
        self._drop_unwanted(stop_at)
        self._fill_slots()
        self._announce_positions()
        if self.running:
            for handle, message in self._engine.step():
                self._pass_on(self.running.get(handle), message)

    def fail_running(self) -> None:
        """The engine broke in a slice that was everybody's."""
        names = ", ".join(ticket.asker.request_id for ticket in self.running.values())
        log.exception("The engine failed; these requests end with an error: %s.", names)
        for ticket in list(self.running.values()):
            self._release(ticket, "cancelled")
            self._end(ticket, Failed(_internal()))

    def _drop_unwanted(self, stop_at: float | None) -> None:
        now = time.monotonic()
        for ticket in [*self._waiting, *self.running.values()]:
            if ticket.cancelled:
                self._end(ticket, Finished(self._release(ticket, "cancelled")))
            elif now >= ticket.deadline:
                self._time_out(ticket)
            elif stop_at is not None and (ticket.started_at is None or now >= stop_at):
                self._release(ticket, "cancelled")
                self._end(ticket, Failed(Loading(STOPPING)))

    def _time_out(self, ticket: Ticket) -> None:
        answer = self._release(ticket, "timeout")
        if ticket.spoke:
            self._end(ticket, Finished(answer))
        else:
            self._end(ticket, Failed(AnswerTimeout("The answer took too long. Try a smaller picture, or later.")))

    def _fill_slots(self) -> None:
        while self._waiting and len(self.running) < self._engine.slots:
            ticket = self._waiting.first()
            try:
                ticket.handle = self._engine.start(ticket.question, ticket.asker.request_id)
            except QwenVLError as error:
                self._end(ticket, Failed(error))
            except Exception:
                log.exception("Request %s could not be started.", ticket.asker.request_id)
                self._end(ticket, Failed(_internal()))
            else:
                ticket.started_at = time.monotonic()
                self.running[ticket.handle] = self._waiting.take()

    def _announce_positions(self) -> None:
        for position, ticket in enumerate(self._waiting, start=1):
            if ticket.position != position:
                ticket.position = position
                eta_s = self._typical_s and round(self._typical_s * position / self._engine.slots, 1)
                self._desk.tell(ticket, Progress("queued", position=position, eta_s=eta_s))

    def _pass_on(self, ticket: Ticket | None, message: Message) -> None:
        """Hand a message of the engine to whoever asked; the last one ends the ticket."""
        if ticket is None:
            return
        if isinstance(message, Finished):
            self._note_duration(time.monotonic() - ticket.started_at)
            self._end(ticket, Finished(ticket.with_queue_time(message.answer)))
        elif isinstance(message, Failed):
            self._end(ticket, message)
        else:
            ticket.spoke = ticket.spoke or isinstance(message, Piece)
            self._desk.tell(ticket, message)

    def _note_duration(self, seconds: float) -> None:
        self._typical_s = seconds if self._typical_s is None else 0.7 * self._typical_s + 0.3 * seconds

    def _release(self, ticket: Ticket, reason: str) -> Answer:
        """Free what the engine holds for a ticket; the text so far."""
        if ticket.started_at is not None:
            try:
                return ticket.with_queue_time(self._engine.cancel(ticket.handle, reason))
            except Exception:
                log.exception("Request %s could not be cancelled cleanly.", ticket.asker.request_id)
        return Answer("", reason, self._model)

    def _end(self, ticket: Ticket, message: Finished | Failed) -> None:
        if ticket.started_at is None:
            self._waiting.remove(ticket)
        else:
            del self.running[ticket.handle]
        self._desk.close(ticket, message)


def _internal() -> Internal:
    return Internal("The model failed on this question. Try again, or with another picture.")
