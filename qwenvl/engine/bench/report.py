"""The figures as tables for people: ours, the machine's limit, other engines. Knows no measuring."""

from collections.abc import Iterable

from qwenvl.engine.bench.figures import Figures, Measured

# field, what people call it, unit
ROWS = (
    ("load_s", "load", "s"),
    ("warm_load_s", "load again", "s"),
    ("peak_load_rss_gb", "peak memory while loading", "GB"),
    ("encode_s", "read the picture", "s"),
    ("prefill_s", "read the prompt", "s"),
    ("first_token_s", "first token", "s"),
    ("followup_first_token_s", "first token, same picture again", "s"),
    ("peak_rss_gb", "peak memory, one user", "GB"),
    ("decode_tokens_per_s", "writing, one user", "tokens/s"),
)
SHORT = {"stock_quantize_dynamic": "quantize_dynamic"}
NONE = ""


def text(f: Figures, tokens: int) -> str:
    """Everything that was measured."""
    parts = [
        f"{f.model}, {f.quantization} ({f.kernel}), {f.threads} threads; {f.read_bandwidth_gb_s:.0f} GB/s read, "
        f"{f.peak_gop_s:.0f} GOP/s in products\n"
        f"picture {f.picture}, {f.picture_tokens} tokens" + ("; (x): ours / theirs" if f.baselines else ""),
        table(_main_rows(f)),
        *([f"  {f.note}"] if f.note else []),
        *_notes((f.baselines or {}).items()),
        *([_four_bits(f)] if f.int4 else []),
    ]
    if f.by_stage:
        parts += [f"By stage, answers of {tokens} tokens:", table(_stage_rows(f.by_stage))]
        parts += _notes((row["stage"], row) for row in f.by_stage)
    if f.by_picture_size:
        parts += [f"By picture size, answers of {tokens} tokens:", table(_size_rows(f.by_picture_size))]
    return "\n\n".join(parts) + "\n"


def table(rows: Iterable[Iterable[str]]) -> str:
    """Columns as wide as they need be: the first to the left, the others to the right."""
    rows = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "   ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )
    return "\n".join(f"  {line}".rstrip() for line in lines)


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return NONE
    digits = 1 if unit == "tokens/s" or value >= 100 else 2 if value >= 0.1 else 3
    return f"{value:.{digits}f} {unit}"


def _main_rows(f: Figures) -> list[list[str]]:
    engines = f.baselines or {}
    rows = [["", "measured", "limit", "of limit", *(SHORT.get(name, name) for name in engines)]]
    for field, name, unit in ROWS:
        value, limit = getattr(f, field), f.limits.get(field)
        theirs = [_theirs(f, engine, field, unit) for engine in engines]
        rows.append([name, _value(value, unit), _value(limit, unit), _share(value, limit, unit), *theirs])
    for users, rate in f.decode_tokens_per_s_by_users.items():
        limit = f.limits["decode_tokens_per_s_by_users"][users]
        cells = [_value(rate, "tokens/s"), _value(limit, "tokens/s"), _share(rate, limit, "tokens/s")]
        if users != "1":
            rows.append([f"writing, {users} users together", *cells, *(NONE for _ in engines)])
    return rows


def _share(value: float | None, limit: float | None, unit: str) -> str:
    """How near a figure is to its limit: 100 % would be all that the machine has."""
    if not value or not limit:
        return NONE
    return f"{value / limit if unit == 'tokens/s' else limit / value:.0%}"


def _theirs(f: Figures, engine: str, field: str, unit: str) -> str:
    value, ratio = f.baselines[engine].get(field), f.ratios[engine].get(field)
    return NONE if ratio is None else f"{_value(value, unit)} (x{ratio:.2f})"


def _four_bits(f: Figures) -> str:
    """Writing with weights in 4 bits beside this run's int8."""
    if "error" in f.int4:
        return f"  int4: {f.int4['error']}"
    rows = [["in turns, users together", "int8", "int4", "int4 / int8"]]
    for users, rate in f.int4["decode_tokens_per_s_by_users"].items():
        ours = f.int4["int8_decode_tokens_per_s_by_users"][users]
        ratio = f"x{f.int4['decode_ratio_by_users'][users]:.2f}"
        rows.append([users, _value(ours, "tokens/s"), _value(rate, "tokens/s"), ratio])
    rows.append(["read the prompt", _value(f.prefill_s, "s"), _value(f.int4["prefill_s"], "s"),
                 f"x{f.int4['prefill_s'] / f.prefill_s:.2f}"])  # fmt: skip
    return table(rows)


def _notes(measured: Iterable[tuple[str, Measured]]) -> list[str]:
    """Why there are no figures, or what is unusual about them."""
    said = ((name, values.get("error") or values.get("note")) for name, values in measured)
    notes = [f"  {SHORT.get(name, name)}: {text}" for name, text in said if text]
    return ["\n".join(notes)] if notes else []


def _stage_rows(stages: list[Measured]) -> list[list[str]]:
    rows = [["", "users", "first token", "first answer", "follow-up token", "follow-up answer", "follow-ups",
             "peak memory", "streaming"]]  # fmt: skip
    for row in stages:
        if "error" in row:
            rows.append([row["stage"], *[NONE] * 8])
            continue
        seconds = ("first_token_s", "first_answer_s", "followup_first_token_s", "followup_answer_s")
        rows.append([
            row["stage"], str(row["users"]), *(_value(row[field], "s") for field in seconds),
            f"{row['followups_per_minute']:.1f} a minute", _value(row["peak_rss_gb"], "GB"),
            "yes" if row["streaming"] else "no",
        ])  # fmt: skip
    return rows


def _size_rows(sizes: dict[str, Measured]) -> list[list[str]]:
    rows = [["", "tokens", "first token", "first answer", "writing"]]
    for name, row in sizes.items():
        seconds = (_value(row[field], "s") for field in ("first_token_s", "first_answer_s"))
        rows.append([name, str(row["picture_tokens"]), *seconds, _value(row["tokens_per_s"], "tokens/s")])
    return rows
