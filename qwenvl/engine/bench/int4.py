"""Our engine with weights in 4 bits, measured right after int8: `python -m qwenvl.engine.bench.int4 JOB`.

In a process of its own, so that neither the weights nor the memory of the other one are in it.
"""

import dataclasses

from qwenvl.config import Settings
from qwenvl.engine.bench import ours
from qwenvl.engine.bench.child import answer_job, run_child, say
from qwenvl.engine.bench.figures import Figures
from qwenvl.engine.bench.limits import Size, limits, work
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.hub import find_model
from qwenvl.errors import QwenVLError

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
    ours.measure_writing(engine, figures, job["users"], job["tokens"])
    config = Checkpoint(find_model(settings.model, lambda stage, done: None).folder).config
    todo = work(engine, config, Size(**job["size"]), first, followup)
    best = limits(figures, todo)["decode_tokens_per_s"]
    figures.decode_fraction_of_limit = round(figures.decode_tokens_per_s / best, 4)
    return {name: getattr(figures, name) for name in FIELDS} | {"step_bytes": todo.step_bytes}


if __name__ == "__main__":
    answer_job(measure)
