"""Our own engine, driven by hand, slice by slice, on the path of every question; nothing is served.

Also a child, `python -m qwenvl.engine.bench.ours JOB`, for what must not share a process with another configuration.
Knows neither limits nor other engines.
"""

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from qwenvl.config import Settings
from qwenvl.engine.bench.child import answer_job, run_child, say
from qwenvl.engine.bench.figures import Figures, Measured
from qwenvl.engine.bench.limits import WEIGHT_BYTES, parameters
from qwenvl.engine.bench.machine import peak_rss_gb, read_bandwidth_gb_s, require_gb
from qwenvl.engine.bench.sample import FOLLOWUP, PICTURE_SIZE, QUESTION, sample_picture, sample_question
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import find_model
from qwenvl.engine.loading import load_engine
from qwenvl.engine.model import Model
from qwenvl.engine.sequence import Sequence
from qwenvl.errors import QwenVLError
from qwenvl.messages import Answer, Failed, Finished

PICTURE_SIZES = ((512, 512), (800, 800), (1024, 1024))
# beside the weights: libraries, activations, keys and values
OTHER_GB = 1.3


@dataclass(frozen=True)
class Stage:
    """A row of the table by stage: what is switched on, and whether everybody asks at once."""

    name: str
    quantization: str
    features: bool = False
    prefixes: bool = False
    together: bool = False


STAGES = (
    Stage("float32", "none"),
    Stage("+ int8", "int8"),
    Stage("+ feature cache", "int8", features=True),
    Stage("+ prefix cache", "int8", features=True, prefixes=True),
    Stage("+ batching", "int8", features=True, prefixes=True, together=True),
)


# --- one engine ---


def plain(settings: Settings, model: str) -> Settings:
    """Settings to measure with. No guesses at tokens to come: random weights repeat themselves, so all would be right.

    `model` is what the settings call it.
    """
    return dataclasses.replace(settings, model=model, speculation_tokens=0)


def load(settings: Settings) -> tuple[Engine, dict[str, float]]:
    """An engine whose answers never end by themselves; `load_s` and `peak_load_rss_gb`."""
    peak_rss_gb()
    started = time.monotonic()
    engine = load_engine(settings, lambda *_: None)
    loading = {"load_s": round(time.monotonic() - started, 2), "peak_load_rss_gb": peak_rss_gb()}
    # answers are measured, not read: they go on for as long as the measurement does
    engine.model = dataclasses.replace(engine.model, end_ids=frozenset())
    return engine, loading


def until_first_token(engine: Engine, sequences: Iterable[Sequence]) -> None:
    """Step until every one of them writes."""
    while not all(sequence.tokens for sequence in sequences):
        for _, message in engine.step():
            if isinstance(message, Failed):
                raise QwenVLError("the model failed; its log says why")


def first_token(engine: Engine, text: str, tokens: int) -> tuple[Answer, float]:
    """An answer given up at its first token, and the seconds until then.

    A first token of half a character prints nothing, so the end of prefill is what is timed.
    """
    sequence = engine.start(sample_question(sample_picture(), text, tokens))
    until_first_token(engine, [sequence])
    answer = engine.cancel(sequence, "cancelled")
    return answer, round(answer.timings.encode_s + answer.timings.prefill_s, 4)


def measure_questions(engine: Engine, figures: Figures, tokens: int) -> tuple[Answer, Answer]:
    """A question about a new picture and another one about it; both answers."""
    say("one question about a new picture")
    first, figures.first_token_s = first_token(engine, QUESTION, tokens)
    figures.encode_s, figures.prefill_s = first.timings.encode_s, first.timings.prefill_s
    figures.picture_tokens, figures.prompt_tokens = first.images[0].tokens, first.usage.prompt_tokens
    say("another question about it")
    followup, figures.followup_first_token_s = first_token(engine, FOLLOWUP, tokens)
    figures.peak_rss_gb = peak_rss_gb()
    return first, followup


def writing_rate(engine: Engine, users: int, tokens: int) -> float:
    """Tokens a second of `users` together, once all of them are being written."""
    say(f"writing for {users} at once")
    picture = sample_picture()
    asked = [sample_question(picture, f"Question {i}", 4 * tokens + 16 * users) for i in range(users)]
    sequences = [engine.start(question) for question in asked]
    until_first_token(engine, sequences)
    before, started = sum(len(s.tokens) for s in sequences), time.monotonic()
    for _ in range(tokens):
        engine.step()
    seconds = time.monotonic() - started
    written = sum(len(s.tokens) for s in sequences) - before
    for sequence in sequences:
        engine.cancel(sequence, "cancelled")
    return round(written / seconds, 2)


def measure_writing(engine: Engine, figures: Figures, users: Iterable[int], tokens: int) -> None:
    """Rates for each number of users, and the bandwidth around them: on a shared machine it changes by the minute."""
    say("measuring read bandwidth")
    before = read_bandwidth_gb_s()
    for count in sorted({1, *users}):
        figures.decode_tokens_per_s_by_users[str(count)] = writing_rate(engine, count, tokens)
    figures.decode_tokens_per_s = figures.decode_tokens_per_s_by_users["1"]
    say("measuring read bandwidth again")
    figures.read_bandwidth_gb_s = round((before + read_bandwidth_gb_s()) / 2, 1)


# --- tables ---


def whole_answers(engine: Engine, size: tuple[int, int], texts: list[str], tokens: int) -> tuple[float, float]:
    """All of `texts` asked at once about a picture: seconds until everybody has a first token, a whole answer."""
    picture, started, ended = sample_picture(size), time.monotonic(), set()
    waiting = [engine.start(sample_question(picture, text, tokens)) for text in texts]
    first_s = None
    while len(ended) < len(texts):
        for sequence, message in engine.step():
            if isinstance(message, Failed):
                raise QwenVLError("the model failed; its log says why")
            if isinstance(message, Finished):
                ended.add(sequence)
        if first_s is None and all(sequence.tokens for sequence in waiting):
            first_s = time.monotonic() - started
    return round(first_s, 4), round(time.monotonic() - started, 4)


@dataclass(frozen=True)
class Loaded:
    """A model to make engines of whose caches are empty. The settings say how large caches are that are used."""

    model: Model
    kv_dtype: torch.dtype
    settings: Settings

    @classmethod
    def of(cls, engine: Engine, settings: Settings) -> "Loaded":
        return cls(engine.model, engine.reader.kv_dtype, settings)

    def engine(self, *, features: bool, prefixes: bool) -> Engine:
        return Engine(
            self.model,
            feature_cache_bytes=self.settings.feature_cache_bytes if features else 0,
            prefix_cache_bytes=self.settings.prefix_cache_bytes if prefixes else 0,
            kv_bytes=self.settings.kv_bytes,
            max_context_tokens=self.settings.max_context_tokens,
            kv_dtype=self.kv_dtype,
            speculation_tokens=self.settings.speculation_tokens,
        )


def measure_stages(loaded: Loaded, users: int, tokens: int) -> list[Measured]:
    """The rows of the table by stage that have this quantisation."""
    own = [stage for stage in STAGES if stage.quantization == loaded.settings.quantization]
    return [measure_stage(loaded, stage, users if stage.together else 1, tokens) for stage in own]


def measure_stage(loaded: Loaded, stage: Stage, users: int, tokens: int) -> Measured:
    """One row: a question by each user, all at once, then a follow-up by each, on caches that are empty at first."""
    say(f"table by stage: {stage.name}")
    engine = loaded.engine(features=stage.features, prefixes=stage.prefixes)
    peak_rss_gb()
    first = whole_answers(engine, PICTURE_SIZE, [f"{QUESTION} {i}" for i in range(users)], tokens)
    followup = whole_answers(engine, PICTURE_SIZE, [f"{FOLLOWUP} {i}" for i in range(users)], tokens)
    return {
        "stage": stage.name, "quantization": engine.model.quantization, "users": users,
        "first_token_s": first[0], "first_answer_s": first[1],
        "followup_first_token_s": followup[0], "followup_answer_s": followup[1],
        "followups_per_minute": round(60 * users / followup[1], 1), "peak_rss_gb": peak_rss_gb(), "streaming": True,
    }  # fmt: skip


def measure_sizes(loaded: Loaded, tokens: int) -> dict[str, Measured]:
    """Rows by picture size: tokens, the first answer, the speed of writing."""
    rows = {}
    for size in PICTURE_SIZES:
        name = "{}x{}".format(*size)
        say(f"table by picture size: {name}")
        engine = loaded.engine(features=True, prefixes=True)
        first_s, answer_s = whole_answers(engine, size, [QUESTION], tokens)
        h, w = engine.model.grid(sample_picture(size))
        rows[name] = {
            "picture_tokens": h * w, "first_token_s": first_s, "first_answer_s": answer_s,
            "tokens_per_s": round((tokens - 1) / (answer_s - first_s), 2),
        }  # fmt: skip
    return rows


# --- in a process of its own ---


def in_child(task: str, settings: Settings, **job) -> dict:
    """`once more`: how long loading takes; or `for the table by stage`: its rows. With these settings."""
    return run_child(__name__, {"task": task, "settings": dataclasses.asdict(settings), **job})


def stages_in_child(settings: Settings, users: int, tokens: int) -> list[Measured]:
    """As `measure_stages`; rows without figures where the child had none."""
    result = in_child("for the table by stage", settings, users=users, tokens=tokens)
    own = [stage.name for stage in STAGES if stage.quantization == settings.quantization]
    return result.get("rows") or [{"stage": name, "error": result["error"]} for name in own]


def do(job: dict) -> dict:
    """What a child was started for."""
    settings = Settings(**job["settings"])
    checkpoint = Checkpoint(find_model(settings.model, lambda *_: None).folder)
    require_gb(parameters(checkpoint) * WEIGHT_BYTES[settings.quantization] / 1e9 * 1.05 + OTHER_GB)
    say(f"loading {job['task']}, quantisation {settings.quantization}")
    engine, loading = load(settings)
    if job["task"] == "once more":
        return loading
    return {"rows": measure_stages(Loaded.of(engine, settings), job["users"], job["tokens"])}


if __name__ == "__main__":
    answer_job(do)
