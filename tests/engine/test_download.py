"""The model's download, from a Hub on this machine: figures, going on after a cut or a kill, starting without it."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from qwenvl.engine import download as download_module
from qwenvl.engine import hub
from qwenvl.engine.download import Rate
from qwenvl.errors import ModelError
from tests.conftest import wait_until
from tests.fake_hub import FakeHub

ROOT = Path(__file__).parents[2]
DEAD = "http://127.0.0.1:9"  # nobody listens there


@pytest.fixture
def the_hub():
    fake = FakeHub()
    yield fake
    fake.close()


@pytest.fixture
def cache(the_hub, tmp_path, monkeypatch):
    """An empty cache of this process's own, and the fake as its Hub."""
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    for module in {sys.modules[name] for name in sys.modules if name.startswith("huggingface_hub")}:
        for name in ("ENDPOINT", "HUGGINGFACE_CO_URL_TEMPLATE"):
            if isinstance(old := module.__dict__.get(name), str):
                monkeypatch.setitem(module.__dict__, name, old.replace("https://huggingface.co", the_hub.url))
    monkeypatch.setattr(download_module, "REPORT_EVERY_S", 0.02)
    return tmp_path / "hub"


class Reports(list):
    def __call__(self, stage, fraction, transfer=None):
        self.append((stage, fraction, transfer))


def same_files(folder: Path, fake: FakeHub) -> bool:
    wanted = {name: data for name, data in fake.files.items() if name.endswith((".json", ".jinja", ".safetensors"))}
    return {path.name: path.read_bytes() for path in folder.iterdir()} == wanted


def test_a_model_is_fetched_with_bytes_rate_and_no_more_than_its_files(the_hub, cache):
    the_hub.rate_bytes_s = 20e6
    reports = Reports()
    source = hub.find_model("auto", reports)
    assert source.name == hub.DEFAULT_ID and not source.demo
    assert same_files(source.folder, the_hub)
    total = sum(len(data) for name, data in the_hub.files.items() if (source.folder / name).exists())
    transfers = [transfer for _, _, transfer in reports]
    assert transfers and {transfer.bytes_total for transfer in transfers} == {total}
    done = [transfer.bytes_done for transfer in transfers]
    assert done == sorted(done) and 0 < done[len(done) // 2] < total
    assert 5e6 < transfers[len(done) // 2].rate_bytes_s < 40e6
    assert all(fraction == transfer.bytes_done / total for _, fraction, transfer in reports)
    assert the_hub.sent_bytes == total


def test_a_cut_connection_goes_on_by_itself_where_it_stopped(the_hub, cache):
    the_hub.cut_at = 3_000_000
    source = hub.find_model("auto", Reports())
    assert the_hub.begun(the_hub.large) == [0, 3_000_000]
    assert same_files(source.folder, the_hub)


def test_a_hub_that_knows_no_parts_is_asked_for_the_whole_again(the_hub, cache):
    the_hub.cut_at, the_hub.ranges = 3_000_000, False
    source = hub.find_model("auto", Reports())
    assert the_hub.begun(the_hub.large) == [0, 0]
    assert same_files(source.folder, the_hub)


def test_a_part_that_is_not_of_this_file_is_found_out(the_hub, cache):
    """As after a damaged disk: the whole does not have the promised SHA-256, so it is fetched once more."""
    blob = download_module.Blob(hub.DEFAULT_ID, the_hub.large, "main", cache / "models--Qwen--Qwen3-VL-2B-Instruct")
    blob.part.parent.mkdir(parents=True)
    blob.part.write_bytes(b"x" * 1000)
    source = hub.find_model("auto", Reports())
    assert the_hub.begun(the_hub.large) == [1000, 0]
    assert same_files(source.folder, the_hub)


def test_a_disk_too_small_is_said_before_anything_is_fetched(the_hub, cache, monkeypatch):
    monkeypatch.setattr(download_module.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(ModelError, match=r"needs 0\.0 GB more in .* make room, or set HF_HOME"):
        hub.find_model("auto", Reports())
    assert not the_hub.gets


def test_a_model_that_wants_a_token_is_one_clear_line(the_hub, cache):
    the_hub.refuses = True
    with pytest.raises(ModelError, match=r"the Hub says 401; .* \(HF_TOKEN\)\?$"):
        hub.find_model("auto", Reports())


def test_a_hub_that_falls_silent_is_given_up_and_what_came_stays(the_hub, cache, monkeypatch):
    monkeypatch.setattr(download_module, "GIVE_UP_S", 0.5)
    monkeypatch.setattr(download_module, "LONGEST_PAUSE_S", 0.2)
    the_hub.rate_bytes_s = 4e6

    def report(stage, fraction, transfer=None):
        if transfer.bytes_done > 1_000_000:
            the_hub.files[the_hub.large] = b""  # from now on it does not have that file's bytes

    the_hub.cut_at = 2_000_000
    with pytest.raises(ModelError, match="start again to go on where it stopped"):
        hub.find_model("auto", report)
    parts = list(cache.rglob("*.incomplete"))
    assert len(parts) == 1 and parts[0].stat().st_size == 2_000_000


def test_the_rate_is_that_of_the_last_seconds(monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0])
    monkeypatch.setattr(download_module.time, "monotonic", lambda: next(clock))
    rate = Rate()
    assert [rate.after(done) for done in (0, 500, 1000, 1000, 1000, 1000, 1000)] == [0, 100, 100, 50, 0, 0, 0]


# Under gunicorn, as `make run` starts it, in a process that can be killed.


class Starting:
    """A server whose model comes from this Hub, or from nowhere."""

    def __init__(self, home: Path, endpoint: str, **environ):
        self.port = free_port()
        environ = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "QWENVL_MODEL": "auto", **environ}
        command = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "1", "--log-level", "warning",
                   "--no-control-socket", "--bind", f"127.0.0.1:{self.port}", "app:create_app()"]  # fmt: skip
        self.process = subprocess.Popen(command, cwd=ROOT, env=environ, start_new_session=True)

    def health(self) -> dict:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return json.load(error)
        except OSError:
            return {}

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_killed_first_start_a_second_that_goes_on_and_a_third_without_a_network(the_hub, tmp_path):
    the_hub.rate_bytes_s = 2.5e6
    servers = [Starting(tmp_path, the_hub.url)]
    try:
        seen = wait_until(lambda: (h := servers[0].health()).get("bytes_done", 0) > 2_500_000 and h, 60)
        assert seen["status"] == "loading" and seen["stage"] == f"downloading {hub.DEFAULT_ID}"
        assert 0 < seen["fraction"] == seen["bytes_done"] / seen["bytes_total"] < 1
        assert 1e6 < seen["rate_bytes_s"] < 4e6
        left_s = (seen["bytes_total"] - seen["bytes_done"]) / seen["rate_bytes_s"]
        assert abs(seen["eta_s"] - left_s) < 0.2
        servers[0].kill()
        time.sleep(0.2)
        servers.append(Starting(tmp_path, the_hub.url))
        ready = wait_until(lambda: (h := servers[1].health()).get("status") == "ready" and h, 60)
        assert ready["model"] == hub.DEFAULT_ID and not ready["demo"]
        first, second = the_hub.begun(the_hub.large)
        assert first == 0 and second >= seen["bytes_done"] * 0.9
        servers[1].kill()
        servers.append(Starting(tmp_path, DEAD, HF_HUB_OFFLINE="1"))
        ready = wait_until(lambda: (h := servers[2].health()).get("status") == "ready" and h, 60)
        assert ready["model"] == hub.DEFAULT_ID and not ready["demo"]
        assert len(the_hub.begun(the_hub.large)) == 2
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.kill()
