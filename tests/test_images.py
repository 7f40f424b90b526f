"""Pictures in: every file is shown as a person sees it, within limits, or refused with the code that says why.

All inputs are made here. A band of red along the top edge tells which way is up.
"""

import base64
import hashlib
import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from qwenvl import config, errors, images
from qwenvl.images import ACCEPTED, DETAIL_LIMITS, decode_base64, read_picture

RED, GREEN, BLUE, YELLOW = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0)
AVIF = pytest.param("AVIF", marks=pytest.mark.skipif("AVIF" not in ACCEPTED, reason="this Pillow has no AVIF"))
FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", AVIF]


def encode(image, kind, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width, height, seed=0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def banded(width=120, height=80) -> Image.Image:
    """Blue with a red band along the top and a green one along the left: one way up only."""
    image = Image.new("RGB", (width, height), BLUE)
    image.paste(GREEN, (0, 0, width // 5, height))
    image.paste(RED, (0, 0, width, height // 5))
    return image


def near(picture, xy, colour, within=12) -> bool:
    return max(abs(a - b) for a, b in zip(picture.rgb.getpixel(xy), colour, strict=True)) <= within


def png(width, height, bit_depth, colour_type, raw, *chunks) -> bytes:
    """A PNG that Pillow itself would not write."""

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, bit_depth, colour_type, 0, 0, 0)
    middle = b"".join(chunk(name, body) for name, body in chunks)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + middle
        + chunk(b"IDAT", zlib.compress(raw))
        + chunk(b"IEND", b"")
    )


# --- orientation -----------------------------------------------------------------------------------------------------

STORED_AS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def with_orientation(image, orientation, kind) -> bytes:
    """The file whose EXIF says how to turn it to get `image`."""
    stored = image if orientation == 1 else image.transpose(STORED_AS[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(stored, kind, exif=exif)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", AVIF])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(orientation, kind):
    picture = read_picture(with_orientation(banded(), orientation, kind))
    assert (picture.width, picture.height) == picture.rgb.size == (120, 80)
    assert near(picture, (80, 4), RED, 60) and near(picture, (6, 60), GREEN, 60) and near(picture, (80, 60), BLUE, 60)


@pytest.mark.parametrize("orientation", [1, 6])
def test_orientation_holds_for_pictures_shrunk_while_decoding(orientation):
    picture = read_picture(with_orientation(banded(4800, 3200), orientation, "JPEG"))
    assert (picture.width, picture.height) == (4800, 3200)
    assert picture.rgb.size == (1024, 682)
    assert near(picture, (700, 40), RED, 60) and near(picture, (50, 500), GREEN, 60)


def test_nonsense_in_exif_does_not_hide_the_picture():
    for exif in (
        b"Exif\0\0" + b"\xff" * 40,
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x63\0\0\0\0\0\0\0",
    ):
        picture = read_picture(encode(banded(), "JPEG", exif=exif))
        assert near(picture, (80, 4), RED, 60)


# --- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(10, 10), (305, 30), (332, 27), (1024, 768)])
def test_small_pictures_keep_their_shape(size):
    picture = read_picture(encode(noise(*size), "PNG"))
    assert (picture.width, picture.height) == picture.rgb.size == size
    assert picture.notes == ()


@pytest.mark.parametrize("size", [(1, 1), (3, 3), (2, 7)])
def test_tiny_pictures_are_enlarged_by_a_whole_factor(size):
    picture = read_picture(encode(noise(*size), "PNG"))
    assert min(picture.rgb.size) >= images.MIN_SIDE
    assert picture.rgb.width * size[1] == picture.rgb.height * size[0]
    assert (picture.width, picture.height) == size


@pytest.mark.parametrize("detail", DETAIL_LIMITS)
@pytest.mark.parametrize("size", [(10000, 20), (1, 1000), (1000, 1), (20000, 1), (300, 3), (639, 2)])
def test_long_strips_are_padded_to_a_shape_the_model_takes(size, detail):
    picture = read_picture(encode(Image.new("RGB", size, RED), "PNG"), detail=detail)
    long, short = max(picture.rgb.size), min(picture.rgb.size)
    assert long <= DETAIL_LIMITS[detail][0] and short >= images.MIN_SIDE and long / short <= 100
    assert (picture.width, picture.height) == size
    assert near(picture, (0, 0), RED)
    assert picture.notes in ((), (f"padded to {picture.rgb.width}x{picture.rgb.height}",))
    assert picture.notes or picture.rgb.width * size[1] == picture.rgb.height * size[0]


def test_padding_is_of_the_pictures_own_ground():
    strip = Image.new("RGB", (4000, 10), "white")
    ImageDraw.Draw(strip).rectangle((100, 0, 900, 9), fill="black")
    picture = read_picture(encode(strip, "PNG"))
    assert picture.rgb.size == (1024, 11)
    assert picture.rgb.getpixel((100, 0)) == picture.rgb.getpixel((1000, 10)) == (255, 255, 255)


def test_a_long_screenshot_is_shrunk_in_proportion():
    picture = read_picture(encode(Image.new("RGB", (690, 15420), "white"), "PNG"))
    assert (picture.width, picture.height) == (690, 15420) and picture.rgb.size == (45, 1024)


@pytest.mark.parametrize(
    ("detail", "size", "shrunk"),
    [
        ("fast", (1280, 960), (640, 480)),
        ("balanced", (4000, 3000), (1024, 768)),
        ("balanced", (1024, 768), (1024, 768)),
        ("fine", (3000, 2000), (1536, 1024)),
        ("fine", (3000, 3000), (1254, 1254)),
        ("fine", (800, 600), (800, 600)),
    ],
)
def test_detail_decides_the_size(detail, size, shrunk):
    picture = read_picture(encode(Image.new("RGB", size, BLUE), "PNG"), detail=detail)
    assert picture.rgb.size == shrunk and picture.detail == detail
    assert shrunk[0] * shrunk[1] <= DETAIL_LIMITS[detail][1]


@pytest.mark.parametrize("size", [(8000, 6000), (4001, 2999), (2049, 1025), (1030, 700)])
def test_a_jpeg_shrunk_while_decoding_has_the_size_and_look_of_any_other_file(size):
    image = banded(*size)
    jpeg, png = (read_picture(encode(image, kind)) for kind in ("JPEG", "PNG"))
    assert jpeg.rgb.size == png.rgb.size
    difference = np.abs(np.asarray(jpeg.rgb, dtype=int) - np.asarray(png.rgb, dtype=int))
    assert difference.mean() < 3


def test_unknown_detail_is_refused():
    with pytest.raises(errors.InvalidRequest, match="fast, balanced, fine"):
        read_picture(encode(noise(9, 9), "PNG"), detail="finest")


def test_details_are_those_of_the_settings():
    assert tuple(DETAIL_LIMITS) == config.DETAILS


def test_default_limits_are_those_of_the_settings():
    defaults, settings = read_picture.__kwdefaults__, config.Settings()
    assert defaults["max_bytes"] == settings.max_upload_bytes
    assert defaults["max_pixels"] == settings.max_image_pixels


# --- limits ----------------------------------------------------------------------------------------------------------


def one_colour_png(width, height) -> bytes:
    row = zlib.compressobj(9)
    raw = b"".join(row.compress(b"\0" * (1 + width // 8)) for _ in range(height)) + row.flush()
    whole = png(width, height, 1, 0, b"")
    start = whole.index(b"IDAT") - 4
    return whole[:start] + struct.pack(">I", len(raw)) + b"IDAT" + raw + struct.pack(">I", zlib.crc32(b"IDAT" + raw))


def test_too_many_pixels_are_refused_by_the_header_alone():
    bomb = one_colour_png(20000, 20000)
    tracemalloc.start()
    with pytest.raises(errors.ImageTooLarge, match="50 million"):
        read_picture(bomb)
    assert tracemalloc.get_traced_memory()[1] < 4e6
    tracemalloc.stop()


def test_pixels_just_over_the_limit_are_refused_and_at_the_limit_read():
    data = encode(noise(100, 50), "PNG")
    assert read_picture(data, max_pixels=5000).rgb.size == (100, 50)
    with pytest.raises(errors.ImageTooLarge):
        read_picture(data, max_pixels=4999)


def test_the_header_counts_even_when_nothing_follows_it():
    with pytest.raises(errors.ImageTooLarge):
        read_picture(encode(Image.new("L", (9000, 7000)), "PNG")[:200])


def test_too_many_bytes_are_refused():
    data = encode(noise(100, 100), "BMP")
    with pytest.raises(errors.ImageFileTooLarge, match="MiB"):
        read_picture(data, max_bytes=len(data) - 1)
    assert read_picture(data, max_bytes=len(data)).rgb.size == (100, 100)


# --- colour ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("colour", [RED, GREEN, BLUE, YELLOW])
def test_pure_colours_stay_what_they_are(kind, colour):
    picture = read_picture(encode(Image.new("RGB", (64, 48), colour), kind))
    assert near(picture, (30, 20), colour) and picture.rgb.mode == "RGB"


def test_adobe_cmyk_jpeg_of_a_red_square_is_red():
    data = encode(Image.new("CMYK", (64, 64), (0, 255, 255, 0)), "JPEG", quality=95)
    assert b"Adobe" in data
    assert near(read_picture(data), (30, 30), RED)


def test_cmyk_tiff_is_red_too():
    assert near(read_picture(encode(Image.new("CMYK", (64, 64), (0, 255, 255, 0)), "TIFF")), (30, 30), RED)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_not_clipped(kind):
    ramp = np.tile(np.linspace(0, 65535, 256).astype(np.uint16), (32, 1))
    grey = np.asarray(read_picture(encode(Image.fromarray(ramp), kind)).rgb)[0, :, 0]
    assert abs(grey.astype(int) - np.arange(256)).max() <= 1


@pytest.mark.parametrize(
    ("values", "middle"),
    [(np.float32([[0, 0.5, 1]]), 128), (np.float32([[0, 100, 255]]), 100), (np.int32([[0, 32768, 65535]]), 128)],
)
def test_floats_and_32_bit_grey_are_scaled(values, middle):
    picture = read_picture(encode(Image.fromarray(np.tile(values.repeat(10, 1), (30, 1))), "TIFF"))
    assert near(picture, (15, 15), (middle,) * 3, 1)
    assert near(picture, (5, 15), (0, 0, 0)) and near(picture, (25, 15), (255, 255, 255))


def test_16_bit_colour_png():
    pixel = struct.pack(">HHH", 65535, 0, 32768)
    picture = read_picture(png(16, 16, 16, 2, (b"\0" + pixel * 16) * 16))
    assert near(picture, (8, 8), (255, 0, 128), 1)


def test_16_bit_colour_png_with_a_transparent_colour():
    row = b"\0" + struct.pack(">HHH", 65535, 65535, 0) * 8 + struct.pack(">HHH", 65535, 0, 0) * 8
    picture = read_picture(png(16, 16, 16, 2, row * 16, (b"tRNS", struct.pack(">HHH", 65535, 65535, 0))))
    assert near(picture, (12, 8), RED, 1)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA"])
def test_every_usual_mode_is_read(mode):
    picture = read_picture(encode(banded().convert("L").convert(mode), "PNG"))
    assert picture.rgb.mode == "RGB" and picture.rgb.size == (120, 80)


# --- transparency ----------------------------------------------------------------------------------------------------


def words(ink, mode="RGBA") -> Image.Image:
    """Text of one colour on nothing; the hidden colour under the transparent part is the ink's own, the worst case."""
    image = Image.new("RGBA", (220, 60), (*ink, 0))
    ImageDraw.Draw(image).text((10, 5), "Total 42", fill=(*ink, 255), font=ImageFont.load_default(40))
    return image.convert(mode)


def contrast(picture) -> int:
    grey = np.asarray(picture.rgb.convert("L"), dtype=int)
    return grey.max() - grey.min()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("ink", [(0, 0, 0), (255, 255, 255), (255, 255, 0), (200, 200, 200), (128, 128, 128), RED])
def test_text_on_nothing_stays_readable(ink, kind):
    assert contrast(read_picture(encode(words(ink), kind, **({"lossless": True} if kind == "WEBP" else {})))) > 70


def test_the_ground_is_white_for_dark_text_and_dark_for_white_text():
    assert read_picture(encode(words((0, 0, 0)), "PNG")).rgb.getpixel((0, 0)) == (255, 255, 255)
    assert read_picture(encode(words((255, 255, 255)), "PNG")).rgb.getpixel((0, 0)) == (0, 0, 0)


def test_black_and_white_text_together_are_both_readable():
    both = Image.new("RGBA", (220, 120))
    both.paste(words((0, 0, 0)), (0, 0))
    both.paste(words((255, 255, 255)), (0, 60))
    values = np.asarray(read_picture(encode(both, "PNG")).rgb.convert("L"))
    assert np.ptp(values[:60]) > 70 and np.ptp(values[60:]) > 70


@pytest.mark.parametrize("ink", [(0, 0, 0), (255, 255, 255)])
@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_palettes_with_transparency(ink, kind):
    indices = np.asarray(words(ink).getchannel("A")) > 127
    image = Image.fromarray(indices.astype(np.uint8), "L").convert("P")
    image.putpalette([*ink, *ink])
    assert contrast(read_picture(encode(image, kind, transparency=0))) > 200


def test_a_palette_of_half_transparent_colours():
    image = Image.new("P", (40, 40), 1)
    image.putpalette([0, 0, 0, 255, 0, 0])
    assert near(read_picture(encode(image, "PNG", transparency=bytes([0, 128]))), (20, 20), (255, 127, 127))


def test_grey_and_colour_with_a_transparent_colour():
    for mode, ink, nothing in (("L", 0, 255), ("RGB", (255, 255, 255), (0, 0, 0))):
        image = Image.new(mode, (40, 40), nothing)
        image.paste(ink, (10, 10, 30, 30))
        assert contrast(read_picture(encode(image, "PNG", transparency=nothing))) > 200


def test_opaque_alpha_and_nothing_at_all():
    assert near(read_picture(encode(banded().convert("RGBA"), "PNG")), (80, 60), BLUE)
    assert contrast(read_picture(encode(Image.new("RGBA", (20, 20)), "PNG"))) == 0


# --- several frames --------------------------------------------------------------------------------------------------

ANIMATED = ["GIF", "WEBP", "PNG", "TIFF", AVIF]


def animation(kind) -> bytes:
    frames = [Image.new("RGB", (64, 48), colour) for colour in (RED, GREEN, BLUE)]
    for seed, frame in enumerate(frames):
        frame.paste(noise(64, 20, seed), (0, 28))
    return encode(frames[0], kind, save_all=True, append_images=frames[1:])


@pytest.mark.parametrize("kind", ANIMATED)
def test_the_first_frame_is_shown_and_said_so(kind):
    picture = read_picture(animation(kind))
    assert near(picture, (30, 10), RED) and picture.notes == (f"first of 3 {'pages' if kind == 'TIFF' else 'frames'}",)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_damage_behind_the_first_frame_does_not_matter(kind):
    data = animation(kind)
    for damaged in (data[: len(data) // 2], data[: len(data) // 2] + b"\xa5" * (len(data) // 2)):
        picture = read_picture(damaged)
        assert near(picture, (30, 10), RED) and picture.notes[0].startswith("first ")


# --- types and damage ------------------------------------------------------------------------------------------------

OTHER_TYPES = {
    "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 40,
    "Video": b"\0\0\0\x18ftypisom\0\0\0\0isommp42" + b"\0" * 40,
    "PDF": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "SVG": b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- drawn -->\n<svg xmlns="http://www.w3.org/2000/svg"></svg>',
    "JPEG XL": b"\xff\x0a" + b"\0" * 40,
    "Photoshop": b"8BPS\0\1" + b"\0" * 40,
    "Icon": b"\0\0\1\0\1\0\x10\x10" + b"\0" * 40,
    "ZIP and office": b"PK\3\4" + b"\0" * 40,
}


@pytest.mark.parametrize("name", OTHER_TYPES)
def test_other_known_types_are_refused_by_name_with_what_is_accepted(name):
    with pytest.raises(errors.UnsupportedImageType) as refused:
        read_picture(OTHER_TYPES[name])
    assert str(refused.value).startswith(name) and all(kind in str(refused.value) for kind in ACCEPTED)
    assert refused.value.status == 415


def test_avif_is_415_where_pillow_lacks_it(monkeypatch):
    monkeypatch.setattr(images, "ACCEPTED", ("JPEG", "PNG"))
    with pytest.raises(
        errors.UnsupportedImageType, match="AVIF files are not accepted; send the picture as JPEG or PNG"
    ):
        read_picture(b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf" + b"\0" * 40)


@pytest.mark.parametrize(
    "data",
    [
        b"<!DOCTYPE html><html><body><svg></svg></body></html>",
        b"hello, I am a text",
        "发票".encode(),
        b"BMW is a car",
        b"\xff\xd8\xff",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"RIFF\0\0\0\0WEBP",
        b"II*\0\x08\0\0\0",
        b"\0" * 100,
        b"x",
    ],
)
def test_what_is_no_picture_is_400(data):
    with pytest.raises(errors.InvalidImage) as refused:
        read_picture(data)
    assert refused.value.status == 400


def test_an_empty_file():
    with pytest.raises(errors.EmptyImage):
        read_picture(b"")


@pytest.mark.parametrize("left", [0.3, 0.6, 0.9, -128])
@pytest.mark.parametrize("kind", FORMATS)
def test_truncated_files_are_refused_not_half_shown(kind, left):
    data = encode(noise(160, 120), kind)
    with pytest.raises(errors.InvalidImage):
        read_picture(data[: left if left < 0 else int(len(data) * left)])


def test_a_truncated_jpeg_is_refused_when_shrunk_while_decoding():
    data = encode(noise(2400, 1800), "JPEG")
    with pytest.raises(errors.InvalidImage):
        read_picture(data[:-128])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", FORMATS)
def test_random_damage_never_escapes_as_another_error(kind):
    data, random = encode(noise(40, 30), kind), np.random.default_rng(1)
    for _ in range(60):
        damaged = bytearray(data)
        for place in random.integers(0, min(len(data), 400), 4):
            damaged[place] = random.integers(256)
        try:
            assert read_picture(bytes(damaged)).rgb.mode == "RGB"
        except errors.QwenVLError as error:
            assert error.status in (400, 413, 415)


# --- identity --------------------------------------------------------------------------------------------------------


def test_the_sha256_is_of_the_files_bytes_and_detail_tells_pictures_apart():
    data = encode(noise(40, 30), "PNG")
    one, other = read_picture(data), read_picture(data, detail="fast")
    assert one.sha256 == other.sha256 == hashlib.sha256(data).hexdigest()
    assert one == read_picture(data) and one != other and len({one, other}) == 2


# --- base64 ----------------------------------------------------------------------------------------------------------

BYTES = bytes(range(256)) + b"\xfb\xff\xfe?"
PLAIN = base64.b64encode(BYTES).decode()


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.rstrip("="),
        base64.urlsafe_b64encode(BYTES).decode(),
        base64.urlsafe_b64encode(BYTES).decode().rstrip("="),
        base64.encodebytes(BYTES).decode(),
        base64.encodebytes(BYTES).decode().replace("\n", "\r\n    "),
        f"data:image/png;base64,{PLAIN}",
        f"DATA:;BASE64,{PLAIN}",
        "data:image/jpeg;charset=utf-8;base64," + PLAIN.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
        f"  {PLAIN}\n",
    ],
)
def test_base64_in_every_usual_form(text):
    assert decode_base64(text) == BYTES


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "====",
        "!!!!",
        "abc$",
        "a",
        "QUJD=QUJD",
        "QUJD QUJD",
        "图片",
        "\ud800",
        "data:image/png,plain",
        "data:image/png;base64",
        "data:image/png;base64,",
        "http://example.com/a.png",
        "<svg></svg>",
    ],
)
def test_what_is_not_base64_is_refused(text):
    with pytest.raises(errors.InvalidBase64):
        decode_base64(text)


def test_a_picture_by_base64_is_the_picture_by_file():
    data = encode(banded(), "PNG")
    assert read_picture(decode_base64(base64.b64encode(data).decode())) == read_picture(data)
