"""Damaged pictures of every accepted type against a real server: no 500, no answer after 2 s, no growth of memory.

Usage: `python scripts/fuzz_pictures.py --count 300 --seed 6`. Each input follows from the seed, its type and number, so
a fault can be made again; `--keep FOLDER` writes the files that caused one. The last line is one JSON object.
"""

import argparse
import io
import json
import random
import time
from collections import Counter
from pathlib import Path

import requests
from PIL import Image, ImageDraw

from strain.server import Server, growth

HANG_S = 2.0
MOST_GROWTH = 1.05
FINE = {201, 400, 413, 415}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="files of each type")
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--keep", type=Path, help="folder for files that caused a fault")
    args = parser.parse_args()
    statuses: Counter[str] = Counter()
    faults, memory, slowest = [], [], 0.0
    with Server(QWENVL_UPLOAD_STORE_BYTES="1048576", QWENVL_CLIENT_REQUESTS_PER_MINUTE="0") as server:
        seeds = {kind: whole_files(kind) for kind in server.health()["limits"]["accepted"]}
        for number in range(args.count):
            for kind in seeds:
                name = f"{args.seed}-{kind}-{number}"
                data = damaged(random.Random(name), seeds, kind)
                status, took_s = send(server, data)
                statuses[f"{kind} {status}"] += 1
                slowest = max(slowest, took_s)
                if status not in FINE or took_s > HANG_S:
                    faults.append(f"{name}: {status} after {took_s:.1f} s, {len(data)} bytes")
                    if args.keep:
                        args.keep.mkdir(parents=True, exist_ok=True)
                        (args.keep / name).write_bytes(data)
            memory.append(server.resident_mb())
    report = {
        "seed": args.seed,
        "files": args.count * len(seeds),
        "statuses": dict(sorted(statuses.items())),
        "slowest_s": round(slowest, 2),
        "memory_mb": [round(memory[0]), round(max(memory)), round(memory[-1])],
        "memory_growth": round(growth(memory), 4),
        "fault_count": len(faults),
        "faults": faults[:10],
        "exit_code": server.exit_code,
    }
    print(json.dumps(report))
    return 1 if faults or report["memory_growth"] > MOST_GROWTH or report["exit_code"] else 0


def send(server: Server, data: bytes) -> tuple[int, float]:
    """(status, seconds) of an upload; status 0 when the connection broke."""
    began = time.monotonic()
    try:
        response = requests.post(f"{server.url}/images", files={"image": data}, timeout=30)
        status = response.status_code if "id" in response.json() or "code" in response.json() else 0
    except (requests.RequestException, ValueError):
        status = 0
    return status, time.monotonic() - began


def whole_files(kind: str) -> list[bytes]:
    """A few good files of one type: in colour, in grey, with transparency or a palette, with several frames, large."""
    colour = Image.effect_noise((90, 70), 60).convert("RGB")
    ImageDraw.Draw(colour).ellipse((20, 10, 60, 50), fill="red")
    variants = [(colour, {}), (colour.convert("L"), {}), (colour.resize((700, 500)), {})]
    if kind == "JPEG":
        variants += [(colour, {"progressive": True, "exif": _turned()}), (colour.convert("CMYK"), {})]
    if kind in ("PNG", "GIF", "TIFF"):
        variants.append((colour.convert("P"), {}))
    if kind in ("PNG", "WebP", "AVIF", "TIFF"):
        variants.append((colour.convert("RGBA"), {}))
    if kind in ("GIF", "WebP", "PNG", "TIFF"):
        variants.append((colour, {"save_all": True, "append_images": [colour.rotate(90), colour.rotate(180)]}))
    if kind == "TIFF":
        variants += [(colour, {"compression": name}) for name in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits")]
    files = []
    for image, options in variants:
        out = io.BytesIO()
        image.save(out, kind.upper(), **options)
        files.append(out.getvalue())
    return files


def _turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def damaged(chance: random.Random, seeds: dict[str, list[bytes]], kind: str) -> bytes:
    """A good file with one to four faults. Half of them strike the first 64 bytes, where sizes and types are."""
    data = bytearray(chance.choice(seeds[kind]))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(min(64, len(data)) if chance.random() < 0.5 else len(data))
        fault = chance.choice((_flip, _flip, _overwrite, _overwrite, _extreme, _extreme, _cut, _repeat, _insert, _zero))
        fault(chance, data, at)
        if chance.random() < 0.05:
            other = chance.choice(seeds[chance.choice(list(seeds))])
            data += other[chance.randrange(len(other)) :]
        if len(data) < 2:
            break
    return bytes(data)


def _flip(chance: random.Random, data: bytearray, at: int) -> None:
    data[at] ^= 1 << chance.randrange(8)


def _overwrite(chance: random.Random, data: bytearray, at: int) -> None:
    noise = chance.randbytes(chance.randint(1, 16))
    data[at : at + len(noise)] = noise


def _extreme(chance: random.Random, data: bytearray, at: int) -> None:
    """A number as large or as small as its bytes allow: sizes, counts, offsets."""
    value = chance.choice((b"\0", b"\xff", b"\x7f\xff", b"\xff\x7f", bytes(4), b"\xff" * 4, b"\x7f" + b"\xff" * 3))
    data[at : at + len(value)] = value


def _cut(chance: random.Random, data: bytearray, at: int) -> None:
    del data[at if chance.random() < 0.3 else chance.randrange(len(data)) :]


def _repeat(chance: random.Random, data: bytearray, at: int) -> None:
    data[at:at] = data[at : at + chance.randint(1, 400)]


def _insert(chance: random.Random, data: bytearray, at: int) -> None:
    data[at:at] = chance.randbytes(chance.randint(1, 40))


def _zero(chance: random.Random, data: bytearray, at: int) -> None:
    count = chance.randint(1, 200)
    data[at : at + count] = bytes(len(data[at : at + count]))


if __name__ == "__main__":
    raise SystemExit(main())
