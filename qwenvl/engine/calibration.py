"""Pictures to try a freshly quantised model on: a printed form, a drawing and a photograph-like gradient on one sheet.

One sheet, because every weight is then needed once. Drawn here, so that nothing has to be shipped; what they show
matters little, that there are edges, print and plain areas does.
"""

import hashlib
import random

from PIL import Image, ImageDraw, ImageFilter, ImageFont

from qwenvl.images import Picture

SIDE = 176
QUESTION = "Read the text in this picture, then describe the rest. 请描述这张图片。"


def calibration_picture() -> Picture:
    """Four pictures of SIDE x SIDE pixels, two by two."""
    rng = random.Random(0)
    sheet = Image.new("RGB", (2 * SIDE, 2 * SIDE), "white")
    parts = (_form(rng), _shapes(rng), _landscape(rng), _noise(rng))
    for i, part in enumerate(parts):
        sheet.paste(part, (i % 2 * SIDE, i // 2 * SIDE))
    return Picture(sheet, hashlib.sha256(sheet.tobytes()).hexdigest(), "balanced", *sheet.size)


def _form(rng: random.Random) -> Image.Image:
    image = Image.new("RGB", (SIDE, SIDE), (250, 248, 240))
    draw = ImageDraw.Draw(image)
    for line, size in enumerate((24, 16, 12, 12, 10, 18)):
        text = f"No. {rng.randrange(10**6):06d}   {rng.uniform(1, 999):.2f}"
        draw.text((12, 8 + 27 * line), text, fill=(20, 20, 40), font=ImageFont.load_default(size))
    draw.rectangle((6, 6, SIDE - 7, SIDE - 7), outline=(90, 90, 90), width=2)
    return image


def _shapes(rng: random.Random) -> Image.Image:
    image = Image.new("RGB", (SIDE, SIDE), (30, 60, 110))
    draw = ImageDraw.Draw(image)
    for _ in range(7):
        x, y, r = rng.randrange(SIDE), rng.randrange(SIDE), rng.randrange(10, 40)
        color = tuple(rng.randrange(256) for _ in range(3))
        (draw.ellipse if rng.random() < 0.5 else draw.rectangle)((x - r, y - r, x + r, y + r), fill=color)
    return image


def _landscape(rng: random.Random) -> Image.Image:
    """Broad soft forms, as in a photograph out of focus."""
    image = Image.new("RGB", (8, 8))
    image.putdata([tuple(rng.randrange(256) for _ in range(3)) for _ in range(64)])
    return image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def _noise(rng: random.Random) -> Image.Image:
    """Texture: leaves, cloth, gravel."""
    image = Image.frombytes("RGB", (SIDE, SIDE), rng.randbytes(3 * SIDE * SIDE))
    return image.filter(ImageFilter.GaussianBlur(1.5))
