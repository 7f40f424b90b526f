"""Threads, locks and queues stay native when gevent has patched everything, whichever was imported first."""

import subprocess
import sys

import pytest

CHECK = """
import _queue, _thread, threading
import gevent
assert native.SimpleQueue is _queue.SimpleQueue
assert type(native.Lock()) is not type(threading.Lock()), "the patched lock"
ticks, done = [], []
native.start_thread(lambda: (native.sleep(0.3), done.append(True)))
while not done:  # the hub goes on while the native thread sleeps
    gevent.sleep(0.01)
    ticks.append(1)
assert len(ticks) > 5, len(ticks)
"""
PATCH = "from gevent import monkey; monkey.patch_all()\n"
IMPORT = "from qwenvl import native\n"


@pytest.mark.parametrize("beginning", [PATCH + IMPORT, IMPORT + PATCH])
def test_native_stays_native(beginning):
    subprocess.run([sys.executable, "-c", beginning + CHECK], check=True, timeout=20)
