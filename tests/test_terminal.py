"""`python -m qwenvl ask` in a process of its own, with the demo model."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT, png


def run(*arguments, **environment):
    environment = {**os.environ, "QWENVL_MODEL": "demo", "QWENVL_LOG_LEVEL": "WARNING", **environment}
    command = [sys.executable, "-m", "qwenvl", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "发票.PNG"
    path.write_bytes(png("red", (200, 160)))
    return str(path)


def test_ask_prints_the_answer_alone(picture):
    done = run("ask", picture, "What color is this picture?", "--max-new-tokens", "20")
    assert done.returncode == 0, done.stderr
    assert "red" in done.stdout and len(done.stdout.strip().splitlines()) == 1
    assert "tokens/s" in done.stderr


def test_ask_without_a_question_describes(picture):
    done = run("ask", picture)
    assert done.returncode == 0 and "红色" in done.stdout


@pytest.mark.parametrize(
    "arguments,environment,said",
    [
        (("ask", "missing.png", "x"), {}, "missing.png"),
        (("ask", "PICTURE", "x", "--temperature", "9"), {}, "temperature"),
        (("ask", "PICTURE", "x"), {"QWENVL_MODEL": "/no/such/folder"}, "/no/such/folder"),
        (("ask", "PICTURE", "x"), {"QWENVL_THREADS": "many"}, "QWENVL_THREADS"),
    ],
)
def test_errors_are_one_line(picture, arguments, environment, said):
    done = run(*(picture if a == "PICTURE" else a for a in arguments), **environment)
    assert done.returncode == 1 and done.stdout == ""
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("qwenvl: ") and said in line and "Traceback" not in done.stderr
