"""Bodies of requests on their way in: all of them together take no more memory than there is room for.

Knows streams and requests; knows no fields.
"""

import io
from typing import Any

from flask import Request, current_app
from werkzeug.datastructures import ImmutableMultiDict

from qwenvl.errors import ImageFileTooLarge, QueueFull
from qwenvl.room import Room

COPIES = 2  # of a body that are in memory at once, while it is parsed


class CountedBody:
    """A WSGI input stream. What was read of it takes room until `forget()`."""

    def __init__(self, stream: Any, room: Room):
        self.stream = stream
        self._room = room
        self._taken = 0

    def read(self, size: int = -1) -> bytes:
        """As the stream does; raise `QueueFull` when the bodies of all requests together are too large."""
        data = self.stream.read(size)
        nbytes = COPIES * len(data)
        if not self._room.take(nbytes):
            raise QueueFull("The server is taking in as much as it can. Try again in a few seconds.")
        self._taken += nbytes
        return data

    def forget(self) -> None:
        self._room.give_back(self._taken)
        self._taken = 0


class CappedFile(io.BytesIO):
    """An uploaded file in memory that refuses to grow past its limit."""

    def __init__(self, max_bytes: int):
        super().__init__()
        self.max_bytes = max_bytes

    def write(self, data) -> int:
        if self.tell() + len(data) > self.max_bytes:
            raise ImageFileTooLarge(f"The file is too large. At most {self.max_bytes} bytes are accepted.")
        return super().write(data)


class BoundedRequest(Request):
    """A request whose files stay in memory, each within QWENVL_MAX_UPLOAD_BYTES, and all requests' within `room`."""

    counted: CountedBody | None = None

    def count_body(self, room: Room) -> None:
        """Call it before anything is read."""
        self.counted = self.environ["wsgi.input"] = CountedBody(self.environ["wsgi.input"], room)

    def forget_body(self) -> None:
        """Let go of what came. The answer may take minutes, and needs it no more."""
        if self.counted is None:
            return
        for files in self.__dict__.get("files", ImmutableMultiDict()).listvalues():
            for file in files:
                file.close()
        self.__dict__.update(form=ImmutableMultiDict(), files=ImmutableMultiDict())
        self._cached_data = b""
        self.counted.forget()

    def _get_file_stream(self, total_content_length, content_type, filename=None, content_length=None):
        return CappedFile(current_app.config["MAX_FILE_BYTES"])
