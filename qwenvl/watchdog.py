"""Keeps an engine at work: when its thread has died or is stuck in one slice, its questions fail at once and another
scheduler takes its place, which loads the model again.

A native thread cannot be ended from outside. A stuck one keeps its memory until it comes back, so only one is left
behind at a time: after that the server says that it has failed, and whoever supervises the process restarts it. Knows
of a scheduler when it works and how to abandon it; knows no engine and no questions.
"""

import logging
from collections.abc import Callable

from qwenvl.native import Lock, sleep, start_thread
from qwenvl.scheduler import Scheduler
from qwenvl.tickets import LoadState

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
MOST_STUCK = 1
HOPELESS = "The engine is stuck and cannot be started again. Restart the server."


class Watchdog:
    """`scheduler` is the one at work now. With `stall_s` 0 only dead threads are noticed, not stuck ones."""

    def __init__(self, make: Callable[[], Scheduler], stall_s: float):
        self.scheduler = make()
        self.restarts = 0
        self._make = make
        self._stall_s = stall_s
        self._stuck: list[Scheduler] = []
        self._closed = False
        self._lock = Lock()

    def start(self) -> None:
        self.scheduler.start()
        start_thread(self._watch)

    def close(self) -> Scheduler:
        """Watch no longer; the last scheduler."""
        with self._lock:
            self._closed = True
            return self.scheduler

    def _watch(self) -> None:
        # Looks are counted, not seconds: while the whole process is halted the engine is not to blame.
        beat, looks = None, 0
        while not self._closed:
            sleep(LOOK_EVERY_S)
            scheduler = self.scheduler
            looks = looks + 1 if scheduler.beat == beat is not None else 0
            beat = scheduler.beat
            if scheduler.died:
                self._replace(scheduler)
            elif self._stall_s and looks * LOOK_EVERY_S >= self._stall_s:
                log.critical("The engine has been stuck in one slice for %.0f s.", looks * LOOK_EVERY_S)
                self._give_up(scheduler)

    def _give_up(self, scheduler: Scheduler) -> None:
        self._stuck = [other for other in self._stuck if not other.gone]
        if len(self._stuck) >= MOST_STUCK:
            log.critical(HOPELESS)
            scheduler.load_state = LoadState("failed", error=HOPELESS)
            self.close()
        else:
            self._stuck.append(scheduler)
            self._replace(scheduler)
        scheduler.abandon()

    def _replace(self, scheduler: Scheduler) -> None:
        """Another scheduler, before the questions of this one fail: whoever asks again at once finds it."""
        with self._lock:
            if self._closed:
                return
            self.scheduler = self._make()
            self.restarts += 1
            self.scheduler.start()
