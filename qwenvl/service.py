"""What users can do, once for every transport: upload a picture, ask, cancel, forget, and see how the server is.

Knows nothing of Flask, and of the engine only the loader it is given. Opening pictures is slow and may be called from
any thread; everything else returns at once.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from qwenvl import checks
from qwenvl.config import MIB, Settings
from qwenvl.errors import InvalidRequest, MissingImage, QueueFull, Unauthorized
from qwenvl.images import Picture, read_picture
from qwenvl.keys import Keys
from qwenvl.limits import Pace, client_of
from qwenvl.memory import decoding_bytes, receiving_bytes, resident_bytes
from qwenvl.messages import DEFAULT_QUESTION, Failed, Finished, Message, Options, Question
from qwenvl.metrics import Metrics
from qwenvl.room import Room
from qwenvl.scheduler import ANYBODY, Scheduler
from qwenvl.tickets import Asker, Ticket
from qwenvl.uploads import Upload, UploadStore
from qwenvl.watchdog import Watchdog

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shown:
    """A picture opened for a question, and the upload id under which its file is kept."""

    id: str
    picture: Picture


class Service:
    """One process's pictures, questions and answers. `load(report) -> engine` runs on the engine thread."""

    def __init__(self, settings: Settings, load: Callable[[Callable[[str, float], None]], Any]):
        """Raise `InvalidRequest` when the keys cannot be read."""
        self.settings = settings
        self._keys = Keys.from_settings(settings)
        self._uploads = UploadStore(settings.upload_store_bytes, settings.upload_ttl_s)
        self.receiving = Room(receiving_bytes(settings))  # for bodies of requests
        self._decoding = Room(decoding_bytes(settings))
        self._load = load
        self._pace = Pace(settings.client_requests_per_minute)
        self._watchdog = Watchdog(self._make_scheduler, settings.stall_timeout_s)
        self.metrics = Metrics(self._facts)

    def start(self) -> None:
        """Start the engine thread, which loads the model first."""
        self._watchdog.start()

    @property
    def _scheduler(self) -> Scheduler:
        return self._watchdog.scheduler

    def _make_scheduler(self) -> Scheduler:
        settings = self.settings
        return Scheduler(
            self._load,
            queue_size=settings.queue_size,
            answer_timeout_s=settings.answer_timeout_s,
            client_questions=settings.client_questions,
            ended=self._note_end,
        )

    def health(self) -> tuple[bool, dict[str, Any]]:
        """(ready, what `/health` says)."""
        scheduler = self._scheduler
        if not scheduler.ready:
            state = scheduler.load_state
            if state.error:
                return False, {"status": "failed", "error": state.error, "code": "internal"}
            return False, {"status": "loading", **state.fields()}
        waiting, running = scheduler.counts
        queue = {"waiting": waiting, "running": running, "size": self.settings.queue_size}
        memory = {"budget_mb": self.settings.memory_mb, "resident_mb": resident_bytes() // MIB}
        facts = {"queue": queue, "uploads": len(self._uploads), "memory": memory}
        return True, {"status": "ready", **scheduler.info, **facts}

    def _facts(self) -> dict[str, Any]:
        """The present state, for metrics."""
        scheduler = self._scheduler
        waiting, running = scheduler.counts
        return {
            "ready": scheduler.ready,
            "waiting": waiting,
            "running": running,
            "uploads": len(self._uploads),
            "memory_budget_bytes": self.settings.memory_mb * MIB,
            "engine_restarts": self._watchdog.restarts,
            "info": scheduler.info,
        }

    def _note_end(self, ticket: Ticket, message: Finished | Failed) -> None:
        """Count and log how a question ended: how long, how much and for whom, never what about."""
        asker, pictures = ticket.asker, len(ticket.question.pictures)
        if isinstance(message, Failed):
            self.metrics.failed(message.error.code)
            log.warning(
                "question id=%s client=%s outcome=%s pictures=%d total_s=%.2f",
                asker.request_id, asker.client, message.error.code, pictures, time.monotonic() - ticket.asked_at,
            )  # fmt: skip
            return
        answer = message.answer
        self.metrics.answered(answer)
        log.info(
            "question id=%s client=%s outcome=%s pictures=%d tokens=%d queue_s=%.2f first_token_s=%.2f total_s=%.2f",
            asker.request_id, asker.client, answer.finish_reason, pictures, answer.usage.completion_tokens,
            answer.timings.queue_s, answer.timings.first_token_s, answer.timings.total_s,
        )  # fmt: skip

    # Access

    def client(self, key: Any, address: str | None) -> str:
        """The name of whoever asks, for limits and logs: their key's number, else the address; raise `Unauthorized`."""
        if not self._keys.needed:
            return client_of(address)
        name = self._keys.holder(key)
        if name is None:
            raise Unauthorized("This server needs a key. Send it as `Authorization: Bearer YOUR_KEY`.")
        return name

    def count_request(self, client: str) -> None:
        """Note that a client wants something done; raise `RateLimited` when it has wanted too much lately."""
        self._pace.count(client)

    # Pictures

    def open_picture(self, data: bytes, detail: str) -> Picture:
        """Decode a picture's file. Slow."""
        settings = self.settings
        return read_picture(
            data, detail=detail, max_bytes=settings.max_upload_bytes, max_pixels=settings.max_image_pixels,
            room=self._decoding.to_decode,
        )  # fmt: skip

    def add_upload(self, data: bytes) -> Upload:
        """Keep a picture's file for later questions, after looking whether it is one. Slow."""
        return self._keep(data, self.open_picture(data, self.settings.detail))

    def take_picture(self, data: bytes, detail: str) -> Shown:
        """Open a picture that came with a question, and keep its file for follow-ups. Slow."""
        picture = self.open_picture(data, detail)
        return Shown(self._keep(data, picture).id, picture)

    def show_upload(self, upload_id: str, detail: str) -> Shown:
        """Open an uploaded picture for a question; raise `UnknownImage`. Slow."""
        return Shown(upload_id, self.open_picture(self.upload(upload_id).data, detail))

    def upload(self, upload_id: str) -> Upload:
        """An uploaded picture; raise `UnknownImage` when it is not there (any more)."""
        return self._uploads.get(upload_id)

    def forget_upload(self, upload_id: str) -> None:
        """Forget a picture, and what the engine keeps of it; raise `UnknownImage`."""
        self._scheduler.forget(self._uploads.remove(upload_id).sha256)

    def tidy(self) -> None:
        """Remove uploads past their age limit. Called now and then."""
        self._uploads.tidy()

    def _keep(self, data: bytes, picture: Picture) -> Upload:
        return self._uploads.add(data, width=picture.width, height=picture.height, sha256=picture.sha256)

    # Questions

    def check_open(self, client: str) -> None:
        """Raise `Loading`, `QueueFull` or `RateLimited` before work is spent on a question that cannot be taken."""
        self._scheduler.check_open(client)
        budget = self.settings.memory_mb * MIB
        # Somebody must be at work, or memory that the system is slow to take back would lock everybody out for good.
        if budget and resident_bytes() > budget and any(self._scheduler.counts):
            raise QueueFull("The server's memory is in use. Try again when somebody's answer is done.")

    def options(self, *, detail: Any = None, max_new_tokens: Any = None, temperature: Any = None) -> Options:
        """Checked options, of any transport's types; raise `InvalidRequest`."""
        return checks.options(self.settings, detail=detail, max_new_tokens=max_new_tokens, temperature=temperature)

    def question(
        self, pictures: Sequence[Picture], text: Any = None, history: Any = None, options: Options | None = None
    ) -> Question:
        """A checked question. No text means the default question; no text and no picture is `MissingImage`."""
        words = checks.text("question", text, self.settings.max_question_chars)
        turns = checks.history(self.settings, history)
        self.check_picture_count(len(pictures))
        if not words and not pictures:
            raise MissingImage("Send a picture (field `image`), a question, or both.")
        return Question(tuple(pictures), words or DEFAULT_QUESTION, turns, options or self.options())

    def check_picture_count(self, count: int) -> None:
        """Raise `InvalidRequest` for more pictures than one question may have."""
        most = self.settings.max_images
        if count > most:
            raise InvalidRequest(f"{count} pictures in one question; at most {most} are accepted.")

    def ask(self, question: Question, deliver: Callable[[Message], None], asker: Asker = ANYBODY) -> Ticket:
        """Queue a question; raise `Loading`, `QueueFull` or `RateLimited`. `deliver` is called on the engine thread."""
        return self._scheduler.submit(question, deliver, asker)

    def shutdown(self, grace_s: float) -> None:
        """Let running answers finish for `grace_s`, then end them with an error; return when all have ended."""
        scheduler = self._watchdog.close()
        scheduler.stop(grace_s)
        give_up_at = time.monotonic() + grace_s + 5.0
        while not scheduler.stopped and time.monotonic() < give_up_at:
            time.sleep(0.02)  # looked up here, so that gevent's cooperative sleep is used under gevent
