"""The budget of memory: where its limit comes from, what the caches get, and who is refused when it is spent."""

import pytest

from qwenvl import memory, service
from qwenvl.config import MIB, QUANTIZATIONS, Settings
from qwenvl.errors import InvalidRequest, QueueFull
from qwenvl.messages import Finished
from tests.conftest import Listener, wait_until
from tests.fake_engine import FakeEngine

GIB = 1024 * MIB


@pytest.fixture
def machine(tmp_path):
    """Builds a file system as the kernel shows it."""

    def make(total=64 * GIB, groups="", **limits):
        files = {"proc/meminfo": f"MemFree: 1 kB\nMemTotal:  {total // 1024} kB\n", "proc/self/cgroup": groups}
        files |= {f"sys/fs/cgroup/{name}": text for name, text in limits.pop("files", {}).items()}
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("", {}, 64 * GIB),
        ("0::/\n", {"memory.max": f"{4 * GIB}\n"}, 4 * GIB),
        ("0::/\n", {"memory.max": "max\n"}, 64 * GIB),
        ("0::/a/b\n", {"a/memory.max": f"{3 * GIB}", "a/b/memory.max": "max"}, 3 * GIB),
        ("0::/a/b\n", {"a/memory.max": f"{3 * GIB}", "a/b/memory.max": f"{2 * GIB}"}, 2 * GIB),
        ("0::/the/host/s/path\n", {"memory.max": f"{4 * GIB}"}, 4 * GIB),
        ("0::/../outside\n", {"memory.max": f"{4 * GIB}"}, 4 * GIB),
        ("5:cpu:/x\n4:memory:/x\n", {"memory/x/memory.limit_in_bytes": f"{5 * GIB}"}, 5 * GIB),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, 64 * GIB),
    ],
)
def test_the_least_limit_counts(machine, groups, files, limit):
    assert memory.limit_bytes(machine(groups=groups, files=files)) == limit


def test_this_machine_has_a_limit_and_this_process_is_below_it():
    assert 0 < memory.resident_bytes() < memory.limit_bytes()


def test_where_there_is_plenty_the_caches_are_as_set(machine):
    settings = Settings()
    fitted = memory.fit(settings, machine())
    assert all(getattr(fitted, name) == getattr(settings, name) for name in (*memory.CACHES, "prefix_cache_bytes"))
    assert fitted.memory_mb == int(64 * 1024 * 0.9)


@pytest.mark.parametrize("total", [4, 5, 6])
def test_where_there_is_little_the_caches_share_it(machine, total):
    fitted = memory.fit(Settings(), machine(total * GIB))
    caches = sum(getattr(fitted, name) for name in memory.CACHES)
    assert caches + memory.weights_bytes(fitted) <= fitted.memory_mb * MIB
    assert fitted.prefix_cache_bytes <= fitted.kv_bytes
    assert caches + memory.weights_bytes(fitted) + fitted.work_bytes + memory.BASE_BYTES < (fitted.memory_mb + 1) * MIB
    # the store of keys and values holds the longest question, which makes it no larger than it may be
    assert (fitted.max_context_tokens + memory.SPARE_TOKENS) * memory.kv_token_bytes(fitted) <= fitted.kv_bytes
    assert fitted.max_context_tokens >= 2000


def test_in_four_gigabytes_a_whole_picture_can_be_read_and_a_photo_decoded(machine):
    """Bytes of a 1024x1024 picture in the 2B model: 4,096 patches of width 1,024 in ten copies, features, levels."""
    fitted = memory.fit(Settings(), machine(4 * GIB))
    assert memory.reading_bytes(fitted) >= 4096 * 1024 * 4 * 10 + 1024 * 2048 * 4 * 4
    assert memory.decoding_bytes(fitted) >= 48_000_000 * 5


def test_a_budget_that_cannot_do_is_refused_with_what_it_takes(machine):
    with pytest.raises(InvalidRequest, match=r"QWENVL_MEMORY_MB: 2000 MiB .* about \d{4} MiB"):
        memory.fit(Settings(memory_mb=2000), machine())
    fitted = memory.fit(Settings(), machine(2 * GIB))  # found, not asked for: a warning
    assert sum(getattr(fitted, name) for name in memory.CACHES) <= memory.LEAST_ROOM_BYTES


def test_a_cache_that_is_off_stays_off_and_the_demo_fits_anywhere(machine):
    fitted = memory.fit(Settings(model="demo", feature_cache_bytes=0, memory_mb=700), machine())
    assert fitted.feature_cache_bytes == 0 and fitted.memory_mb == 700


def test_tokens_are_counted_as_the_model_keeps_them(tmp_path):
    assert memory.kv_token_bytes(Settings(model="Qwen/Qwen3-VL-2B-Instruct")) == 112 * 1024
    assert memory.kv_token_bytes(Settings(model="demo")) == 2 * 4 * 2 * 32 * 2
    assert memory.kv_token_bytes(Settings(model="demo", quantization="none")) == 2 * 4 * 2 * 32 * 4


def test_weights_follow_the_files(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    sizes = {q: memory.weights_bytes(Settings(model=str(tmp_path), quantization=q)) for q in QUANTIZATIONS}
    assert sizes == {"int4": 400, "int8": 550, "bfloat16": 1000, "none": 2000}


def test_when_the_budget_is_spent_one_question_at_a_time_is_answered(make_service, monkeypatch):
    used = [0]
    monkeypatch.setattr(service, "resident_bytes", lambda: used[0])
    served = make_service(FakeEngine(slots=4, slice_s=0.01), memory_mb=100)
    served.check_open("a")
    ticket = served.ask(served.question([], "forever"), Listener())
    served.check_open("a")
    used[0] = 101 * MIB
    with pytest.raises(QueueFull, match="memory"):
        served.check_open("a")
    ticket.cancel()
    wait_until(lambda: served.health()[1]["queue"] == {"waiting": 0, "running": 0, "size": 32})
    served.check_open("a")  # or nobody would ever be answered again
    listener = Listener()
    served.ask(served.question([], "hi"), listener)
    assert listener.last(Finished)
    assert served.health()[1]["memory"] == {"budget_mb": 100, "resident_mb": 101}
