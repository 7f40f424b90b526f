"""Who works when: one native thread that owns the engine, a bounded line in front of it, one slice after another.

Knows of the engine only `start`, `step`, `cancel`, `forget`, `info` and `slots`; nothing of tensors or of the web.
Other threads never touch the engine: they put small functions into the inbox, which the engine thread runs between
two slices.
"""

import logging
import time
from collections.abc import Callable

from qwenvl.errors import AnswerTimeout, Internal, Loading, ModelError, QueueFull, QwenVLError, RateLimited
from qwenvl.line import Line
from qwenvl.messages import Answer, Failed, Finished, Message, Piece, Progress, Question
from qwenvl.native import Lock, SimpleQueue, start_thread
from qwenvl.tickets import Asker, LoadState, Ticket

log = logging.getLogger(__name__)

REPORT_EVERY_S = 5.0  # between two lines of the log about one stage of loading
STOPPING = "The server is restarting. Ask again in a moment."
BROKEN = "The engine broke down and is being started again. Try again in a moment."
ANYBODY = Asker()


class Scheduler:
    """Runs `load(report)` and then the engine it returns, on a native thread of its own.

    `ended(ticket, message)` is told how every question ended, on the thread that ended it. `beat` counts slices and is
    None while there is nothing to do; `gone` says that the thread has ended, `died` that nobody had asked it to.
    """

    def __init__(self, load: Callable, *, queue_size: int, answer_timeout_s: float, client_questions: int = 0,
                 ended: Callable[[Ticket, Message], None] = lambda ticket, message: None):  # fmt: skip
        self.load_state = LoadState()
        self.info: dict = {}
        self.stopped = self.died = self.gone = False
        self.beat: int | None = None
        self._load = load
        self._queue_size = queue_size
        self._client_questions = client_questions
        self._timeout_s = answer_timeout_s
        self._ended = ended
        self._inbox = SimpleQueue()
        self._lock = Lock()
        self._open: set[Ticket] = set()  # admitted and not ended; guarded by the lock
        self._abandoned = False
        self._stop_at: float | None = None
        self._engine = None
        self._waiting = Line()
        self._running: dict = {}
        self._typical_s: float | None = None
        self._next_report = 0.0
        self._slices = 0

    # For any thread

    @property
    def ready(self) -> bool:
        return self._engine is not None and self._stop_at is None and not self.stopped

    @property
    def counts(self) -> tuple[int, int]:
        """(waiting, running), a glance from outside."""
        running = len(self._running)
        return max(0, len(self._open) - running), running

    def start(self) -> None:
        start_thread(self._thread)

    def check_open(self, client: str) -> None:
        """Raise `Loading`, `QueueFull` or `RateLimited` when a question of this client could not be admitted now."""
        if self.load_state.error:
            raise ModelError(self.load_state.error)
        if self._stop_at is not None or self.stopped:
            raise Loading(STOPPING)
        engine = self._engine
        if engine is None:
            raise Loading(f"The model is still loading ({self.load_state.stage}). Try again in a few seconds.")
        if len(self._open) >= self._queue_size + engine.slots:
            raise QueueFull(f"{self._queue_size} questions are already waiting. Try again in a few seconds.")
        most = self._client_questions
        if most and sum(ticket.asker.client == client for ticket in list(self._open)) >= most:
            raise RateLimited(f"You have {most} questions open already. Ask again when one of them is answered.")

    def submit(self, question: Question, deliver: Callable[[Message], None], asker: Asker = ANYBODY) -> Ticket:
        """Queue a question. `deliver` is called on the engine thread and must return at once."""
        ticket = Ticket(question, deliver, asker, self._timeout_s, self._wake)
        with self._lock:
            self.check_open(asker.client)
            self._open.add(ticket)
            self._inbox.put(lambda: self._waiting.add(ticket))
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

    def abandon(self) -> None:
        """Fail every question now; the engine thread, wherever it is stuck, ends as soon as it comes back."""
        with self._lock:
            self.stopped = self._abandoned = True
            doomed = list(self._open)
        for ticket in doomed:
            self._close(ticket, Failed(Internal(BROKEN)))
        self._wake()

    def _wake(self) -> None:
        self._inbox.put(lambda: None)

    # On the engine thread

    def _thread(self) -> None:
        try:
            if self._load_engine():
                self._serve()
        except BaseException:  # such as SystemExit, which would end a native thread without a word
            log.critical("The engine's thread has died.", exc_info=True)
            self.load_state = LoadState("restarting")
        finally:
            # Nobody may be left waiting, whatever ended this thread.
            asked_to = self._stop_at is not None or self._abandoned
            with self._lock:
                self.stopped = True
            self._engine = self.beat = None
            for ticket in list(self._open):
                self._close(ticket, Failed(Loading(STOPPING) if asked_to else Internal(BROKEN)))
            self.died = not (asked_to or self.load_state.error)
            self.gone = True

    def _load_engine(self) -> bool:
        try:
            self._engine = self._load(self._report)
            self.info = self._engine.info()
        except QwenVLError as error:
            log.critical("%s", error)
            self._fail_loading(str(error))
        except BaseException:
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
        return self._abandoned or (self._stop_at is not None and not busy)

    def _turn(self) -> None:
        if not self._waiting and not self._running:
            self.beat = None
            self._inbox.get()()  # sleeps until somebody needs something
        self._slices += 1
        self.beat = self._slices
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
            ticket = self._waiting.first()
            try:
                ticket.handle = self._engine.start(ticket.question)
            except QwenVLError as error:
                self._end(ticket, Failed(error))
            except Exception:
                log.exception("Request %s could not be started.", ticket.asker.request_id)
                self._end(ticket, Failed(_internal()))
            else:
                ticket.started_at = time.monotonic()
                self._running[ticket.handle] = self._waiting.take()

    def _announce_positions(self) -> None:
        for position, ticket in enumerate(self._waiting, start=1):
            if ticket.position != position:
                ticket.position = position
                eta_s = self._typical_s and round(self._typical_s * position / self._engine.slots, 1)
                self._deliver(ticket, Progress("queued", position=position, eta_s=eta_s))

    def _pass_on(self, ticket: Ticket | None, message: Message) -> None:
        """Hand a message of the engine to whoever asked; the last one ends the ticket."""
        if ticket is None or self._abandoned:
            return
        if isinstance(message, Finished):
            self._note_duration(time.monotonic() - ticket.started_at)
            self._end(ticket, Finished(ticket.with_queue_time(message.answer)))
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
                return ticket.with_queue_time(self._engine.cancel(ticket.handle, reason))
            except Exception:
                log.exception("Request %s could not be cancelled cleanly.", ticket.asker.request_id)
        return Answer("", reason, str(self.info.get("model", "")))

    def _end(self, ticket: Ticket, message: Finished | Failed) -> None:
        if ticket.started_at is None:
            self._waiting.remove(ticket)
        else:
            del self._running[ticket.handle]
        self._close(ticket, message)

    def _close(self, ticket: Ticket, message: Finished | Failed) -> None:
        """Tell the end to whoever asked, once, on whatever thread comes first."""
        with self._lock:
            if ticket not in self._open:
                return
            self._open.remove(ticket)
        try:
            self._ended(ticket, message)
        except Exception:
            log.exception("The end of request %s could not be noted.", ticket.asker.request_id)
        self._deliver(ticket, message)

    def _deliver(self, ticket: Ticket, message: Message) -> None:
        try:
            ticket.deliver(message)
        except Exception:
            # Whoever asked cannot be reached: that is their loss alone.
            log.exception("Request %s: its answer could not be delivered.", ticket.asker.request_id)
            ticket.cancelled = True


def _internal() -> Internal:
    return Internal("The model failed on this question. Try again, or with another picture.")
