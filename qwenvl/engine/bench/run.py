"""The order of a run: others first, while our engine takes no memory, then ours, then a table and one line of JSON."""

import dataclasses
import gc
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig

from qwenvl.config import Settings
from qwenvl.engine.bench import int4, ours, plot, random2b, report
from qwenvl.engine.bench.baseline import measure_baselines
from qwenvl.engine.bench.child import say
from qwenvl.engine.bench.figures import Figures, Measured
from qwenvl.engine.bench.limits import Size, limits, size_of, work
from qwenvl.engine.bench.machine import peak_gop_s, peak_rss_gb
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.hub import cache_folder, find_model
from qwenvl.engine.linear import kernel_name
from qwenvl.engine.threads import default_threads
from qwenvl.errors import QwenVLError

RANDOM_2B = "random-2b"
# random weights write in circles, and the engine ends an answer that does so for longer
MOST_TOKENS = 128


@dataclass(frozen=True)
class Plan:
    """What to measure: which model, how many users at once, how many tokens, what else beside our engine."""

    model: str = RANDOM_2B
    users: tuple[int, ...] = (1, 2, 4, 8)
    tokens: int = 32
    baseline: bool = False
    tables: bool = False
    plot: Path | None = None
    int4: bool = False


def bench(settings: Settings, plan: Plan) -> Figures:
    """Measure, print the tables and then the JSON line. Raises `QwenVLError`."""
    if not 2 <= plan.tokens <= MOST_TOKENS or min(plan.users) < 1:
        raise QwenVLError(f"--tokens must be 2 to {MOST_TOKENS}, and each of --users at least 1")
    if plan.plot:
        plot.check(plan.plot)
    settings = ours.plain(settings, plan.model)
    if plan.int4 and settings.quantization != "int8":
        raise QwenVLError(f"--int4 measures int4 beside int8, and QWENVL_QUANTIZATION is {settings.quantization}")
    if plan.model == RANDOM_2B:
        also = ("int4",) if plan.int4 else ()
        with random2b.prepared(settings, plan.baseline or plan.tables, _progress, also) as (settings, known):
            figures = _measure(settings, plan, known)
            if known is None:
                random2b.keep(settings, figures)
    else:
        with empty_cache(settings) as settings:
            figures = _measure(settings, plan)
    say("")
    if plan.plot:
        plot.draw(figures, plan.tokens, plan.plot)
    print(report.text(figures, plan.tokens))
    print(figures.json())
    return figures


@contextmanager
def empty_cache(settings: Settings) -> Iterator[Settings]:
    """These settings with nothing kept of earlier starts: the first load is cold, those after it are warm."""
    kept = cache_folder(settings.cache_dir)
    with _folder_in(kept) if kept else nullcontext("off") as name:
        yield dataclasses.replace(settings, cache_dir=name)


def _folder_in(kept: Path) -> AbstractContextManager[str]:
    """A folder for this run only; `off` where none can be made."""
    try:
        kept.mkdir(parents=True, exist_ok=True)
        # named like what an interrupted start leaves: the next start removes what an interrupted bench left
        return tempfile.TemporaryDirectory(prefix=".tmp-bench-", dir=kept)
    except OSError:
        return nullcontext("off")


def _measure(settings: Settings, plan: Plan, known: random2b.Known | None = None) -> Figures:
    checkpoint = Checkpoint(find_model(settings.model, _progress).folder)
    figures = Figures(model=plan.model, threads=settings.threads or default_threads())
    baselines = measure_baselines(checkpoint.folder, figures.threads, plan.tokens) if plan.baseline else None
    if plan.tables:
        figures.by_stage = _stages_elsewhere(settings, plan)
    size = known.size if known else size_of(checkpoint)
    _measure_ours(settings, plan, checkpoint.config, size, figures)
    gc.collect()  # one engine at a time
    if plan.int4:
        figures.beside(int4.measure_beside(settings, size, plan.users, plan.tokens, figures.peak_gop_s))
    if known is None:
        _load_again(settings, figures)
    else:
        figures.warm_load_s = figures.load_s
        figures.load_s, figures.peak_load_rss_gb = known.load_s, known.peak_load_rss_gb
        figures.note = "the first load was measured when the model was made; --baseline and --tables make it anew"
    if baselines is not None:
        figures.compare(baselines)
    return figures


def _load_again(settings: Settings, figures: Figures) -> None:
    again = ours.in_child("once more", settings)
    figures.warm_load_s = again.get("load_s")
    if "error" in again:
        say(f"loading once more failed: {again['error']}\n")


def _progress(stage: str, done: float, *_) -> None:
    if sys.stderr.isatty():
        say(f"{stage} {done:.0%}")


def _stages_elsewhere(settings: Settings, plan: Plan) -> list[Measured]:
    """Rows of the table by stage that need another quantisation than these settings'."""
    others = dict.fromkeys(stage.quantization for stage in ours.STAGES if stage.quantization != settings.quantization)
    rows: list[Measured] = []
    for quantization in others:
        other = dataclasses.replace(settings, quantization=quantization)
        rows += ours.stages_in_child(other, max(plan.users), plan.tokens)
    return rows


def _measure_ours(settings: Settings, plan: Plan, config: Qwen3VLConfig, size: Size, figures: Figures) -> None:
    """Everything about our engine with these settings, which is gone afterwards."""
    say(f"loading {plan.model}")
    engine, loading = ours.load(settings)
    figures.load_s, figures.peak_load_rss_gb = loading["load_s"], loading["peak_load_rss_gb"]
    figures.quantization, figures.threads = engine.model.quantization, torch.get_num_threads()
    figures.kernel = kernel_name() if figures.quantization in ("int8", "int4") else "stock"
    say("measuring products")
    figures.peak_gop_s = round(peak_gop_s(figures.quantization), 1)
    peak_rss_gb()  # what that took is not the engine's
    first, followup = ours.measure_questions(engine, figures, plan.tokens)
    ours.measure_writing(engine, figures, plan.users, plan.tokens)
    figures.limits = limits(figures, work(engine, config, size, first, followup))
    figures.decode_fraction_of_limit = round(figures.decode_tokens_per_s / figures.limits["decode_tokens_per_s"], 4)
    if plan.tables:
        loaded = ours.Loaded.of(engine, settings)
        del engine
        gc.collect()  # one engine at a time
        order = [stage.name for stage in ours.STAGES]
        figures.by_stage += ours.measure_stages(loaded, max(plan.users), plan.tokens)
        figures.by_stage.sort(key=lambda row: order.index(row["stage"]))
        figures.by_picture_size = ours.measure_sizes(loaded, plan.tokens)
