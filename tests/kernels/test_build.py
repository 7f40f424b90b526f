"""The build: once, whole or not at all, one line without a compiler; and what happens where there is no library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qwenvl import kernels
from qwenvl.kernels import build

ROOT = Path(__file__).resolve().parents[2]
needs_compiler = pytest.mark.skipif(not kernels.supported(), reason="no kernels of our own here")


def python(code: str, **environ: str) -> subprocess.CompletedProcess:
    """A process of its own, in which nothing is loaded yet."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


@needs_compiler
def test_the_second_build_does_nothing():
    build.build()
    before = build.LIBRARY.stat()
    assert "up to date" in build.build()
    assert build.LIBRARY.stat() == before


def test_without_a_compiler_one_line_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "qwenvl.kernels.build"],
        cwd=ROOT, env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "no C++ compiler" in done.stderr


def test_a_failing_compiler_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setattr(build, "OUT", tmp_path / "out")
    monkeypatch.setattr(build, "LIBRARY", tmp_path / "out" / "kernels.so")
    with pytest.raises(build.BuildError, match="failed"):
        build.build()
    assert list((tmp_path / "out").iterdir()) == []


def test_the_fingerprint_follows_sources_and_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    (tmp_path / "one.cpp").write_text("int a;")
    first = build.fingerprint("c++", False)
    assert build.fingerprint("c++", False) == first
    assert build.fingerprint("c++", True) != first and build.fingerprint("false", False) != first
    (tmp_path / "one.cpp").write_text("int b;")
    assert build.fingerprint("c++", False) != first


USE_EVERYTHING = """
import logging, sys, torch
from pathlib import Path
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
from qwenvl.kernels import library
if {path!r}:
    library.PATH = Path({path!r})
from qwenvl import kernels
from qwenvl.engine.attention import full_attention, paged_attention
from qwenvl.engine.linear import Int8Linear, quantize_rows
x = torch.randn(5, 64)
assert Int8Linear(*quantize_rows(torch.randn(70, 64)))(x).shape == (5, 70)
q, store = torch.randn(5, 4, 32), torch.randn(2, 128, 32).bfloat16()
assert paged_attention(q, store, store, [torch.tensor([1], dtype=torch.int32)], [60], [5]).shape == (5, 128)
assert full_attention(q, q, q).shape == (5, 128)
print("available", kernels.available(), kernels.current())
"""


@pytest.mark.parametrize("what", ["missing", "broken"])
def test_without_the_library_torch_serves_and_one_line_says_so(tmp_path, what):
    path = tmp_path / "kernels.so"
    if what == "broken":
        path.write_bytes(b"no library")
    done = python(USE_EVERYTHING.format(path=str(path)), QWENVL_ISA="")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[-1] == "available False None"
    assert len(said) == 2 and "running on torch's operators" in said[0]


@needs_compiler
def test_the_environment_chooses_the_instruction_set():
    for isa in kernels.supported():
        assert python(USE_EVERYTHING.format(path=""), QWENVL_ISA=isa).stdout.splitlines()[-1] == f"available True {isa}"
    assert python(USE_EVERYTHING.format(path=""), QWENVL_ISA="stock").stdout.splitlines()[-1] == "available False None"


def test_a_set_that_cannot_run_is_not_used(caplog):
    before = kernels.current()
    try:
        for isa in {"avx2", "avx_vnni", "avx512_vnni"} - set(kernels.supported()):
            kernels.use(isa)
            assert not kernels.available() and isa in caplog.text
        with pytest.raises(ValueError, match="must be one of"):
            kernels.use("sse2")
    finally:
        kernels.use(before or "stock")


POOL = """
import os, re, torch
from qwenvl.kernels import panels
torch.set_num_threads(3)
torch.randn(1 << 20).add(1)
threads = len(os.listdir("/proc/self/task"))
weight = torch.ones(640, 64, dtype=torch.int8)
panels.multiply(torch.ones(64, 64), panels.pack(weight), torch.ones(640), None, 640)
libraries = set(re.findall(r"/\\S*lib[gi]?omp\\S*", open("/proc/self/maps").read()))
print(len(os.listdir("/proc/self/task")) - threads, len(libraries), *libraries)
"""


@needs_compiler
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux shows it")
def test_one_process_has_one_pool_of_threads():
    """Two OpenMP runtimes would keep two pools, spinning against each other."""
    done = python(POOL)
    more_threads, libraries, *names = done.stdout.split()
    assert (more_threads, libraries) == ("0", "1"), (names, done.stderr)


@needs_compiler
def test_kernels_are_clean_under_the_sanitizers():
    """Address and undefined-behaviour checks over every kernel of this CPU, on odd shapes in memory of exact size."""
    build.build(sanitize=True)
    done = subprocess.run([build.DRIVER], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("right") >= len(kernels.supported())
