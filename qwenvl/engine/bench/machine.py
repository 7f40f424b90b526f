"""What this machine gives: read bandwidth, products a second, memory. Measured in every run, because on a shared
machine only ratios of one run mean anything. Knows no model."""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch

from qwenvl.engine.linear import FloatLinear, Int8Linear, quantize_rows
from qwenvl.errors import QwenVLError

# a prompt with a 1024x768 picture, times the widest matrix of a 2B model's layer
PRODUCT_ROWS, PRODUCT_SHAPE = 768, (12288, 2048)


def read_bandwidth_gb_s(size: int = 512 << 20) -> float:
    """Sums over `size` bytes, more than any cache holds."""
    data = torch.ones(size // 4, dtype=torch.float32)
    return size / best_of(data.sum) / 1e9


@torch.inference_mode()
def peak_gop_s(quantization: str) -> float:
    """Operations a second, in units of 1e9, of the engine's own product on many rows (a multiply-add counts two).

    Of int4 that is int8's, which its vision tower uses and which its own products are no faster than.
    """
    weight = torch.randn(PRODUCT_SHAPE, generator=torch.Generator().manual_seed(0))
    if quantization in ("int8", "int4"):
        product = Int8Linear(*quantize_rows(weight))
    else:
        product = FloatLinear(weight.bfloat16() if quantization == "bfloat16" else weight)
    rows = torch.randn(PRODUCT_ROWS, PRODUCT_SHAPE[1])
    return 2 * PRODUCT_ROWS * weight.numel() / best_of(lambda: product(rows)) / 1e9


def best_of(call: Callable[[], object], tries: int = 5) -> float:
    """Seconds of the fastest of several calls: what others on the machine do makes them slower, never faster."""
    best = float("inf")
    for _ in range(tries):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best


def peak_rss_gb() -> float:
    """Peak resident memory in GB since the last look, or of the whole process where the kernel keeps no such count."""
    try:
        status = Path("/proc/self/status").read_text()
        Path("/proc/self/clear_refs").write_text("5")
        peak_kib = int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak_kib * 1024 / 1e9, 2)


def free_gb() -> float:
    """Memory that can be had without swapping, in GB; infinite where the kernel does not say."""
    try:
        return int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) * 1024 / 1e9
    except (OSError, IndexError):
        return float("inf")


def require_gb(need: float) -> None:
    """Raise `QwenVLError` rather than let the kernel end a process, perhaps somebody else's."""
    if (free := free_gb()) < need:
        raise QwenVLError(f"needs about {need:.1f} GB of memory, {free:.1f} GB are free")
