"""The questions that were taken in and have not ended: who may still come in, and the end that each is told once.

For any thread. Knows no engine and no order.
"""

import logging
from collections.abc import Callable

from qwenvl.errors import QueueFull, RateLimited
from qwenvl.messages import Failed, Finished, Message
from qwenvl.native import Lock
from qwenvl.tickets import Ticket

log = logging.getLogger(__name__)


class Desk:
    """Open tickets. `ended(ticket, message)` is told how each one ended, on the thread that ended it."""

    def __init__(self, queue_size: int, client_questions: int, ended: Callable[[Ticket, Message], None]):
        self._queue_size = queue_size
        self._client_questions = client_questions
        self._ended = ended
        self._lock = Lock()
        self._open: set[Ticket] = set()

    def __len__(self) -> int:
        return len(self._open)

    def open_tickets(self) -> list[Ticket]:
        with self._lock:
            return list(self._open)

    def check(self, client: str, slots: int) -> None:
        """Raise `QueueFull` or `RateLimited` when a question of this client would be one too many."""
        if len(self._open) >= self._queue_size + slots:
            raise QueueFull(f"{self._queue_size} questions are already waiting. Try again in a few seconds.")
        most = self._client_questions
        if most and sum(ticket.asker.client == client for ticket in self.open_tickets()) >= most:
            raise RateLimited(f"You have {most} questions open already. Ask again when one of them is answered.")

    def admit(self, ticket: Ticket) -> None:
        with self._lock:
            self._open.add(ticket)

    def close(self, ticket: Ticket, message: Finished | Failed) -> None:
        """Tell the end to whoever asked, once, on whatever thread comes first."""
        with self._lock:
            if ticket not in self._open:
                return
            self._open.remove(ticket)
        try:
            self._ended(ticket, message)
        except Exception:
            log.exception("The end of request %s could not be noted.", ticket.asker.request_id)
        _deliver(ticket, message)

    def tell(self, ticket: Ticket, message: Message) -> None:
        """Something before the end; nothing comes behind it."""
        if ticket in self._open:
            _deliver(ticket, message)


def _deliver(ticket: Ticket, message: Message) -> None:
    try:
        ticket.deliver(message)
    except Exception:
        # Whoever asked cannot be reached: that is their loss alone.
        log.exception("Request %s: its answer could not be delivered.", ticket.asker.request_id)
        ticket.cancelled = True
