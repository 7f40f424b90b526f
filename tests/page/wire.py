"""A wire to a server that can be cut and that can fall silent, as networks do. It carries bytes and knows no HTTP."""

import contextlib
import socket
import threading
import time


class Wire:
    """Carries connections from a port of its own to `target` until `close()`."""

    def __init__(self, target: int):
        self.target = target
        self._whole, self._flowing = threading.Event(), threading.Event()
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.mend()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Every connection breaks, and new ones break at once."""
        self._whole.clear()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends.clear()

    def silence(self) -> None:
        """Nothing arrives any more, and nobody is told."""
        self._flowing.clear()

    def mend(self) -> None:
        self._whole.set()
        self._flowing.set()

    def close(self) -> None:
        self.cut()
        self._flowing.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._whole.is_set():
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.target))
            self._ends += [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := here.recv(65536):
                while not self._flowing.is_set():
                    time.sleep(0.01)
                there.sendall(data)
        with contextlib.suppress(OSError):
            there.shutdown(socket.SHUT_WR)
        here.close()  # every end has one reader
