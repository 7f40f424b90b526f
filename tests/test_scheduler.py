"""Laws of the queue: first come first served, everybody gets their own answer, trouble stays with whoever has it."""

import time

import pytest

from qwenvl.errors import ContextLengthExceeded, Internal, Loading, ModelError, QueueFull, QwenVLError
from qwenvl.messages import Failed, Finished, Piece, Progress, Question
from qwenvl.native import Lock
from qwenvl.scheduler import Scheduler
from qwenvl.tickets import Asker
from tests.conftest import Listener, wait_until
from tests.fake_engine import FakeEngine


@pytest.fixture
def make_scheduler():
    made = []

    def make(engine=None, *, load=None, queue_size=32, answer_timeout_s=60.0, ready=True) -> Scheduler:
        engine = engine or FakeEngine()
        scheduler = Scheduler(load or (lambda report: engine), queue_size=queue_size, answer_timeout_s=answer_timeout_s)
        made.append(scheduler)
        scheduler.start()
        if ready:
            wait_until(lambda: scheduler.ready)
        return scheduler

    yield make
    for scheduler in made:
        scheduler.stop(0.0)


def ask(scheduler, text):
    listener = Listener()
    listener.ticket = scheduler.submit(Question((), text), listener)
    return listener


def end_of(listener):
    return listener.last(Finished, Failed)


def text_of(listener):
    return "".join(piece.text for piece in listener.of(Piece))


def test_progress_then_pieces_then_exactly_one_end(make_scheduler):
    listener = ask(make_scheduler(), "how many circles are there")
    answer = end_of(listener).answer
    kinds = [type(message) for message in listener.messages]
    assert kinds == sorted(kinds, key=[Progress, Piece, Finished].index)
    assert kinds.count(Finished) == 1
    assert text_of(listener) == answer.response == "how many circles are there"


def test_first_come_first_served(make_scheduler):
    engine = FakeEngine()
    scheduler = make_scheduler(engine)
    texts = [f"question {number}" for number in range(12)]
    listeners = [ask(scheduler, text) for text in texts]
    assert [end_of(listener).answer.response for listener in listeners] == texts
    assert engine.started == texts


def test_those_who_wait_hear_their_place_and_its_changes(make_scheduler):
    scheduler = make_scheduler(FakeEngine(slice_s=0.01))
    first, second, third = (ask(scheduler, f"{name} forever") for name in ("one", "two", "three"))
    queued = lambda listener: [p.position for p in listener.of(Progress) if p.stage == "queued"]  # noqa: E731
    wait_until(lambda: queued(third))
    first.ticket.cancel()
    wait_until(lambda: len(queued(third)) == 2)
    assert (queued(first), queued(second), queued(third)) == ([], [1], [2, 1])


def test_the_wait_is_estimated_once_answers_have_been_timed(make_scheduler):
    scheduler = make_scheduler(FakeEngine(slice_s=0.01))
    end_of(ask(scheduler, "short"))
    ask(scheduler, "forever")
    waiting = ask(scheduler, "next")
    assert waiting.last(Progress).eta_s > 0


def test_every_slot_is_filled(make_scheduler):
    engine = FakeEngine(slots=3, slice_s=0.01)
    scheduler = make_scheduler(engine)
    listeners = [ask(scheduler, f"{number} forever") for number in range(4)]
    wait_until(lambda: len(engine.running) == 3)
    wait_until(lambda: text_of(listeners[2]))
    assert not listeners[3].of(Piece)
    listeners[1].ticket.cancel()
    wait_until(lambda: listeners[3].of(Piece))


def test_answers_running_together_are_not_mixed_up(make_scheduler):
    scheduler = make_scheduler(FakeEngine(slots=4, piece_chars=1))
    texts = [f"card number {number * 7919}" for number in range(16)]
    listeners = [ask(scheduler, text) for text in texts]
    assert [end_of(listener).answer.response for listener in listeners] == texts
    assert [text_of(listener) for listener in listeners] == texts


def test_a_full_queue_refuses_and_takes_again_when_there_is_room(make_scheduler):
    scheduler = make_scheduler(FakeEngine(slice_s=0.01), queue_size=2)
    running, *waiting = [ask(scheduler, f"{number} forever") for number in range(3)]
    with pytest.raises(QueueFull) as refused:
        ask(scheduler, "one too many")
    assert refused.value.retry_after_s > 0
    waiting[0].ticket.cancel()
    end_of(waiting[0])
    ask(scheduler, "welcome now")


@pytest.mark.parametrize("stage", ["queued", "encoding or prefill", "decode"])
def test_cancel_ends_at_every_stage_within_a_slice_and_the_next_starts(make_scheduler, stage):
    engine = FakeEngine(slice_s=0.05, slices_per_stage=1000 if stage == "encoding or prefill" else 1)
    scheduler = make_scheduler(engine)
    if stage == "queued":
        before = ask(scheduler, "before forever")
        wait_until(lambda: engine.running)
    listener = ask(scheduler, "cancel me forever")
    wait_until(lambda: listener.of(Piece) if stage == "decode" else listener.of(Progress))
    listener.ticket.cancel()
    cancelled_at = time.monotonic()
    answer = end_of(listener).answer
    assert time.monotonic() - cancelled_at < 0.5
    assert answer.finish_reason == "cancelled"
    assert answer.response == text_of(listener)
    assert ("cancel me forever" in engine.cancelled) == (stage != "queued")
    if stage == "queued":
        before.ticket.cancel()
    engine.slices_per_stage = 1
    assert end_of(ask(scheduler, "next")).answer.response == "next"
    assert engine.running == []


def test_cancelling_after_the_end_does_nothing(make_scheduler):
    scheduler = make_scheduler()
    listener = ask(scheduler, "done")
    end_of(listener)
    listener.ticket.cancel()
    assert end_of(ask(scheduler, "next")).answer.response == "next"
    assert len(listener.of(Finished)) == 1


def test_too_late_before_the_first_piece_is_an_error_running_or_waiting(make_scheduler):
    scheduler = make_scheduler(FakeEngine(slice_s=0.02, slices_per_stage=1000), answer_timeout_s=0.2)
    running, waiting = ask(scheduler, "slow"), ask(scheduler, "behind")
    assert [end_of(listener).error.code for listener in (running, waiting)] == ["timeout", "timeout"]


def test_too_late_after_the_first_piece_keeps_the_text(make_scheduler):
    scheduler = make_scheduler(FakeEngine(slice_s=0.01), answer_timeout_s=0.3)
    listener = ask(scheduler, "forever")
    answer = end_of(listener).answer
    assert answer.finish_reason == "timeout"
    assert answer.response == text_of(listener) != ""


def test_an_exception_in_a_step_fails_the_running_ones_alone(make_scheduler):
    engine = FakeEngine(slice_s=0.02)
    scheduler = make_scheduler(engine)
    blocker = ask(scheduler, "forever")
    broken, following = ask(scheduler, "please raise"), ask(scheduler, "following")
    blocker.ticket.cancel()
    error = end_of(broken).error
    assert isinstance(error, Internal)
    assert "told to raise" not in str(error)  # nothing of the inside is shown
    assert end_of(following).answer.response == "following"
    assert engine.running == []


def test_the_log_names_whose_answers_a_broken_step_ended(make_scheduler, caplog):
    scheduler = make_scheduler(FakeEngine(slots=2, slice_s=0.02))
    listeners = [Listener() for _ in range(2)]
    for listener, text, name in zip(listeners, ("secret forever", "raise"), ("id-1", "id-2"), strict=True):
        scheduler.submit(Question((), text), listener, Asker("someone", name))
    assert all(isinstance(end_of(listener), Failed) for listener in listeners)
    traceback = next(record for record in caplog.records if record.exc_info)
    assert "id-2" in traceback.getMessage() and "secret" not in caplog.text


def test_an_answer_that_fails_fails_alone(make_scheduler):
    scheduler = make_scheduler(FakeEngine(slots=2))
    failing, other = ask(scheduler, "fail"), ask(scheduler, "other")
    assert isinstance(end_of(failing), Failed)
    assert end_of(other).answer.response == "other"


def test_a_question_refused_at_the_start_gets_the_engines_reason(make_scheduler):
    scheduler = make_scheduler()
    assert isinstance(end_of(ask(scheduler, "refuse")).error, ContextLengthExceeded)
    assert end_of(ask(scheduler, "next")).answer.response == "next"


def test_a_start_that_breaks_is_an_internal_error(make_scheduler):
    class Broken(FakeEngine):
        def start(self, question, name):
            if question.text == "break":
                raise ZeroDivisionError
            return super().start(question, name)

    scheduler = make_scheduler(Broken())
    assert end_of(ask(scheduler, "break")).error.code == "internal"
    assert end_of(ask(scheduler, "next")).answer.response == "next"


def test_a_listener_that_raises_loses_its_answer_and_hurts_nobody(make_scheduler):
    engine = FakeEngine(slots=2, slice_s=0.005)
    scheduler = make_scheduler(engine)

    def deaf(message):
        raise OSError("nobody is here")

    scheduler.submit(Question((), "deaf forever"), deaf)
    assert end_of(ask(scheduler, "other")).answer.response == "other"
    wait_until(lambda: engine.cancelled == ["deaf forever"])


def test_a_cancel_that_breaks_still_ends_the_answer(make_scheduler):
    class Sticky(FakeEngine):
        def cancel(self, handle, reason):
            super().cancel(handle, reason)
            raise RuntimeError("stuck")

    scheduler = make_scheduler(Sticky(slice_s=0.01))
    listener = ask(scheduler, "forever")
    wait_until(lambda: listener.of(Piece))
    listener.ticket.cancel()
    assert end_of(listener).answer.finish_reason == "cancelled"
    assert end_of(ask(scheduler, "next")).answer.response == "next"


def test_time_in_the_queue_counts_for_whoever_asked(make_scheduler):
    scheduler = make_scheduler(FakeEngine(slice_s=0.02))
    blocker = ask(scheduler, "forever")
    waiting = ask(scheduler, "hi")
    time.sleep(0.3)
    blocker.ticket.cancel()
    timings = end_of(waiting).answer.timings
    assert 0.25 < timings.queue_s < timings.first_token_s < timings.total_s < 2.0


def test_loading_is_reported_and_questions_are_refused_until_it_ends(make_scheduler):
    gate = Lock()
    gate.acquire()

    def load(report):
        report("quantising", 0.25)
        gate.acquire()
        return FakeEngine()

    scheduler = make_scheduler(load=load, ready=False)
    state = wait_until(lambda: scheduler.load_state if scheduler.load_state.fraction else None)
    assert (state.stage, state.fraction, scheduler.ready) == ("quantising", 0.25, False)
    with pytest.raises(Loading, match="quantising"):
        ask(scheduler, "too early")
    gate.release()
    wait_until(lambda: scheduler.ready)
    assert end_of(ask(scheduler, "now")).answer.response == "now"


@pytest.mark.parametrize(
    ("error", "reason"), [(ModelError("No model in /m. Set QWENVL_MODEL."), "Set QWENVL_MODEL"), (KeyError("x"), "log")]
)
def test_loading_that_fails_says_why(make_scheduler, error, reason):
    def load(report):
        raise error

    scheduler = make_scheduler(load=load, ready=False)
    wait_until(lambda: scheduler.load_state.error)
    assert not scheduler.ready
    with pytest.raises(QwenVLError, match=reason):
        ask(scheduler, "anybody there")


def test_stopping_lets_running_answers_finish_and_refuses_the_others(make_scheduler):
    scheduler = make_scheduler(FakeEngine(slice_s=0.02))
    running = ask(scheduler, "a short answer")
    waiting = ask(scheduler, "behind it")
    wait_until(lambda: running.of(Piece))
    scheduler.stop(grace_s=10.0)
    with pytest.raises(Loading):
        ask(scheduler, "too late")
    assert isinstance(end_of(waiting).error, Loading)
    assert end_of(running).answer.response == "a short answer"
    wait_until(lambda: scheduler.stopped)


def test_stopping_ends_answers_that_outlast_the_grace(make_scheduler):
    scheduler = make_scheduler(FakeEngine(slice_s=0.02))
    running = ask(scheduler, "forever")
    wait_until(lambda: running.of(Piece))
    scheduler.stop(grace_s=0.1)
    assert isinstance(end_of(running).error, Loading)
    wait_until(lambda: scheduler.stopped)


def test_pictures_are_forgotten_on_the_engine_thread_and_trouble_there_is_contained(make_scheduler):
    class Forgetful(FakeEngine):
        forgotten = ()

        def forget(self, sha256):
            self.forgotten += (sha256,)
            raise RuntimeError("cannot forget")

    engine = Forgetful(slice_s=0.01)
    scheduler = make_scheduler(engine)
    running = ask(scheduler, "an answer")
    scheduler.forget("abc")
    assert end_of(running).answer.response == "an answer"
    assert engine.forgotten == ("abc",)
