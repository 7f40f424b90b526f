"""What Socket.IO promises a page, over real WebSockets: every event, stop, resume, refusals with a message."""

import base64
import contextlib
import time
import uuid

import pytest
import requests
import socketio
import websocket

from tests.conftest import Server, png, wait_until

EVENTS = ("answer_progress", "answer_token", "answer_done", "answer_error")


class Page:
    """A page's side of the socket. Remembers every event in order."""

    def __init__(self, server, *, client_id=None, transports=("websocket",)):
        self.server = server
        self.client_id = client_id or str(uuid.uuid4())
        self.transports = list(transports)
        self.events = []
        self.connect()

    def connect(self):
        self.socket = socketio.Client(reconnection=False)
        for name in EVENTS:
            self.socket.on(name, lambda fields, name=name: self.events.append((name, fields)))
        auth = {"client_id": self.client_id}
        self.socket.connect(self.server.url, auth=auth, transports=self.transports, wait_timeout=10)

    def ask(self, question, **fields):
        request_id = fields.pop("request_id", str(uuid.uuid4()))
        self.socket.emit("ask_question", {"request_id": request_id, "question": question, **fields})
        return request_id

    def lose_connection(self):
        """As a network does: the TCP connection ends without a goodbye."""
        self.socket.eio.ws.sock.close()
        wait_until(lambda: not self.socket.connected)

    def of(self, request_id, *names):
        return [fields for name, fields in list(self.events) if name in names and fields["request_id"] == request_id]

    def tokens(self, request_id):
        return self.of(request_id, "answer_token")

    def end(self, request_id):
        return wait_until(lambda: self.of(request_id, "answer_done", "answer_error"))[0]

    def text(self, request_id):
        tokens = self.tokens(request_id)
        assert [token["index"] for token in tokens] == list(range(len(tokens)))  # no gap, no repeat
        return "".join(token["token"] for token in tokens)


@pytest.fixture
def make_page(server):
    pages = []

    def make(**options) -> Page:
        pages.append(Page(server, **options))
        return pages[-1]

    yield make
    for page in pages:
        page.socket.disconnect()
    wait_until(lambda: server.busy() == 0)


@pytest.fixture
def page(make_page):
    return make_page()


def upload(server, data):
    return requests.post(f"{server.url}/images", files={"image": data}, timeout=5).json()["id"]


@pytest.mark.parametrize("transports", [["websocket"], ["polling"], ["polling", "websocket"]])
def test_a_question_brings_progress_tokens_and_the_whole_answer(server, make_page, transports):
    page = make_page(transports=transports)
    image_id = upload(server, png("blue", (64, 48)))
    request_id = page.ask("what is this 遐𠮷👨‍👩‍👧", image_id=image_id, detail="fast")
    done = page.end(request_id)
    assert done["response"].endswith("64x48] what is this 遐𠮷👨‍👩‍👧")
    assert page.text(request_id) == done["response"]
    assert done["images"][0]["id"] == image_id
    assert {"finish_reason", "model", "usage", "timings"} <= done.keys()
    progress = page.of(request_id, "answer_progress")
    assert {"stage", "position", "fraction", "eta_s"} <= progress[0].keys()
    assert [fields["stage"] for fields in progress] == ["encoding"] * 2 + ["prefill"] * 2
    names = [name for name, _ in page.events]
    assert names == sorted(names, key=EVENTS.index)


def test_a_conversation_about_two_pictures(server, page):
    ids = [upload(server, png("red", (50, 40))), upload(server, png("green", (30, 20)))]
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    done = page.end(page.ask("and now", image_ids=ids, history=history))
    assert done["response"].endswith("30x20] (2 earlier) and now")
    assert [image["id"] for image in done["images"]] == ids


@pytest.mark.parametrize("encode", [bytes, lambda data: base64.b64encode(data).decode()])
def test_a_small_picture_may_come_on_the_socket_itself(page, encode):
    assert page.end(page.ask("hi", image=encode(png())))["response"].endswith("40x30] hi")


@pytest.mark.parametrize("encode", [bytes, lambda data: base64.b64encode(data).decode()])
def test_a_large_picture_on_the_socket_is_refused_with_a_message(page, encode):
    error = page.end(page.ask("hi", image=encode(png() + bytes(5_000_000))))
    assert error["code"] == "image_file_too_large"
    assert "/images" in error["error"]
    assert page.end(page.ask("still connected"))["response"] == "still connected"


def test_stop_ends_with_the_text_so_far(page):
    request_id = page.ask("forever")
    wait_until(lambda: len(page.tokens(request_id)) > 3)
    page.socket.emit("stop", {"request_id": request_id})
    done = page.end(request_id)
    assert done["finish_reason"] == "cancelled"
    assert done["response"] == page.text(request_id) != ""


def test_stop_works_while_waiting_and_while_pictures_are_opened(server, page):
    blocker, waiting = page.ask("forever"), page.ask("behind")
    assert wait_until(lambda: page.of(waiting, "answer_progress"))[0] | {"eta_s": None} == {
        "request_id": waiting, "stage": "queued", "position": 1, "fraction": 0.0, "eta_s": None
    }  # fmt: skip
    at_once = page.ask("with a picture", image=png())
    for request_id in (waiting, at_once, blocker):
        page.socket.emit("stop", {"request_id": request_id})
    for request_id in (waiting, at_once, blocker):
        assert page.end(request_id)["finish_reason"] == "cancelled"


def test_after_a_lost_connection_resume_replays_what_was_missed(server, page):
    request_id = page.ask("forever")
    wait_until(lambda: len(page.tokens(request_id)) > 5)
    page.lose_connection()
    have = len(page.tokens(request_id))
    time.sleep(0.3)  # the answer goes on meanwhile
    page.connect()
    page.socket.emit("resume", {"request_id": request_id, "from_index": have})
    wait_until(lambda: len(page.tokens(request_id)) > have + 20)
    page.socket.emit("stop", {"request_id": request_id})
    assert page.end(request_id)["response"] == page.text(request_id)


def test_resume_works_before_the_server_has_noticed_and_after_the_end(server, make_page):
    page = make_page()
    request_id = page.ask("a short answer")
    wait_until(lambda: page.tokens(request_id))
    page.events.clear()
    later = make_page(client_id=page.client_id)  # the old connection is still open
    later.socket.emit("resume", {"request_id": request_id, "from_index": 0})
    assert later.end(request_id)["response"] == later.text(request_id) == "a short answer"
    again = make_page(client_id=page.client_id)
    again.socket.emit("resume", {"request_id": request_id, "from_index": 2})
    assert again.end(request_id)["response"] == "a short answer"
    assert [token["index"] for token in again.tokens(request_id)] == [2, 3]


@pytest.mark.parametrize("stage", ["queued", "reading", "writing"])
@pytest.mark.parametrize("leave", ["close_tab", "disconnect"])
def test_a_page_that_says_goodbye_loses_its_answer_soon(server, make_page, leave, stage):
    """Long before the grace for lost pages, which is longer here than a test waits. A tab may be only refreshed."""
    blocker = make_page()
    if stage == "queued":
        blocked = blocker.ask("forever")
        wait_until(lambda: blocker.tokens(blocked))
    page = make_page()
    request_id = page.ask("hang" if stage == "reading" else "forever")
    wait_until(lambda: page.tokens(request_id) if stage == "writing" else server.busy() == 1 + (stage == "queued"))
    if leave == "close_tab":
        page.socket.eio.ws.close(status=1001)  # what browsers send
    else:
        page.socket.disconnect()
    if stage == "queued":
        wait_until(lambda: server.busy() == 1)
        blocker.socket.emit("stop", {"request_id": blocked})
    wait_until(lambda: server.busy() == 0)


def test_a_page_that_is_lost_has_a_grace_to_come_back():
    server = Server("create_fast_app(resume_grace_s=1.5)")
    try:
        page = Page(server)
        request_id = page.ask("forever")
        wait_until(lambda: page.tokens(request_id))
        lost_at = time.monotonic()
        page.lose_connection()
        wait_until(lambda: server.busy() == 0)
        assert time.monotonic() - lost_at > 1.0
    finally:
        server.stop()


def test_nobody_else_can_stop_or_read_an_answer(make_page):
    owner, stranger = make_page(), make_page()
    request_id = owner.ask("forever")
    wait_until(lambda: owner.tokens(request_id))
    stranger.socket.emit("stop", {"request_id": request_id})
    stranger.socket.emit("resume", {"request_id": request_id, "from_index": 0})
    assert stranger.end(request_id)["code"] == "invalid_request"
    count = len(owner.tokens(request_id))
    wait_until(lambda: len(owner.tokens(request_id)) > count + 3)  # it goes on
    assert stranger.tokens(request_id) == []


def test_two_pages_may_use_the_same_request_id(make_page):
    first, second = make_page(), make_page()
    first.ask("first", request_id="1")
    second.ask("second", request_id="1")
    assert (first.end("1")["response"], second.end("1")["response"]) == ("first", "second")


def test_a_request_id_used_twice_is_refused(page):
    page.ask("hello forever", request_id="twice")
    wait_until(lambda: page.tokens("twice"))
    page.ask("other", request_id="twice")
    assert page.end("twice")["code"] == "invalid_request"
    page.socket.emit("stop", {"request_id": "twice"})
    wait_until(lambda: page.of("twice", "answer_done"))


@pytest.mark.parametrize(
    ("question", "code"), [("fail", "internal"), ("raise", "internal"), ("refuse", "context_length_exceeded")]
)
def test_an_answer_that_fails_is_an_answer_error_within_a_second(page, question, code):
    began = time.monotonic()
    assert page.end(page.ask(question))["code"] == code
    assert time.monotonic() - began < 2.0
    assert page.end(page.ask("next"))["response"] == "next"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"question": ""}, "missing_image"),
        ({"question": "hi", "image_id": "unknown"}, "unknown_image"),
        ({"question": "hi", "image_ids": [7]}, "invalid_request"),
        ({"question": "hi", "image": "%%%"}, "invalid_base64"),
        ({"question": "hi", "image": {"a": 1}}, "invalid_request"),
        ({"question": "hi", "image": b"GIF89a"}, "invalid_image"),
        ({"question": "hi", "image_url": "http://127.0.0.1/"}, "invalid_request"),
        ({"question": "x" * 20_000}, "invalid_request"),
        ({"question": 7}, "invalid_request"),
        ({"question": "hi", "temperature": "hot"}, "invalid_request"),
        ({"question": "hi", "history": "earlier"}, "invalid_request"),
    ],
)
def test_every_wrong_question_is_refused_with_its_code(page, fields, code):
    error = page.end(page.ask(**fields))
    assert error["code"] == code
    assert len(error["error"]) > 10


@pytest.mark.parametrize("event", ["ask_question", "stop", "resume"])
@pytest.mark.parametrize("data", [(), ("text",), ([],), ({},), ({"request_id": 7},), ({"request_id": "x" * 200},)])
def test_what_is_not_even_a_request_is_refused_too(page, event, data):
    page.socket.emit(event, data)
    name, fields = wait_until(lambda: page.events)[0]
    assert (name, fields["code"]) == ("answer_error", "invalid_request")
    page.events.clear()
    assert page.end(page.ask("still connected"))["response"] == "still connected"


@pytest.mark.parametrize("from_index", [-1, 1.5, "0", True, None, 99])
def test_resume_from_nowhere_is_refused(page, from_index):
    page.end(page.ask("hi", request_id="r"))
    page.socket.emit("resume", {"request_id": "r", "from_index": from_index})
    assert wait_until(lambda: page.of("r", "answer_error"))[0]["code"] == "invalid_request"


@pytest.mark.parametrize(
    ("headers", "welcome"),
    [
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "https://name", "Host": "name"}, True),  # TLS at a proxy, opened by name
        ({"Origin": "https://192.168.1.7:8443", "Host": "192.168.1.7:8443"}, True),  # and by IP
        ({"Origin": "https://name", "X-Forwarded-Host": "name"}, True),
        ({}, True),
    ],
)
def test_only_our_own_page_may_connect_and_by_any_name(server, headers, welcome):
    url = f"ws://127.0.0.1:{server.port}/socket.io/?EIO=4&transport=websocket"
    options = {"origin": headers.get("Origin"), "host": headers.get("Host"), "suppress_origin": "Origin" not in headers}
    extra = [f"{name}: {value}" for name, value in headers.items() if name.startswith("X-")]
    refusal = contextlib.nullcontext() if welcome else pytest.raises(websocket.WebSocketBadStatusException)
    with refusal:
        websocket.create_connection(url, timeout=5, header=extra, **options).close()


def test_a_message_larger_than_any_picture_does_not_fill_the_memory(server):
    url = f"ws://127.0.0.1:{server.port}/socket.io/?EIO=4&transport=websocket"
    connection = websocket.create_connection(url, timeout=10)
    sent = 0
    with pytest.raises((OSError, websocket.WebSocketException)):
        opcode = websocket.ABNF.OPCODE_TEXT
        while sent < 60:  # one message in many frames, which never ends
            connection.send_frame(websocket.ABNF(0, 0, 0, 0, opcode, 1, "4" * 1_000_000))
            opcode = websocket.ABNF.OPCODE_CONT
            sent += 1
    assert 20 < sent < 50  # megabytes; the limit is 23, the rest was under way
    connection.close()
