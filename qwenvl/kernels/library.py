"""The compiled kernels as a library in this process, and which instruction set is used. Knows C signatures, no shapes.

Never compiles: that is `qwenvl.kernels.build`, run by `make`.
"""

import ctypes
import logging
import os
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

log = logging.getLogger(__name__)

PATH = Path(__file__).resolve().parent / "_build" / "libqwenvl_kernels.so"
INTERFACE = 5
# numbers as in src/cpu.h, best last
SETS = ("plain", "avx2", "avx_vnni", "avx512_vnni")
BFLOAT16_BIT = 4


class LinearTask(ctypes.Structure):
    """`qk::Linear` of src/linear.h."""

    _fields_ = [
        ("x", c_void_p), ("x_stride", c_int64), ("panels", c_void_p), ("scale", c_void_p), ("bias", c_void_p),
        ("residual", c_void_p), ("out", c_void_p), ("M", c_int64), ("N", c_int64), ("K", c_int64),
        ("activation", c_int32), ("threads", c_int32), ("before", c_int32), ("eps", c_float), ("norm", c_void_p),
        ("format", c_int32),
    ]  # fmt: skip


class PagedTask(ctypes.Structure):
    """`qk::Paged` of src/attention.h."""

    _fields_ = [
        ("q", c_void_p), ("q_row", c_int64), ("q_head", c_int64), ("keys", c_void_p), ("values", c_void_p),
        ("head", c_int64), ("row", c_int64), ("kind", c_int32), ("threads", c_int32), ("pages", c_void_p),
        ("lengths", c_void_p), ("rows", c_void_p), ("out", c_void_p), ("B", c_int64), ("H", c_int64), ("G", c_int64),
        ("D", c_int64), ("key_scales", c_void_p), ("value_scales", c_void_p), ("scale_head", c_int64),
    ]  # fmt: skip


class FullTask(ctypes.Structure):
    """`qk::Full` of src/attention.h."""

    _fields_ = [
        ("q", c_void_p), ("k", c_void_p), ("v", c_void_p), ("q_row", c_int64), ("q_head", c_int64),
        ("k_row", c_int64), ("k_head", c_int64), ("v_row", c_int64), ("v_head", c_int64), ("out", c_void_p),
        ("T", c_int64), ("S", c_int64), ("H", c_int64), ("D", c_int64), ("threads", c_int32),
    ]  # fmt: skip


class RmsNormTask(ctypes.Structure):
    """`qk::RmsNorm` of src/decoder.h."""

    _fields_ = [
        ("x", c_void_p), ("weight", c_void_p), ("out", c_void_p), ("M", c_int64), ("K", c_int64), ("eps", c_float),
        ("threads", c_int32),
    ]  # fmt: skip


class SiluMulTask(ctypes.Structure):
    """`qk::SiluMul` of src/decoder.h."""

    _fields_ = [("gate_up", c_void_p), ("out", c_void_p), ("M", c_int64), ("I", c_int64), ("threads", c_int32)]


class PlaceTask(ctypes.Structure):
    """`qk::Place` of src/decoder.h."""

    _fields_ = [
        ("qkv", c_void_p), ("q_norm", c_void_p), ("k_norm", c_void_p), ("cos", c_void_p), ("sin", c_void_p),
        ("slots", c_void_p), ("q", c_void_p), ("keys", c_void_p), ("values", c_void_p), ("head", c_int64),
        ("M", c_int64), ("H", c_int64), ("G", c_int64), ("D", c_int64), ("eps", c_float), ("kind", c_int32),
        ("threads", c_int32), ("key_scales", c_void_p), ("value_scales", c_void_p), ("scale_head", c_int64),
    ]  # fmt: skip


class LayerWeights(ctypes.Structure):
    """`qk::Layer` of src/layers.h."""

    _fields_ = [
        ("norm1", c_void_p), ("q_norm", c_void_p), ("k_norm", c_void_p), ("norm2", c_void_p), ("qkv", LinearTask),
        ("out", LinearTask), ("gate_up", LinearTask), ("down", LinearTask), ("norm_eps", c_float),
        ("head_eps", c_float),
    ]  # fmt: skip


class LayersTask(ctypes.Structure):
    """`qk::Layers` of src/layers.h."""

    _fields_ = [
        ("layers", c_void_p), ("count", c_int64), ("x", c_void_p), ("M", c_int64), ("cos", c_void_p),
        ("sin", c_void_p), ("slots", c_void_p), ("layer_bytes", c_int64), ("attention", PagedTask),
        ("scale_layer", c_int64),
    ]  # fmt: skip


SIGNATURES = {
    "qk_rms_norm": (None, [c_int32, POINTER(RmsNormTask)]),
    "qk_silu_mul": (None, [c_int32, POINTER(SiluMulTask)]),
    "qk_place": (None, [c_int32, POINTER(PlaceTask)]),
    "qk_sets": (ctypes.c_uint32, []),
    "qk_pack": (None, [c_void_p, c_int64, c_int64, c_void_p, c_int32]),
    "qk_layers": (c_int32, [c_int32, POINTER(LayersTask)]),
    "qk_pack_nibbles": (None, [c_void_p, c_int64, c_int64, c_void_p, c_int32]),
    "qk_linear": (c_int32, [c_int32, POINTER(LinearTask)]),
    "qk_paged": (c_int32, [c_int32, POINTER(PagedTask)]),
    "qk_full": (c_int32, [POINTER(FullTask)]),
}


@cache
def library() -> ctypes.CDLL | None:
    """The library, or None (with one line in the log) when it is missing or broken."""
    try:
        import torch  # noqa: F401  its OpenMP has to be in the process before what is linked with it; slow to import

        loaded = ctypes.CDLL(str(PATH))
        found = loaded.qk_interface()
        if found != INTERFACE:
            raise OSError(f"interface {found} where {INTERFACE} is wanted: run `make setup`")
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        return loaded
    except (OSError, AttributeError) as error:
        reason = error if PATH.is_file() else "not built"
        log.info("no kernels of our own, running on torch's operators: %s", reason)
        return None


def supported() -> tuple[str, ...]:
    """The instruction sets that are compiled and that this CPU has, best last. Empty without the library."""
    bits = library().qk_sets() if library() else 0
    return tuple(name for number, name in enumerate(SETS) if bits >> number & 1)


def has_bfloat16() -> bool:
    """Whether attention may multiply in bfloat16: the CPU can, and no other instruction set was asked for."""
    return current() == "avx512_vnni" and bool(library() and library().qk_sets() >> BFLOAT16_BIT & 1)


@cache
def best() -> str | None:
    """The best set for this CPU; None where torch's operators serve better: no library, or nothing but plain C++."""
    have = supported()
    return have[-1] if have and have[-1] != "plain" else None


class Choice:
    """The instruction set in use, or None for torch's operators; looked at in every product, so it is an attribute."""

    def __init__(self):
        self.name: str | None = None
        self.made = False


CHOICE = Choice()


def use(isa: str) -> None:
    """Force one instruction set: a name of `SETS`, `stock` for torch's operators, or "" for the best."""
    if isa not in ("", "stock", *SETS):
        raise ValueError(f"the instruction set must be one of {', '.join(SETS)} or stock, not {isa!r}")
    if isa in SETS and isa not in supported():
        log.warning("%s kernels were asked for, but cannot run here: running on torch's operators", isa)
    CHOICE.name = best() if isa == "" else isa if isa in supported() else None
    CHOICE.made = True


def current() -> str | None:
    """The instruction set in use, or None for torch's operators."""
    if not CHOICE.made:
        use(os.environ.get("QWENVL_ISA", ""))
    return CHOICE.name


def available() -> bool:
    """Whether our own kernels serve."""
    return current() is not None


def set_number() -> int:
    """The number of the set in use, as the library wants it."""
    name = current()
    if name is None:
        raise RuntimeError("no kernels of our own here: ask available() first")
    return SETS.index(name)
