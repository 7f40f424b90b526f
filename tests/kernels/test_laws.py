"""The engine's laws hold over every set of kernels that this CPU has, and over torch's own operators."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qwenvl import kernels

ROOT = Path(__file__).resolve().parents[2]
LAWS = [f"tests/engine/test_{name}.py" for name in ("engine", "prefix", "speculation")]
# the best one is what all other tests run on, and plain C++ is compared with each set by itself: slow, and the same
OTHERS = [(isa, "int8") for isa in (*kernels.supported()[1:-1], "stock") if isa != kernels.current()]
FOUR_BITS = [(isa, "int4") for isa in kernels.supported()[1:]]


def keep(**environ: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *LAWS]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize(("isa", "quantization"), OTHERS + FOUR_BITS)
def test_laws(isa, quantization):
    keep(QWENVL_ISA=isa, QWENVL_QUANTIZATION=quantization)


@pytest.mark.parametrize("isa", dict.fromkeys([kernels.current() or "stock", "stock"]))
def test_laws_with_keys_and_values_in_int8(isa):
    keep(QWENVL_ISA=isa, QWENVL_KV_DTYPE="int8")
