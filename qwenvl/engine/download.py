"""Brings a model's files into the Hub's cache and says how far it is. A download that was cut, or a process that was
killed, goes on where it stopped.

huggingface_hub throws half a file away (each of its tries has a temporary name of its own), and this model is one file
of 4 GB. So the files are fetched here, under the names and locks of its cache, and it has only to link them together.
Plain HTTP from one address, so a mirror needs to offer nothing else. Knows no settings and no tensors.
"""

import errno
import hashlib
import shutil
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_url, snapshot_download
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import WeakFileLock, build_hf_headers, close_session, get_session, hf_raise_for_status

from qwenvl.errors import ModelError
from qwenvl.messages import Transfer
from qwenvl.native import sleep, start_thread

Report = Callable[..., None]  # (stage, fraction, transfer=None)

REPORT_EVERY_S = 0.5
GIVE_UP_S = 300.0  # without one byte
LONGEST_PAUSE_S = 15.0  # between two tries
RATE_WINDOW_S = 10.0
HASH_BYTES = 16 << 20


class Blob:
    """One file of the model, by the name it has in the Hub's cache: its ETag, which for large files is its SHA-256."""

    def __init__(self, model_id: str, name: str, revision: str, store: Path):
        self.url = hf_hub_url(model_id, name, revision=revision)
        facts = get_hf_file_metadata(self.url, retry_on_errors=True)
        if not facts.etag or facts.size is None:
            raise ModelError(f"{constants.ENDPOINT} does not say how large {name} is; try another HF_ENDPOINT")
        self.etag, self.size = facts.etag, facts.size
        self.path = store / "blobs" / self.etag
        self.part = self.path.with_name(f"{self.etag}.incomplete")
        self.lock = store.parent / ".locks" / store.name / f"{self.etag}.lock"

    @property
    def done(self) -> int:
        """Bytes that are there, whoever fetched them."""
        if self.path.exists():
            return self.size
        return self.part.stat().st_size if self.part.exists() else 0

    def bring(self) -> None:
        """Fetch what is missing. Raises whatever the network or the disk raise; what came stays."""
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(self.lock):
            if self.path.exists():
                return
            if self.done < self.size:
                self._fetch()
            if self.done < self.size:
                raise ConnectionError("the connection was closed too early")
            if not self._is_whole():
                self.part.unlink()
                raise ConnectionError("what came is not what was promised")
            self.part.rename(self.path)

    def _fetch(self) -> None:
        have = self.done
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream("GET", self.url, headers=headers, timeout=timeout) as reply:
            hf_raise_for_status(reply)
            # 200 instead of 206: this server sends files from their beginning only
            with self.part.open("ab" if reply.status_code == 206 else "wb") as file:
                for chunk in reply.iter_bytes():
                    file.write(chunk)
                    file.flush()

    def _is_whole(self) -> bool:
        if self.done != self.size:
            return False
        if len(self.etag) != 64:  # a small file's ETag is git's name for it
            return True
        digest = hashlib.sha256()
        with self.part.open("rb") as file:
            while chunk := file.read(HASH_BYTES):
                digest.update(chunk)
        return digest.hexdigest() == self.etag


class Rate:
    """Bytes a second over the last seconds."""

    def __init__(self):
        self._seen: deque[tuple[float, int]] = deque()

    def after(self, done: int) -> float:
        now = time.monotonic()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_WINDOW_S:
            self._seen.popleft()
        began, before = self._seen[0]
        return max(0.0, (done - before) / (now - began)) if now > began else 0.0


def download(model_id: str, patterns: list[str], report: Report) -> None:
    """Fetch the model's files that match; raise `ModelError` in one line. Returns when the cache has them all."""
    stage = f"downloading {model_id}"
    store = Path(constants.HF_HUB_CACHE) / f"models--{model_id.replace('/', '--')}"
    blobs: list[Blob] = []
    fetching = Background(lambda: _fetch_all(model_id, patterns, store, blobs))
    rate = Rate()
    while not fetching.done:
        sleep(REPORT_EVERY_S)
        total, done = sum(blob.size for blob in blobs), sum(blob.done for blob in blobs)
        if total:
            report(stage, min(1.0, done / total), Transfer(done, total, rate.after(done)))
    if fetching.error:
        raise _told(model_id, fetching.error)


def _told(model_id: str, error: Exception) -> ModelError:
    if isinstance(error, ModelError):
        return error
    reason = _hopeless(error) or f"start again to go on where it stopped ({type(error).__name__})"
    return ModelError(f"downloading {model_id} failed: {reason}")


def _fetch_all(model_id: str, patterns: list[str], store: Path, blobs: list[Blob]) -> None:
    info = HfApi().model_info(model_id)
    names = [file.rfilename for file in info.siblings if any(Path(file.rfilename).match(p) for p in patterns)]
    found = [Blob(model_id, name, info.sha, store) for name in names]
    blobs.extend(sorted(found, key=lambda blob: blob.size))
    _check_room(model_id, store, sum(blob.size - blob.done for blob in blobs))
    for blob in blobs:
        _bring(blob)
    snapshot_download(model_id, allow_patterns=patterns)


def _check_room(model_id: str, store: Path, wanted: int) -> None:
    store.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(store).free
    if free < wanted:
        raise ModelError(
            f"{model_id} needs {wanted / 1e9:.1f} GB more in {store.parent} and {free / 1e9:.1f} GB are free; "
            "make room, or set HF_HOME to a folder on a larger disk"
        )


def _bring(blob: Blob) -> None:
    """Try until the file is there, unless trying again cannot help or nothing has come for minutes."""
    pause_s, seen, seen_at = 1.0, blob.done, time.monotonic()
    while True:
        try:
            return blob.bring()
        except Exception as error:
            if _hopeless(error):
                raise
            if blob.done > seen:
                pause_s, seen, seen_at = 1.0, blob.done, time.monotonic()
            if time.monotonic() - seen_at > GIVE_UP_S:
                raise
        sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _hopeless(error: Exception) -> str | None:
    """What stands in the way, if waiting does not remove it."""
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        if status < 500 and status not in (408, 429):
            return f"the Hub says {status}; is the model's name right, or does it want a token (HF_TOKEN)?"
        return None
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; make room and start again to go on, or set HF_HOME to a folder on a larger disk"
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"the cache cannot be written ({error.filename}); set HF_HOME to a folder of yours"
    return None


class Background:
    """A call that asks the Hub, on a native thread of its own. `done`, then `error` tells how it went.

    Under gevent a connection belongs to the thread that opened it, and huggingface_hub keeps connections for whoever
    asks next; so none is left behind.
    """

    def __init__(self, call: Callable[[], object]):
        self.done, self.error = False, None
        self._call = call
        start_thread(self._run)

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self.error = error
        finally:
            close_session()
            self.done = True
