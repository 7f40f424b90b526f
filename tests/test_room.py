"""Room for work: what comes in and what is decoded shares a number of bytes, waits for it, or is told there is none."""

import base64
import io
import threading
import time

import gevent
import pytest
from PIL import Image

from qwenvl import native, room
from qwenvl.config import MIB
from qwenvl.errors import ImageTooLarge
from qwenvl.room import Room
from tests.conftest import png, wait_until
from tests.fake_engine import FakeEngine
from tests.test_web import assert_error, form, post_large


def test_what_is_taken_is_gone_until_it_comes_back():
    room = Room(100)
    assert room.take(60) and not room.take(41) and room.take(40) and not room.take(1)
    room.give_back(40)
    assert room.take(40)


def test_decoding_waits_for_room_and_gives_it_back():
    image = Image.open(io.BytesIO(png(size=(100, 100))))
    space = Room(8 * 100 * 100 + 10)
    inside, order = threading.Event(), []

    def second():
        with space.to_decode(image):
            order.append("second")

    with space.to_decode(image):
        thread = threading.Thread(target=second)
        thread.start()
        assert not inside.wait(5 * room.LOOK_EVERY_S)
        order.append("first")
    thread.join()
    assert order == ["first", "second"] and space.take(space.max_bytes)


@pytest.mark.parametrize(("kind", "mode"), [("PNG", "RGB"), ("PNG", "RGBA"), ("WEBP", "RGB"), ("GIF", "P")])
def test_a_picture_that_never_fits_is_413_with_what_would(make_client, kind, mode):
    """Not to be decoded: a one-colour picture is a small file."""
    data = io.BytesIO()
    Image.new(mode, (2000, 1500)).save(data, kind)
    client = make_client(work_bytes=20 * MIB)
    refused = client.post("/images", data=form(data.getvalue()))
    assert_error(refused, 413, "image_too_large")
    assert "million" in refused.get_json()["error"]
    small = io.BytesIO()
    Image.new(mode, (600, 400)).save(small, kind)
    assert client.post("/images", data=form(small.getvalue())).status_code == 201


def test_a_photo_is_shrunk_while_it_is_decoded_and_takes_less_room(make_client):
    data = io.BytesIO()
    Image.new("RGB", (1500, 1000), "green").save(data, "JPEG")
    client = make_client(work_bytes=20 * MIB)
    assert client.post("/images", data=form(data.getvalue())).status_code == 201
    data = io.BytesIO()
    Image.new("RGB", (1500, 1000), "green").save(data, "PNG")
    assert_error(client.post("/images", data=form(data.getvalue())), 413, "image_too_large")


def test_a_decoder_that_breaks_gives_its_room_back():
    space = Room(10**6)
    with pytest.raises(ZeroDivisionError), space.to_decode(Image.new("RGB", (10, 10))):
        raise ZeroDivisionError
    assert space.take(10**6)
    with pytest.raises(ImageTooLarge), space.to_decode(Image.new("RGB", (1000, 1000))):
        pass


def service_of(client):
    return client.application.extensions["qwenvl"].service


@pytest.mark.parametrize("body", [{"data": {"question": "hi"}}, {"json": {"question": "hi"}}])
def test_when_there_is_no_room_for_more_bodies_they_are_503_until_there_is(make_client, body):
    client = make_client()
    receiving = service_of(client).receiving
    assert receiving.take(receiving.max_bytes)
    assert_error(client.post("/upload", **body), 503, "queue_full")
    assert client.get("/health").status_code == 200
    receiving.give_back(receiving.max_bytes)
    assert client.post("/upload", **body).get_json()["response"] == "hi"
    assert receiving.take(receiving.max_bytes)  # nothing has stayed in it


def test_a_body_that_never_fits_is_413(make_client):
    client = make_client(work_bytes=20 * MIB)  # of which 3 MiB, and two copies
    assert_error(post_large(client, files=[png() + bytes(1_600_000)]), 413, "image_file_too_large")
    assert post_large(client, files=[png() + bytes(1_400_000)], question="hi").status_code == 200


@pytest.mark.parametrize("kind", ["files", "json", "field"])
def test_while_an_answer_is_waited_for_its_body_takes_no_room(make_client, kind):
    engine = FakeEngine(slice_s=0.01)
    client = make_client(engine)
    receiving, text = service_of(client).receiving, base64.b64encode(png() + bytes(300_000)).decode()
    send = {
        "files": {"data": form(png(), question="forever", stream="1")},
        "json": {"json": {"image": text, "question": "forever", "stream": "1"}},
        "field": {"data": {"image": text, "question": "forever", "stream": "1"}},
    }[kind]
    response = client.post("/upload", **send)
    wait_until(lambda: engine.running)
    assert receiving.take(receiving.max_bytes)
    response.close()


@pytest.mark.parametrize("files", [[], [b"no picture"], [b"\x89PNG\r\n\x1a\n" + bytes(1000)]])
def test_what_is_refused_takes_no_room_either(make_client, files):
    client = make_client()
    assert client.post("/images", data=form(*files), content_type="multipart/form-data").status_code == 400
    assert service_of(client).receiving.take(service_of(client).receiving.max_bytes)


def test_pictures_are_decoded_beside_the_hub_and_two_at_a_time(make_client, monkeypatch):
    client = make_client()
    service, inside, most, beats = service_of(client), [], [], []
    decode = service.open_picture

    def slow(data, detail):
        inside.append(data)
        most.append(len(inside))
        native.sleep(0.1)
        inside.pop()
        return decode(data, detail)

    monkeypatch.setattr(service, "open_picture", slow)
    post = lambda number: client.application.test_client().post("/images", data=form(png(size=(40, 40 + number))))  # noqa: E731
    posts = [gevent.spawn(post, number) for number in range(6)]
    while not all(post.ready() for post in posts):
        began = time.monotonic()
        gevent.sleep(0.001)
        beats.append(time.monotonic() - began)
    assert {post.value.status_code for post in posts} == {201}
    assert max(most) == 2
    assert sorted(beats)[len(beats) // 2] < 0.05  # the hub goes on meanwhile
