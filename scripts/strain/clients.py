"""Clients of every temper. Each has cards with its own numbers and knows what a calm server says about them.

The engine is greedy and its answers depend on nobody else, so under load the same words must come, to the letter: an
answer that belongs to another asker, or that company has changed, is seen at once.
"""

import contextlib
import functools
import io
import json
import random
import socket
import time
import uuid
from collections import Counter

import requests
import socketio
from PIL import Image, ImageDraw, ImageFont

QUESTIONS = ("What does it say?", "Read the text.", "读出所有文字。")
PATIENCE_S = 60.0
BUSY = {429, 503}


def card(number: int, size: tuple[int, int], kind: str = "PNG") -> bytes:
    """A number in the demo model's print, as a picture of any size."""
    image = Image.new("RGB", size, "white")
    font = ImageFont.load_default(size[1] // 3)
    ImageDraw.Draw(image).text((size[0] // 8, size[1] // 4), str(number), fill="black", font=font)
    data = io.BytesIO()
    image.save(data, kind)
    return data.getvalue()


@functools.cache
def too_large() -> bytes:
    """A small file whose pixels would take more memory than the server may spend on decoding."""
    data = io.BytesIO()
    Image.new("RGBA", (6000, 4000), "teal").save(data, "PNG")
    return data.getvalue()


class Client:
    """One asker. `tally` counts what it did and what came back; `wrong` describes what must not happen."""

    def __init__(self, url: str, number: int):
        self.url, self.number = url, number
        self.tally: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._chance = random.Random(number)
        self._http = requests.Session()
        self._socket: socketio.Client | None = None
        self._events: list[tuple[str, dict]] = []
        self._cards: list[bytes] = []
        self._calm: dict[tuple[int | None, str], str] = {}

    def prepare(self) -> None:
        """Draw the cards and ask about them while nobody else does. Every card's answers must hold its own number."""
        too_large()
        sizes = [(320, 160), (640, 320), (480, 240)]
        numbers = iter(range(10_000 + self.number * 997, 99_999, 131))
        while len(self._cards) < len(sizes):
            size, number = sizes[len(self._cards)], next(numbers)
            drawn = card(number, size, self._chance.choice(("PNG", "BMP", "TIFF")))
            said = [self._reply({"question": question}, drawn)["response"] for question in QUESTIONS]
            if said != [str(number)] * len(QUESTIONS):
                continue  # the demo model cannot read this one, which proves nothing
            self._calm |= {(len(self._cards), question): str(number) for question in QUESTIONS}
            self._cards.append(drawn)
        for question in QUESTIONS:
            self._calm[None, question] = self._reply({"question": question})["response"]

    def run(self, until: float) -> None:
        """Do one thing after another until the clock (`time.monotonic()`) says so."""
        deeds = [self.ask] * 5 + [self.stream] * 3 + [self.by_id, self.by_socket, self.by_socket, self.text_only]
        deeds += [self.leave, self.leave_stream, self.stop, self.vanish, self.garbage, self.garbage]
        while time.monotonic() < until:
            deed = self._chance.choice(deeds)
            self.tally[deed.__name__] += 1
            try:
                deed()
            except Exception as error:
                self.wrong.append(f"{deed.__name__}: {type(error).__name__}: {error}"[:300])
            time.sleep(self._chance.uniform(0.0, 0.15))
        if self._socket is not None:
            self._socket.disconnect()

    # What people do

    def ask(self) -> None:
        index, question = self._pick()
        self._check(index, question, self._reply({"question": question}, self._cards[index]))

    def text_only(self) -> None:
        question = self._chance.choice(QUESTIONS)
        self._check(None, question, self._reply({"question": question}))

    def stream(self) -> None:
        index, question = self._pick()
        with self._post({"question": question, "stream": "1"}, self._cards[index], stream=True) as response:
            if not self._taken(response):
                return
            events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith(b"data: ")]
        pieces = "".join(event["token"] for event in events if "token" in event)
        if pieces != events[-1].get("response"):
            self.wrong.append(f"stream: {pieces!r} is not {events[-1]}")
        self._check(index, question, events[-1])

    def by_id(self) -> None:
        index, question = self._pick()
        kept = self._http.post(f"{self.url}/images", files={"image": self._cards[index]}, timeout=PATIENCE_S)
        if not self._taken(kept):
            return
        image_id = kept.json()["id"]
        self._check(index, question, self._reply({"question": question, "image_ids": image_id}))
        if self._chance.random() < 0.5:
            gone = self._http.delete(f"{self.url}/images/{image_id}", timeout=PATIENCE_S)
            if gone.status_code not in (204, 404):  # 404: the store is small, and others send pictures, too
                self.wrong.append(f"by_id: {gone.status_code} for forgetting a picture")

    def by_socket(self) -> None:
        index, question = self._pick()
        end = self._end_of(self._emit(question, self._cards[index]))
        self._check(index, question, end)

    # What else people do

    def stop(self) -> None:
        index, question = self._pick()
        request_id = self._emit(question, self._cards[index])
        time.sleep(self._chance.uniform(0.0, 0.05))
        self._connected().emit("stop", {"request_id": request_id})
        end = self._end_of(request_id)
        if not self._calm[index, question].startswith(end.get("response", "")):
            self.wrong.append(f"stop: {end}")

    def vanish(self) -> None:
        index, question = self._pick()
        self._emit(question, self._cards[index])
        with contextlib.suppress(Exception):
            self._connected().eio.ws.sock.shutdown(socket.SHUT_RDWR)  # close() alone would not end its reader
        self._socket = None

    def leave(self) -> None:
        self._leave("0")

    def leave_stream(self) -> None:
        self._leave("1")

    def _leave(self, stream: str) -> None:
        index, question = self._pick()
        fields = {"question": (None, question), "stream": (None, stream), "image": ("x.png", self._cards[index])}
        sent = requests.Request("POST", f"{self.url}/upload", files=fields).prepare()
        with socket.create_connection(("127.0.0.1", int(self.url.rsplit(":", 1)[1])), timeout=PATIENCE_S) as sock:
            lines = [f"{name}: {value}" for name, value in {"Host": "127.0.0.1", **sent.headers}.items()]
            whole = ("POST /upload HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode() + sent.body
            sock.sendall(whole[: self._chance.choice((len(whole), len(whole), len(whole) // 2))])
            time.sleep(self._chance.uniform(0.0, 0.05))

    def garbage(self) -> None:
        """Things that must be refused, with a sentence and a code."""
        noise = self._chance.randbytes(self._chance.randrange(1, 3000))
        as_json = {"Content-Type": "application/json"}
        damaged = self._cards[0][: len(self._cards[0]) // 3]
        post = lambda **request: self._http.post(f"{self.url}/upload", timeout=PATIENCE_S, **request)  # noqa: E731
        response = self._chance.choice(
            (
                lambda: post(files={"image": noise}),
                lambda: post(files={"image": b"\x89PNG\r\n\x1a\n" + noise}),
                lambda: post(files={"image": b"\xff\xd8\xff" + noise}),
                lambda: post(files={"image": damaged}),
                lambda: post(files={"image": too_large()}),
                lambda: post(files={"wrong": damaged}),
                lambda: post(data=noise, headers=as_json),
                lambda: post(data=noise, headers={"Content-Type": "multipart/form-data; boundary=x"}),
                lambda: post(json={"question": "\ud800", "image": "no base64!"}),
                lambda: post(data='{"question": "hi", "max_new_tokens": 1e400}', headers=as_json),
                lambda: post(json={"question": "hi", "history": [[]]}),
                lambda: post(data={"question": "hi", "temperature": "nan"}),
                lambda: post(data={"question": "x" * 9000}),
                lambda: post(data={"question": "hi", "image_ids": "../../etc/passwd"}),
                lambda: post(data={}),
                lambda: self._http.get(f"{self.url}/../{noise.hex()[:30]}", timeout=PATIENCE_S),
                lambda: self._http.put(f"{self.url}/upload", data=noise, timeout=PATIENCE_S),
            )
        )()
        self.tally[f"status {response.status_code}"] += 1
        if not 400 <= response.status_code < 500 and response.status_code != 503 or not response.json()["code"]:
            self.wrong.append(f"garbage: {response.status_code} {response.text[:200]}")

    # How

    def _pick(self) -> tuple[int, str]:
        return self._chance.randrange(len(self._cards)), self._chance.choice(QUESTIONS)

    def _post(self, fields: dict, picture: bytes | None = None, **options) -> requests.Response:
        files = {"image": ("../x.png", picture)} if picture else None
        return self._http.post(f"{self.url}/upload", data=fields, files=files, timeout=PATIENCE_S, **options)

    def _reply(self, fields: dict, picture: bytes | None = None) -> dict:
        response = self._post(fields, picture)
        return response.json() if self._taken(response) else {"code": response.json()["code"]}

    def _taken(self, response: requests.Response) -> bool:
        """Whether a good question was taken in. Being told that the server is busy is no fault."""
        self.tally[f"status {response.status_code}"] += 1
        if response.status_code not in (200, 201, 404, *BUSY):
            self.wrong.append(f"{response.status_code} {response.text[:200]}")
        return response.status_code < 300

    def _check(self, index: int | None, question: str, end: dict) -> None:
        """Is this the answer to my question about my picture?"""
        if end.get("code") in ("queue_full", "rate_limited", "unknown_image"):
            self.tally[end["code"]] += 1
            return
        self.tally["answers"] += 1
        if end.get("response") != self._calm[index, question]:
            self.wrong.append(f"client {self.number} expected {self._calm[index, question]!r}, got {end}"[:400])

    def _connected(self) -> socketio.Client:
        if self._socket is None or not self._socket.connected:
            self._events = []
            self._socket = socketio.Client(reconnection=False)
            for name in ("answer_done", "answer_error"):
                self._socket.on(name, lambda fields, name=name: self._events.append((name, fields)))
            auth = {"client_id": str(uuid.uuid4())}
            self._socket.connect(self.url, auth=auth, transports=["websocket"], wait_timeout=PATIENCE_S)
        return self._socket

    def _emit(self, question: str, picture: bytes) -> str:
        request_id = str(uuid.uuid4())
        fields = {"request_id": request_id, "question": question, "image": picture}
        self._connected().emit("ask_question", fields)
        return request_id

    def _end_of(self, request_id: str) -> dict:
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            for _, fields in list(self._events):
                if fields["request_id"] == request_id:
                    self._events.clear()
                    return fields
            time.sleep(0.005)
        raise TimeoutError("no end came")
