"""What HTTP promises, in this process with Flask's client: fields, codes, headers, streams."""

import base64
import io
import json

import pytest
import requests

from qwenvl import web
from qwenvl.config import Settings
from qwenvl.errors import ModelError
from qwenvl.native import Lock
from qwenvl.service import Service
from qwenvl.web import guard, waiting
from qwenvl.web.guard import same_origin
from tests.conftest import png, wait_until
from tests.fake_engine import FakeEngine


@pytest.fixture
def client(make_client):
    return make_client()


def form(*files, **fields):
    """A multipart body with pictures in the field `image`."""
    return {"image": [(io.BytesIO(data), f"{index}.png") for index, data in enumerate(files)], **fields}


def post_large(client, *, files=(), **fields):
    """POST /upload with a large body. (Flask's client would leave a temporary file open.)"""
    files = [("image", (f"{index}.png", data)) for index, data in enumerate(files)]
    parts = files + [(name, (None, value)) for name, value in fields.items()]
    sent = requests.Request("POST", "http://x/", files=parts).prepare()
    return client.post("/upload", data=sent.body, content_type=sent.headers["Content-Type"])


def events(response):
    """(name, fields) of server-sent events; comments are left out."""
    found = []
    for block in response.get_data(as_text=True).split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if lines:
            found.append((lines.get("event"), json.loads(lines["data"])))
    return found


def assert_error(response, status, code):
    assert response.status_code == status, response.get_data(as_text=True)
    assert response.mimetype == "application/json"
    assert response.get_json()["code"] == code
    assert len(response.get_json()["error"]) > 10
    assert (status in (429, 503)) == ("Retry-After" in response.headers)
    assert response.headers["X-Request-ID"] == response.get_json()["request_id"]


def test_upload_answers_with_every_promised_field(client):
    answer = client.post("/upload", data=form(png(), question="which colour")).get_json()
    assert answer["response"].endswith("40x30] which colour")
    assert answer["finish_reason"] == "stop"
    assert answer["model"] == "fake"
    assert {"id", "width", "height", "tokens", "cached"} == answer["images"][0].keys()
    assert {"prompt_tokens", "completion_tokens", "cached_tokens"} <= answer["usage"].keys()
    times = {"queue_s", "encode_s", "prefill_s", "first_token_s", "total_s", "tokens_per_s"}
    assert times <= answer["timings"].keys()


@pytest.mark.parametrize("question_field", ["question", "prompt"])
@pytest.mark.parametrize("file_field", ["image", "file"])
def test_both_names_of_each_field_work(client, file_field, question_field):
    body = {file_field: (io.BytesIO(png()), "x.png"), question_field: "hello"}
    assert client.post("/upload", data=body).get_json()["response"].endswith("40x30] hello")


NAMES = ["photo.jpg", "picture", "发票.PNG", "../../x.png", "x" * 300 + ".png", "a b;c.png", "."]


@pytest.mark.parametrize("name", NAMES)
def test_a_files_name_means_nothing(client, name):
    body = {"image": (io.BytesIO(png()), name, "image/jpeg"), "question": "hi"}
    answer = client.post("/upload", data=body)
    assert answer.get_json()["response"].endswith("40x30] hi")
    assert name == "." or name not in answer.get_data(as_text=True)


def test_several_pictures_keep_their_order(client):
    answer = client.post("/upload", data=form(png("red", (50, 40)), png("blue", (30, 20)), question="both")).get_json()
    first, second = answer["images"]
    assert answer["response"].index("50x40") < answer["response"].index("30x20")
    assert (first["width"], second["width"]) == (50, 30)
    assert first["id"] != second["id"]


def test_no_question_is_the_default_and_chinese_is_not_escaped(client):
    response = client.post("/upload", data=form(png()))
    assert "请描述这张图片".encode() in response.data
    error = client.post("/upload", data=form(question="问" * 9000))
    assert_error(error, 400, "invalid_request")


def test_json_bodies_with_base64_mean_the_same(client):
    text = base64.b64encode(png()).decode()
    single = client.post("/upload", json={"image": text, "question": "hi", "max_new_tokens": 5})
    several = client.post("/upload", json={"images": [text, f"data:image/png;base64,{text}"], "question": "hi"})
    assert single.get_json()["response"].endswith("40x30] hi")
    assert len(several.get_json()["images"]) == 2


def test_a_base64_picture_in_a_form_field_may_be_large(client):
    padded = png() + bytes(450_000)  # bytes after the end of a PNG are ignored
    text = base64.b64encode(padded).decode()
    assert len(text) > 600_000
    answer = post_large(client, image=text, question="hi")
    assert answer.get_json()["response"].endswith("40x30] hi")


def test_a_text_field_over_the_limit_is_413(client):
    text = "A" * (guard.MAX_FIELD_BYTES + 1)
    assert_error(post_large(client, image=text, question="hi"), 413, "image_file_too_large")
    assert_error(client.post("/upload", data={"question": text}), 413, "image_file_too_large")  # urlencoded


def test_a_conversation_goes_on_by_upload_id(client):
    first = client.post("/upload", data=form(png("green"), question="what is it")).get_json()
    history = [{"role": "user", "content": "what is it"}, {"role": "assistant", "content": first["response"]}]
    body = {"image_id": first["images"][0]["id"], "question": "and now", "history": json.dumps(history)}
    second = client.post("/upload", data=body).get_json()
    assert second["response"] == first["response"].split("] ")[0] + "] (2 earlier) and now"
    assert second["images"][0]["id"] == first["images"][0]["id"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_image"),
        ({"image": (io.BytesIO(b""), "")}, 400, "missing_image"),  # a browser's file input with nothing chosen
        ({"image": (io.BytesIO(b""), "a.png")}, 400, "empty_image"),
        ({"image": (io.BytesIO(b"<html>hello</html>"), "a.jpg")}, 400, "invalid_image"),
        ({"image": (io.BytesIO(b"%PDF-1.7 hello"), "a.jpg")}, 415, "unsupported_image_type"),
        ({"image": "!!!not base64!!!", "question": "hi"}, 400, "invalid_base64"),
        ({"image": "http://169.254.169.254/", "question": "hi"}, 400, "invalid_request"),
        ({"image": "file:///etc/passwd", "question": "hi"}, 400, "invalid_request"),
        ({"image_url": "http://127.0.0.1/x.png", "question": "hi"}, 400, "invalid_request"),
        ({"picture": (io.BytesIO(png()), "a.png"), "question": "hi"}, 400, "invalid_request"),
        ({"image_id": "unknown", "question": "hi"}, 404, "unknown_image"),
        ({"question": "hi", "temperature": "hot"}, 400, "invalid_request"),
        ({"question": "hi", "detail": "huge"}, 400, "invalid_request"),
        ({"question": "hi", "history": "{not json"}, 400, "invalid_request"),
        ({"question": "please refuse"}, 400, "context_length_exceeded"),
        ({"question": "please raise"}, 500, "internal"),
    ],
)
def test_every_wrong_question_has_its_code(client, body, status, code):
    assert_error(client.post("/upload", data=body, content_type="multipart/form-data"), status, code)
    assert client.post("/upload", data={"question": "next"}).get_json()["response"] == "next"


@pytest.mark.parametrize("body", [b"{", b"[]", b"7", b'"x"', b"[" * 100_000, b"\xff", b'{"question": 7}'])
def test_wrong_json_is_a_json_error(client, body):
    assert_error(client.post("/upload", data=body, content_type="application/json"), 400, "invalid_request")


@pytest.mark.parametrize(
    "body", [b'{"question": "\\ud800"}', b'{"question": "a\\u0000b"}', b'{"question":"x","temperature":NaN}']
)
def test_text_that_is_not_text_is_refused(client, body):
    assert_error(client.post("/upload", data=body, content_type="application/json"), 400, "invalid_request")


def test_a_file_over_the_limit_is_413_whatever_else_is_in_the_body(make_client):
    client = make_client(max_upload_bytes=100_000)
    one_big = post_large(client, files=[png() + bytes(100_000)], question="hi")
    assert_error(one_big, 413, "image_file_too_large")
    assert_error(post_large(client, files=[bytes(90_000)] * 30), 413, "image_file_too_large")


def test_files_up_to_the_limit_are_taken(make_client):
    padded = png() + bytes(100_000)
    client = make_client(max_upload_bytes=len(padded))
    assert client.post("/upload", data=form(padded, question="hi")).status_code == 200


@pytest.mark.parametrize("ask", [{"data": {"stream": "1"}}, {"headers": {"Accept": "text/event-stream"}}])
def test_a_stream_brings_progress_pieces_and_the_whole(client, ask):
    body = form(png(), question="遐𠮷👨‍👩‍👧", **ask.pop("data", {}))
    response = client.post("/upload", data=body, **ask)
    assert response.mimetype == "text/event-stream"
    assert response.headers["X-Accel-Buffering"] == "no"
    assert "no-transform" in response.headers["Cache-Control"]
    names, fields = zip(*events(response), strict=True)
    pieces = [field for field in fields if "token" in field]
    assert names == ("progress",) * names.count("progress") + (None,) * (len(pieces) + 1)
    assert {field["stage"] for field in fields[: names.count("progress")]} == {"encoding", "prefill"}
    assert [piece["index"] for piece in pieces] == list(range(len(pieces)))
    assert "".join(piece["token"] for piece in pieces) == fields[-1]["response"]
    assert fields[-1]["finish_reason"] == "stop"
    assert "遐𠮷".encode() in response.data


def test_a_stream_is_never_compressed_and_large_json_is(client):
    headers = {"Accept-Encoding": "gzip, br"}
    plain = client.post("/upload", data={"question": "x" * 4000}, headers=headers)
    assert plain.headers["Content-Encoding"] in ("gzip", "br")
    streamed = client.post("/upload", data={"question": "x" * 4000, "stream": "1"}, headers=headers)
    assert "Content-Encoding" not in streamed.headers
    assert events(streamed)[-1][1]["response"] == "x" * 4000


def test_an_accept_of_anything_is_not_a_wish_for_a_stream(client):
    assert client.post("/upload", data={"question": "hi"}, headers={"Accept": "*/*"}).mimetype == "application/json"


def test_an_error_before_the_stream_is_a_plain_one_and_later_an_event(client):
    assert_error(client.post("/upload", data={"stream": "1"}), 400, "missing_image")
    name, fields = events(client.post("/upload", data={"stream": "1", "question": "please raise"}))[-1]
    assert name == "error"
    assert fields["code"] == "internal"


def test_a_long_silence_is_filled_with_comments(make_client, monkeypatch):
    monkeypatch.setattr(waiting, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(waiting, "KEEP_ALIVE_S", 0.1)
    client = make_client(FakeEngine(hang_s=0.35, slices_per_stage=1))
    body = client.post("/upload", data={"stream": "1", "question": "hang"}).get_data(as_text=True)
    silence = body[: body.index("event: progress")]
    assert 2 <= silence.count(": still working\n\n") <= 3


def test_a_stream_that_nobody_reads_cancels_its_answer(make_client):
    engine = FakeEngine(slice_s=0.01)
    response = make_client(engine).post("/upload", data={"stream": "1", "question": "forever"})
    wait_until(lambda: engine.running)
    response.close()  # as the web server does when writing fails
    wait_until(lambda: engine.cancelled == ["forever"])


def test_pictures_are_kept_and_forgotten(client):
    response = client.post("/images", data=form(png("blue", (64, 48))))
    assert response.status_code == 201
    kept = response.get_json()
    assert (kept["width"], kept["height"]) == (64, 48)
    answer = client.post("/upload", json={"image_ids": [kept["id"]], "question": "hi"}).get_json()
    assert answer["response"].endswith("64x48] hi")
    assert answer["images"][0]["id"] == kept["id"]
    assert client.delete(f"/images/{kept['id']}").status_code == 204
    assert_error(client.delete(f"/images/{kept['id']}"), 404, "unknown_image")
    assert_error(client.post("/upload", data={"image_id": kept["id"]}), 404, "unknown_image")


@pytest.mark.parametrize("count", [0, 2])
def test_images_takes_exactly_one(client, count):
    files = [png() for _ in range(count)]
    assert_error(client.post("/images", data=form(*files), content_type="multipart/form-data"), 400, "invalid_request")


def test_a_full_queue_is_503_and_says_when_to_come_back(make_client):
    client = make_client(FakeEngine(slice_s=0.01), queue_size=1)
    streams = [client.post("/upload", data={"stream": "1", "question": "forever"}) for _ in range(2)]
    assert_error(client.post("/upload", data={"question": "hi"}), 503, "queue_full")
    for stream in streams:
        stream.close()


def test_too_late_is_504(make_client):
    client = make_client(FakeEngine(slice_s=0.05, slices_per_stage=1000), answer_timeout_s=1)
    assert_error(client.post("/upload", data={"question": "slow"}), 504, "timeout")


@pytest.mark.parametrize("stream", ["", "1"])
@pytest.mark.parametrize("spoke", [True, False])
def test_a_deadline_before_the_first_token_is_an_error_and_later_the_text_so_far(make_client, stream, spoke):
    engine = FakeEngine(slice_s=0.05, slices_per_stage=2 if spoke else 1000)
    client = make_client(engine, answer_timeout_s=1)
    response = client.post("/upload", data={"question": "forever", "stream": stream})
    end = events(response)[-1][1] if stream else response.get_json()
    if spoke:
        assert end["finish_reason"] == "timeout" and end["response"].startswith("forever")
    else:
        assert end["code"] == "timeout" and response.status_code == (200 if stream else 504)
    assert engine.cancelled == ["forever"]


def test_health_while_loading_while_ready_and_after_failing():
    gate = Lock()
    gate.acquire()

    def load(report):
        report("quantising", 0.5)
        gate.acquire()
        raise ModelError("No model in this folder. Set QWENVL_MODEL.")

    service = Service(Settings(), load)
    client = web.create_app(service).test_client()
    service.start()
    wait_until(lambda: client.get("/health").get_json().get("fraction"))
    loading = client.get("/health")
    assert (loading.status_code, loading.headers["Retry-After"]) == (503, "5")
    assert {"status": "loading", "stage": "quantising", "fraction": 0.5}.items() <= loading.get_json().items()
    assert_error(client.post("/upload", data={"question": "hi"}), 503, "loading")
    gate.release()
    wait_until(lambda: client.get("/health").get_json()["status"] == "failed")
    assert "QWENVL_MODEL" in client.get("/health").get_json()["error"]
    assert_error(client.post("/upload", data={"question": "hi"}), 500, "internal")


def test_health_when_ready(client):
    response = client.get("/health")
    assert response.status_code == 200
    fields = response.get_json()
    assert {"status", "model", "engine", "quantization", "threads", "demo", "limits"} <= fields.keys()
    assert fields["status"] == "ready"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/static/../app.py", 404, "not_found"),
        ("GET", "/static/nothing.js", 404, "not_found"),
        ("GET", "/upload", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("DELETE", "/images", 405, "method_not_allowed"),
        ("DELETE", "/images/unknown", 404, "unknown_image"),
    ],
)
def test_errors_outside_handlers_are_json_too(client, method, path, status, code):
    response = client.open(path, method=method, headers={"Accept": "text/html"})
    assert_error(response, status, code)
    assert (status == 405) == ("Allow" in response.headers)


def test_a_fault_of_ours_is_a_json_500_without_its_text(make_client, caplog):
    client = make_client()

    @client.application.get("/broken")
    def broken():
        raise RuntimeError("secret detail")

    response = client.get("/broken")
    assert_error(response, 500, "internal")
    assert b"secret" not in response.data
    assert response.headers["X-Request-ID"] in caplog.text


def test_every_answer_carries_its_headers(client):
    first, second = client.get("/health"), client.get("/nothing")
    for response in (first, second):
        policy = response.headers["Content-Security-Policy"]
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert first.headers["X-Request-ID"] != second.headers["X-Request-ID"]


def test_a_strange_host_header_does_not_get_into_the_policy(client):
    response = client.get("/health", headers={"Host": "evil; script-src *"})
    assert "evil" not in response.headers.get("Content-Security-Policy", "")


def test_the_page_names_its_scripts_by_version_and_they_may_be_kept(client):
    page = client.get("/").get_data(as_text=True)
    url = next(part for part in page.split('"') if part.startswith("/static/main.js"))
    assert "?v=" in url
    with client.get(url) as versioned, client.get("/static/main.js") as plain:
        assert "immutable" in versioned.headers["Cache-Control"]
        assert "no-cache" in plain.headers["Cache-Control"]


OURS = {"HTTP_HOST": "name:5000"}


@pytest.mark.parametrize(
    ("origin", "environ", "allowed", "expected"),
    [
        (None, OURS, (), True),
        ("http://name:5000", OURS, (), True),
        ("http://192.168.1.7:5000", {"HTTP_HOST": "192.168.1.7:5000"}, (), True),
        ("http://[::1]:5000", {"HTTP_HOST": "[::1]:5000"}, (), True),
        ("https://name", {"HTTP_HOST": "name"}, (), True),  # TLS ends at a proxy that says nothing about it
        ("https://name", {"HTTP_HOST": "name:443"}, (), True),
        ("https://name", {"HTTP_HOST": "127.0.0.1:5000", "HTTP_X_FORWARDED_HOST": "name"}, (), True),
        ("https://name", {"HTTP_HOST": "127.0.0.1:5000", "HTTP_SEC_FETCH_SITE": "same-origin"}, (), True),
        ("https://NAME", {"HTTP_HOST": "name"}, (), True),
        ("http://evil", OURS, (), False),
        ("http://name:5001", OURS, (), False),
        ("http://name", OURS, (), False),
        ("http://name:5000.evil", OURS, (), False),
        ("null", OURS, (), False),
        ("http://evil", {**OURS, "HTTP_SEC_FETCH_SITE": "cross-site"}, (), False),
        ("http://name:99999", OURS, (), False),
        ("https://friend", OURS, ("https://friend",), True),
        ("http://friend", OURS, ("https://friend",), False),
        ("http://anybody", OURS, ("*",), True),
    ],
)
def test_our_own_page_is_welcome_under_every_name_and_others_are_not(origin, environ, allowed, expected):
    assert same_origin(origin, environ, allowed) is expected


def test_pages_of_other_origins_can_neither_ask_nor_read(client, make_client):
    evil = {"Origin": "http://evil.example"}
    assert_error(client.post("/upload", data={"question": "hi"}, headers=evil), 403, "forbidden_origin")
    assert "Access-Control-Allow-Origin" not in client.get("/health", headers=evil).headers
    open_client = make_client(cors_origins="https://a.example, http://evil.example")
    allowed = open_client.post("/upload", data={"question": "hi"}, headers=evil)
    assert allowed.headers["Access-Control-Allow-Origin"] == "http://evil.example"
    assert allowed.status_code == 200
