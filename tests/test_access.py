"""Who may ask: keys by every transport, what stays open, whose word about an address counts, what logs never hold."""

import logging

import pytest
import requests
import socketio
import websocket

from qwenvl.config import Settings
from qwenvl.errors import InvalidRequest
from qwenvl.keys import Keys
from tests.conftest import Server, png, wait_until
from tests.fake_engine import FakeEngine
from tests.test_web import assert_error, form

KEY, OTHER = "first-key-0123456789", "second-key-012345678"
PROTECTED = [("GET", "/metrics"), ("POST", "/upload"), ("POST", "/images"), ("DELETE", "/images/x")]


@pytest.fixture
def client(make_client):
    return make_client(api_keys=f"{KEY}, {OTHER}")


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("given", [None, "", "wrong", KEY[:-1], KEY + "x", KEY.upper(), f"{KEY}, {OTHER}", "\udcff"])
def test_only_a_whole_key_opens(given):
    keys = Keys.from_settings(Settings(api_keys=f"{KEY}, {OTHER}"))
    assert keys.needed and keys.holder(given) is None
    assert (keys.holder(KEY), keys.holder(OTHER)) == ("key-1", "key-2")


def test_keys_come_from_a_file_too(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"# the office\n{OTHER}\n\n  third-key-0123456789  \n")
    keys = Keys.from_settings(Settings(api_keys=KEY, api_keys_file=str(path)))
    assert [keys.holder(key) for key in (KEY, OTHER, "third-key-0123456789", "# the office")] == [
        "key-1", "key-2", "key-3", None,
    ]  # fmt: skip


@pytest.mark.parametrize("content", [None, "", "# nobody yet\n", b"\xff\xfe\x00"])
def test_a_file_without_keys_does_not_leave_the_server_open(tmp_path, content):
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidRequest, match="QWENVL_API_KEYS_FILE"):
        Keys.from_settings(Settings(api_keys_file=str(path)))


@pytest.mark.parametrize(("method", "path"), PROTECTED)
@pytest.mark.parametrize("headers", [{}, bearer("wrong"), {"Authorization": KEY}, {"Authorization": f"Basic {KEY}"}])
def test_without_a_key_nothing_is_done(client, method, path, headers):
    response = client.open(f"{path}?api_key={KEY}", method=method, headers=headers)
    assert_error(response, 401, "unauthorized")
    assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/", "/health", "/static/main.js"])
def test_the_page_and_health_are_for_everybody(client, path):
    with client.get(path) as response:
        assert response.status_code == 200


def test_browsers_may_ask_first(client):
    assert client.options("/upload").status_code == 200


@pytest.mark.parametrize("key", [KEY, OTHER])
def test_a_key_opens_everything(client, key):
    answer = client.post("/upload", data=form(png(), question="hello"), headers=bearer(key)).get_json()
    assert answer["response"].endswith("hello")
    image_id = client.post("/images", data=form(png()), headers=bearer(key)).get_json()["id"]
    assert client.delete(f"/images/{image_id}", headers={"Authorization": f"bearer  {key}"}).status_code == 204


def test_without_keys_in_the_settings_none_is_needed(make_client):
    assert make_client().post("/upload", data={"question": "hi"}, headers=bearer("any")).status_code == 200


@pytest.fixture(scope="module")
def locked():
    server = Server(f"create_fast_app(api_keys='{KEY}')")
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("auth", [None, {"client_id": "a-page-of-its-own"}, {"api_key": "wrong"}, {"api_key": 7}, "x"])
@pytest.mark.parametrize("transport", ["websocket", "polling"])
def test_a_socket_without_a_key_is_refused_and_told_why(locked, auth, transport):
    refusals = []
    page = socketio.Client(reconnection=False)
    page.on("connect_error", refusals.append)
    with pytest.raises(socketio.exceptions.ConnectionError):
        page.connect(locked.url, auth=auth, transports=[transport], wait_timeout=5)
    assert refusals[0]["data"]["code"] == "unauthorized"


def test_a_stranger_who_stays_on_the_line_is_put_out(locked):
    closed = []
    line = websocket.create_connection(f"{locked.url.replace('http', 'ws')}/socket.io/?EIO=4&transport=websocket")
    line.recv()
    line.send("40")
    line.settimeout(10)
    assert "unauthorized" in line.recv()
    while not closed:
        frame = line.recv()
        closed += [frame] if frame in ("", "1") else []
    line.close()


@pytest.mark.parametrize("options", [{"auth": {"api_key": KEY}}, {"headers": bearer(KEY)}])
def test_a_socket_with_a_key_is_served(locked, options):
    done = []
    page = socketio.Client(reconnection=False)
    page.on("answer_done", done.append)
    page.connect(locked.url, transports=["websocket"], wait_timeout=5, **options)
    page.emit("ask_question", {"request_id": "one", "question": "hello"})
    assert wait_until(lambda: done)[0]["response"] == "hello"
    page.disconnect()


def test_a_large_body_of_a_stranger_gets_its_401(locked):
    files = {"image": ("big.png", bytes(12_000_000))}
    response = requests.post(f"{locked.url}/upload", files=files, timeout=20)
    assert (response.status_code, response.json()["code"]) == (401, "unauthorized")


def test_a_refused_picture_is_one_line_of_the_log_and_no_traceback(make_client, caplog, capfd):
    caplog.set_level(logging.INFO)
    client = make_client()
    for picture in (b"no picture", png()[:40]):
        assert_error(client.post("/upload", data=form(picture, question="hi")), 400, "invalid_image")
    assert_error(client.post("/upload", data={"image_id": "unknown"}), 404, "unknown_image")
    assert len([record for record in caplog.records if "refused id=" in record.getMessage()]) == 3
    assert "Traceback" not in capfd.readouterr().err + caplog.text


def test_nothing_that_a_stranger_writes_gets_into_the_log(make_client, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    client = make_client()
    for path in ("/socket.io/?EIO=4&transport=polling&sid=a%0Aforged", "/forged", "/images/forged", "/?forged"):
        client.get(path, headers={"X-Forwarded-For": "forged", "Authorization": "Bearer forged", "Origin": "forged"})
        client.delete(path)
    assert "forged" not in caplog.text + capfd.readouterr().err


def test_logs_hold_no_question_picture_or_key(make_client, caplog):
    caplog.set_level(logging.DEBUG)
    client = make_client(FakeEngine(), api_keys=KEY)
    for question in ("my secret question", "raise my secret question", "refuse my secret question", "fail my secret"):
        client.post("/upload", data=form(png(), question=question), headers=bearer(KEY))
    client.post("/upload", data={"question": "my secret question"}, headers=bearer("a-secret-that-is-wrong"))
    assert caplog.records
    for word in ("secret", KEY, "PNG", KEY[:8]):
        assert word not in caplog.text
    assert KEY not in repr(Settings(api_keys=KEY))
