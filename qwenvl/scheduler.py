"""Whose turn it is: one native thread that owns the engine, a bounded queue in front of it, one slice after another.

Knows of the engine only `start`, `step`, `cancel`, `forget`, `info` and `slots`; nothing of tensors or of the web.
Other threads never touch the engine: they put small functions into the inbox, which the engine thread runs between
two slices.
"""

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable

from qwenvl.errors import AnswerTimeout, Internal, Loading, ModelError, QueueFull, QwenVLError
from qwenvl.messages import Answer, Failed, Finished, Message, Piece, Progress, Question
from qwenvl.native import Lock, SimpleQueue, start_thread
from qwenvl.tickets import LoadState, Ticket

log = logging.getLogger(__name__)

REPORT_EVERY_S = 5.0  # between two lines of the log about one stage of loading
STOPPING = "The server is restarting. Ask again in a moment."


class Scheduler:
    """Runs `load(report)` and then the engine it returns, on a native thread of its own."""

    def __init__(self, load: Callable, *, queue_size: int, answer_timeout_s: float):
        self.load_state = LoadState()
        self.info: dict = {}
        self.stopped = False
        self._load = load
        self._queue_size = queue_size
        self._timeout_s = answer_timeout_s
        self._inbox = SimpleQueue()
        self._lock = Lock()
        self._open = 0  # tickets that were admitted and have not ended; guarded by the lock
        self._stop_at: float | None = None
        self._engine = None
        self._waiting: deque[Ticket] = deque()
        self._running: dict = {}
        self._typical_s: float | None = None
        self._next_report = 0.0

    # For any thread

    @property
    def ready(self) -> bool:
        return self._engine is not None and self._stop_at is None and not self.stopped

    @property
    def counts(self) -> tuple[int, int]:
        """(waiting, running), a glance from outside."""
        running = len(self._running)
        return max(0, self._open - running), running

    def start(self) -> None:
        start_thread(self._thread)

    def check_open(self) -> None:
        """Raise `Loading` or `QueueFull` when a question could not be admitted now."""
        if self.load_state.error:
            raise ModelError(self.load_state.error)
        if self._stop_at is not None or self.stopped:
            raise Loading(STOPPING)
        if self._engine is None:
            raise Loading(f"The model is still loading ({self.load_state.stage}). Try again in a few seconds.")
        if self._open >= self._queue_size + self._engine.slots:
            raise QueueFull(f"{self._queue_size} questions are already waiting. Try again in a few seconds.")

    def submit(self, question: Question, deliver: Callable[[Message], None]) -> Ticket:
        """Queue a question. `deliver` is called on the engine thread and must return at once."""
        ticket = Ticket(question, deliver, self._timeout_s, self._wake)
        with self._lock:
            self.check_open()
            self._open += 1
            self._inbox.put(lambda: self._waiting.append(ticket))
        return ticket

    def forget(self, sha256: str) -> None:
        """Drop a picture from the engine's caches, between two slices."""
        if self.ready:
            self._inbox.put(lambda: self._forget(sha256))

    def stop(self, grace_s: float) -> None:
        """Refuse new questions, fail waiting ones, let running ones finish for `grace_s`. Returns at once."""
        with self._lock:
            self._stop_at = time.monotonic() + grace_s
            self.load_state = LoadState("stopping", 1.0, self.load_state.error)
        self._wake()

    def _wake(self) -> None:
        self._inbox.put(lambda: None)

    # On the engine thread

    def _thread(self) -> None:
        try:
            if self._load_engine():
                self._serve()
        finally:
            # Nobody may be left waiting, whatever ended this thread.
            with self._lock:
                self.stopped = True
            self._run_inbox()
            for ticket in [*self._waiting, *self._running.values()]:
                self._end(ticket, Failed(Loading(STOPPING)))

    def _load_engine(self) -> bool:
        try:
            self._engine = self._load(self._report)
            self.info = self._engine.info()
        except QwenVLError as error:
            log.critical("%s", error)
            self._fail_loading(str(error))
        except Exception:
            log.critical("The model could not be loaded.", exc_info=True)
            self._fail_loading("The model could not be loaded; the server's log says why.")
        return self._engine is not None

    def _report(self, stage: str, fraction: float) -> None:
        now = time.monotonic()
        if stage != self.load_state.stage or now >= self._next_report:
            log.info("Loading: %s, %d %%", stage, fraction * 100)
            self._next_report = now + REPORT_EVERY_S
        self.load_state = LoadState(stage, fraction)

    def _fail_loading(self, reason: str) -> None:
        self._engine = None
        self.load_state = LoadState("failed", self.load_state.fraction, reason)

    def _serve(self) -> None:
        while not self._finished():
            try:
                self._turn()
            except Exception:
                log.exception("The engine failed; the running answers end with an error.")
                self._fail_running()

    def _finished(self) -> bool:
        # Once `_stop_at` is set nothing new is admitted, so an empty inbox stays free of questions.
        busy = self._waiting or self._running or not self._inbox.empty()
        return self._stop_at is not None and not busy

    def _turn(self) -> None:
        if not self._waiting and not self._running:
            self._inbox.get()()  # sleeps until somebody needs something
        self._run_inbox()
        self._drop_unwanted()
        self._fill_slots()
        self._announce_positions()
        if self._running:
            for handle, message in self._engine.step():
                self._pass_on(self._running.get(handle), message)
        self.info = self._engine.info()

    def _run_inbox(self) -> None:
        while not self._inbox.empty():
            self._inbox.get()()

    def _forget(self, sha256: str) -> None:
        try:
            self._engine.forget(sha256)
        except Exception:
            log.exception("A picture could not be forgotten.")

    def _drop_unwanted(self) -> None:
        now = time.monotonic()
        for ticket in [*self._waiting, *self._running.values()]:
            if ticket.cancelled:
                self._end(ticket, Finished(self._release(ticket, "cancelled")))
            elif now >= ticket.deadline:
                self._time_out(ticket)
            elif self._stop_at is not None and (ticket.started_at is None or now >= self._stop_at):
                self._release(ticket, "cancelled")
                self._end(ticket, Failed(Loading(STOPPING)))

    def _time_out(self, ticket: Ticket) -> None:
        answer = self._release(ticket, "timeout")
        if ticket.spoke:
            self._end(ticket, Finished(answer))
        else:
            self._end(ticket, Failed(AnswerTimeout("The answer took too long. Try a smaller picture, or later.")))

    def _fill_slots(self) -> None:
        while self._waiting and len(self._running) < self._engine.slots:
            ticket = self._waiting[0]
            try:
                ticket.handle = self._engine.start(ticket.question)
            except QwenVLError as error:
                self._end(ticket, Failed(error))
            except Exception:
                log.exception("A question could not be started.")
                self._end(ticket, Failed(_internal()))
            else:
                ticket.started_at = time.monotonic()
                self._running[ticket.handle] = self._waiting.popleft()

    def _announce_positions(self) -> None:
        for position, ticket in enumerate(self._waiting, start=1):
            if ticket.position != position:
                ticket.position = position
                eta_s = self._typical_s and round(self._typical_s * position / self._engine.slots, 1)
                self._deliver(ticket, Progress("queued", position=position, eta_s=eta_s))

    def _pass_on(self, ticket: Ticket | None, message: Message) -> None:
        """Hand a message of the engine to whoever asked; the last one ends the ticket."""
        if ticket is None:
            return
        if isinstance(message, Finished):
            self._note_duration(time.monotonic() - ticket.started_at)
            self._end(ticket, Finished(_with_queue_time(message.answer, ticket)))
        elif isinstance(message, Failed):
            self._end(ticket, message)
        else:
            ticket.spoke = ticket.spoke or isinstance(message, Piece)
            self._deliver(ticket, message)

    def _note_duration(self, seconds: float) -> None:
        self._typical_s = seconds if self._typical_s is None else 0.7 * self._typical_s + 0.3 * seconds

    def _fail_running(self) -> None:
        for ticket in list(self._running.values()):
            self._release(ticket, "cancelled")
            self._end(ticket, Failed(_internal()))

    def _release(self, ticket: Ticket, reason: str) -> Answer:
        """Free what the engine holds for a ticket; the text so far."""
        if ticket.started_at is not None:
            try:
                return _with_queue_time(self._engine.cancel(ticket.handle, reason), ticket)
            except Exception:
                log.exception("An answer could not be cancelled cleanly.")
        return Answer("", reason, str(self.info.get("model", "")))

    def _end(self, ticket: Ticket, message: Finished | Failed) -> None:
        if ticket.started_at is None:
            self._waiting.remove(ticket)
        else:
            del self._running[ticket.handle]
        with self._lock:
            self._open -= 1
        self._deliver(ticket, message)

    def _deliver(self, ticket: Ticket, message: Message) -> None:
        try:
            ticket.deliver(message)
        except Exception:
            # Whoever asked cannot be reached: that is their loss alone.
            log.exception("An answer could not be delivered.")
            ticket.cancelled = True


def _internal() -> Internal:
    return Internal("The model failed on this question. Try again, or with another picture.")


def _with_queue_time(answer: Answer, ticket: Ticket) -> Answer:
    """The engine counts from `start()`; people count from when they asked."""
    queue_s = ticket.started_at - ticket.asked_at
    timings = answer.timings
    first_token_s = timings.first_token_s and timings.first_token_s + queue_s
    timings = dataclasses.replace(
        timings, queue_s=queue_s, first_token_s=first_token_s, total_s=timings.total_s + queue_s
    )
    return dataclasses.replace(answer, timings=timings)
