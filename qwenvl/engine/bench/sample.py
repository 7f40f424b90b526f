"""What every engine is asked while it is measured: one picture of noise, one question. Knows no engine."""

import hashlib

import numpy as np
from PIL import Image

from qwenvl.images import Picture
from qwenvl.messages import Options, Question

PICTURE_SIZE = (1024, 768)
QUESTION, FOLLOWUP = "What is in this picture?", "And what else?"


def sample_picture(size: tuple[int, int] = PICTURE_SIZE, seed: int = 0) -> Picture:
    """Noise of (width, height) pixels: what is in a picture does not change how long it takes."""
    width, height = size
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Picture(Image.fromarray(pixels), hashlib.sha256(pixels.tobytes()).hexdigest(), "balanced", width, height)


def sample_question(picture: Picture, text: str = QUESTION, tokens: int = 32) -> Question:
    """`text` about a picture, to be answered in `tokens` tokens."""
    return Question((picture,), text, (), Options(max_new_tokens=tokens))
