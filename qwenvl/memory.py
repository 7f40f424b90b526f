"""How much memory this process may use, how much it does, and the caches' share of it.

A budget is split three ways, beside the interpreter: the weights, work (taking in requests, decoding pictures, reading
questions), and caches. Knows the settings and the files of a model folder; knows no model.
"""

import ctypes
import dataclasses
import json
import logging
import os
from contextlib import suppress
from pathlib import Path

from qwenvl.config import MIB, Settings
from qwenvl.errors import InvalidRequest

log = logging.getLogger(__name__)

CACHES = ("feature_cache_bytes", "kv_bytes", "upload_store_bytes")  # the prefix cache lives in `kv_bytes`
PART_OF_MACHINE = 0.9
BASE_BYTES = 400 * MIB  # the interpreter and its libraries
LEAST_ROOM_BYTES = 128 * MIB
WORK_PART = 0.6  # of the room beside weights and interpreter, at most
DEMO = Path(__file__).resolve().parent / "demo"
FILES_2B = 4300 * MIB  # of Qwen3-VL-2B-Instruct, in bfloat16
KV_HEADS_2B, KV_WIDTH_2B = 2 * 28 * 8, 128  # keys and values of a token: layers, heads; head width
BYTES_KEPT = {"int8": 0.55, "int4": 0.4, "bfloat16": 1.0, "none": 2.0}  # for each byte of a bfloat16 file
SPARE_TOKENS = 64  # the store of keys and values keeps a page to spare


def fit(settings: Settings, root: Path = Path("/")) -> Settings:
    """The settings with `memory_mb` filled in and all else small enough for it; raise `InvalidRequest` where it cannot.

    A limit found on the machine is only warned about, because the need of a model that is not here yet is a guess.
    """
    total = settings.memory_mb * MIB or int(limit_bytes(root) * PART_OF_MACHINE)
    weights = weights_bytes(settings)
    room = total - weights - BASE_BYTES
    if room < LEAST_ROOM_BYTES:
        need = (weights + BASE_BYTES + LEAST_ROOM_BYTES) // MIB + 1
        sentence = f"{total // MIB} MiB of memory are too little for this model: it needs about {need} MiB."
        if settings.memory_mb:
            raise InvalidRequest(f"QWENVL_MEMORY_MB: {sentence}")
        log.warning("%s", sentence)
    room = max(room, LEAST_ROOM_BYTES)
    work = min(settings.work_bytes, int(room * WORK_PART))
    sizes = _shared_out(settings, room - work)
    tokens = sizes["kv_bytes"] // kv_token_bytes(settings) - SPARE_TOKENS
    fitted = dataclasses.replace(
        settings, memory_mb=max(1, total // MIB), work_bytes=work, **sizes,
        max_context_tokens=max(64, min(settings.max_context_tokens, tokens)),
    )  # fmt: skip
    log.info("Memory: %d MiB in all, about %d for weights, %d for work, %d for caches; %d tokens fit into a question.",
             total // MIB, weights // MIB, work // MIB, sum(sizes[name] for name in CACHES) // MIB,
             fitted.max_context_tokens)  # fmt: skip
    return fitted


def _shared_out(settings: Settings, caches: int) -> dict[str, int]:
    """Sizes of the caches as they are set, or in proportion where they would be more than `caches` bytes together."""
    wanted = {name: getattr(settings, name) for name in CACHES}
    part = min(1.0, caches / max(1, sum(wanted.values())))
    sizes = {name: max(MIB, int(size * part)) if size else 0 for name, size in wanted.items()}
    return {**sizes, "prefix_cache_bytes": min(settings.prefix_cache_bytes, sizes["kv_bytes"])}


def reading_bytes(settings: Settings) -> int:
    """Work's share for questions on their way to a first token: features and what the tower lays out."""
    return int(settings.work_bytes * 0.4)


def decoding_bytes(settings: Settings) -> int:
    """Work's share for pictures that are being decoded."""
    return int(settings.work_bytes * 0.45)


def receiving_bytes(settings: Settings) -> int:
    """Work's share for requests that are coming in."""
    return int(settings.work_bytes * 0.15)


def kv_token_bytes(settings: Settings) -> int:
    """What keys and values of a token take; a model by name is taken for the 2B one."""
    try:
        config = json.loads(_text(_folder(settings) / "config.json"))
        text = config.get("text_config", config)
        heads, width = 2 * text["num_hidden_layers"] * text["num_key_value_heads"], text["head_dim"]
    except (ValueError, KeyError, TypeError, AttributeError):
        heads, width = KV_HEADS_2B, KV_WIDTH_2B
    kind = settings.kv_dtype
    if kind == "auto":
        kind = "float32" if settings.quantization == "none" else "bfloat16"
    return heads * {"float32": 4 * width, "bfloat16": 2 * width, "int8": width + 4}[kind]


def weights_bytes(settings: Settings) -> int:
    """What the weights will take, from the size of the model's files; a model by name is taken for the 2B one."""
    folder = _folder(settings)
    files = sum(path.stat().st_size for path in folder.glob("*.safetensors")) if folder.is_dir() else 0
    return int((files or FILES_2B) * BYTES_KEPT[settings.quantization])


def _folder(settings: Settings) -> Path:
    return DEMO if settings.model == "demo" else Path(settings.model)


def limit_bytes(root: Path = Path("/")) -> int:
    """The least of the machine's memory and the limits of the control groups around this process."""
    limits = [_machine_bytes(root)]
    base = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        top, name = (base, "memory.max") if controllers == "" else (base / "memory", "memory.limit_in_bytes")
        if controllers in ("", "memory"):
            folder = top / group.strip("/")
            # Inside a container the path may be the host's; the limit then lies at the top.
            for place in {folder, *folder.parents} if folder.is_relative_to(top) else {top}:
                value = _text(place / name).strip()
                if place.is_relative_to(top) and value.isdigit():
                    limits.append(int(value))
    return min(limits)


def resident_bytes() -> int:
    """Memory this process has in use; 0 where that cannot be known."""
    fields = _text(Path("/proc/self/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def give_back() -> None:
    """Return freed memory to the system. glibc keeps what lies between pieces in use: of a model just quantised over a
    gigabyte in some starts, next to nothing in others."""
    with suppress(OSError, AttributeError):  # another C library has no such function
        ctypes.CDLL(None).malloc_trim(0)


def _machine_bytes(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
