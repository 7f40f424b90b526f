"""What `make`, CI and the Dockerfile build on: pinned requirements, a lock file without hosts, one worker only."""

import importlib.metadata
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
REQUIREMENTS = ("requirements.txt", "requirements-dev.txt", "requirements-plot.txt")


def requirements(name):
    lines = (line.strip() for line in (ROOT / name).read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-r"))]


def gunicorn_settings(monkeypatch, **environ):
    for name in ("WEB_CONCURRENCY", "HOST", "PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return runpy.run_path(str(ROOT / "gunicorn.conf.py"))


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_every_requirement_is_pinned_and_is_what_the_tests_run_with(name):
    for wanted in requirements(name):
        (pin,) = wanted.specifier
        assert pin.operator == "==", wanted
        if wanted.marker is None or wanted.marker.evaluate():
            assert wanted.specifier.contains(importlib.metadata.version(wanted.name)), wanted


def test_each_python_has_one_pin_of_each_package():
    for version in ("3.10", "3.11", "3.14"):
        environment = {"python_version": version, "python_full_version": f"{version}.0"}
        pins = [pin for name in REQUIREMENTS for pin in requirements(name)]
        names = [pin.name for pin in pins if pin.marker is None or pin.marker.evaluate(environment)]
        assert len(names) == len(set(names))


def test_the_page_script_is_pinned_and_its_lock_names_no_host():
    wanted = json.loads((ROOT / "package.json").read_text())["dependencies"]
    text = (ROOT / "package-lock.json").read_text()
    locked = json.loads(text)["packages"]
    assert all(locked[f"node_modules/{name}"]["version"] == version for name, version in wanted.items())
    assert all("integrity" in package for path, package in locked.items() if path)
    assert "resolved" not in text and "://" not in text


def test_gunicorn_listens_where_host_and_port_say(monkeypatch):
    assert gunicorn_settings(monkeypatch)["bind"] == "127.0.0.1:5000"
    assert gunicorn_settings(monkeypatch, HOST="::", PORT="8080")["bind"] == "[::]:8080"
    with pytest.raises(SystemExit, match="PORT must be a whole number"):
        gunicorn_settings(monkeypatch, PORT="http")


def test_a_second_worker_is_refused_with_the_reason(monkeypatch):
    assert gunicorn_settings(monkeypatch, WEB_CONCURRENCY="1")["workers"] == 1
    with pytest.raises(SystemExit, match="one process owns the model"):
        gunicorn_settings(monkeypatch, WEB_CONCURRENCY="2")
    started_with_two = SimpleNamespace(cfg=SimpleNamespace(workers=2))
    with pytest.raises(SystemExit, match="one process owns the model"):
        gunicorn_settings(monkeypatch)["on_starting"](started_with_two)
