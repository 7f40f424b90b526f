"""How messages travel from native threads to greenlets, and slow work from greenlets to native threads.

gevent's own queues must not be touched by a native thread, so a `Bridge` carries calls over: a plain deque, and a
watcher of the hub's loop whose `send()` is thread-safe. Knows nothing of questions or of HTTP.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import gevent
from gevent.queue import Empty, Queue
from gevent.threadpool import ThreadPool

log = logging.getLogger(__name__)


class Bridge:
    """Runs functions on the hub of the thread that created it. They must not block."""

    def __init__(self):
        self._calls: deque[tuple[Callable, tuple]] = deque()
        self._watcher = gevent.get_hub().loop.async_()
        self._watcher.start(self._run)

    def call(self, function: Callable, *args: Any) -> None:
        """Have `function(*args)` run on the hub soon. For any thread; calls keep their order."""
        self._calls.append((function, args))
        self._watcher.send()

    def _run(self) -> None:
        while self._calls:
            function, args = self._calls.popleft()
            try:
                function(*args)
            except Exception:
                log.exception("A message could not be carried to the web side.")


class Mailbox:
    """What one answer has to say to one greenlet, in order."""

    def __init__(self, bridge: Bridge):
        self._bridge = bridge
        self._queue = Queue()

    def put(self, message: Any) -> None:
        """Deliver a message, from any thread."""
        self._bridge.call(self._queue.put_nowait, message)

    def get(self, timeout_s: float | None = None) -> Any | None:
        """The next message; None when none has come within `timeout_s`."""
        try:
            return self._queue.get(timeout=timeout_s)
        except Empty:
            return None


class Workshop:
    """A few native threads for work that would stop the hub, such as decoding pictures."""

    def __init__(self, threads: int = 2):
        self._pool = ThreadPool(threads)

    def run(self, function: Callable, *args: Any) -> Any:
        """`function(*args)`, computed off the hub while other greenlets go on; its exceptions are raised here."""
        result, error = self._pool.apply(_outcome, (function, args))
        if error is not None:
            raise error
        return result


def _outcome(function: Callable, args: tuple) -> tuple[Any, Exception | None]:
    """What came of it. An exception that left the thread would be printed by gevent, with its traceback, as a fault."""
    try:
        return function(*args), None
    except Exception as error:
        return None, error
