"""Who may ask: the API keys an operator has given out, and the names by which their holders are counted and logged.

Keys come from settings, once, at the start. Knows no transport; a key's text appears in no name and in no error.
"""

import hashlib
import hmac
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from qwenvl.config import Settings
from qwenvl.errors import InvalidRequest

log = logging.getLogger(__name__)

SHORT = 16  # characters; a shorter key can be guessed by somebody with patience


class Keys:
    """The accepted keys. Without any, everybody may ask."""

    def __init__(self, keys: Iterable[str]):
        self._digests = tuple(_digest(key) for key in dict.fromkeys(keys))

    @classmethod
    def from_settings(cls, settings: Settings) -> "Keys":
        """The keys of `QWENVL_API_KEYS` and of the file; raise `InvalidRequest` if the file cannot be used.

        A file that holds no key is an error: somebody meant to close the server, and it would stand open.
        """
        keys = [key.strip() for key in settings.api_keys.split(",") if key.strip()]
        if settings.api_keys_file:
            keys += _read(settings.api_keys_file)
        if short := sum(len(key) < SHORT for key in keys):
            log.warning("%d API key(s) have fewer than %d characters and can be guessed.", short, SHORT)
        return cls(keys)

    @property
    def needed(self) -> bool:
        return bool(self._digests)

    def holder(self, given: Any) -> str | None:
        """The name of the holder of a key (`key-1`, …, in the order of the settings); None for a key not known.

        Every accepted key is compared, each in constant time, so the time taken tells nothing about any of them.
        """
        digest = _digest(given) if isinstance(given, str) else b""
        name = None
        for number, accepted in enumerate(self._digests, start=1):
            if hmac.compare_digest(accepted, digest):
                name = f"key-{number}"
        return name


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _read(name: str) -> list[str]:
    """One key a line; empty lines and lines that begin with `#` do not count."""
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InvalidRequest(f"QWENVL_API_KEYS_FILE cannot be read: {name}: {reason}.") from None
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not keys:
        raise InvalidRequest(f"QWENVL_API_KEYS_FILE holds no key: {name}.")
    return keys
