"""`python -m qwenvl bench`: how fast this machine answers, each figure beside its limit. The last line is JSON.

It drives the engine by hand, slice by slice, on the path of every question; nothing is served. Read bandwidth is
measured in the same run, because on a shared machine only ratios of one run mean anything.
"""

import dataclasses
import hashlib
import json
import sys
import time
from collections.abc import Sequence as Numbers
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from huggingface_hub import constants
from PIL import Image

from qwenvl.config import Settings
from qwenvl.engine.engine import Engine
from qwenvl.engine.loading import load_engine
from qwenvl.engine.random_model import random_model
from qwenvl.engine.sequence import Sequence
from qwenvl.errors import QwenVLError
from qwenvl.images import Picture
from qwenvl.messages import Failed, Options, Question, Timings

PICTURE_SIZE = (1024, 768)
RANDOM_2B = "random-2b"


@dataclass
class Figures:
    """The fields of the JSON line, named as scripts rely on them."""

    model: str = ""
    quantization: str = ""
    threads: int = 0
    read_bandwidth_gb_s: float = 0.0
    load_s: float = 0.0
    peak_load_rss_gb: float = 0.0
    peak_rss_gb: float = 0.0
    picture: str = "{}x{}".format(*PICTURE_SIZE)
    picture_tokens: int = 0
    encode_s: float = 0.0
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    followup_first_token_s: float = 0.0
    decode_tokens_per_s: float = 0.0
    decode_tokens_per_s_by_users: dict[str, float] = field(default_factory=dict)
    decode_fraction_of_limit: float = 0.0


def bench(settings: Settings, model: str, users: Numbers[int], tokens: int) -> Figures:
    """Measure, print a table and then the JSON line."""
    figures = Figures()
    engine = _load(settings, model, figures)
    say("measuring read bandwidth")
    figures.read_bandwidth_gb_s = round(read_bandwidth_gb_s(), 1)
    _one_question(engine, figures, tokens)
    for count in users:
        say(f"writing for {count} at once")
        figures.decode_tokens_per_s_by_users[str(count)] = round(_writing_rate(engine, count, tokens), 2)
    figures.decode_tokens_per_s = figures.decode_tokens_per_s_by_users.get("1", 0.0)
    limit = _decode_limit(engine, figures)
    figures.decode_fraction_of_limit = round(figures.decode_tokens_per_s / limit, 3)
    say("")
    print(_table(figures, limit))
    print(json.dumps(dataclasses.asdict(figures)))
    return figures


def say(text: str) -> None:
    """A line of progress on standard error."""
    if text or sys.stderr.isatty():
        print(
            f"\r\x1b[K{text}" if sys.stderr.isatty() else text, end="" if sys.stderr.isatty() else "\n", file=sys.stderr
        )


def _load(settings: Settings, model: str, figures: Figures) -> Engine:
    folder = model
    if model == RANDOM_2B:
        home = Path(constants.HF_HOME).parent / "qwenvl" / RANDOM_2B
        folder = str(
            random_model(home, lambda stage, done: say(f"{stage} {done:.0%}") if sys.stderr.isatty() else None)
        )
    say(f"loading {model}")
    started = time.monotonic()
    engine = load_engine(dataclasses.replace(settings, model=folder), lambda stage, done: None)
    figures.load_s = round(time.monotonic() - started, 2)
    figures.peak_load_rss_gb = round(peak_rss_gb(), 2)
    figures.model, figures.quantization = model, engine.model.quantization
    figures.threads = torch.get_num_threads()
    # answers are measured, not read: they go on for as long as the measurement does
    engine.model = dataclasses.replace(engine.model, end_ids=frozenset())
    return engine


def peak_rss_gb() -> float:
    """Peak resident memory since the last look, in GB; nan where the kernel does not tell."""
    try:
        status = Path("/proc/self/status").read_text()
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return float("nan")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e9


def read_bandwidth_gb_s(size: int = 512 << 20, tries: int = 5) -> float:
    """The best of several sums over more memory than any cache holds."""
    data = torch.ones(size // 4, dtype=torch.float32)
    best = float("inf")
    for _ in range(tries):
        started = time.perf_counter()
        data.sum()
        best = min(best, time.perf_counter() - started)
    return size / best / 1e9


def test_picture(seed: int = 0) -> Picture:
    """Noise: what is in a picture does not change how long it takes."""
    width, height = PICTURE_SIZE
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Picture(Image.fromarray(pixels), hashlib.sha256(pixels.tobytes()).hexdigest(), "balanced", width, height)


def _start(engine: Engine, text: str, tokens: int) -> Sequence:
    return engine.start(Question((test_picture(),), text, (), Options(max_new_tokens=tokens)))


def _until_first_token(engine: Engine, *sequences: Sequence) -> None:
    """Step until every one of them writes."""
    while not all(sequence.tokens for sequence in sequences):
        for _, message in engine.step():
            if isinstance(message, Failed):
                raise QwenVLError("the model failed; its log says why")


def _one_question(engine: Engine, figures: Figures, tokens: int) -> None:
    say("one question about a new picture")
    sequence = _start(engine, "What is in this picture?", tokens)
    first = _timings(engine, sequence)
    figures.encode_s, figures.prefill_s, figures.first_token_s = first.encode_s, first.prefill_s, first.first_token_s
    figures.picture_tokens = sequence.grids[0][0] * sequence.grids[0][1]
    say("another question about it")
    figures.followup_first_token_s = _timings(engine, _start(engine, "And what else?", tokens)).first_token_s
    figures.peak_rss_gb = round(peak_rss_gb(), 2)


def _timings(engine: Engine, sequence: Sequence) -> Timings:
    _until_first_token(engine, sequence)
    answer = engine.cancel(sequence, "cancelled")
    # a first token of half a character prints nothing, so the end of prefill is what is timed
    timings = answer.timings
    return dataclasses.replace(timings, first_token_s=round(timings.encode_s + timings.prefill_s, 4))


def _writing_rate(engine: Engine, count: int, tokens: int) -> float:
    """Tokens a second of `count` users together, once all of them are being written."""
    sequences = [_start(engine, f"Question {i}", 4 * tokens + 16 * count) for i in range(count)]
    _until_first_token(engine, *sequences)
    before, started = sum(len(s.tokens) for s in sequences), time.monotonic()
    for _ in range(tokens):
        engine.step()
    seconds = time.monotonic() - started
    written = sum(len(s.tokens) for s in sequences) - before
    for sequence in sequences:
        engine.cancel(sequence, "cancelled")
    return written / seconds


def _decode_limit(engine: Engine, figures: Figures) -> float:
    """Tokens a second if nothing but reading weights and one context's keys and values took time."""
    text = engine.model.text
    kv = 2 * len(text.layers) * text.kv_heads * text.head_dim * engine.reader.kv_dtype.itemsize * figures.picture_tokens
    return figures.read_bandwidth_gb_s * 1e9 / (text.weight_bytes + kv)


def _table(f: Figures, limit: float) -> str:
    near = f"{f.decode_fraction_of_limit:.0%} of {limit:.1f}, which {f.read_bandwidth_gb_s:.0f} GB/s allow"
    rows = [
        ("load", f"{f.load_s:.1f} s", f"peak memory {f.peak_load_rss_gb:.2f} GB"),
        ("read the picture", f"{f.encode_s:.2f} s", f"{f.picture}, {f.picture_tokens} tokens"),
        ("read the prompt", f"{f.prefill_s:.2f} s", ""),
        ("first token", f"{f.first_token_s:.2f} s", f"peak memory {f.peak_rss_gb:.2f} GB"),
        ("first token, same picture again", f"{f.followup_first_token_s:.2f} s", ""),
        ("writing, one user", f"{f.decode_tokens_per_s:.1f} tokens/s", near),
    ]
    for count, rate in f.decode_tokens_per_s_by_users.items():
        if count != "1":
            rows.append((f"writing, {count} users together", f"{rate:.1f} tokens/s", ""))
    head = f"{f.model}, {f.quantization}, {f.threads} threads"
    return "\n".join([head, *(f"  {name:32} {value:>15}   {note}".rstrip() for name, value, note in rows)])
