"""Bytes to pictures: an accepted file becomes an upright RGB picture of bounded size, or an error that says why not.

The bytes alone decide; names and declared types are never looked at. Knows nothing of the web, and of the model only
that it takes no picture more than 200 times as long as wide.
"""

import base64
import binascii
import contextlib
import hashlib
import io
import math
import struct
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from PIL import ExifTags, Image, ImageStat, features

from qwenvl.errors import (
    EmptyImage,
    ImageFileTooLarge,
    ImageTooLarge,
    InvalidBase64,
    InvalidImage,
    InvalidRequest,
    QwenVLError,
    UnsupportedImageType,
)

MIB = 1024 * 1024

# detail -> (longest side, most pixels in all) after shrinking.
DETAIL_LIMITS = {"fast": (640, 640 * 640), "balanced": (1024, 1024 * 1024), "fine": (1536, 1536 * 1024)}
ACCEPTED = ("JPEG", "PNG", "WebP", "GIF", "BMP", "TIFF") + (("AVIF",) if features.check("avif") else ())
MAX_ASPECT = 100
MIN_SIDE = 8  # a side of 1 or 3 pixels is easily taken for the colour channels

_STARTS = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "BMP": (b"BM",),
    "TIFF": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "PDF": (b"%PDF-",),
    "PostScript": (b"%!PS",),
    "Photoshop": (b"8BPS",),
    "JPEG XL": (b"\xff\x0a", b"\0\0\0\x0cJXL "),
    "JPEG 2000": (b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  "),
    "Icon": (b"\0\0\1\0",),
    "ZIP and office": (b"PK\3\4",),
    "GZIP": (b"\x1f\x8b",),
    "Video": (b"\x1aE\xdf\xa3",),
}
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Picture:
    """A picture as the model may have it. `width` and `height` are the upright file's, `rgb` is shrunk to `detail`."""

    rgb: Image.Image = field(repr=False, compare=False)
    sha256: str
    detail: str
    width: int
    height: int
    notes: tuple[str, ...] = ()


def read_picture(data: bytes, *, detail: str = "balanced", max_bytes: int = 16 * MIB, max_pixels: int = 50_000_000,
                 room: Callable = contextlib.nullcontext) -> Picture:  # fmt: skip
    """Decode a picture's file, within `room(opened)`. Raises the 400, 413 or 415 that says what to do instead."""
    if detail not in DETAIL_LIMITS:
        raise InvalidRequest(f"detail must be one of {', '.join(DETAIL_LIMITS)}.")
    kind = _checked_kind(data, max_bytes)
    with _decoder_errors(max_pixels):
        image = _open(data, kind, max_pixels)
        width, height = image.size
        with room(image):
            rgb = _decoded(image, _shrunk_size(image.size, *DETAIL_LIMITS[detail]))
        orientation = _orientation(image)
    if orientation in _UPRIGHT:
        rgb = rgb.transpose(_UPRIGHT[orientation])
    if orientation >= 5:
        width, height = height, width
    legal = _with_legal_shape(rgb, DETAIL_LIMITS[detail][0])
    notes = _frame_notes(image) + _shape_notes(rgb, legal)
    return Picture(legal, hashlib.sha256(data).hexdigest(), detail, width, height, notes)


def decode_base64(text: str) -> bytes:
    """The bytes of a picture sent as text: plain or URL-safe, with or without padding, line breaks or `data:`."""
    body = "".join(line.strip() for line in text.splitlines())
    if body[:5].lower() == "data:":
        head, comma, body = body.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise InvalidBase64("A data: URL must have the form data:image/png;base64,… .")
        body = urllib.parse.unquote(body)
    if " " in body:
        raise InvalidBase64("The base64 text has spaces in it; a form must send + as %2B.")
    body = body.rstrip("=").replace("-", "+").replace("_", "/")
    if not body:
        raise InvalidBase64("The base64 text is empty.")
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidBase64("The text is not base64; send a picture's bytes as base64 or as a data: URL.") from None


def _checked_kind(data: bytes, max_bytes: int) -> str:
    """Which of ACCEPTED the bytes are, before anything is decoded."""
    if not data:
        raise EmptyImage("The picture's file is empty; choose another one.")
    if len(data) > max_bytes:
        size, most = f"{len(data) / MIB:.1f}", f"{max_bytes / MIB:.3g}"
        raise ImageFileTooLarge(f"The picture's file has {size} MiB; at most {most} MiB are accepted.")
    kind = _kind(data)
    if kind is None:
        raise InvalidImage(f"The file is not a picture; send one as {_accepted_names()}.")
    if kind not in ACCEPTED:
        raise UnsupportedImageType(f"{kind} files are not accepted; send the picture as {_accepted_names()}.")
    return kind


def _accepted_names() -> str:
    return ", ".join(ACCEPTED[:-1]) + " or " + ACCEPTED[-1]


def _kind(data: bytes) -> str | None:
    """The file type that the first bytes show; None where they show none that we know."""
    if data[4:8] == b"ftyp":
        return _kind_by_brands(data)
    if data[:4] == b"RIFF":
        return {b"WEBP": "WebP", b"AVI ": "Video", b"WAVE": "Sound"}.get(data[8:12])
    for kind, starts in _STARTS.items():
        if data.startswith(starts):
            return kind
    head = data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    is_svg = head.startswith((b"<svg", b"<?xml", b"<!--", b"<!doctype svg")) and b"<svg" in head
    return "SVG" if is_svg else None


def _kind_by_brands(data: bytes) -> str:
    """AVIF, HEIC and MP4 share one container; the brands in its first box tell them apart."""
    end = min(int.from_bytes(data[:4], "big"), 256)
    brands = {data[8:12]} | {data[i : i + 4] for i in range(16, end, 4)}
    if brands & {b"avif", b"avis"}:
        return "AVIF"
    return "HEIC" if brands & _HEIC_BRANDS else "Video"


@contextlib.contextmanager
def _decoder_errors(max_pixels: int) -> Iterator[None]:
    """Damaged files make decoders raise almost anything (struct.error, KeyError, ...): one answer for all."""
    try:
        yield
    except (QwenVLError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels(max_pixels) from None
    except Exception as error:
        raise InvalidImage("The picture is damaged or cut short and cannot be read; send it again.") from error


def _too_many_pixels(max_pixels: int) -> ImageTooLarge:
    most = min(max_pixels, 2 * (Image.MAX_IMAGE_PIXELS or max_pixels)) / 1e6
    return ImageTooLarge(f"The picture has too many pixels; shrink it to at most {most:.3g} million.")


def _open(data: bytes, kind: str, max_pixels: int) -> Image.Image:
    """Read the header only, with the one decoder that the bytes call for."""
    try:
        image = Image.open(io.BytesIO(data), formats=(kind.upper(),))
    except Exception:
        if kind != "WebP" or (first := _first_webp_frame(data)) is None:
            raise
        image = Image.open(io.BytesIO(first), formats=("WEBP",))
        image.info["frames_lost"] = True
    if image.width * image.height > max_pixels:
        raise _too_many_pixels(max_pixels)
    return image


def _first_webp_frame(data: bytes) -> bytes | None:
    """An animation cut short after its first frame, ended there; None where no whole frame is left.

    libwebp opens whole files only, while the other formats' decoders give the first frame whatever follows it.
    """
    start = 12
    while start + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, start)
        start += 8 + size + size % 2
        if name == b"ANMF" and start <= len(data):
            return data[:4] + struct.pack("<I", start - 8) + data[8:start]
    return None


def _shrunk_size(size: tuple[int, int], longest: int, most_pixels: int) -> tuple[int, int]:
    """The size within both limits, never larger than the picture is."""
    width, height = size
    scale = min(1.0, longest / max(size), math.sqrt(most_pixels / (width * height)))
    return max(1, math.floor(width * scale + 1e-6)), max(1, math.floor(height * scale + 1e-6))


def _decoded(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The pixels as 8-bit RGB of `size`, not yet turned upright. JPEGs are shrunk while they are decoded."""
    image.draft(None, size)
    image.load()
    pixels = _eight_bit(image)
    if pixels.has_transparency_data:
        pixels = pixels.convert("RGBA")
    elif pixels.mode not in ("RGB", "L"):
        pixels = pixels.convert("RGB")
    if pixels.size != size:
        pixels = pixels.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)
    return _on_readable_ground(pixels) if pixels.mode == "RGBA" else pixels.convert("RGB")


def _eight_bit(image: Image.Image) -> Image.Image:
    """Grey of 16 bits, 32 bits or floats scaled to 8; Pillow alone would clip it to white."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode not in ("I", "F"):
        return image
    values = np.nan_to_num(np.asarray(image, dtype=np.float32))
    low, high = min(0.0, float(values.min())), float(values.max())
    scales = (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0)
    full = next((scale for scale in scales if high <= scale), high)
    return Image.fromarray(((values - low) * (255.0 / (full - low))).round().astype(np.uint8))


def _on_readable_ground(image: Image.Image) -> Image.Image:
    """Lay RGBA on white, black or grey: the first of them in which the least of what is visible gets lost."""
    alpha = np.asarray(image.getchannel("A"), dtype=np.float32)
    grey = np.asarray(image.convert("L"), dtype=np.float32)
    visible = max(float(alpha.sum()), 1.0)

    def lost(ground: int) -> float:
        return round(float(alpha[np.abs(grey - ground) < 64].sum()) / visible, 1)

    ground = min((255, 0, 128), key=lost)
    laid = Image.new("RGBA", image.size, (ground, ground, ground, 255))
    laid.alpha_composite(image)
    return laid.convert("RGB")


def _orientation(image: Image.Image) -> int:
    """EXIF's 1 to 8; 1 where EXIF is absent or broken. Pillow has turned TIFFs already and says 1."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a picture with broken EXIF is still a picture
        return 1


def _with_legal_shape(rgb: Image.Image, longest: int) -> Image.Image:
    """Tiny pictures enlarged by a whole factor, narrow ones padded in their own colour: shapes the model takes."""
    factor = min(math.ceil(MIN_SIDE / min(rgb.size)), longest // max(rgb.size))
    if factor > 1:
        rgb = rgb.resize((rgb.width * factor, rgb.height * factor), Image.Resampling.NEAREST)
    least = max(MIN_SIDE, math.ceil(max(rgb.size) / MAX_ASPECT))
    width, height = max(rgb.width, least), max(rgb.height, least)
    if (width, height) == rgb.size:
        return rgb
    padded = Image.new("RGB", (width, height), tuple(ImageStat.Stat(rgb).median))
    padded.paste(rgb, ((width - rgb.width) // 2, (height - rgb.height) // 2))
    return padded


def _shape_notes(rgb: Image.Image, legal: Image.Image) -> tuple[str, ...]:
    if rgb.width * legal.height == rgb.height * legal.width:
        return ()
    return (f"padded to {legal.width}x{legal.height}",)


def _frame_notes(image: Image.Image) -> tuple[str, ...]:
    """Says when only the first of several frames or pages is looked at. An MPO's others are views of the same photo."""
    damaged = "frames_lost" in image.info
    try:
        count = getattr(image, "n_frames", 1)
    except Exception:  # whatever a decoder raises at damage behind the first frame
        damaged = True
    if damaged:
        return ("first frame; the others are damaged",)
    if count < 2 or image.format == "MPO":
        return ()
    return (f"first of {count} {'pages' if image.format == 'TIFF' else 'frames'}",)
