"""What has happened since the start, as Prometheus reads it.

Counting is done by any thread, the engine's too, under a native lock: the client library's own locks are gevent's where
gevent has patched them, and not for native threads. So the library only writes the text. Knows answers and codes;
`facts()` tells it the present state whenever somebody asks.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from qwenvl.messages import Answer
from qwenvl.native import Lock

STAGES = ("queue", "encode", "prefill", "first_token", "total")
BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How often a time fell into each bucket, and the sum of all."""

    def __init__(self):
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """(upper limit, how many were not above it), as the text format wants them."""
        total, rows = 0, []
        for limit, count in zip([*map(str, BUCKETS_S), "+Inf"], self._counts, strict=True):
            total += count
            rows.append((limit, total))
        return rows


class Metrics:
    """The counters of one process, in a registry of their own."""

    def __init__(self, facts: Callable[[], dict[str, Any]]):
        self._facts = facts
        self._answers: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._rejections: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._stages = {stage: Histogram() for stage in STAGES}
        self._lock = Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def answered(self, answer: Answer) -> None:
        """A question ended with an answer, whole or in part."""
        usage, timings = answer.usage, answer.timings
        with self._lock:
            self._answers[answer.finish_reason] += 1
            self._tokens["prompt"] += usage.prompt_tokens
            self._tokens["cached"] += usage.cached_tokens
            self._tokens["completion"] += usage.completion_tokens
            for stage in STAGES:
                # A stage that was never reached has no time.
                if seconds := getattr(timings, f"{stage}_s"):
                    self._stages[stage].add(seconds)

    def failed(self, code: str) -> None:
        """A question that had been taken in ended with an error."""
        with self._lock:
            self._failures[code] += 1

    def rejected(self, code: str) -> None:
        """A request was refused: nothing was taken in."""
        with self._lock:
            self._rejections[code] += 1

    def render(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The registry's question for all of it."""
        yield from self._counters()
        yield from self._state(self._facts())

    def _counters(self) -> list[Metric]:
        with self._lock:
            rows = [
                _counter("qwenvl_answers", "Questions answered, by finish reason.", "finish_reason", self._answers),
                _counter("qwenvl_failures", "Questions taken in that ended with an error.", "code", self._failures),
                _counter("qwenvl_rejections", "Requests refused, by error code.", "code", self._rejections),
                _counter("qwenvl_tokens", "Tokens of answered questions; cached ones are prompt, too.", "kind",
                         self._tokens),
            ]  # fmt: skip
            stages = HistogramMetricFamily("qwenvl_stage_seconds", "Seconds of answers, by stage.", labels=["stage"])
            for name, histogram in self._stages.items():
                stages.add_metric([name], histogram.buckets(), histogram.sum_s)
        return [*rows, stages]

    def _state(self, facts: dict[str, Any]) -> Iterator[Metric]:
        for name, meaning in (
            ("ready", "1 when questions are taken."),
            ("running", "Questions being answered."),
            ("waiting", "Questions in line."),
            ("uploads", "Uploaded pictures kept."),
            ("memory_budget_bytes", "Memory this process may use; 0 when that is not known."),
        ):
            yield GaugeMetricFamily(f"qwenvl_{name}", meaning, value=facts[name])
        yield CounterMetricFamily("qwenvl_engine_restarts", "Engines replaced.", value=facts["engine_restarts"])
        info = facts["info"]
        model = GaugeMetricFamily("qwenvl_model_info", "The model at work.", labels=MODEL_LABELS)
        if info:
            model.add_metric([str(info.get(name, "")) for name in MODEL_LABELS], 1)
        yield model
        yield from _caches({name: value for name, value in info.items() if name.endswith("_cache")})


MODEL_LABELS = ["model", "engine", "quantization", "threads"]


def _counter(name: str, meaning: str, label: str, counts: Counter[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, meaning, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def _caches(caches: dict[str, dict[str, int]]) -> list[Metric]:
    """The engine's caches, from their own counters."""
    families: list[Metric] = [
        CounterMetricFamily("qwenvl_cache_hits", "Found in a cache.", labels=["cache"]),
        CounterMetricFamily("qwenvl_cache_misses", "Not found in a cache.", labels=["cache"]),
        GaugeMetricFamily("qwenvl_cache_entries", "Entries of a cache.", labels=["cache"]),
        GaugeMetricFamily("qwenvl_cache_bytes", "Bytes of a cache.", labels=["cache"]),
        GaugeMetricFamily("qwenvl_cache_max_bytes", "Bytes a cache may take.", labels=["cache"]),
    ]
    for name, stats in caches.items():
        for family in families:
            family.add_metric([name.removesuffix("_cache")], stats.get(family.name.removeprefix("qwenvl_cache_"), 0))
    return families
