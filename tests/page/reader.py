"""What a reader does with the page, and the servers that it talks to."""

import base64
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import expect

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "static"
FAKE = "tests.fake_app:create_fast_app(resume_grace_s=10)"
PATIENCE_MS = 30_000  # only a failing test waits that long
expect.set_options(timeout=PATIENCE_MS)
LONG = "一二三四 five six seven eight 👨‍👩‍👧 " * 12  # about 1.6 s of pieces


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def health(url: str) -> dict:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:  # 503 while it loads
        with error:
            return json.load(error)


@contextlib.contextmanager
def serving(app: str, port: int, patience_s: float = 180, status="ready", root: Path = ROOT, **environ):
    """A server process of the tree at `root`; yields its address once it is ready, or in another state."""
    command = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "1", "--bind", f"127.0.0.1:{port}"]
    command += ["--graceful-timeout", "1", "--log-level", "warning", "--no-control-socket", app]
    process = subprocess.Popen(command, cwd=root, env={**os.environ, **environ})
    url = f"http://127.0.0.1:{port}"
    give_up_at = time.monotonic() + patience_s
    try:
        while True:
            try:
                if health(url)["status"] == status:
                    break
            except OSError:
                pass
            assert process.poll() is None and time.monotonic() < give_up_at, "the server did not start"
            time.sleep(0.1)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def picture(width=300, height=220, kind="PNG", **options) -> bytes:
    """A white picture with a red circle, and a red band at the top."""
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width, height // 10), fill="red")
    draw.ellipse((width // 4, height // 4, width // 2, height // 4 + width // 4), fill="red")
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def file(data: bytes, name="circle.png", kind="image/png") -> dict:
    return {"name": name, "mimeType": kind, "buffer": data}


def choose(page, *files):
    page.set_input_files("#files", list(files))


def ask(page, question: str):
    page.fill("#question", question)
    page.press("#question", "Enter")


def answer(page, number=1):
    return page.locator(f".turn:nth-child({number}) .answer")


def expect_phase(page, phase: str, number=1):
    expect(answer(page, number)).to_have_attribute("data-phase", phase)


def wait_until_free(page):
    """Until nothing is being answered: what the page shows may be a frame behind."""
    page.wait_for_function("import('./static/state.js').then(({ state }) => !state.active)")


def wait_until_kept(page):
    """Until the archive has the conversation on the page."""
    page.wait_for_function(
        """Promise.all([import('./static/state.js'), import('./static/archive.js')]).then(
            ([{ state }, { read }]) => state.conversation && read(state.conversation.id)
        )"""
    )


def text_of(page, number=1) -> str:
    return answer(page, number).locator(".answer-text").text_content().strip()


def hand_over(page, event: str, data: bytes, name="circle.png"):
    """Drop or paste a file as the browser would: `event` with the file in its DataTransfer."""
    page.evaluate(
        """([event, base64, name]) => {
            const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], name, { type: 'image/png' }));
            const options = { bubbles: true, cancelable: true };
            if (event === 'paste') {
                document.body.dispatchEvent(new ClipboardEvent('paste', { ...options, clipboardData: transfer }));
                return;
            }
            for (const step of ['dragenter', 'dragover', 'drop']) {
                document.body.dispatchEvent(new DragEvent(step, { ...options, dataTransfer: transfer }));
            }
        }""",
        [event, base64.b64encode(data).decode(), name],
    )


def record_sent(page) -> None:
    """From now on `window.sent` has what the page sends to the server by socket or by XMLHttpRequest."""
    page.evaluate(
        """() => {
            window.sent = [];
            for (const kind of [WebSocket, XMLHttpRequest]) { // a new connection begins by HTTP
                const { send } = kind.prototype;
                kind.prototype.send = function (data) {
                    window.sent.push(String(data));
                    return send.call(this, data);
                };
            }
        }"""
    )
