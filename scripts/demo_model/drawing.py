"""What the demo model's pictures are drawn with: colours people name, shapes, places, a canvas that remembers
letters and shapes.

Pillow alone, with its bundled scalable font. Knows no scenes and no questions.
"""

import io
import math
import random
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


@dataclass
class Glyph:
    """Where a character's centre lies, in fractions of the picture's width and height."""

    char: str
    x: float
    y: float


@dataclass
class Mark:
    """Where a shape lies: its centre and its radius, both in fractions of the picture's width and height."""

    shape: str
    cell: int
    x: float
    y: float
    rx: float
    ry: float


@dataclass
class Scene:
    picture: Image.Image
    facts: dict
    glyphs: list[Glyph] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


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
    radius = r if i % 2 == 0 else r * 0.45
    angle = math.pi * i / 5 - math.pi / 2
    return cx + radius * math.cos(angle), cy + radius * math.sin(angle)


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
        self.marks: list[Mark] = []

    def shape(self, shape: str, cell: int, cx: float, cy: float, r: float, fill) -> None:
        """Draw a shape around cx, cy, which lies in ninth `cell`; remember it."""
        draw_shape(self.draw, shape, cx, cy, r, fill)
        w, h = self.width, self.height
        self.marks.append(Mark(shape, cell, cx / w, cy / h, r / w, r / h))

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
        return Scene(image, facts, self.glyphs, self.marks)


def _through_jpeg(image: Image.Image, quality: int) -> Image.Image:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=quality)
    return Image.open(data).convert("RGB")
