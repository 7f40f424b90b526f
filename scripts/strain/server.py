"""A real server on the demo model, on a loopback port, and what can be read from it while it works."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import requests

ROOT = Path(__file__).resolve().parents[2]
START_S = 180.0


class Server:
    """gunicorn as `make run` starts it; settings are environment variables."""

    def __init__(self, **settings: str):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        environ = {**os.environ, "HOST": "127.0.0.1", "PORT": str(self.port), "QWENVL_MODEL": "demo"}
        environ |= {"QWENVL_LOG_LEVEL": "WARNING", "HF_HUB_OFFLINE": "1", **settings}
        command = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "1", "--log-level", "warning"]
        self.process = subprocess.Popen(
            [*command, "app:create_app()"], cwd=ROOT, env=environ, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> "Server":
        give_up_at = time.monotonic() + START_S
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > give_up_at:
                self.process.kill()
                raise SystemExit("the server did not start; `make run` says why")
            time.sleep(0.1)
        return self

    def __exit__(self, *_error) -> None:
        self.exit_code = self.stop()

    def stop(self) -> int:
        """SIGTERM; the exit code, or a negative number when it had to be killed."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def health(self) -> dict:
        return requests.get(f"{self.url}/health", timeout=10).json()

    def busy(self) -> int:
        """Questions waiting or running."""
        queue = self.health()["queue"]
        return queue["waiting"] + queue["running"]

    def resident_mb(self) -> float:
        """Memory of the process that owns the model, as the server itself tells."""
        text = requests.get(f"{self.url}/metrics", timeout=10).text
        return float(re.search(r"^process_resident_memory_bytes (\S+)$", text, re.M)[1]) / 1e6

    def _ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/health", timeout=1).status_code == 200
        except requests.RequestException:
            return False


def growth(samples: list[float]) -> float:
    """By what factor the middle of the last quarter is above the middle of the second one; the first is warm-up."""
    quarter = max(1, len(samples) // 4)
    second, last = sorted(samples[quarter : 2 * quarter] or samples), sorted(samples[-quarter:])
    return last[len(last) // 2] / second[len(second) // 2]
