"""How many requests a minute one client may make, and who counts as one client where there are no keys.

Knows names of clients and the clock; knows no transport.
"""

import ipaddress
import math
import time

from qwenvl.errors import RateLimited
from qwenvl.native import Lock

MOST_KEPT = 4096  # clients remembered before the idle ones are forgotten


def client_of(address: str | None) -> str:
    """The client behind an address. An IPv6 user has a whole /64 of addresses, so that network is one client."""
    try:
        ip = ipaddress.ip_address(address or "")
    except ValueError:
        return "unknown"
    if ip.version == 4:
        return str(ip)
    if ip.ipv4_mapped:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((int(ip), 64), strict=False))


class Pace:
    """A bucket for every client: it holds a minute's requests, fills evenly, and each request takes one out."""

    def __init__(self, per_minute: int):
        self._per_minute = per_minute
        self._kept: dict[str, tuple[float, float]] = {}  # client: (requests left, when that was)
        self._lock = Lock()

    def count(self, client: str) -> None:
        """One more request; raise `RateLimited` when the client's bucket is empty. Safe from several threads."""
        if not self._per_minute:
            return
        with self._lock:
            now = time.monotonic()
            left = self._left(client, now)
            if left >= 1:
                self._kept[client] = (left - 1, now)
                if len(self._kept) > MOST_KEPT:
                    self._forget_idle(now)
                return
        wait_s = math.ceil((1 - left) * 60 / self._per_minute)
        raise RateLimited(
            f"Too many requests: {self._per_minute} a minute are accepted. Try again in {wait_s} s.",
            retry_after_s=wait_s,
        )

    def _left(self, client: str, now: float) -> float:
        left, at = self._kept.get(client, (self._per_minute, now))
        return min(self._per_minute, left + (now - at) * self._per_minute / 60)

    def _forget_idle(self, now: float) -> None:
        self._kept = {client: kept for client, kept in self._kept.items() if self._left(client, now) < self._per_minute}
