"""Who works when: one native thread that owns the engine, a bounded line in front of it, one slice after another.

Knows of the engine only what `turns` does, and `forget` and `info`; nothing of tensors or of the web. Other threads
never touch the engine: they put small functions into the inbox, which the engine thread runs between two slices.
"""

import logging
import time
from collections.abc import Callable

from qwenvl.desk import Desk
from qwenvl.errors import Internal, Loading, ModelError, QwenVLError
from qwenvl.messages import Failed, Message, Question, Transfer
from qwenvl.native import Lock, SimpleQueue, start_thread
from qwenvl.tickets import Asker, LoadState, Ticket
from qwenvl.turns import STOPPING, Turns

log = logging.getLogger(__name__)

REPORT_EVERY_S = 5.0  # between two lines of the log about one stage of loading
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
        self._timeout_s = answer_timeout_s
        self._desk = Desk(queue_size, client_questions, ended)
        self._inbox = SimpleQueue()
        self._lock = Lock()  # whoever is let in is let in before the end, or refused after it
        self._abandoned = False
        self._stop_at: float | None = None
        self._engine = None
        self._turns: Turns | None = None
        self._next_report = 0.0
        self._slices = 0

    # For any thread

    @property
    def ready(self) -> bool:
        return self._engine is not None and self._stop_at is None and not self.stopped

    @property
    def counts(self) -> tuple[int, int]:
        """(waiting, running), a glance from outside."""
        turns = self._turns
        running = len(turns.running) if turns else 0
        return max(0, len(self._desk) - running), running

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
        self._desk.check(client, engine.slots)

    def submit(self, question: Question, deliver: Callable[[Message], None], asker: Asker = ANYBODY) -> Ticket:
        """Queue a question. `deliver` is called on the engine thread and must return at once."""
        ticket = Ticket(question, deliver, asker, self._timeout_s, self._wake)
        with self._lock:
            self.check_open(asker.client)
            self._desk.admit(ticket)
            self._inbox.put(lambda: self._turns.add(ticket))
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
        for ticket in self._desk.open_tickets():
            self._desk.close(ticket, Failed(Internal(BROKEN)))
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
            self._engine = self._turns = self.beat = None
            for ticket in self._desk.open_tickets():
                self._desk.close(ticket, Failed(Loading(STOPPING) if asked_to else Internal(BROKEN)))
            self.died = not (asked_to or self.load_state.error)
            self.gone = True

    def _load_engine(self) -> bool:
        try:
            engine = self._load(self._report)
            self.info = engine.info()
            self._turns = Turns(engine, self._desk)
            self._engine = engine  # from now on questions are let in
        except QwenVLError as error:
            log.critical("%s", error)
            self._fail_loading(str(error))
        except BaseException:
            log.critical("The model could not be loaded.", exc_info=True)
            self._fail_loading("The model could not be loaded; the server's log says why.")
        return self._engine is not None

    def _report(self, stage: str, fraction: float, transfer: Transfer | None = None) -> None:
        now = time.monotonic()
        if stage != self.load_state.stage or now >= self._next_report:
            log.info("Loading: %s, %d %%", stage, fraction * 100)
            self._next_report = now + REPORT_EVERY_S
        self.load_state = self.load_state.moved(stage, fraction, transfer, now)

    def _fail_loading(self, reason: str) -> None:
        self._engine = None
        self.load_state = LoadState("failed", self.load_state.fraction, reason)

    def _serve(self) -> None:
        while not self._finished():
            try:
                self._turn()
            except Exception:
                self._turns.fail_running()

    def _finished(self) -> bool:
        # Once `_stop_at` is set nothing new is admitted, so an empty inbox stays free of questions.
        busy = self._turns.busy or not self._inbox.empty()
        return self._abandoned or (self._stop_at is not None and not busy)

    def _turn(self) -> None:
        if not self._turns.busy:
            self.beat = None
            self._inbox.get()()  # sleeps until somebody needs something
        self._slices += 1
        self.beat = self._slices
        self._run_inbox()
        self._turns.take(self._stop_at)
        self.info = self._engine.info()

    def _run_inbox(self) -> None:
        while not self._inbox.empty():
            self._inbox.get()()

    def _forget(self, sha256: str) -> None:
        try:
            self._engine.forget(sha256)
        except Exception:
            log.exception("A picture could not be forgotten.")
