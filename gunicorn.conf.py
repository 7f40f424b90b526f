"""gunicorn's settings: one gevent worker, listening where HOST and PORT say. Read by gunicorn from this folder.

One process owns the model, so a second worker would load it again and know nothing of the first one's questions,
pictures and sockets. It is refused, not half served.
"""

import os

from qwenvl.config import Settings
from qwenvl.errors import InvalidRequest

ONE_WORKER = "QwenVL runs one worker, as one process owns the model: unset WEB_CONCURRENCY and leave -w at 1."

if os.environ.get("WEB_CONCURRENCY", "").strip() not in ("", "1"):
    raise SystemExit(ONE_WORKER)
try:
    _settings = Settings.from_env()
except InvalidRequest as error:
    raise SystemExit(str(error)) from None

_host = f"[{_settings.host}]" if ":" in _settings.host else _settings.host
bind = f"{_host}:{_settings.port}"
worker_class = "gevent"
workers = 1
timeout = 120  # importing torch from a slow disk can hold the worker longer than the usual 30 s
graceful_timeout = 30
control_socket_disable = True  # it lies in the home folder, where a second server would meet the first one's


def on_starting(server):
    """Called once before the worker starts; the command line may have asked for more."""
    if server.cfg.workers != 1:
        raise SystemExit(ONE_WORKER)


def post_worker_init(worker):
    """Called in the worker when the application is there; gevent must have patched what this imports."""
    from qwenvl.web.unparsed import answer_in_json

    answer_in_json()


def nworkers_changed(server, new_value, old_value):
    """A signal (TTIN) may ask for another worker while we run."""
    if old_value is not None and new_value > 1:
        server.log.warning(ONE_WORKER)
        server.num_workers = 1
