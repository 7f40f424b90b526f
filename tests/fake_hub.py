"""A Hub on this machine with one model in it: the demo's files as Qwen/Qwen3-VL-2B-Instruct.

It answers as the real one does: the API's JSON, HEAD with ETag and X-Repo-Commit, large files by a redirect to another
address, parts of files by Range. It is as slow as it is told, and cuts connections when it is told.
"""

import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from qwenvl.engine.hub import DEFAULT_ID, DEMO_FOLDER

COMMIT = "89644892e4d85e24eaac8bacfd4f463576704203"
LARGE_BYTES = 1_000_000  # such files lie elsewhere and are known by their SHA-256
SLICE_S = 0.02


class FakeHub:
    """Serves until `close()`. `gets` has every GET of a file: its name and the byte it began with."""

    def __init__(self, folder: Path = DEMO_FOLDER, model_id: str = DEFAULT_ID, rate_bytes_s: float = 1e9):
        self.files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
        self.model_id, self.rate_bytes_s = model_id, rate_bytes_s
        self.ranges = True  # honours Range
        self.refuses = False  # files only to holders of a token
        self.cut_at: int | None = None  # the next large file breaks off at this byte, once
        self.sent_bytes = 0
        self.gets: list[tuple[str, int]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def begun(self, name: str) -> list[int]:
        """The bytes with which the GETs of a file began."""
        return [first for asked, first in self.gets if asked == name]

    @property
    def large(self) -> str:
        return max(self.files, key=lambda name: len(self.files[name]))


class Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self) -> None:
        model = re.escape(self.hub.model_id)
        path = self.path.partition("?")[0]
        if re.fullmatch(rf"/api/models/{model}(/revision/\w+)?", path):
            self.send_json(
                {"id": self.hub.model_id, "modelId": self.hub.model_id, "sha": COMMIT, "siblings": self.listed()}
            )
        elif re.fullmatch(rf"/api/models/{model}/tree/{COMMIT}", path):
            self.send_json([self.in_tree(name) for name in self.hub.files])
        elif found := re.fullmatch(rf"/{model}/resolve/(?:main|{COMMIT})/([\w.]+)", path):
            self.send_file(found[1], elsewhere=False)
        elif found := re.fullmatch(r"/elsewhere/([\w.]+)", path):
            self.send_file(found[1], elsewhere=True)
        else:
            self.send_error(404)

    def listed(self) -> list[dict]:
        return [{"rfilename": name, "size": len(data)} for name, data in self.hub.files.items()]

    def in_tree(self, name: str) -> dict:
        data = self.hub.files[name]
        lfs = {"lfs": {"oid": etag(data), "size": len(data), "pointerSize": 134}} if len(data) > LARGE_BYTES else {}
        return {"type": "file", "path": name, "oid": git_name(data), "size": len(data), **lfs}

    def send_json(self, value) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, name: str, *, elsewhere: bool) -> None:
        data = self.hub.files.get(name)
        if data is None or self.hub.refuses:
            return self.send_error(401 if self.hub.refuses else 404)
        if len(data) > LARGE_BYTES and not elsewhere:
            self.send_response(302)
            self.send_header("Location", f"{self.hub.url}/elsewhere/{name}")
            self.send_header("X-Linked-Etag", f'"{etag(data)}"')
            self.send_header("X-Linked-Size", str(len(data)))
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if self.hub.ranges else None
        first = int(asked[1]) if asked else 0
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("ETag", f'"{etag(data) if len(data) > LARGE_BYTES else git_name(data)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        if self.command == "GET":
            self.hub.gets.append((name, first))
            self.send_slowly(data, first)

    def send_slowly(self, data: bytes, first: int) -> None:
        step = max(1, int(self.hub.rate_bytes_s * SLICE_S))
        end, cut = len(data), False
        if self.hub.cut_at is not None and len(data) > LARGE_BYTES:
            end, cut, self.hub.cut_at = self.hub.cut_at, True, None
        for at in range(first, end, step):
            try:
                self.wfile.write(data[at : min(at + step, end)])
            except OSError:  # whoever asked has gone
                break
            self.hub.sent_bytes += min(step, end - at)
            time.sleep(SLICE_S if step < len(data) else 0)
        if cut:
            self.close_connection = True

    def log_message(self, *args) -> None:
        pass


def etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def git_name(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
