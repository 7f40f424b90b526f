"""Compiles the kernels: `python -m qwenvl.kernels.build`. Knows compilers and files, nothing of what is computed.

The library has one file of code for each instruction set, compiled with that set's flags alone, so it runs on any CPU
of the architecture and chooses when it is loaded. It is linked with the very copy of libgomp that torch brings: two
OpenMP runtimes in one process would keep two pools of threads spinning against each other.

Without a compiler one line says so and the exit status is 0: the server then runs on torch's own operators.
"""

import argparse
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES, OUT = HERE / "src", HERE / "_build"
LIBRARY, DRIVER = OUT / "libqwenvl_kernels.so", OUT / "sanitized_driver"

# ties, NaN and the order of additions are part of what the tests hold: no -ffast-math, no silent fused multiply-add
FLAGS = (
    "-std=c++17 -fopenmp -fPIC -fvisibility=hidden -fno-strict-aliasing -ffp-contract=off -fno-math-errno "
    "-fno-trapping-math -Wall -Wextra -Wno-unknown-pragmas"
).split()
OPTIMISE = ("-O3",)
SANITIZE = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer".split()
AVX2 = "-mavx2 -mfma -mf16c"
AVX512 = AVX2 + " -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx512vnni -mprefer-vector-width=512"
# file of code -> (macro that says it is there, its flags)
SETS = {
    "attention_avx2": ("QK_AVX2", AVX2),
    "attention_avx512": ("QK_AVX512_VNNI", AVX512),
    "attention_bf16": ("QK_AVX512_BF16", AVX512 + " -mavx512bf16"),
    "decoder_avx2": ("QK_AVX2", AVX2),
    "decoder_avx512": ("QK_AVX512_VNNI", AVX512),
    "linear_avx2": ("QK_AVX2", AVX2),
    "linear_avxvnni": ("QK_AVX_VNNI", AVX2 + " -mavxvnni"),
    "linear_avx512": ("QK_AVX512_VNNI", AVX512),
}
X86 = ("x86_64", "amd64")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m qwenvl.kernels.build", description=__doc__.splitlines()[0])
    parser.add_argument("--sanitize", action="store_true", help="a test driver with address and undefined checks")
    sanitize = parser.parse_args().sanitize
    try:
        print(build(sanitize))
    except BuildError as error:
        print(f"kernels: {error}; the server runs on torch's own operators, slower", file=sys.stderr)


class BuildError(Exception):
    """Why there is no library, in one line."""


def build(sanitize: bool = False) -> str:
    """Compile what has changed; a line that says what was done. Raises `BuildError`."""
    compiler = find_compiler()
    target = DRIVER if sanitize else LIBRARY
    stamp, mark = fingerprint(compiler, sanitize), target.with_suffix(".stamp")
    if target.is_file() and mark.is_file() and mark.read_text() == stamp:
        return f"kernels: {target.name} is up to date"
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUT) as scratch:
        made = compile_all(compiler, Path(scratch), sanitize)
        # whoever has the old file open keeps it; nobody ever sees half a file
        mark.unlink(missing_ok=True)
        os.replace(made, target)
    mark.write_text(stamp)
    return f"kernels: {target.name} built with {compiler}"


def find_compiler() -> str:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return name
    raise BuildError("no C++ compiler found")


def find_openmp() -> list[str]:
    """What to link for OpenMP: torch's own copy of libgomp if it has one, else the compiler's."""
    spec = importlib.util.find_spec("torch")
    for folder in spec.submodule_search_locations if spec else ():
        inside, beside = Path(folder, "lib"), Path(folder).with_name("torch.libs")
        found = sorted([*inside.glob("libgomp*.so*"), *beside.glob("libgomp*.so*")])
        if found:
            return [str(found[0])]
    return ["-fopenmp"]


def fingerprint(compiler: str, sanitize: bool) -> str:
    """Changes with the sources, the flags, the compiler and torch's OpenMP."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    parts = [version, platform.machine(), str(find_openmp()), str(sanitize), Path(__file__).read_text()]
    parts += [f"{path.name}\n{path.read_text()}" for path in sorted(SOURCES.iterdir())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compile_all(compiler: str, scratch: Path, sanitize: bool) -> Path:
    """Every file to an object, side by side, and all linked: the path of what came out."""
    sets = {name: flags for name, flags in SETS.items() if platform.machine().lower() in X86}
    sets = {name: (macro, flags) for name, (macro, flags) in sets.items() if knows(compiler, flags)}
    macros = [f"-D{macro}" for macro, _ in sets.values()]
    names = [path.stem for path in sorted(SOURCES.glob("*.cpp"))]
    names = [name for name in names if name in sets or (name not in SETS and (name != "driver" or sanitize))]
    base = [compiler, *FLAGS, *(SANITIZE if sanitize else OPTIMISE), *macros]

    def compile_one(name: str) -> str:
        out = scratch / f"{name}.o"
        run([*base, *sets.get(name, ("", ""))[1].split(), "-c", str(SOURCES / f"{name}.cpp"), "-o", str(out)])
        return str(out)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, names))
    made = scratch / "made"
    if sanitize:
        run([compiler, *SANITIZE, "-fopenmp", *objects, "-o", str(made)])
    else:
        run([compiler, "-shared", *objects, *find_openmp(), "-o", str(made)])
    return made


def knows(compiler: str, flags: str) -> bool:
    """Whether the compiler has the flags of an instruction set."""
    command = [compiler, *flags.split(), "-x", "c++", "-fsyntax-only", "-"]
    return subprocess.run(command, input="", capture_output=True, text=True, check=False).returncode == 0


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command[-4:])} failed: {(done.stderr.strip() or 'no reason given')[-2000:]}")


if __name__ == "__main__":
    main()
