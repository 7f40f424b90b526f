"""Uploaded pictures, kept in memory as the bytes that came in: random names, an age limit, a byte budget.

Nothing is written to disk, and nothing is looked up by anything but the random id.
"""

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from qwenvl.errors import UnknownImage
from qwenvl.native import Lock


@dataclass(frozen=True)
class Upload:
    """One picture's file under an id that cannot be guessed. `width` and `height` are those of the upright picture."""

    id: str
    width: int
    height: int
    sha256: str
    data: bytes = field(repr=False)


class UploadStore:
    """At most `max_bytes` of files, each for `ttl_s` after its last use. Safe from several threads."""

    def __init__(self, max_bytes: int, ttl_s: float):
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._kept: OrderedDict[str, tuple[Upload, float]] = OrderedDict()  # least recently used first
        self._bytes = 0
        self._lock = Lock()

    def add(self, data: bytes, *, width: int, height: int, sha256: str) -> Upload:
        """Keep a file under a new id; the least recently used ones leave when the budget is spent."""
        upload = Upload(secrets.token_urlsafe(18), width, height, sha256, data)
        with self._lock:
            self._drop_old()
            self._kept[upload.id] = (upload, time.monotonic())
            self._bytes += len(data)
            while self._bytes > self._max_bytes and len(self._kept) > 1:
                self._remove(next(iter(self._kept)))
        return upload

    def get(self, upload_id: str) -> Upload:
        """The upload, now used; raise `UnknownImage` when it is not there (any more)."""
        with self._lock:
            self._drop_old()
            if upload_id not in self._kept:
                raise UnknownImage("This picture is not known here (any more). Send it again.")
            upload, _ = self._kept.pop(upload_id)
            self._kept[upload_id] = (upload, time.monotonic())
            return upload

    def remove(self, upload_id: str) -> Upload:
        """Forget an upload at once; raise `UnknownImage` when it is not there."""
        upload = self.get(upload_id)
        with self._lock:
            self._remove(upload_id)
        return upload

    def tidy(self) -> None:
        """Remove what is too old."""
        with self._lock:
            self._drop_old()

    def __len__(self) -> int:
        return len(self._kept)

    def _drop_old(self) -> None:
        oldest_allowed = time.monotonic() - self._ttl_s
        while self._kept and next(iter(self._kept.values()))[1] < oldest_allowed:
            self._remove(next(iter(self._kept)))

    def _remove(self, upload_id: str) -> None:
        upload, _ = self._kept.pop(upload_id, (None, 0.0))
        self._bytes -= len(upload.data) if upload else 0
