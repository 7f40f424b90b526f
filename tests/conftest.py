"""What several test modules share: small pictures, services around the fake engine, and a server in another process."""

import io
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests
from PIL import Image

from qwenvl import web
from qwenvl.config import Settings
from qwenvl.service import Service
from tests.fake_engine import FakeEngine

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 20.0  # only a failing test waits that long


def png(color="red", size=(40, 30)) -> bytes:
    """The bytes of a small picture; different colours and sizes are different pictures."""
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, "PNG")
    return out.getvalue()


def wait_until(condition, patience_s: float = PATIENCE_S):
    """The first true value of `condition()`; fail when none comes in time."""
    give_up_at = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(0.005)
    return value


class Listener:
    """Collects what `deliver` gets, on whatever thread."""

    def __init__(self):
        self.messages = []

    def __call__(self, message):
        self.messages.append(message)

    def of(self, kind):
        return [message for message in self.messages if isinstance(message, kind)]

    def last(self, *kinds):
        return wait_until(lambda: next((m for m in self.messages if isinstance(m, kinds)), None))


@pytest.fixture
def make_service():
    """Services around a fake engine, started and ready; stopped at the end of the test."""
    services = []

    def make(engine=None, **settings) -> Service:
        service = Service(Settings(**settings), lambda report: engine or FakeEngine())
        services.append(service)
        service.start()
        wait_until(lambda: service.health()[0])
        return service

    yield make
    for service in services:
        service.shutdown(0.0)


@pytest.fixture
def make_client(make_service):
    """Flask test clients of applications around a fake engine."""

    def make(engine=None, **settings):
        return web.create_app(make_service(engine, **settings)).test_client()

    return make


class Server:
    """gunicorn with the fake engine in a process of its own, as `make run` would start it."""

    def __init__(self, factory: str):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "1", "--log-level", "warning",
             "--no-control-socket", "--bind", f"127.0.0.1:{self.port}", f"tests.fake_app:{factory}"],
            cwd=ROOT,
        )  # fmt: skip
        try:
            wait_until(self.ready, 60.0)
        except BaseException:
            self.stop()
            raise

    def ready(self) -> bool:
        assert self.process.poll() is None, "the server did not start"
        try:
            return requests.get(f"{self.url}/health", timeout=1).status_code == 200
        except requests.RequestException:  # not listening, or the worker is still starting
            return False

    def queue(self) -> dict:
        return requests.get(f"{self.url}/health", timeout=5).json()["queue"]

    def busy(self) -> int:
        """Questions waiting or running."""
        queue = self.queue()
        return queue["waiting"] + queue["running"]

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()


@pytest.fixture(scope="session")
def server():
    """One server for all tests that need real threads and sockets."""
    server = Server("create_fast_app()")
    yield server
    assert server.stop() == 0
