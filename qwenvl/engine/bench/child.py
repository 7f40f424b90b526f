"""A measurement in a process of its own: a job goes in as JSON, its figures come back as JSON. Knows no engine.

Whatever happens to the child, the parent gets a dict; `error` in it says in a sentence why there are no figures.
"""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import qwenvl
from qwenvl.errors import QwenVLError

ROOT = Path(qwenvl.__file__).parents[1]


def say(text: str) -> None:
    """A line of progress on standard error; on a terminal it overwrites the one before."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def run_child(module: str, job: dict) -> dict:
    """Run `python -m module` on a job. Its progress goes to the same terminal."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", module, json.dumps(job)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
    if done.returncode < 0:
        return {"error": f"ended by signal {-done.returncode}, most likely for want of memory"}
    try:
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        return {"error": f"ended with status {done.returncode} and no figures"}


def answer_job(work: Callable[[dict], dict]) -> None:
    """What a child's module does: its one job, whose figures or error are the last line of output."""
    warnings.simplefilter("ignore")
    with suppress(OSError):
        # if memory runs out after all, this process is the one to go
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        result = work(json.loads(sys.argv[1]))
    except QwenVLError as error:
        result = {"error": str(error)}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"}
    print(json.dumps(result))
