"""How much memory this process may use, how much it does, and the caches' share of it.

A budget is split three ways: the weights, work (the interpreter, decoding, activations), and what is left for caches.
Knows the settings and the files of a model folder; knows no model.
"""

import dataclasses
import logging
import os
from pathlib import Path

from qwenvl.config import MIB, Settings
from qwenvl.errors import InvalidRequest

log = logging.getLogger(__name__)

CACHES = ("feature_cache_bytes", "kv_bytes", "upload_store_bytes")  # the prefix cache lives in `kv_bytes`
PART_OF_MACHINE = 0.9
WORK_BYTES = 1024 * MIB
LEAST_CACHES_BYTES = 64 * MIB
DEMO = Path(__file__).resolve().parent / "demo"
FILES_2B = 4300 * MIB  # of Qwen3-VL-2B-Instruct, in bfloat16
BYTES_KEPT = {"int8": 0.55, "bfloat16": 1.0, "none": 2.0}  # for each byte of a bfloat16 file


def fit(settings: Settings, root: Path = Path("/")) -> Settings:
    """The settings with `memory_mb` filled in and caches small enough for it; raise `InvalidRequest` where none are.

    A limit found on the machine is only warned about, because the need of a model that is not here yet is a guess.
    """
    total = settings.memory_mb * MIB or int(limit_bytes(root) * PART_OF_MACHINE)
    weights = weights_bytes(settings)
    room = total - weights - min(WORK_BYTES, total // 3)
    if room < LEAST_CACHES_BYTES:
        need = (weights + min(WORK_BYTES, weights) + LEAST_CACHES_BYTES) // MIB
        sentence = f"{total // MIB} MiB of memory are too little for this model: it needs about {need} MiB."
        if settings.memory_mb:
            raise InvalidRequest(f"QWENVL_MEMORY_MB: {sentence}")
        log.warning("%s", sentence)
    wanted = {name: getattr(settings, name) for name in CACHES}
    part = min(1.0, max(room, LEAST_CACHES_BYTES) / max(1, sum(wanted.values())))
    sizes = {name: max(MIB, int(size * part)) if size else 0 for name, size in wanted.items()}
    sizes["prefix_cache_bytes"] = min(settings.prefix_cache_bytes, sizes["kv_bytes"])
    log.info("Memory: %d MiB in all, about %d for weights, %d for caches.",
             total // MIB, weights // MIB, sum(sizes[name] for name in CACHES) // MIB)  # fmt: skip
    return dataclasses.replace(settings, memory_mb=max(1, total // MIB), **sizes)


def weights_bytes(settings: Settings) -> int:
    """What the weights will take, from the size of the model's files; a model by name is taken for the 2B one."""
    folder = DEMO if settings.model == "demo" else Path(settings.model)
    files = sum(path.stat().st_size for path in folder.glob("*.safetensors")) if folder.is_dir() else 0
    return int((files or FILES_2B) * BYTES_KEPT[settings.quantization])


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
