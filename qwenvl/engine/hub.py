"""Which folder the model comes from: a path, the Hub's cache, a download, or the bundled demo. Knows no tensors.

`HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_HOME` are honoured by huggingface_hub itself.
"""

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from qwenvl.engine.download import Background, Report, download
from qwenvl.errors import ModelError
from qwenvl.native import sleep

log = logging.getLogger(__name__)

DEFAULT_ID = "Qwen/Qwen3-VL-2B-Instruct"
DEMO_FOLDER = Path(__file__).parent.parent / "demo"
WANTED_FILES = ["*.json", "*.jinja", "*.txt", "*.safetensors"]
REACH_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Source:
    """A folder that holds a model, the name to show, and whether it is the demo."""

    folder: Path
    name: str
    demo: bool = False


DEMO = Source(DEMO_FOLDER, "demo", demo=True)


def cache_folder(wanted: str) -> Path | None:
    """Where quantised weights are kept for a `QWENVL_CACHE_DIR` value: beside the Hub's cache unless it says else."""
    if wanted == "off":
        return None
    return Path(wanted) if wanted else Path(constants.HF_HOME) / "qwenvl"


def find_model(wanted: str, report: Report) -> Source:
    """The folder for a `QWENVL_MODEL` value, downloading if need be. Raises `ModelError` in one line."""
    if wanted == "demo":
        return DEMO
    if wanted == "auto":
        return _auto(report)
    if Path(wanted).is_dir():
        return Source(Path(wanted), Path(wanted).resolve().name)
    if wanted.count("/") != 1 or wanted.startswith((".", "/", "~")):
        raise ModelError(f"QWENVL_MODEL={wanted}: no such folder, and not a Hub id such as {DEFAULT_ID}")
    cached = cached_folder(wanted)
    if cached is None and not reachable(wanted):
        raise ModelError(
            f"{wanted} is not in the local cache and the Hub cannot be reached; connect, set HF_ENDPOINT to a mirror, "
            "or set QWENVL_MODEL to a folder or to demo"
        )
    return Source(cached or _fetched(wanted, report), wanted)


def _auto(report: Report) -> Source:
    cached = cached_folder(DEFAULT_ID)
    if cached is None and not reachable(DEFAULT_ID):
        log.warning(
            "%s is not in the local cache and the Hub cannot be reached: using the small demo model", DEFAULT_ID
        )
        return DEMO
    return Source(cached or _fetched(DEFAULT_ID, report), DEFAULT_ID)


def _fetched(model_id: str, report: Report) -> Path:
    download(model_id, WANTED_FILES, report)
    folder = cached_folder(model_id)
    if folder is None:
        raise ModelError(f"{model_id} has no weights that this server can read; set QWENVL_MODEL to another model")
    return folder


def cached_folder(model_id: str) -> Path | None:
    """The whole model in the Hub's local cache; None when absent or only partly there."""
    try:
        folder = Path(snapshot_download(model_id, local_files_only=True, allow_patterns=WANTED_FILES))
    except LocalEntryNotFoundError:
        return None
    index = folder / "model.safetensors.index.json"
    shards = set(json.loads(index.read_text())["weight_map"].values()) if index.is_file() else {"model.safetensors"}
    return folder if all((folder / name).is_file() for name in {*shards, "config.json"}) else None


def reachable(model_id: str) -> bool:
    """Whether the Hub (or its mirror) answers for this model, within a few seconds whatever the network does."""
    if constants.HF_HUB_OFFLINE:
        return False
    # name resolution knows no timeout, so the asking is left behind when time is up
    asking = Background(lambda: HfApi().model_info(model_id, timeout=REACH_TIMEOUT_S))
    give_up_at = time.monotonic() + REACH_TIMEOUT_S
    while not asking.done and time.monotonic() < give_up_at:
        sleep(0.02)
    if asking.error:  # name resolution, TLS, proxies, 404: all mean no
        log.info("the Hub did not answer for %s: %s", model_id, type(asking.error).__name__)
    return asking.done and asking.error is None
