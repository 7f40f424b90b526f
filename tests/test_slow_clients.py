"""Clients that do not read, or do not send: they hold up nobody, and are put out when nothing moves any more."""

import json
import socket
import time

import pytest
import requests
import websocket

from tests.conftest import Server, wait_until
from tests.test_server import send_raw


@pytest.fixture(scope="module")
def wordy():
    server = Server("create_wordy_app()")
    yield server
    assert server.stop() == 0


def small_buffer(server) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", server.port))
    return sock


def deaf_stream(server) -> socket.socket:
    sock = small_buffer(server)
    fields = "question=forever&stream=1"
    head = "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    sock.sendall(f"{head}Content-Length: {len(fields)}\r\n\r\n{fields}".encode())
    return sock


def page_that_asks(server, question: str):
    line = websocket.create_connection(
        f"ws://127.0.0.1:{server.port}/socket.io/?EIO=4&transport=websocket", socket=small_buffer(server)
    )
    line.recv()
    line.send("40")
    line.recv()
    line.send("42" + json.dumps(["ask_question", {"request_id": "slow", "question": question}]))
    return line


def deaf_page(server):
    return page_that_asks(server, "forever")


@pytest.mark.parametrize("connect", [deaf_stream, deaf_page])
def test_who_does_not_read_holds_up_nobody_and_is_put_out(wordy, connect):
    deaf = connect(wordy)
    wait_until(lambda: wordy.queue()["running"] == 1)
    began = time.monotonic()
    reply = requests.post(f"{wordy.url}/upload", data={"question": "hi"}, timeout=10)
    assert reply.json()["response"].endswith("hi") and time.monotonic() - began < 1.5
    wait_until(lambda: wordy.busy() == 0)  # nothing moved for a second; a page has another to come back
    deaf.close()


def test_who_reads_a_little_at_a_time_gets_every_byte(wordy):
    """On a WebSocket, where one send may be more than the line can take. The answer is 6,000,000 letters long."""
    line = page_that_asks(wordy, "long")
    done, pieces = None, []
    while done is None:
        time.sleep(0.02)
        message = line.recv()
        if message == "2":
            line.send("3")
            continue
        name, fields = json.loads(message[2:])
        pieces += [fields["token"]] if name == "answer_token" else []
        done = fields if name in ("answer_done", "answer_error") else None
    assert "".join(pieces) == done["response"] == "x" * 6_000_000 + "long"
    line.close()


def test_who_reads_more_slowly_than_an_answer_comes_is_put_out_when_too_much_waits(wordy):
    line = page_that_asks(wordy, "forever")
    with pytest.raises((OSError, websocket.WebSocketException)):
        for _ in range(200):  # 200 pieces would be read in 20 s, and 1,000 be written meanwhile
            time.sleep(0.1)
            line.recv()
    wait_until(lambda: wordy.busy() == 0)
    line.close()


def test_who_announces_a_body_and_sends_nothing_is_put_out(wordy):
    sock = socket.create_connection(("127.0.0.1", wordy.port))
    sock.sendall(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n")
    sock.sendall(b"Content-Length: 1000\r\n\r\n--b\r\n")
    sock.settimeout(10)
    assert sock.recv(100).startswith(b"HTTP/1.1 400")
    sock.close()


def test_who_waits_long_for_an_answer_is_not_put_out(wordy):
    waiting = send_raw(wordy, "question=forever")
    wait_until(lambda: wordy.queue()["running"] == 1)
    time.sleep(1.5)
    assert wordy.queue()["running"] == 1
    waiting.close()
    wait_until(lambda: wordy.busy() == 0)
