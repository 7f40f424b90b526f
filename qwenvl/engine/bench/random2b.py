"""The model of random weights between runs: a whole checkpoint lives only while a run needs it, afterwards what is
quantised of it and the few tensors that stay in float. Knows folders, measures nothing.

Whole, it is 4.3 GB and takes a minute to make. A run needs that for a cold load, for other engines, and for our own
in float; all others start from what an earlier run kept.
"""

import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
from qwenvl.memory import give_back

KEPT = ("int8", "int4")
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
def prepared(settings: Settings, whole: bool, report: Report,
             also: tuple[str, ...] = ()) -> Iterator[tuple[Settings, Known | None]]:  # fmt: skip
    """Settings to measure with; and what is known already, or None if the checkpoint is whole and its cache empty.

    `also` are quantisations that will be measured beside that of the settings.
    """
    kept = dataclasses.replace(settings, model=str(home() / "model"), cache_dir=str(home() / "kept"))
    known = None if whole or settings.quantization not in KEPT else _known(kept, also)
    if known is not None:
        yield kept, known
        return
    home().mkdir(parents=True, exist_ok=True)
    for left in home().glob(".tmp-*"):  # of a run that was interrupted
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=home()) as temporary:
        folder = random_model(Path(temporary) / "model", report)
        give_back()  # else what the tensors just written leave behind counts as the engine's
        yield dataclasses.replace(settings, model=str(folder), cache_dir=str(Path(temporary) / "kept")), None


def keep(settings: Settings, figures: Figures) -> None:
    """Keep of a whole checkpoint, just measured with these settings, what the next run starts from."""
    whole = Checkpoint(Path(settings.model))
    sources = {quantization: _weights(whole, settings, quantization) for quantization in KEPT}
    if not sources[settings.quantization].is_dir():
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
    (home() / "kept").mkdir()
    kept = dataclasses.replace(settings, cache_dir=str(home() / "kept"))
    for quantization, source in sources.items():
        if source.is_dir():
            source.rename(_weights(Checkpoint(model), kept, quantization))
    known = Known(size_of(whole), figures.load_s, figures.peak_load_rss_gb)
    (model / _facts(settings)).write_text(json.dumps(dataclasses.asdict(known)))


def _known(settings: Settings, also: tuple[str, ...]) -> Known | None:
    """What an earlier run kept for these settings and this CPU's kernels; None if it has to be made again."""
    try:
        known = json.loads((Path(settings.model) / _facts(settings)).read_text())
        checkpoint = Checkpoint(Path(settings.model))
        if not all(_weights(checkpoint, settings, each).is_dir() for each in (settings.quantization, *also)):
            return None
        return Known(Size(**known.pop("size")), **known)
    except (OSError, ValueError, TypeError):
        return None


def _facts(settings: Settings) -> str:
    """The file with what only the first load could tell; another quantisation's is another one."""
    return "known.json" if settings.quantization == "int8" else f"known-{settings.quantization}.json"


def _weights(checkpoint: Checkpoint, settings: Settings, quantization: str) -> Path:
    limit = settings.fidelity_percent / 100
    return kept_folder(checkpoint, Path(settings.cache_dir), settings.quantization_skip, limit, quantization)
