"""The web side under gunicorn, with the engine on its native thread: what only real sockets can show."""

import http.client
import json
import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from tests.conftest import Server, png, wait_until
from tests.test_images import one_colour_png


@pytest.fixture(autouse=True)
def idle(server):
    """Every test finds the server with nothing to do, and leaves it so."""
    yield
    wait_until(lambda: server.busy() == 0)


def stream(server, **fields):
    return requests.post(f"{server.url}/upload", data={"stream": "1", **fields}, stream=True, timeout=20)


def data_of(line: str):
    return json.loads(line.removeprefix("data: "))


def lines_of(response):
    return (line.decode() for line in response.iter_lines(chunk_size=1) if line)


def send_raw(server, fields: str) -> socket.socket:
    """A plain request on a socket of our own, which can be closed at any moment."""
    sock = socket.create_connection(("127.0.0.1", server.port))
    head = "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    sock.sendall(f"{head}Content-Length: {len(fields)}\r\n\r\n{fields}".encode())
    return sock


def test_health_is_fast_while_the_model_is_deep_in_a_slice(server):
    with stream(server, question="hang") as response:
        wait_until(lambda: server.busy() == 1)
        times = []
        for _ in range(20):
            began = time.monotonic()
            assert requests.get(f"{server.url}/health", timeout=5).json()["queue"]["running"] == 1
            times.append(time.monotonic() - began)
        assert statistics.median(times) < 0.2
        assert max(times) < 0.75  # and a slice lasts 1.5 s
        response.close()


@pytest.mark.parametrize("encoding", ["identity", "gzip, deflate, br"])
def test_pieces_arrive_as_they_are_made(server, encoding):
    with requests.post(
        f"{server.url}/upload",
        data={"question": "forever"},
        headers={"Accept": "text/event-stream", "Accept-Encoding": encoding},
        stream=True,
        timeout=20,
    ) as response:
        pieces = (data_of(line) for line in lines_of(response) if '"token"' in line)
        assert [next(pieces)["index"] for _ in range(10)] == list(range(10))  # of an answer that never ends


@pytest.mark.parametrize("stage", ["queued", "prefill", "decode"])
@pytest.mark.parametrize("kind", ["stream", "plain"])
def test_a_client_that_leaves_is_noticed_at_every_stage(server, kind, stage):
    blocker = send_raw(server, "question=forever") if stage == "queued" else None
    question = "forever" if stage != "prefill" else "hang"
    leaving = send_raw(server, f"question={question}&stream={int(kind == 'stream')}")
    wait_until(lambda: server.busy() == (2 if blocker else 1))
    time.sleep(0.3)
    leaving.close()
    left_at = time.monotonic()
    wait_until(lambda: server.busy() == (1 if blocker else 0))
    assert time.monotonic() - left_at < (4.0 if stage == "prefill" else 2.0)  # a slice of `hang` alone lasts 1.5 s
    if blocker:
        blocker.close()


def test_sixteen_askers_each_get_their_own_answer(server):
    def ask(number):
        card = png((number * 10, 0, 0), (40 + number, 30))
        fields = {"question": f"number {number * 7919}", "stream": str(number % 2)}
        response = requests.post(f"{server.url}/upload", data=fields, files={"image": ("x.png", card)}, timeout=60)
        if number % 2 == 0:
            return response.json()["response"]
        datas = [data_of(line) for line in lines_of(response) if line.startswith("data: ")]
        assert "".join(data["token"] for data in datas if "token" in data) == datas[-1]["response"]
        return datas[-1]["response"]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(16)))
    for number, answer in enumerate(answers):
        assert answer.endswith(f" {40 + number}x30] number {number * 7919}")


def test_a_file_far_too_large_gets_its_413_and_the_connection_lives_on(server):
    with requests.Session() as session:
        files = {"image": ("big.jpg", b"\xff\xd8\xff" + bytes(60_000_000))}
        response = session.post(f"{server.url}/upload", files=files, timeout=60)
        assert (response.status_code, response.json()["code"]) == (413, "image_file_too_large")
        assert session.get(f"{server.url}/health", timeout=5).status_code == 200


def test_four_bombs_at_once_are_413_and_take_no_memory(server):
    bomb = one_colour_png(20_000, 20_000)
    before = requests.get(f"{server.url}/health", timeout=5).json()["memory"]["resident_mb"]
    with ThreadPoolExecutor(4) as pool:
        send = lambda _: requests.post(f"{server.url}/images", files={"image": bomb}, timeout=20)  # noqa: E731
        replies = list(pool.map(send, range(4)))
    assert {(reply.status_code, reply.json()["code"]) for reply in replies} == {(413, "image_too_large")}
    after = requests.get(f"{server.url}/health", timeout=5).json()["memory"]["resident_mb"]
    assert after - before < 50  # decoded, one would be 400


def test_a_body_over_every_limit_gets_its_413_chunked_or_not(server):
    chunk = bytes(1_000_000)

    def chunks():
        yield b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
        yield from (chunk for _ in range(20))

    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    chunked = requests.post(f"{server.url}/upload", data=chunks(), headers=kind, timeout=60)
    assert (chunked.status_code, chunked.json()["code"]) == (413, "image_file_too_large")
    declared = requests.post(f"{server.url}/upload", data=chunk * 40, headers=kind, timeout=60)
    assert (declared.status_code, declared.json()["code"]) == (413, "image_file_too_large")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GARBAGE\r\n\r\n", 400),
        (f"GET /{'x' * 5000} HTTP/1.1\r\n\r\n", 414),
        (f"GET / HTTP/1.1\r\nX: {'x' * 9000}\r\n\r\n", 431),
        ("POST /upload HTTP/1.1\r\nContent-Length: abc\r\n\r\n", 400),
    ],
)
def test_what_is_hardly_http_gets_a_json_error_too(server, head, status):
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    sock.sendall(head.encode())
    response = http.client.HTTPResponse(sock)
    response.begin()
    fields = json.loads(response.read())
    assert (response.status, fields["code"]) == (status, "invalid_request")
    assert fields["request_id"] == response.headers["X-Request-ID"] and "xxxx" not in fields["error"]
    sock.close()


def test_a_body_that_stops_coming_does_not_stop_the_others(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.putrequest("POST", "/upload")
    connection.putheader("Content-Type", "multipart/form-data; boundary=b")
    connection.putheader("Content-Length", "1000000")
    connection.endheaders(b"--b\r\n")
    assert requests.post(f"{server.url}/upload", data={"question": "hi"}, timeout=5).json()["response"] == "hi"
    connection.close()


def test_an_exception_in_the_model_is_told_within_a_second_and_the_next_question_works(server):
    began = time.monotonic()
    broken = requests.post(f"{server.url}/upload", data={"question": "raise"}, timeout=5)
    assert (broken.status_code, broken.json()["code"]) == (500, "internal")
    assert time.monotonic() - began < 2.0
    assert requests.post(f"{server.url}/upload", data={"question": "next"}, timeout=5).json()["response"] == "next"


def test_sigterm_lets_short_answers_finish_ends_long_ones_and_exits_0():
    server = Server("create_fast_app(grace_s=1.5, slots=2)")

    def whole(question):
        with stream(server, question=question) as response:
            return [data_of(line) for line in lines_of(response) if line.startswith("data: ")]

    with ThreadPoolExecutor(2) as pool:
        short, long = pool.submit(whole, "short " * 30), pool.submit(whole, "forever")
        wait_until(lambda: server.queue()["running"] == 2)
        code = server.stop()
    assert short.result()[-1]["response"] == ("short " * 30).strip()
    assert long.result()[-1]["code"] == "loading"
    assert code == 0
