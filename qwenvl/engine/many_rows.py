"""Products that always have many rows, those of the vision tower: whether oneDNN does them faster than our own kernels.

Where the CPU has AMX, whose tiles torch reaches through oneDNN and our kernels do not use, that is measured once on
this machine and kept beside the quantised weights. Everywhere else ours are faster (see docs/log.md) and nothing is
measured. Knows products and seconds, nothing of towers.
"""

import json
import logging
import platform
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from qwenvl import kernels
from qwenvl.engine.linear import Int8Linear, Panels, finish, replaced
from qwenvl.kernels import panels as own

log = logging.getLogger(__name__)

FILE = "many-rows.json"
ROWS, OUTPUTS, INPUTS = 768, 4096, 1024  # a quarter of the rows of a picture, through the widest matrix of the tower
ROUNDS = 5
ZERO = 128  # what a row's nought is to oneDNN
WORTH = 0.9  # of our own time: what a second form of the weights has to save


class OneDNN:
    """int8 weights as oneDNN packs them; activations per row, the same integers and scales as everywhere."""

    limit, bits = 127, 8

    def __init__(self, weight: Tensor, scale: Tensor):
        """`weight` int8 [N, K], `scale` float32 [N]."""
        self.scale, self.inputs, self.out_features = scale, weight.shape[1], len(scale)
        self.packed = torch.ops.onednn.qlinear_prepack(weight.contiguous(), None)
        self.nbytes = weight.nbytes + scale.nbytes
        self._zeros = torch.zeros(len(scale), dtype=torch.long)

    @staticmethod
    def prepared(values: Tensor) -> Tensor:
        return values

    def stored(self) -> dict[str, Tensor]:
        return {"panels": own.pack(self.packed.to_dense().t()), "scale": self.scale}

    def task(self, bias: Tensor | None, inputs: int) -> None:
        return None

    def __call__(self, x: Tensor, bias: Tensor | None, gelu: bool, residual: Tensor | None) -> Tensor:
        scale = x.abs().amax(1, keepdim=True).div_(self.limit).clamp_(min=1e-30)
        # unsigned around 128: for signed rows oneDNN falls back to plain loops, a thousand times slower
        rows = F.pad((x / scale).round_().add_(ZERO), (0, self.inputs - x.shape[1]), value=ZERO).to(torch.uint8)
        y = torch.ops.onednn.qlinear_pointwise(
            rows, 1.0, ZERO, self.packed, self.scale, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        ).mul_(scale)
        return finish(y if bias is None else y.add_(bias), gelu, residual)


def has_amx() -> bool:
    return torch.cpu._is_amx_tile_supported()


def cpu_name() -> str:
    """As Linux calls it; elsewhere what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def onednn_is_faster(kept: Path | None) -> bool:
    """Whether oneDNN should multiply many rows here: measured the first time, read from the folder `kept` after."""
    if not (has_amx() and kernels.available()):
        return False
    machine = f"{cpu_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    file = kept / FILE if kept else None
    known = _read(file) if file else {}
    if machine not in known:
        known[machine] = measured()
        if file:
            _write(file, known)
    times = known[machine]
    faster = times["onednn_s"] < WORTH * times["own_s"]
    log.info(
        "many rows of int8 at once: oneDNN %.2f of our own kernels' time, so the vision tower runs on %s",
        times["onednn_s"] / times["own_s"], "oneDNN" if faster else "ours",
    )  # fmt: skip
    return faster


def measured() -> dict[str, float]:
    """Seconds of one product of many rows, the best of some rounds, in our own kernels and in oneDNN."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, INPUTS, generator=generator)
    weight = torch.randint(-127, 128, (OUTPUTS, INPUTS), dtype=torch.int8, generator=generator)
    forms = {"own_s": Panels.of(weight, torch.ones(OUTPUTS)), "onednn_s": OneDNN(weight, torch.ones(OUTPUTS))}
    times: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, form in forms.items():
            started = time.perf_counter()
            form(x, None, False, None)
            times[name] = min(times.get(name, 1e9), time.perf_counter() - started)
    return times


def moved(part: Any) -> Any:
    """A tower with every product of our own kernels moved to oneDNN."""
    return replaced(part, Int8Linear, lambda linear: _moved(linear) if isinstance(linear.matrix, Panels) else linear)


def kernel_names(tower: Any) -> dict[str, str]:
    """For /health: what multiplies a tower's matrices, where that is not what multiplies all others."""
    product = tower.blocks[0].qkv
    return {"vision_int8": "onednn"} if isinstance(getattr(product, "matrix", None), OneDNN) else {}


def _moved(linear: Int8Linear) -> Int8Linear:
    matrix = OneDNN(own.unpack(linear.matrix.panels, linear.out_features), linear.matrix.scale)
    return Int8Linear.holding(matrix, None if linear.bias is None else linear.bias[: linear.out_features])


def _read(file: Path) -> dict:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return {}


def _write(file: Path, known: dict) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(known, indent=1) + "\n")
    except OSError as error:
        log.info("which kernel is faster is not kept: %s", error.strerror)
