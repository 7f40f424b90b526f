"""The order in which waiting questions are served: clients take turns, each client's own questions in their order.

This is start-time fair queueing (Goyal, Vin and Cheng, 1996) with questions of equal weight: a question's turn is the
present one or the one after its client's last, whichever is later; the lowest turn goes first, then who came first. A
client with one question waits for one question of each of the others, however many they have. Knows of a ticket only
its `asker.client`. Belongs to one thread.
"""

import bisect
import itertools
from collections.abc import Iterator

from qwenvl.tickets import Ticket


class Line:
    """Waiting tickets. Iterating gives them in the order in which they would be served."""

    def __init__(self):
        self._entries: list[tuple[int, int, Ticket]] = []  # (turn, arrival, ticket), sorted
        self._arrivals = itertools.count()
        self._now = 0  # the turn of the ticket served last
        self._next: dict[str, int] = {}  # the earliest turn of each client's next ticket, where it is not `_now`

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Ticket]:
        return iter([ticket for _, _, ticket in self._entries])

    def add(self, ticket: Ticket) -> None:
        client = ticket.asker.client
        turn = max(self._now, self._next.get(client, 0))
        self._next[client] = turn + 1
        bisect.insort(self._entries, (turn, next(self._arrivals), ticket))

    def first(self) -> Ticket:
        return self._entries[0][2]

    def take(self) -> Ticket:
        """Serve the first one."""
        self._now, _, ticket = self._entries.pop(0)
        self._next = {client: turn for client, turn in self._next.items() if turn > self._now}
        return ticket

    def remove(self, ticket: Ticket) -> None:
        """One leaves without being served; its client's later ones move up by its turn."""
        left = next(entry for entry in self._entries if entry[2] is ticket)
        self._entries.remove(left)
        client = ticket.asker.client
        self._next[client] = self._next.get(client, 1) - 1
        self._entries = sorted(
            (turn - (one.asker.client == client and turn > left[0]), arrival, one)
            for turn, arrival, one in self._entries
        )
