"""The model of random weights between runs: a whole checkpoint lives only while a run needs it, afterwards what is
quantised of it and the few tensors that stay in float. Knows folders, measures nothing.

Whole, it is 4.3 GB and takes a minute to make. A run needs that for a cold load, for other engines, and for our own
in float; all others start from what an earlier run kept.
"""

import ctypes
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants
from safetensors.torch import save_file

from qwenvl.config import Settings
from qwenvl.engine.bench.figures import Figures
from qwenvl.engine.bench.limits import Size, size_of
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.hub import Report
from qwenvl.engine.loading import kept_folder
from qwenvl.engine.random_model import random_model

IN_FLOAT = ("embed_tokens.weight", "pos_embed.weight", "patch_embed.proj.weight", "patch_embed.proj.bias")


@dataclass(frozen=True)
class Known:
    """What only a whole checkpoint can tell: its size, and how long a first load took."""

    size: Size
    load_s: float
    peak_load_rss_gb: float


def home() -> Path:
    return Path(constants.HF_HOME).parent / "qwenvl" / "random-2b"


@contextmanager
def prepared(settings: Settings, whole: bool, report: Report) -> Iterator[tuple[Settings, Known | None]]:
    """Settings to measure with; and what is known already, or None if the checkpoint is whole and its cache empty."""
    kept = dataclasses.replace(settings, model=str(home() / "model"), cache_dir=str(home() / "kept"))
    known = None if whole or settings.quantization != "int8" else _known(kept)
    if known is not None:
        yield kept, known
        return
    home().mkdir(parents=True, exist_ok=True)
    for left in home().glob(".tmp-*"):  # of a run that was interrupted
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=home()) as temporary:
        folder = random_model(Path(temporary) / "model", report)
        _give_memory_back()
        yield dataclasses.replace(settings, model=str(folder), cache_dir=str(Path(temporary) / "kept")), None


def _give_memory_back() -> None:
    """What the C library holds of the tensors just written would count as the engine's."""
    with suppress(OSError, AttributeError):  # another C library has no such function
        ctypes.CDLL(None).malloc_trim(0)


def keep(settings: Settings, figures: Figures) -> None:
    """Keep of a whole checkpoint, just measured with these settings, what the next run starts from."""
    whole = Checkpoint(Path(settings.model))
    source = _weights(whole, settings)
    if not source.is_dir():
        return
    for name in ("model", "kept"):
        shutil.rmtree(home() / name, ignore_errors=True)
    model = home() / "model"
    model.mkdir()
    for file in whole.folder.glob("*"):
        if "safetensors" not in file.name:
            shutil.copy(file, model)
    save_file(
        {name: whole.tensor(name) for name in whole.shards if name.endswith(IN_FLOAT)}, model / "model.safetensors"
    )
    target = _weights(Checkpoint(model), dataclasses.replace(settings, cache_dir=str(home() / "kept")))
    target.parent.mkdir()
    source.rename(target)
    known = Known(size_of(whole), figures.load_s, figures.peak_load_rss_gb)
    (model / "known.json").write_text(json.dumps(dataclasses.asdict(known)))


def _known(settings: Settings) -> Known | None:
    """What an earlier run kept for these settings and this CPU's kernels; None if it has to be made again."""
    try:
        known = json.loads((Path(settings.model) / "known.json").read_text())
        if not _weights(Checkpoint(Path(settings.model)), settings).is_dir():
            return None
        return Known(Size(**known.pop("size")), **known)
    except (OSError, ValueError, TypeError):
        return None


def _weights(checkpoint: Checkpoint, settings: Settings) -> Path:
    limit = settings.fidelity_percent / 100
    return kept_folder(checkpoint, Path(settings.cache_dir), settings.quantization_skip, limit)
