"""A picture of one question's stages, ours beside other engines'. Knows figures; needs matplotlib, an extra."""

from pathlib import Path

from qwenvl.engine.bench.figures import Figures
from qwenvl.errors import QwenVLError

COLOURS = {"read the picture": "#4477aa", "read the prompt": "#ccbb44", "write": "#66ccee"}
NAMES = {
    "transformers_float32": "transformers\nfloat32",
    "transformers_bfloat16": "transformers\nbfloat16",
    "stock_quantize_dynamic": "transformers\nquantize_dynamic",
}


def check(path: Path) -> None:
    """Raise `QwenVLError`, before minutes of measuring, where there could be no plot at the end."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise QwenVLError("--plot needs matplotlib: .venv/bin/pip install -r requirements-plot.txt") from None
    if path.suffix.lower() != ".png":
        raise QwenVLError(f"--plot writes PNG files; {path} does not end in .png")
    if not path.resolve().parent.is_dir():
        raise QwenVLError(f"--plot: there is no folder {path.resolve().parent}")


def bars(figures: Figures, tokens: int) -> dict[str, tuple[float, float, float]]:
    """Seconds to read the picture, to read the prompt and to write `tokens` tokens, by engine; ours first."""
    f, all_bars = figures, {}
    writing = tokens / f.decode_tokens_per_s
    all_bars[f"this engine\n{f.quantization}"] = (f.encode_s, f.prefill_s, writing)
    all_bars["this engine,\nsame picture again"] = (0.0, f.followup_first_token_s, writing)
    for name, theirs in (f.baselines or {}).items():
        if "error" not in theirs:
            rest = tokens / theirs["decode_tokens_per_s"]
            all_bars[NAMES.get(name, name)] = (theirs["encode_s"], theirs["prefill_s"], rest)
    return all_bars


def draw(figures: Figures, tokens: int, path: Path) -> None:
    """Write the bars as a PNG."""
    # without pyplot, which looks for a screen and keeps every figure
    from matplotlib.figure import Figure

    rows = bars(figures, tokens)
    figure = Figure(figsize=(9, 1.4 + 0.7 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    starts = [0.0] * len(rows)
    for i, (stage, colour) in enumerate(COLOURS.items()):
        seconds = [row[i] for row in rows.values()]
        label = f"write {tokens} tokens" if stage == "write" else stage
        axes.barh(list(rows), seconds, left=starts, color=colour, label=label)
        starts = [start + s for start, s in zip(starts, seconds, strict=True)]
    for place, total in enumerate(starts):
        axes.text(total, place, f" {total:.3g} s", va="center")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(starts))
    axes.set_xlabel("seconds")
    axes.set_title(f"One question about a {figures.picture} picture: {figures.model}, {figures.threads} threads")
    axes.legend(loc="best", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=150)
