"""An engine thread that dies or sticks: its questions fail at once, another engine takes over, and nobody is lost."""

import time

import pytest

from qwenvl import watchdog
from qwenvl.errors import Internal, Loading, QwenVLError
from qwenvl.messages import Failed, Finished, Piece
from qwenvl.native import Lock
from qwenvl.service import Service
from qwenvl.tickets import Asker
from qwenvl.watchdog import Watchdog
from tests.conftest import Listener, Settings, wait_until
from tests.fake_engine import FakeEngine

STALL_S = 0.1


class Frail(FakeEngine):
    """`die` ends the thread itself; `stick` never comes back before `release()`."""

    def __init__(self, **options):
        super().__init__(**options)
        self.gate = Lock()
        self.gate.acquire()

    def release(self):
        self.gate.release()

    def step(self):
        texts = [handle.question.text for handle in self.running]
        if any("die" in text for text in texts):
            raise SystemExit
        if any("stick" in text for text in texts):
            self.gate.acquire()
        return super().step()


@pytest.fixture
def world(monkeypatch):
    """A service whose engines are kept for inspection, looked after by an impatient watchdog."""
    monkeypatch.setattr(watchdog, "LOOK_EVERY_S", 0.02)
    engines = []

    def load(report):
        report("loading the fake", 0.5)
        engines.append(Frail(slots=2, slice_s=0.005))
        return engines[-1]

    service = Service(Settings(queue_size=4), load)
    service._watchdog._stall_s = STALL_S
    service.start()
    wait_until(lambda: service.health()[0])
    yield service, engines
    service.shutdown(0.0)
    for engine in engines:
        if engine.gate.locked():
            engine.release()


def ask(service, text):
    listener = Listener()
    service.ask(service.question([], text), listener, Asker("someone", "an-id"))
    return listener


def end_of(listener):
    return listener.last(Finished, Failed)


@pytest.mark.parametrize("trouble", ["die", "stick"])
def test_everybody_is_told_at_once_and_the_next_question_is_answered(world, trouble, caplog):
    service, engines = world
    running = ask(service, "forever")
    wait_until(lambda: running.of(Piece))
    began = time.monotonic()
    culprit, *waiting = [ask(service, text) for text in (trouble, "one", "two")]
    for listener in (running, culprit, *waiting):
        assert isinstance(end_of(listener).error, Internal)
    assert time.monotonic() - began < STALL_S + 1.0
    wait_until(lambda: service.health()[0])
    assert len(engines) == 2
    assert end_of(ask(service, "next")).answer.response == "next"
    assert service.health()[1]["queue"] == {"waiting": 0, "running": 0, "size": 4}
    assert "CRITICAL" in caplog.text


def test_a_stuck_thread_that_comes_back_says_nothing_more_and_ends(world):
    service, engines = world
    stuck = service._scheduler
    listener = ask(service, "stick")
    end_of(listener)
    said = len(listener.messages)
    engines[0].release()
    wait_until(lambda: stuck.gone)
    assert stuck._engine is None  # its memory is free
    assert len(listener.messages) == said
    wait_until(lambda: service.health()[0])
    assert end_of(ask(service, "next")).answer.response == "next"


def test_only_one_stuck_engine_is_kept_in_memory(world):
    service, engines = world
    end_of(ask(service, "stick"))
    wait_until(lambda: service.health()[0])
    assert isinstance(end_of(ask(service, "stick again")).error, Internal)
    facts = wait_until(lambda: (facts := service.health()[1])["status"] == "failed" and facts)
    assert "Restart the server" in facts["error"]
    with pytest.raises(QwenVLError, match="Restart the server"):
        ask(service, "anybody")
    assert len(engines) == 2


def test_a_slow_engine_at_work_and_an_idle_one_are_left_alone(world):
    service, engines = world
    engines[0].slice_s = STALL_S / 4
    assert end_of(ask(service, "a rather long question " * 3)).answer.finish_reason == "stop"
    time.sleep(STALL_S * 3)
    assert (len(engines), service._watchdog.restarts) == (1, 0)


def test_questions_that_come_while_the_new_engine_loads_are_asked_to_wait(monkeypatch):
    monkeypatch.setattr(watchdog, "LOOK_EVERY_S", 0.02)
    gate = Lock()

    def load(report):
        gate.acquire()
        return Frail()

    service = Service(Settings(), load)
    service.start()
    wait_until(lambda: service.health()[0])
    end_of(ask(service, "die"))
    with pytest.raises(Loading):
        ask(service, "too early")
    assert service.health()[1]["status"] == "loading"
    gate.release()
    wait_until(lambda: service.health()[0])
    assert end_of(ask(service, "now")).answer.response == "now"
    assert b"qwenvl_engine_restarts_total 1.0" in service.metrics.render()
    service.shutdown(0.0)


def test_nothing_is_started_after_the_end(world):
    service, engines = world
    dog: Watchdog = service._watchdog
    last = dog.close()
    end_of(ask(service, "die"))
    wait_until(lambda: last.gone)
    time.sleep(0.1)
    assert dog.scheduler is last and len(engines) == 1
