"""Finding the model and counting the threads: right on any machine, one line when it cannot be."""

import subprocess
import sys
import time

import pytest

from qwenvl.engine import hub, threads
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.errors import ModelError
from tests.engine.conftest import silent


@pytest.mark.parametrize(
    "text,cpus", [("400000 100000", 4), ("150000 100000", 1), ("50000 100000", 1), ("max 100000", None)]
)
def test_cpu_quota_v2(tmp_path, text, cpus):
    (tmp_path / "cpu.max").write_text(text)
    assert threads.cpu_quota(tmp_path) == cpus


def test_cpu_quota_v1_and_none(tmp_path):
    assert threads.cpu_quota(tmp_path) is None
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("200000")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000")
    assert threads.cpu_quota(tmp_path) == 2
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1")
    assert threads.cpu_quota(tmp_path) is None


def test_hyper_threads_count_once(tmp_path):
    for cpu, core in enumerate((0, 1, 0, 1)):
        topology = tmp_path / f"cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(str(core))
        (topology / "physical_package_id").write_text("0")
    assert threads.physical_cores(tmp_path) == 2


@pytest.mark.parametrize(
    "quota,affinity,cores,expected", [(4, 8, 16, 4), (None, 2, 16, 2), (8, 8, 4, 4), (None, 3, None, 3)]
)
def test_threads_are_the_least_of_all(monkeypatch, quota, affinity, cores, expected):
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    monkeypatch.setattr(threads, "physical_cores", lambda: cores)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda pid: set(range(affinity)))
    assert threads.default_threads() == expected


def test_the_number_is_set_before_torch_starts():
    """In a process of its own: torch must find it when it is imported, however many CPUs there are."""
    code = (
        "from qwenvl.engine import load\nfrom qwenvl.config import Settings\nimport sys\n"
        "def report(stage, fraction):\n    if stage != 'importing':\n        import torch\n"
        "        print(torch.get_num_threads())\n        sys.exit()\n"
        "assert 'torch' not in sys.modules\nload(Settings(model='demo', threads=3), report)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "3\n", done.stderr


def test_auto_without_hub_is_the_demo_quickly(monkeypatch, tmp_path, caplog):
    """The network swallows everything: no answer, no refusal."""
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "cached_folder", lambda model_id: None)
    monkeypatch.setattr(hub.HfApi, "model_info", lambda *a, **k: time.sleep(30))
    started = time.monotonic()
    source = hub.find_model("auto", silent)
    assert source.demo and time.monotonic() - started < 5
    assert "demo" in caplog.text


def test_auto_offline_is_the_demo_at_once(monkeypatch):
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "cached_folder", lambda model_id: None)
    assert hub.find_model("auto", silent) == hub.DEMO
    with pytest.raises(ModelError, match="QWENVL_MODEL"):
        hub.find_model("someone/some-model", silent)


def test_a_filled_cache_needs_no_network(monkeypatch, folder, tmp_path):
    """The Hub's own cache layout, then one shard gone: half a download does not count."""
    import shutil

    snapshot = tmp_path / "models--Qwen--Qwen3-VL-2B-Instruct/snapshots/abc"
    shutil.copytree(folder, snapshot)
    refs = snapshot.parent.parent / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert hub.find_model("auto", silent) == hub.Source(snapshot, hub.DEFAULT_ID)
    (snapshot / "model.safetensors").unlink()
    assert hub.find_model("auto", silent) == hub.DEMO


@pytest.mark.parametrize("wanted", ["/no/such/folder", "./nothing", "a/b/c"])
def test_a_wrong_name_is_one_clear_line(wanted):
    with pytest.raises(ModelError) as error:
        hub.find_model(wanted, silent)
    assert "\n" not in str(error.value) and wanted in str(error.value)


def test_folders_that_are_not_models(tmp_path, folder):
    with pytest.raises(ModelError, match=r"config\.json"):
        Checkpoint(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelError, match="llama"):
        Checkpoint(tmp_path)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(ModelError, match="not complete"):
        _ = Checkpoint(tmp_path).shards
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(ModelError, match="damaged"):
        _ = Checkpoint(tmp_path).shards
