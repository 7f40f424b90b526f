"""Room for work: a number of bytes that several threads share, each for as long as it needs its part.

Knows nothing of what the bytes are for, but what decoding a picture takes of them.
"""

import contextlib
from collections.abc import Iterator

from PIL import Image

from qwenvl.errors import ImageTooLarge
from qwenvl.native import Lock, sleep

LOOK_EVERY_S = 0.01

# bytes for each pixel of the file while it is decoded, measured; JPEGs are shrunk meanwhile
_BY_FORMAT = {"JPEG": 5, "MPO": 5, "WEBP": 17, "AVIF": 14}
_BY_MODE = {"I": 18, "F": 18, "RGBA": 14, "LA": 14, "PA": 14, "P": 14}
_OTHERS = 8


class Room:
    """`max_bytes` in all."""

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self._used = 0
        self._lock = Lock()

    def take(self, nbytes: int) -> bool:
        """Take so many bytes more; False, and nothing is taken, when there are not so many left."""
        with self._lock:
            if self._used + nbytes > self.max_bytes:
                return False
            self._used += nbytes
            return True

    def give_back(self, nbytes: int) -> None:
        with self._lock:
            self._used -= nbytes

    @contextlib.contextmanager
    def to_decode(self, image: Image.Image) -> Iterator[None]:
        """Wait, on a native thread, for room to decode a picture; raise `ImageTooLarge` if there never is enough."""
        a_pixel = _BY_FORMAT.get(image.format, _BY_MODE.get(image.mode, _OTHERS))
        nbytes = a_pixel * image.width * image.height
        if nbytes > self.max_bytes:
            most = self.max_bytes / a_pixel / 1e6
            raise ImageTooLarge(
                f"The picture has too many pixels for this server's memory; shrink it to at most {most:.2g} million."
            )
        while not self.take(nbytes):
            sleep(LOOK_EVERY_S)
        try:
            yield
        finally:
            self.give_back(nbytes)
