"""The whole web side around the fake engine, for tests in another process and for work on the page.

gunicorn -k gevent -w 1 --bind 127.0.0.1:5055 'tests.fake_app:create_app()'
"""

from qwenvl import web
from qwenvl.config import Settings
from qwenvl.native import sleep
from qwenvl.service import Service
from qwenvl.web import sockets, waiting
from qwenvl.web.closing import close_on_sigterm
from tests.fake_engine import FakeEngine, expected_answer

SPEECH = (
    "这是一个没有模型的回答，一片一片地写出来，好让页面有东西可显示。"
    "This answer comes from a fake engine: it has seen no picture, but it streams as the real one does. 👨‍👩‍👧 遐𠮷 "
)


def create_app(slice_s: float = 0.15, load_s: float = 0.5, speech: str = SPEECH, **settings):
    """Slow enough to watch: about 12 slices of work on a picture, then a piece per slice."""

    def load(report):
        for tenth in range(10):
            report("loading the fake", tenth / 10)
            sleep(load_s / 10)
        return FakeEngine(slice_s=slice_s, slices_per_stage=6, say=lambda question: speech + expected_answer(question))

    service = Service(Settings(**settings), load)
    service.start()
    app = web.create_app(service)
    close_on_sigterm(app)
    return app


def create_wordy_app(quiet_s: float = 1.0, most_behind: int = 100):
    """Answers in pieces of 200 kB, which soon fill every buffer of a client that does not read."""
    waiting.QUIET_S, sockets.MOST_BEHIND = quiet_s, most_behind
    say = lambda question: "x" * (6_000_000 if "long" in question.text else 200_000) + question.text  # noqa: E731
    engine = FakeEngine(slots=2, slice_s=0.02, piece_chars=200_000, say=say)
    service = Service(Settings(), lambda report: engine)
    service.start()
    app = web.create_app(service, resume_grace_s=1.0)
    close_on_sigterm(app)
    return app


def create_long_reading_app(slice_s: float = 3.0, ping_s: float = 1.0):
    """A slice takes many times as long as the server waits for a sign of life of a page."""
    service = Service(Settings(), lambda report: FakeEngine(slots=2, slice_s=slice_s, slices_per_stage=1))
    service.start()
    app = web.create_app(service, resume_grace_s=1.0)
    engineio = app.extensions["socketio"].server.eio
    engineio.ping_interval = engineio.ping_timeout = ping_s
    close_on_sigterm(app)
    return app


def create_fast_app(resume_grace_s: float = 60.0, grace_s: float = 8.0, slots: int = 1, **settings):
    """For tests: 10 ms a slice."""
    settings = Settings(max_images=2, **settings)
    service = Service(settings, lambda report: FakeEngine(slots=slots, slice_s=0.01, hang_s=1.5))
    service.start()
    app = web.create_app(service, resume_grace_s=resume_grace_s)
    close_on_sigterm(app, grace_s)
    return app
