"""Our engine with weights in 4 bits beside int8: `python -m qwenvl.engine.bench.int4 JOB`.

In a process of its own, whose memory is measured before int8 is loaded too. Then both write in turns, and the best of
several turns counts: on a shared machine the speed of memory changes between two measurements, and only a ratio of
neighbours means anything.
"""

import dataclasses

from qwenvl.config import Settings
from qwenvl.engine.bench import ours
from qwenvl.engine.bench.child import answer_job, run_child, say
from qwenvl.engine.bench.figures import Figures
from qwenvl.engine.bench.limits import Size, limits, work
from qwenvl.engine.bench.machine import read_bandwidth_gb_s
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import find_model
from qwenvl.errors import QwenVLError

TURNS = 3
FIELDS = """load_s peak_rss_gb encode_s prefill_s first_token_s read_bandwidth_gb_s decode_tokens_per_s
    decode_tokens_per_s_by_users decode_fraction_of_limit""".split()


def measure_beside(settings: Settings, size: Size, users: tuple[int, ...], tokens: int, peak_gop_s: float) -> dict:
    """Figures with these settings but int4, named as in `Figures`, and `step_bytes`; or `error` and why not."""
    settings = dataclasses.replace(settings, quantization="int4")
    return run_child(__name__, {
        "settings": dataclasses.asdict(settings), "size": dataclasses.asdict(size), "users": users, "tokens": tokens,
        "peak_gop_s": peak_gop_s,
    })  # fmt: skip


def measure(job: dict) -> dict:
    """What this child was started for."""
    settings, figures = Settings(**job["settings"]), Figures(peak_gop_s=job["peak_gop_s"])
    say("loading with weights in 4 bits")
    engine, loading = ours.load(settings)
    if engine.model.quantization != "int4":
        raise QwenVLError("int4 needs kernels of our own")
    figures.load_s = loading["load_s"]
    first, followup = ours.measure_questions(engine, figures, job["tokens"])
    other, _ = ours.load(dataclasses.replace(settings, quantization="int8"))
    before = read_bandwidth_gb_s()
    rates = in_turns({"int8": other, "int4": engine}, sorted({1, *job["users"]}), job["tokens"])
    figures.read_bandwidth_gb_s = round((before + read_bandwidth_gb_s()) / 2, 1)
    figures.decode_tokens_per_s_by_users = rates["int4"]
    figures.decode_tokens_per_s = rates["int4"]["1"]
    config = Checkpoint(find_model(settings.model, lambda stage, done: None).folder).config
    todo = work(engine, config, Size(**job["size"]), first, followup)
    best = limits(figures, todo)["decode_tokens_per_s"]
    figures.decode_fraction_of_limit = round(figures.decode_tokens_per_s / best, 4)
    beside = {"step_bytes": todo.step_bytes, "int8_decode_tokens_per_s_by_users": rates["int8"]}
    return {name: getattr(figures, name) for name in FIELDS} | beside


def in_turns(engines: dict[str, Engine], users: list[int], tokens: int) -> dict[str, dict[str, float]]:
    """The best rate of each engine for each number of users."""
    rates: dict[str, dict[str, float]] = {name: {} for name in engines}
    for count in users:
        for _ in range(TURNS):
            for name, engine in engines.items():
                rate = ours.writing_rate(engine, count, tokens)
                rates[name][str(count)] = max(rate, rates[name].get(str(count), 0.0))
    return rates


if __name__ == "__main__":
    answer_job(measure)
