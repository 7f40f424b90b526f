"""Scenes with known contents: shapes, printed text, both, a plain colour, a band along an edge.

The same random generator state gives the same pictures. Knows nothing of questions, models or tokens.
"""

import random

from demo_model.drawing import (
    COLORS,
    EDGES,
    SHAPES,
    Canvas,
    Scene,
    font,
    pick_background,
    pick_color,
    shade,
)
from demo_model.printing import CHARACTERS, LABELS, make_line

# sizes the model sees, as width and height in pixels; the largest are what the demo's processor makes of most pictures
SIZES = (
    (192, 192),
    (224, 160),
    (160, 224),
    (256, 128),
    (128, 256),
    (256, 160),
    (160, 160),
    (128, 128),
    (320, 96),
    (192, 160),
    (160, 192),
)
# pixels, as the model sees it: with smaller print a token would hold a dozen characters, too many for a model this size
LEAST_FONT = 20
SIZE_WEIGHTS = (7, 7, 3, 6, 2, 4, 2, 2, 2, 2, 2)


def shapes_scene(rng: random.Random, size: tuple[int, int]) -> Scene:
    """One to five shapes, each in its own ninth of the picture; a lone one may be large or anywhere in its ninth."""
    background = pick_background(rng)
    canvas = Canvas(rng, size, background)
    count = rng.choices((1, 2, 3, 4, 5), (38, 27, 17, 10, 8))[0]
    cells = sorted(rng.sample(range(9), count))
    if count == 1 and rng.random() < 0.5:
        cells = [4]
    items = []
    for cell in cells:
        color, shape = pick_color(rng, background), rng.choice(list(SHAPES))
        if items and rng.random() < 0.3:
            color, shape = items[0][0], items[0][1] if rng.random() < 0.6 else shape
        _place_shape(rng, canvas, cell, color, shape, alone=count == 1)
        items.append((color, shape, cell))
    return canvas.finish(rng, {"scene": "shapes", "background": background, "items": items})


def _place_shape(rng: random.Random, canvas: Canvas, cell: int, color: str, shape: str, *, alone: bool) -> None:
    w, h = canvas.width / 3, canvas.height / 3
    cx, cy = (cell % 3 + 0.5) * w, (cell // 3 + 0.5) * h
    room = min(w, h) / 2
    if alone and cell == 4:
        room = min(canvas.width, canvas.height) / 2
        r = room * rng.uniform(0.3, 0.95)
    else:
        r = room * rng.uniform(0.55, 0.95)
    slack = max(0.0, min(room - r, room * 0.3))
    cx, cy = cx + rng.uniform(-slack, slack), cy + rng.uniform(-slack, slack)
    canvas.shape(shape, cell, cx, cy, r, shade(rng, color))


def plain_scene(rng: random.Random, size: tuple[int, int]) -> Scene:
    color = rng.choice(list(COLORS))
    return Canvas(rng, size, color).finish(rng, {"scene": "plain", "background": color})


def band_scene(rng: random.Random, size: tuple[int, int]) -> Scene:
    """A band of colour along one edge."""
    background = pick_background(rng)
    canvas = Canvas(rng, size, background)
    cell, edge, _ = rng.choice(EDGES)
    color, part = pick_color(rng, background), rng.uniform(0.1, 0.35)
    w, h = canvas.width, canvas.height
    box = {
        "top": (0, 0, w, h * part),
        "bottom": (0, h * (1 - part), w, h),
        "left": (0, 0, w * part, h),
        "right": (w * (1 - part), 0, w, h),
    }
    canvas.draw.rectangle(box[edge], fill=shade(rng, color))
    return canvas.finish(rng, {"scene": "band", "background": background, "color": color, "cell": cell})


def _fit(lines: list[str], width: float, height: float, least: float) -> float:
    """The largest font size at which the lines fit, in canvas pixels; less than `least` means they do not."""
    longest = max(font(100).getlength(line) for line in lines) / 100
    return min(width * 0.94 / longest, height * 0.96 / (len(lines) * 1.3), least * 6)


def _write_lines(rng: random.Random, canvas: Canvas, lines: list[str], box: tuple, color: str) -> bool:
    """Lines inside the box (fractions), at a random size that the model can read; False if they cannot fit."""
    left, top, right, bottom = box
    width, height = (right - left) * canvas.width, (bottom - top) * canvas.height
    least = LEAST_FONT * canvas.scale
    most = _fit(lines, width, height, least)
    if most < least:
        return False
    size = int(least * (most / least) ** rng.random())
    leading = size * rng.uniform(1.15, 1.5)
    leading = min(leading, height / len(lines))
    block_w, block_h = max(font(size).getlength(line) for line in lines), leading * (len(lines) - 1) + size * 1.2
    x0 = left * canvas.width + rng.uniform(0.02 * width, max(0.02 * width, width - block_w))
    y0 = top * canvas.height + rng.uniform(0, max(0.0, height - block_h))
    fill = shade(rng, color)
    centred = rng.random() < 0.3
    for i, line in enumerate(lines):
        indent = (block_w - font(size).getlength(line)) / 2 if centred else 0
        canvas.text(x0 + indent, y0 + i * leading, line, size, fill)
    return True


def _ink(rng: random.Random, background: str) -> str:
    dark = {"white", "yellow", "pink", "cyan", "gray", "orange"}
    if background == "gray":
        return rng.choice(("black", "white"))
    if background in dark:
        return rng.choices(("black", "blue", "red", "green", "purple"), (14, 2, 2, 1, 1))[0]
    return rng.choices(("white", "yellow"), (8, 2))[0]


def text_scene(rng: random.Random, size: tuple[int, int]) -> Scene:
    """A card with one or two printed lines; labelled values now and then."""
    background = pick_background(rng) if rng.random() < 0.6 else "white"
    canvas = Canvas(rng, size, background)
    ink = _ink(rng, background)
    while True:
        if rng.random() < 0.2:
            names = rng.sample(list(LABELS), rng.randint(1, 2))
            labels = {name: LABELS[name](rng) for name in names}
            lines, kinds = [f"{name}: {value}" for name, value in labels.items()], ["label"]
        else:
            pairs = [make_line(rng) for _ in range(rng.choices((1, 2), (80, 20))[0])]
            lines, kinds, labels = [line for line, _ in pairs], [kind for _, kind in pairs], {}
        if _write_lines(rng, canvas, lines, (0, 0, 1, 1), ink):
            break
    facts = {"scene": "text", "background": background, "lines": lines, "kinds": kinds, "labels": labels}
    return canvas.finish(rng, facts)


def mixed_scene(rng: random.Random, size: tuple[int, int]) -> Scene:
    """One shape and one line of text, side by side or one above the other."""
    background = pick_background(rng)
    canvas = Canvas(rng, size, background)
    color, shape = pick_color(rng, background), rng.choice(list(SHAPES))
    wide = canvas.width > canvas.height * 1.15
    first = rng.random() < 0.5
    cell = (3 if first else 5) if wide else (1 if first else 7)
    _place_shape(rng, canvas, cell, color, shape, alone=False)
    if wide:
        box = (0.38, 0.1, 1, 0.9) if first else (0, 0.1, 0.62, 0.9)
    else:
        box = (0, 0.4, 1, 1) if first else (0, 0, 1, 0.6)
    ink = _ink(rng, background)
    while True:
        line, kind = make_line(rng)
        if _write_lines(rng, canvas, [line], box, ink):
            break
    facts = {
        "scene": "mixed",
        "background": background,
        "items": [(color, shape, cell)],
        "lines": [line],
        "kinds": [kind],
        "labels": {},
    }
    return canvas.finish(rng, facts)


def dense_text_scene(rng: random.Random, size: tuple[int, int]) -> Scene:
    """As much text as fits, to teach the vision tower its letters before anything else."""
    background = pick_background(rng) if rng.random() < 0.5 else "white"
    canvas = Canvas(rng, size, background)
    fill = shade(rng, _ink(rng, background))
    y = rng.uniform(0, 14) * canvas.scale
    while True:
        face_size = int((12 + 34 * rng.random() ** 2) * canvas.scale)
        if y + face_size * 1.2 > canvas.height:
            break
        x = rng.uniform(0, 20) * canvas.scale
        line = ""
        while font(face_size).getlength(line) + x < canvas.width:
            line += (
                "".join(rng.choice(CHARACTERS) for _ in range(rng.randint(1, 8)))
                if rng.random() < 0.6
                else make_line(rng)[0]
            )
            line += " "
        while line and font(face_size).getlength(line) + x > canvas.width:
            line = line[:-1]
        canvas.text(x, y, line, face_size, fill)
        y += face_size * rng.uniform(1.15, 1.6)
    return canvas.finish(rng, {"scene": "dense", "background": background})


def make_scene(rng: random.Random, size: tuple[int, int]) -> Scene:
    maker = rng.choices((shapes_scene, text_scene, mixed_scene, plain_scene, band_scene), (44, 36, 11, 4, 5))[0]
    return maker(rng, size)
