"""Threads, locks and queues that stay native when gevent has patched the standard library.

The model must run on a real thread: a greenlet that computes for seconds would stop the whole server. Knows nothing of
models or of the web. Whoever holds a native `Lock` keeps it for microseconds, because waiting for one blocks the hub.
"""

from collections.abc import Callable
from importlib import import_module

try:
    from gevent.monkey import get_original as _original
except ImportError:  # without gevent nothing is patched, and the plain names are the native ones

    def _original(module: str, name: str):
        return getattr(import_module(module), name)


Lock = _original("_thread", "allocate_lock")
SimpleQueue = _original("queue", "SimpleQueue")
sleep = _original("time", "sleep")
_start_new_thread = _original("_thread", "start_new_thread")


def start_thread(target: Callable[[], None]) -> None:
    """Run `target()` on a native thread that does not keep the process alive."""
    _start_new_thread(target, ())
