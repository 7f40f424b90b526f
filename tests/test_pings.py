"""Signs of life between server and page: who is slow stays, who is gone without a word is let go."""

import contextlib
import time

import pytest
import requests
import websocket

from tests.conftest import Server, wait_until
from tests.test_events import Page, png


@pytest.fixture(scope="module")
def patient():
    """Slices of 3 s, where a page that is silent for 1 s counts as gone."""
    server = Server("create_long_reading_app()")
    yield server
    assert server.stop() == 0


def test_no_socket_drops_while_a_picture_takes_long_to_read(patient):
    """Two tabs, one of which waits for slices three times as long as a page may be silent; /health all the while.

    How soon /health answers under load is measured by scripts/soak.py.
    """
    with contextlib.ExitStack() as stack:
        first, second = Page(patient), Page(patient)
        for page in (first, second):
            stack.callback(page.socket.disconnect)
        asked = first.ask("a large one", image=png())
        started = time.monotonic()

        def written() -> bool:
            assert first.socket.connected and second.socket.connected
            assert requests.get(f"{patient.url}/health", timeout=2).status_code == 200
            return bool(first.of(asked, "answer_token"))

        wait_until(written, 30.0)
        assert time.monotonic() - started > 5  # five times what a silent page is given


def test_a_page_that_is_gone_without_a_word_keeps_no_connection(patient):
    """As a phone that went to sleep: the connection stands, and not even the closing frame is answered."""
    line = websocket.create_connection(
        f"ws://127.0.0.1:{patient.port}/socket.io/?EIO=4&transport=websocket", timeout=10
    )
    began = time.monotonic()
    while line.sock.recv(4096):
        pass  # pings, and the server's goodbye
    assert time.monotonic() - began > 1  # it was given its time
    line.sock.close()
