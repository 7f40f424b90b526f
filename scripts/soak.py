"""Sixteen clients of every temper against a real server on the demo model, for a set time; then the accounts.

Usage: `python scripts/soak.py --seconds 120 --pictures 300`. Loopback only. The last line is one JSON object; the exit
status is 1 when a promise was broken: an answer that is not its asker's, a 500, a question left over, a cache over its
budget, memory that grows or is more than the server was given, `/health` slower than 200 ms in more than one of a
hundred.
"""

import argparse
import io
import json
import multiprocessing
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import requests
from PIL import Image

from strain.clients import PATIENCE_S, Client
from strain.server import Server, growth

CLIENTS = 16
HEALTH_P99_MS = 200.0
MOST_GROWTH = 1.05
BUDGET_MB = 640  # little more than the interpreter takes; some of the clients' pictures cannot be decoded in it
MARGIN = 1.1  # what is counted is an estimate, and malloc keeps a little
MIB = 1024 * 1024
# Small enough for everything to be thrown out and read again all the time.
SETTINGS = {
    "QWENVL_MEMORY_MB": str(BUDGET_MB),
    "QWENVL_FEATURE_CACHE_BYTES": str(MIB),
    "QWENVL_PREFIX_CACHE_BYTES": str(4 * MIB),
    "QWENVL_KV_BYTES": str(64 * MIB),
    "QWENVL_UPLOAD_STORE_BYTES": str(4 * MIB),
    "QWENVL_MAX_NEW_TOKENS": "48",
    "QWENVL_CLIENT_REQUESTS_PER_MINUTE": "0",  # all clients have one address here
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="how long the clients go on")
    parser.add_argument("--pictures", type=int, default=300, help="pictures of random sizes, one after another, before")
    args = parser.parse_args()
    began = time.monotonic()
    with Server(**SETTINGS) as server:
        report = {"clients": CLIENTS, "seconds": args.seconds, "pictures": args.pictures}
        report |= parade(server, args.pictures)
        report |= soak(server, args.seconds)
        report |= accounts(server)
    report |= {"exit_code": server.exit_code, "took_s": round(time.monotonic() - began, 1)}
    report["broken"] = broken(report)
    print(json.dumps(report, ensure_ascii=False))
    return 1 if report["broken"] else 0


def parade(server: Server, count: int) -> dict:
    """Pictures of random sizes and kinds, each seen once: memory must be flat after the first quarter."""
    chance = random.Random(300)
    samples, bad = [], []
    for number in range(count):
        size = chance.randrange(8, 2000), chance.randrange(8, 1500)
        ground = Image.effect_noise((64, 64), 80).resize(size) if number % 2 else Image.new("L", size, number % 256)
        data = io.BytesIO()
        ground.convert("RGB").save(data, chance.choice(("JPEG", "PNG", "WEBP")))
        fields = {"question": "What is this?", "max_new_tokens": 4, "detail": chance.choice(("fast", "fine"))}
        files = {"image": data.getvalue()}
        response = requests.post(f"{server.url}/upload", data=fields, files=files, timeout=PATIENCE_S)
        if response.status_code != 200 and not 1 < max(size) / min(size) < 2000:
            bad.append(response.text[:200])
        samples.append(server.resident_mb())
    if not samples:
        return {}
    return {
        "pictures_wrong": bad[:5],
        "pictures_growth": round(growth(samples), 4),
        "pictures_mb": [round(samples[0]), round(max(samples)), round(samples[-1])],
    }


def soak(server: Server, seconds: float) -> dict:
    """All clients at once; beside them somebody who asks `/health`, and somebody who looks at the memory."""
    clients = [Client(server.url, number) for number in range(CLIENTS)]
    for client in clients:
        client.prepare()
    until = time.monotonic() + seconds
    pipe, far_end = multiprocessing.Pipe(duplex=False)
    watcher = multiprocessing.get_context("spawn").Process(target=watch_health, args=(server.url, seconds, far_end))
    watcher.start()
    samples: list[float] = []
    sampler = threading.Thread(target=watch_memory, args=(server, until, samples))
    sampler.start()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda client: client.run(until), clients))
    sampler.join()
    times = sorted(pipe.recv())
    watcher.join()
    tally = sum((client.tally for client in clients), Counter())
    wrong = [line for client in clients for line in client.wrong]
    return {
        "answers": tally["answers"],
        "tally": dict(sorted(tally.items())),
        "wrong_count": len(wrong),
        "wrong": wrong[:8],
        "health_ms": {name: round(times[int(part * (len(times) - 1))], 1)
                      for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))},
        "memory_mb": [round(sample) for sample in samples[:: max(1, len(samples) // 12)]],
        "memory_peak_mb": round(max(samples)),
        "memory_growth": round(growth(samples), 4),
    }  # fmt: skip


def watch_health(url: str, seconds: float, pipe) -> None:
    """In a process of its own, so that nobody's work but the server's is in the times (milliseconds)."""
    times = []
    until = time.monotonic() + seconds
    with requests.Session() as session:
        while time.monotonic() < until:
            began = time.perf_counter()
            assert session.get(f"{url}/health", timeout=PATIENCE_S).status_code == 200
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(0.05)
    pipe.send(times)


def watch_memory(server: Server, until: float, samples: list[float]) -> None:
    while time.monotonic() < until:
        samples.append(server.resident_mb())
        time.sleep(0.5)


def accounts(server: Server) -> dict:
    """What is left when everybody has gone. Dropped sockets may still be waited for, so this takes a while."""
    give_up_at = time.monotonic() + PATIENCE_S
    while (left := server.busy()) and time.monotonic() < give_up_at:
        time.sleep(0.2)
    health = server.health()
    caches = {name: health[name] for name in ("feature_cache", "prefix_cache")}
    metrics = requests.get(f"{server.url}/metrics", timeout=PATIENCE_S).text
    internal = [line for line in metrics.splitlines() if 'code="internal"' in line]
    return {
        "left_over": left,
        "caches": {name: [stats["bytes"], stats["max_bytes"]] for name, stats in caches.items()},
        "internal_errors": internal,
    }


def broken(report: dict) -> list[str]:
    """The promises that were not kept."""
    checks = {
        "every answer is its asker's, nothing unexpected": report["wrong_count"] == 0 and report["answers"] > 0,
        "every picture of the parade was answered": not report.get("pictures_wrong"),
        "no 500": not report["internal_errors"] and "status 500" not in report["tally"],
        "nothing is left over": report["left_over"] == 0,
        "caches within their budgets": all(used <= most for used, most in report["caches"].values()),
        "memory is flat": max(report["memory_growth"], report.get("pictures_growth", 1.0)) <= MOST_GROWTH,
        "memory within its budget": report["memory_peak_mb"] <= BUDGET_MB * MIB / 1e6 * MARGIN,
        "/health is quick": report["health_ms"]["p99"] < HEALTH_P99_MS,
        "exit code 0": report["exit_code"] == 0,
    }
    return [promise for promise, kept in checks.items() if not kept]


if __name__ == "__main__":
    raise SystemExit(main())
