"""Answers on their way to a page, kept so that a page that lost its connection can have the rest.

An answer belongs to whoever asked: it is found by the page's secret key and its request id together. Knows no
Socket.IO; it is given a function that sends.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import gevent
from gevent.lock import RLock

from qwenvl.errors import InvalidRequest
from qwenvl.messages import Failed, Finished, Message, Piece, Progress
from qwenvl.web.render import answer_fields, error_fields, piece_fields, progress_fields

KEEP_ENDED_S = 60.0
MAX_KEPT = 512


class KeptAnswer:
    """One answer: everything said so far, who listens now, and how much of it they have."""

    def __init__(self, request_id: str, listener: str, send: Callable[[str, dict, str], None]):
        self.request_id = request_id
        self.listener: str | None = listener
        self.image_ids: Sequence[str] = ()
        self.ended = False
        self.departures = 0
        self._send = send
        self._pieces: list[str] = []
        self._progress: Progress | None = None
        self._progress_due = False
        self._ending: tuple[str, dict[str, Any]] | None = None
        self._next = 0  # index of the piece the listener needs next
        self._ticket = None
        self._stopped = False
        self._lock = RLock()  # two greenlets must not send at once, or pieces would come out of order

    def run_as(self, ticket) -> None:
        """The question is queued. A stop that came while its pictures were being opened takes effect now."""
        self._ticket = ticket
        if self._stopped:
            ticket.cancel()

    def stop(self) -> None:
        """Cancel; the answer ends with what there is."""
        self._stopped = True
        if self._ticket is not None:
            self._ticket.cancel()

    def accept(self, message: Message) -> None:
        """Take a message from the engine and pass it on if anybody listens."""
        match message:
            case Progress():
                self._progress, self._progress_due = message, True
            case Piece(_, text):
                self._pieces.append(text)
            case Finished(answer):
                self._ending = ("answer_done", answer_fields(answer, self.image_ids))
            case Failed(error):
                self._ending = ("answer_error", error_fields(error))
        if self._ending is not None:
            self.ended = True
            self._ticket = None  # it holds the question's pictures, and this answer is kept for a while
        self.flush()

    def attach(self, listener: str, from_index: int) -> None:
        """Somebody listens (again) and already has the pieces before `from_index`."""
        if from_index > len(self._pieces):
            raise InvalidRequest(f"from_index is {from_index}, but only {len(self._pieces)} pieces were sent.")
        with self._lock:
            self.listener, self._next = listener, from_index
            self._progress_due = self._progress is not None
            self.flush()

    def flush(self) -> None:
        """Send what the listener does not have yet, in order."""
        with self._lock:
            if self.listener is None:
                return
            if self._progress_due and not self._pieces and not self.ended:
                self._emit("answer_progress", progress_fields(self._progress))
            self._progress_due = False
            while self._next < len(self._pieces):
                self._next += 1
                self._emit("answer_token", piece_fields(self._next - 1, self._pieces[self._next - 1]))
            if self._ending is not None:
                self._emit(*self._ending)

    def _emit(self, event: str, fields: dict[str, Any]) -> None:
        if self.listener is not None:
            self._send(event, {"request_id": self.request_id, **fields}, self.listener)


class KeptAnswers:
    """All of them, by (key of the page, request id)."""

    def __init__(self, send: Callable[[str, dict, str], None], resume_grace_s: float):
        self._send = send
        self._resume_grace_s = resume_grace_s
        self._kept: dict[Hashable, KeptAnswer] = {}

    def open(self, page_key: str, request_id: str, listener: str) -> KeptAnswer:
        """A new answer; raise `InvalidRequest` when this page already has one under this id."""
        key = (page_key, request_id)
        if key in self._kept:
            raise InvalidRequest("This request_id is already in use. Choose a new one for every question.")
        kept = self._kept[key] = KeptAnswer(request_id, listener, self._send)
        return kept

    def find(self, page_key: str, request_id: str) -> KeptAnswer | None:
        return self._kept.get((page_key, request_id))

    def close(self, page_key: str, kept: KeptAnswer) -> None:
        """The answer has ended. It stays for a moment, for a page that is just reconnecting."""
        gevent.spawn_later(KEEP_ENDED_S, self._drop, (page_key, kept.request_id), kept)
        ended = [(key, answer) for key, answer in self._kept.items() if answer.ended]
        for key, answer in ended[: max(0, len(ended) - MAX_KEPT)]:
            self._drop(key, answer)

    def leave(self, listener: str, *, for_good: bool) -> None:
        """A connection is gone. Its answers are cancelled, at once or if nobody comes back for them in time."""
        for kept in list(self._kept.values()):
            if kept.listener == listener and not kept.ended:
                kept.listener = None
                kept.departures += 1
                if for_good:
                    kept.stop()
                else:
                    gevent.spawn_later(self._resume_grace_s, _stop_if_alone, kept, kept.departures)

    def _drop(self, key: Hashable, kept: KeptAnswer) -> None:
        if self._kept.get(key) is kept:
            del self._kept[key]


def _stop_if_alone(kept: KeptAnswer, departure: int) -> None:
    """Nobody came back after this departure (a later one has its own time)."""
    if kept.listener is None and kept.departures == departure:
        kept.stop()
