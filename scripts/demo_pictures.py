"""Pictures with known answers, from which the demo model learns and is judged.

A `Scene` is drawn with Pillow alone (its bundled scalable font) and knows every question that can be asked about it
with the one right answer, in English and Chinese. The same seed gives the same pictures. Knows nothing of models or
tokens.
"""

import random
import re
from dataclasses import dataclass, field
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

# name -> (Chinese, sRGB anchors that people mean by the word)
COLORS = {
    "red": ("红色", ((255, 0, 0), (220, 30, 35), (200, 0, 0))),
    "orange": ("橙色", ((255, 165, 0), (255, 140, 0), (245, 130, 30))),
    "yellow": ("黄色", ((255, 255, 0), (250, 220, 40), (255, 235, 60))),
    "green": ("绿色", ((0, 128, 0), (0, 255, 0), (40, 170, 60), (0, 200, 0))),
    "blue": ("蓝色", ((0, 0, 255), (30, 80, 220), (0, 0, 180), (65, 105, 225))),
    "purple": ("紫色", ((128, 0, 128), (140, 50, 170), (150, 60, 200))),
    "pink": ("粉色", ((255, 192, 203), (255, 150, 180), (255, 105, 180))),
    "brown": ("棕色", ((139, 69, 19), (150, 75, 0), (120, 70, 40))),
    "black": ("黑色", ((0, 0, 0), (20, 20, 20))),
    "white": ("白色", ((255, 255, 255), (250, 250, 250))),
    "gray": ("灰色", ((128, 128, 128), (150, 150, 150), (110, 110, 110))),
    "cyan": ("青色", ((0, 255, 255), (0, 200, 210), (60, 220, 230))),
}
# pairs too close to tell apart when they touch
CLOSE = {
    frozenset(p)
    for p in (
        ("orange", "yellow"),
        ("white", "yellow"),
        ("pink", "white"),
        ("brown", "black"),
        ("cyan", "white"),
        ("brown", "purple"),
        ("blue", "black"),
        ("purple", "black"),
        ("brown", "red"),
        ("brown", "gray"),
    )
}
SHAPES = {"circle": "圆形", "square": "正方形", "triangle": "三角形", "star": "星形"}
PLACES = (
    ("top left", "左上"), ("top", "上方"), ("top right", "右上"),
    ("left", "左边"), ("center", "中间"), ("right", "右边"),
    ("bottom left", "左下"), ("bottom", "下方"), ("bottom right", "右下"),
)  # fmt: skip
EDGES = ((1, "top", "上方"), (3, "left", "左边"), (5, "right", "右边"), (7, "bottom", "下方"))
NUMBERS_ZH = "零一两三四五六七八九"
WORDS = (
    "hello world invoice total receipt order paid open closed exit stop start coffee tea milk bread apple orange "
    "banana water sugar salt rice fish beef soup pizza hotel room floor street road city north south east west "
    "monday tuesday friday sunday january march april june july august october name date price amount tax item "
    "number code phone email address sale free new old big small fast slow red green blue black white warning "
    "danger private public office school park bank shop market station airport ticket seat gate train bus taxi "
    "push pull entry menu lunch dinner breakfast welcome thanks please sorry happy birthday love peace music "
    "movie book paper pencil table chair window door house garden flower river mountain ocean island summer "
    "winter spring autumn morning evening night today tomorrow data test model image picture question answer "
    "computer python server memory energy power light sound video camera "
).split()
# every character the model learns to read
CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz$.,:-/#%+&!?"

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
SIZE_WEIGHTS = (7, 7, 3, 6, 2, 4, 2, 2, 2, 2, 2)


@dataclass(frozen=True)
class QA:
    """One question and its only right answer. `kind` names the skill; `reading` says which score it counts for."""

    question: str
    answer: str
    kind: str
    reading: bool = False


@dataclass
class Glyph:
    """Where a character's centre lies, in fractions of the picture's width and height."""

    char: str
    x: float
    y: float


@dataclass
class Scene:
    picture: Image.Image
    facts: dict
    glyphs: list[Glyph] = field(default_factory=list)


@lru_cache(maxsize=256)
def font(size: int):
    return ImageFont.load_default(size)


def shade(rng: random.Random, name: str) -> tuple[int, int, int]:
    """An sRGB colour that people call `name`: an anchor, sometimes a little off."""
    anchor = rng.choice(COLORS[name][1])
    if rng.random() < 0.4:
        return anchor
    return tuple(max(0, min(255, v + rng.randint(-10, 10))) for v in anchor)


def pick_background(rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.5:
        return "white"
    return rng.choice(["gray", "black", "white", *COLORS])


def pick_color(rng: random.Random, *avoid: str) -> str:
    names = [c for c in COLORS if c not in avoid and not any(frozenset((c, a)) in CLOSE for a in avoid)]
    return rng.choice(names)


def draw_shape(draw: ImageDraw.ImageDraw, shape: str, cx: float, cy: float, r: float, fill) -> None:
    """One shape inside the circle of radius r (the square a little inside, so that all look alike in size)."""
    if shape == "circle":
        draw.ellipse((cx - r, cy - r, cx + r, cy + r), fill=fill)
    elif shape == "square":
        s = r * 0.9
        draw.rectangle((cx - s, cy - s, cx + s, cy + s), fill=fill)
    elif shape == "triangle":
        draw.polygon([(cx, cy - r), (cx - r * 0.95, cy + r * 0.8), (cx + r * 0.95, cy + r * 0.8)], fill=fill)
    else:
        draw.polygon([_star_point(i, cx, cy, r) for i in range(10)], fill=fill)


def _star_point(i: int, cx: float, cy: float, r: float) -> tuple[float, float]:
    from math import cos, pi, sin

    radius = r if i % 2 == 0 else r * 0.45
    angle = pi * i / 5 - pi / 2
    return cx + radius * cos(angle), cy + radius * sin(angle)


class Canvas:
    """A picture in the making, drawn at another scale than the model sees, as users' pictures are."""

    def __init__(self, rng: random.Random, size: tuple[int, int], background: str):
        self.size = size
        scale = 1.0 if rng.random() < 0.35 else rng.uniform(0.8, 2.6)
        self.scale = scale
        stretch = 1.0 if rng.random() < 0.5 else rng.uniform(0.87, 1.15)
        self.width, self.height = round(size[0] * scale * stretch), round(size[1] * scale)
        self.ground = shade(rng, background)
        self.image = Image.new("RGB", (self.width, self.height), self.ground)
        self.draw = ImageDraw.Draw(self.image)
        self.glyphs: list[Glyph] = []

    def text(self, x: float, y: float, text: str, size: int, fill) -> None:
        """Write `text` with its left top at x, y; remember each character's centre."""
        face = font(size)
        self.draw.text((x, y), text, font=face, fill=fill)
        for i, char in enumerate(text):
            if char == " ":
                continue
            left, right = face.getlength(text[:i]), face.getlength(text[: i + 1])
            self.glyphs.append(Glyph(char, (x + (left + right) / 2) / self.width, (y + size * 0.62) / self.height))

    def finish(self, rng: random.Random, facts: dict) -> Scene:
        image = self.image
        if rng.random() < 0.12:
            image = _through_jpeg(image, rng.randint(55, 95))
        image = image.resize(self.size, Image.Resampling.BICUBIC)
        return Scene(image, facts, self.glyphs)


def _through_jpeg(image: Image.Image, quality: int) -> Image.Image:
    import io

    data = io.BytesIO()
    image.save(data, "JPEG", quality=quality)
    return Image.open(data).convert("RGB")


# --- scenes ---------------------------------------------------------------------------------------------------------


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
    draw_shape(canvas.draw, shape, cx, cy, r, shade(rng, color))


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


def make_number(rng: random.Random) -> str:
    digits = rng.choices(range(1, 9), (4, 8, 10, 16, 12, 10, 5, 4))[0]
    return str(rng.randint(1, 9)) + "".join(rng.choice("0123456789") for _ in range(digits - 1))


def make_amount(rng: random.Random) -> str:
    value = rng.choice((rng.uniform(1, 100), rng.uniform(10, 1000), rng.uniform(1000, 20000)))
    text = f"{value:,.2f}" if rng.random() < 0.6 else f"{value:.2f}"
    return rng.choice(("$", "$", "")) + text


def make_word(rng: random.Random) -> str:
    if rng.random() < 0.3:
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if rng.random() < 0.6 else "abcdefghijklmnopqrstuvwxyz"
        return "".join(rng.choice(letters) for _ in range(rng.randint(2, 7)))
    word = rng.choice(WORDS)
    return rng.choice((word.upper(), word.upper(), word.title(), word.title(), word))


def make_code(rng: random.Random) -> str:
    letters = "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(2, 5)))
    return letters + rng.choice(("-", "", "#", " ")) + digits


def make_date(rng: random.Random) -> str:
    return f"20{rng.randint(10, 39)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


LABELS = {
    "Total": make_amount,
    "Date": make_date,
    "No": make_number,
    "Tax": make_amount,
    "Order": make_number,
    "Price": make_amount,
}


def make_line(rng: random.Random) -> tuple[str, str]:
    """A line of text and its kind."""
    kind = rng.choices(("number", "amount", "word", "words", "code", "date"), (32, 18, 22, 10, 12, 6))[0]
    if kind == "words":
        return f"{make_word(rng)} {make_word(rng) if rng.random() < 0.6 else make_number(rng)}", kind
    return {"number": make_number, "amount": make_amount, "word": make_word, "code": make_code, "date": make_date}[
        kind
    ](rng), kind


def _fit(lines: list[str], width: float, height: float, least: float) -> float:
    """The largest font size at which the lines fit, in canvas pixels; less than `least` means they do not."""
    longest = max(font(100).getlength(line) for line in lines) / 100
    return min(width * 0.94 / longest, height * 0.96 / (len(lines) * 1.3), least * 6)


def _write_lines(rng: random.Random, canvas: Canvas, lines: list[str], box: tuple, color: str) -> bool:
    """Lines inside the box (fractions), at a random size that the model can read; False if they cannot fit."""
    left, top, right, bottom = box
    width, height = (right - left) * canvas.width, (bottom - top) * canvas.height
    least = 13 * canvas.scale
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
    """A card with one to three printed lines; labelled values now and then."""
    background = pick_background(rng) if rng.random() < 0.6 else "white"
    canvas = Canvas(rng, size, background)
    ink = _ink(rng, background)
    while True:
        if rng.random() < 0.2:
            names = rng.sample(list(LABELS), rng.randint(1, 3))
            labels = {name: LABELS[name](rng) for name in names}
            lines, kinds = [f"{name}: {value}" for name, value in labels.items()], ["label"]
        else:
            pairs = [make_line(rng) for _ in range(rng.choices((1, 2, 3), (70, 20, 10))[0])]
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


# --- questions ------------------------------------------------------------------------------------------------------


def a(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def questions(scene: Scene, rng: random.Random, zh: bool) -> list[QA]:
    """Everything that can be asked about the scene in one language, each kind once, in random wording."""
    facts, found = scene.facts, []
    found += _describe(facts, rng, zh)
    if "items" in facts:
        found += _about_items(facts["items"], rng, zh) * 2
    if facts["scene"] in ("shapes", "mixed", "text"):
        found += _background(facts, rng, zh) if rng.random() < 0.4 else []
    if facts["scene"] == "plain":
        found += _plain(facts, rng, zh)
    if facts["scene"] == "band":
        found += _band(facts, rng, zh)
    if "lines" in facts:
        found += _about_text(facts, rng, zh) * 3
    return found


def color_zh(name: str) -> str:
    return COLORS[name][0]


def _item_phrase(item, zh: bool) -> str:
    color, shape, cell = item
    if zh:
        return f"{PLACES[cell][1]}有一个{color_zh(color)}{SHAPES[shape]}"
    return f"{a(color)} {shape} {at(cell)}"


def at(cell: int) -> str:
    return "in the center" if cell == 4 else f"at the {PLACES[cell][0]}"


def _join(parts: list[str], zh: bool) -> str:
    if zh:
        return "，".join(parts)
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def description(facts: dict, zh: bool) -> str:
    ground = f"{color_zh(facts['background'])}背景" if zh else f"{a(facts['background'])} background"
    if facts["scene"] == "plain":
        return f"一张纯{color_zh(facts['background'])}的图片。" if zh else f"A plain {facts['background']} picture."
    if facts["scene"] == "band":
        place = PLACES[facts["cell"]]
        color = facts["color"]
        return (
            f"{ground}，{place[1]}有一条{color_zh(color)}的带子。"
            if zh
            else f"{a(color).capitalize()} band at the {place[0]} on {ground}."
        )
    parts = [_item_phrase(item, zh) for item in facts.get("items", ())]
    if "lines" in facts:
        text = " ".join(facts["lines"])
        parts.append(f"写着“{text}”" if zh else f'the text "{text}"')
    whole = _join(parts, zh)
    return f"{ground}，{whole}。" if zh else f"{whole[0].upper()}{whole[1:]} on {ground}."


def _describe(facts: dict, rng: random.Random, zh: bool) -> list[QA]:
    q = rng.choice(
        (
            "请描述这张图片",
            "请描述这张图片",
            "描述这张图片。",
            "图片里有什么？",
            "这是什么？",
            "请描述一下图片内容。",
            "你看到了什么？",
        )
        if zh
        else (
            "Describe this picture.",
            "Describe the image.",
            "What is in this picture?",
            "What do you see?",
            "Describe this image.",
            "What is this?",
        )
    )
    return [QA(q, description(facts, zh), "describe", reading="lines" in facts)]


def _about_items(items: list, rng: random.Random, zh: bool) -> list[QA]:
    found = []
    shapes, colors = [i[1] for i in items], [i[0] for i in items]
    lone_shapes = [i for i in items if shapes.count(i[1]) == 1]
    lone_colors = [i for i in items if colors.count(i[0]) == 1]
    if lone_shapes:
        found += _color_of(rng.choice(lone_shapes), rng, zh)
        found += _place_of(rng.choice(lone_shapes), rng, zh)
    if lone_colors:
        found += _shape_of(rng.choice(lone_colors), len(items), rng, zh)
    found += _count(shapes, rng, zh) + _is_there(items, rng, zh)
    return found


def _color_of(item, rng: random.Random, zh: bool) -> list[QA]:
    color, shape, _ = item
    if zh:
        s = SHAPES[shape]
        short = {
            "圆形": ("圆形", "圆", "圆圈"),
            "正方形": ("正方形", "方块"),
            "三角形": ("三角形",),
            "星形": ("星形", "星星"),
        }[s]
        q = rng.choice(
            ("{}是什么颜色？", "{}是什么颜色的？", "图中的{}是什么颜色？", "这个{}是什么颜色？", "{}的颜色是什么？")
        ).format(rng.choice(short))
        return [QA(q, f"{s}是{color_zh(color)}的。", "color")]
    q = rng.choice(
        (
            "What color is the {}?",
            "What color is the {}?",
            "What colour is the {}?",
            "What is the color of the {}?",
            "Which color does the {} have?",
        )
    ).format(shape)
    return [QA(q, f"The {shape} is {color}.", "color")]


def _place_of(item, rng: random.Random, zh: bool) -> list[QA]:
    _, shape, cell = item
    if zh:
        q = rng.choice(("{}在哪里？", "{}在什么位置？", "图中的{}在哪里？")).format(SHAPES[shape])
        return [QA(q, f"{SHAPES[shape]}在{PLACES[cell][1]}。", "place")]
    q = rng.choice(
        ("Where is the {}?", "Where is the {} in the picture?", "In which part of the picture is the {}?")
    ).format(shape)
    return [QA(q, f"The {shape} is {at(cell)}.", "place")]


def _shape_of(item, count: int, rng: random.Random, zh: bool) -> list[QA]:
    color, shape, _ = item
    if zh:
        q = rng.choice(("{}的是什么形状？", "{}的图形是什么形状？")).format(color_zh(color))
        if count == 1 and rng.random() < 0.5:
            q = rng.choice(("这是什么形状？", "图中是什么形状？"))
        return [QA(q, f"是{SHAPES[shape]}。", "shape")]
    q = rng.choice(("What shape is {}?", "Which shape is {}?", "What is the {} shape?")).format(color)
    if count == 1 and rng.random() < 0.5:
        q = rng.choice(("What shape is this?", "What shape is it?", "What shape is in the picture?"))
    return [QA(q, f"It is a {shape}.", "shape")]


def _count(shapes: list[str], rng: random.Random, zh: bool) -> list[QA]:
    shape = rng.choice(shapes) if rng.random() < 0.8 else rng.choice(list(SHAPES))
    everything = rng.random() < 0.45
    n = len(shapes) if everything else shapes.count(shape)
    if zh:
        q = rng.choice(("有几个{}？", "图中有几个{}？", "有多少个{}？")).format("图形" if everything else SHAPES[shape])
        return [QA(q, f"有{n}个{'图形' if everything else SHAPES[shape]}。", "count")]
    noun = "shape" if everything else shape
    q = rng.choice(("How many {}s are there?", "How many {}s are in the picture?", "How many {}s do you see?")).format(
        noun
    )
    verb = "is" if n == 1 else "are"
    return [QA(q, f"There {verb} {n} {noun}{'' if n == 1 else 's'}.", "count")]


def _is_there(items: list, rng: random.Random, zh: bool) -> list[QA]:
    color, shape, _ = rng.choice(items)
    if rng.random() < 0.5:
        color, shape = rng.choice(list(COLORS)), rng.choice(list(SHAPES)) if rng.random() < 0.5 else shape
    there = any((c, s) == (color, shape) for c, s, _ in items)
    if zh:
        q = rng.choice(("有{}{}吗？", "图中有没有{}{}？")).format(color_zh(color), SHAPES[shape])
        return [QA(q, f"{'有' if there else '没有'}{color_zh(color)}{SHAPES[shape]}。", "yesno")]
    q = rng.choice(("Is there {} {}?", "Do you see {} {}?")).format(a(color), shape)
    return [QA(q, f"Yes, there is {a(color)} {shape}." if there else f"No, there is no {color} {shape}.", "yesno")]


def _background(facts: dict, rng: random.Random, zh: bool) -> list[QA]:
    color = facts["background"]
    if zh:
        return [QA(rng.choice(("背景是什么颜色？", "背景色是什么？")), f"背景是{color_zh(color)}的。", "background")]
    return [
        QA(
            rng.choice(("What color is the background?", "What is the background color?")),
            f"The background is {color}.",
            "background",
        )
    ]


def _plain(facts: dict, rng: random.Random, zh: bool) -> list[QA]:
    color = facts["background"]
    if zh:
        q = rng.choice(("这是什么颜色？", "图片是什么颜色？", "这张图片是什么颜色？", "主要是什么颜色？"))
        return [QA(q, f"图片是{color_zh(color)}的。", "color")] * 3
    q = rng.choice(
        (
            "What color is this?",
            "What color is the picture?",
            "What color is this picture?",
            "What color is this image?",
            "What is the main color?",
            "What color do you see?",
        )
    )
    return [QA(q, f"The picture is {color}.", "color")] * 3


def _band(facts: dict, rng: random.Random, zh: bool) -> list[QA]:
    color, (place, place_zh) = facts["color"], PLACES[facts["cell"]]
    if zh:
        where = rng.choice(("带子在哪里？", f"{color_zh(color)}的带子在哪里？", "带子在哪一边？"))
        return [
            QA(where, f"带子在{place_zh}。", "place"),
            QA("带子是什么颜色？", f"带子是{color_zh(color)}的。", "color"),
        ] * 2
    where = rng.choice(("Where is the band?", f"Where is the {color} band?", f"On which side is the {color} band?"))
    return [
        QA(where, f"The band is at the {place}.", "place"),
        QA("What color is the band?", f"The band is {color}.", "color"),
    ] * 2


def _about_text(facts: dict, rng: random.Random, zh: bool) -> list[QA]:
    read = rng.choice(
        (
            "图片上写了什么？",
            "读出所有文字。",
            "请读出图中的文字。",
            "上面写着什么？",
            "图片里的文字是什么？",
            "写的是什么？",
            "读出文字。",
        )
        if zh
        else (
            "What does it say?",
            "What does the text say?",
            "Read the text.",
            "Read all text.",
            "What is written in the picture?",
            "Read the text in this picture.",
            "What text is shown?",
            "Read all the text in this image.",
        )
    )
    found = [QA(read, "\n".join(facts["lines"]), "read", reading=True)]
    for name, value in facts["labels"].items():
        found.append(_about_label(name, value, rng, zh))
    kinds = facts["kinds"]
    digits = re.findall(r"\d+", " ".join(facts["lines"]))
    if len(digits) == 1 and set(kinds) <= {"number", "word", "words"}:
        q = rng.choice(
            ("数字是多少？", "图中的数字是什么？", "卡片上的数字是多少？", "读出数字。", "号码是多少？")
            if zh
            else (
                "What number is shown?",
                "What is the number?",
                "What number is on the card?",
                "What number is in the picture?",
                "Read the number.",
                "Which number do you see?",
                "What number is this?",
            )
        )
        found.append(QA(q, digits[0], "number", reading=True))
    if kinds.count("amount") == 1:
        q = rng.choice(
            ("金额是多少？", "多少钱？", "价格是多少？", "总额是多少？")
            if zh
            else (
                "What is the amount?",
                "How much is it?",
                "What is the price?",
                "What amount is shown?",
                "What is the total?",
            )
        )
        found.append(QA(q, facts["lines"][kinds.index("amount")], "amount", reading=True))
    if kinds == ["word"]:
        q = rng.choice(
            ("这个词是什么？", "写着什么词？")
            if zh
            else ("What word is shown?", "What is the word?", "Which word is in the picture?", "Read the word.")
        )
        found.append(QA(q, facts["lines"][0], "word", reading=True))
    return found


LABELS_ZH = {"Total": "总额", "Date": "日期", "No": "编号", "Tax": "税", "Order": "订单号", "Price": "价格"}
LABELS_EN = {"Total": "total", "Date": "date", "No": "number", "Tax": "tax", "Order": "order number", "Price": "price"}


def _about_label(name: str, value: str, rng: random.Random, zh: bool) -> QA:
    if zh:
        return QA(rng.choice(("{}是多少？", "{}是什么？")).format(LABELS_ZH[name]), value, "label", reading=True)
    return QA(rng.choice(("What is the {}?", "Read the {}.")).format(LABELS_EN[name]), value, "label", reading=True)


NO_PICTURE = {False: "Please give me a picture first.", True: "请先给我一张图片。"}
SMALL_TALK = {
    False: ("Hello", "Hi", "Who are you?", "What can you do?", "Hello!"),
    True: ("你好", "你是谁？", "你能做什么？", "你好！"),
}


def reword(question: str, rng: random.Random) -> str:
    """The same question as people type it: without its mark, in lower case, with a half-width mark."""
    if rng.random() < 0.2:
        question = question.rstrip("?？.。")
    elif rng.random() < 0.1:
        question = question.replace("？", "?")
    if rng.random() < 0.15 and question.isascii():
        question = question[0].lower() + question[1:]
    return question


def of_several(qa: QA, index: int, zh: bool) -> QA:
    """The same question about the first or second of two pictures."""
    if zh:
        return QA(f"第{'一二'[index]}张图片：{qa.question}", qa.answer, qa.kind, qa.reading)
    return QA(f"In the {('first', 'second')[index]} picture: {qa.question}", qa.answer, qa.kind, qa.reading)
