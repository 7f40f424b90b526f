"""Quantised weights on disk: written while a model is quantised for the first time, mapped on every later start.

Knows tensors by name, nothing of what they are for. Every set of weights is a folder of its own, `weights.bin` and
`index.json`, built under another name and renamed when it is whole. Its name is a hash of all that decides its bytes:
the checkpoint's files, how rows are quantised, and the form that this CPU's kernels want them in.
"""

import hashlib
import json
import logging
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

log = logging.getLogger(__name__)

LAYOUT = "1"  # of the two files; another one makes every older folder stale
ALIGN_BYTES = 64
SAMPLES, SAMPLE_BYTES = 16, 1 << 16
ABANDONED_S = 3600  # writing takes a minute: what is unfinished after an hour was interrupted
SPARE_BYTES = 1 << 30  # what must be left on the disk
MADV_POPULATE_READ = 22  # Linux 5.14: map the pages now, not at the first touch


class SavedWeights:
    """A whole folder, mapped. Tensors are views of the file: nothing is read before it is used or `warm`ed."""

    def __init__(self, folder: Path):
        index = json.loads((folder / "index.json").read_text())
        self._index, self.notes = index["tensors"], index["notes"]
        self._bytes = np.memmap(folder / "weights.bin", dtype=np.uint8, mode="c")
        if len(self._bytes) != index["size"]:
            raise ValueError("cut short")

    def get(self, name: str) -> dict[str, Tensor] | None:
        """The tensors stored as `name`; None if there are none."""
        parts = self._index.get(name)
        return parts and {part: self._tensor(**where) for part, where in parts.items()}

    def _tensor(self, offset: int, shape: list[int], dtype: str) -> Tensor:
        kind = getattr(torch, dtype)
        size = int(np.prod(shape)) * kind.itemsize
        return torch.from_numpy(self._bytes[offset : offset + size]).view(kind).view(shape)

    def warm(self, report: Callable[[float], None], step: int = 64 << 20) -> None:
        """Bring everything into memory, a piece at a time."""
        mapped, size = self._bytes._mmap, len(self._bytes)
        for start in range(0, size, step):
            end = min(start + step, size)
            try:
                mapped.madvise(MADV_POPULATE_READ, start, end - start)
            except OSError:  # an older kernel
                self._bytes[start : end : mmap.PAGESIZE].max()
            report(end / size)


class WeightsWriter:
    """Collects tensors into a folder that exists only once `finish` is called. A full disk ends it, quietly."""

    def __init__(self, target: Path, owner: str):
        self.target, self._owner = target, owner
        target.parent.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=".tmp-"))
        self._file = open(self._folder / "weights.bin", "wb")  # noqa: SIM115 (finish and abandon close it)
        self._index: dict[str, dict] = {}
        self._failed = False

    def add(self, name: str, tensors: dict[str, Tensor]) -> None:
        if self._failed:
            return
        try:
            self._index[name] = {part: self._write(tensor) for part, tensor in tensors.items()}
        except OSError as error:
            self._failed = True
            log.warning("quantised weights are not kept, the next start quantises again: %s", error.strerror)

    def _write(self, tensor: Tensor) -> dict:
        self._file.write(b"\0" * (-self._file.tell() % ALIGN_BYTES))
        place = {"offset": self._file.tell(), "shape": list(tensor.shape), "dtype": str(tensor.dtype).split(".")[1]}
        self._file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy())
        return place

    def finish(self, notes: list | None = None) -> None:
        """Make the folder appear under its name, whole, with `notes` in it; older ones of the same model go."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            index = {"owner": self._owner, "size": self._file.tell(), "tensors": self._index, "notes": notes or []}
            (self._folder / "index.json").write_text(json.dumps(index))
            if not self._failed:
                os.rename(self._folder, self.target)
                _remove_stale(self.target, self._owner)
        except OSError as error:  # another process was first, or the disk is full
            log.info("quantised weights are not kept: %s", error.strerror)
        self.abandon()

    def abandon(self) -> None:
        """Leave nothing behind of what was not finished."""
        self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _remove_stale(current: Path, owner: str) -> None:
    """Folders of the same model with other bytes, and what an interrupted start left."""
    for other in current.parent.iterdir():
        try:
            if other.name.startswith(".tmp-"):
                stale = time.time() - other.stat().st_mtime > ABANDONED_S
            else:
                stale = other != current and json.loads((other / "index.json").read_text())["owner"] == owner
        except (OSError, ValueError, KeyError):
            continue
        if stale:
            shutil.rmtree(other, ignore_errors=True)


def open_saved(folder: Path) -> SavedWeights | None:
    """The folder's weights if it is there and whole."""
    if not folder.is_dir():
        return None
    try:
        return SavedWeights(folder)
    except (OSError, ValueError, KeyError) as error:
        log.warning("kept weights in %s cannot be read (%s): quantising again", folder, type(error).__name__)
        shutil.rmtree(folder, ignore_errors=True)
        return None


def open_writer(folder: Path, owner: str, size: int) -> WeightsWriter | None:
    """A writer for about `size` bytes; None, and a line in the log, where there is no place for them."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder.parent).free < size + SPARE_BYTES:
            raise OSError(None, "no space left on the disk")
        return WeightsWriter(folder, owner)
    except OSError as error:
        log.warning("quantised weights are not kept, the next start quantises again: %s", error.strerror)
        return None


def version_of(files: list[Path], *facts: str) -> str:
    """A hash of a checkpoint's files and of everything else that decides the stored bytes.

    Of a large file: size, time of change, header and pieces from all over it. All of 4 GB would take seconds.
    """
    digest = hashlib.sha256("\0".join((LAYOUT, *facts)).encode())
    for path in files:
        status = path.stat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}".encode())
        with open(path, "rb") as file:
            for i in range(SAMPLES):
                file.seek(i * max(0, status.st_size - SAMPLE_BYTES) // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()[:20]
