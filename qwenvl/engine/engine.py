"""The engine: answers advance by `step()`, one bounded slice of work a call. Knows no queue, no clock's end, no client.

A newcomer's work (vision layers, then prefill chunks) is a generator that stops after every slice; running answers
advance together, one token each, in one batch. With both kinds waiting, slices take turns: running streams keep
flowing while somebody else's picture is read, and no newcomer is starved. Which newcomer is next: see `newcomers`.
"""

import dataclasses
import logging

import torch
from torch import Tensor

from qwenvl.cache import ByteLRU
from qwenvl.engine import many_rows
from qwenvl.engine.attention import kernel_names, prefers_pairs
from qwenvl.engine.detokenizer import Detokenizer
from qwenvl.engine.fidelity import summary
from qwenvl.engine.kv import KVStore
from qwenvl.engine.language import Rows
from qwenvl.engine.linear import kernel_name
from qwenvl.engine.model import Model
from qwenvl.engine.newcomers import Newcomers
from qwenvl.engine.prefix import PrefixCache
from qwenvl.engine.reading import Reader
from qwenvl.engine.repetition import Repetition
from qwenvl.engine.sampling import choose
from qwenvl.engine.sequence import Sequence
from qwenvl.engine.speculation import MOST_ROWS, Guesser
from qwenvl.errors import ContextLengthExceeded, ImageTooLarge, Internal
from qwenvl.messages import Answer, Failed, Finished, Message, Piece, Question

log = logging.getLogger(__name__)
Event = tuple[Sequence, Message]


class Engine:
    """All running answers of one model. Every call must come from one thread."""

    def __init__(self, model: Model, *, slots: int = 8, feature_cache_bytes: int = 512 << 20,
                 prefix_cache_bytes: int = 1 << 30, kv_bytes: int = 2 << 30, max_context_tokens: int = 8192,
                 prefill_chunk_tokens: int = 128, kv_dtype: torch.dtype = torch.bfloat16,
                 speculation_tokens: int = 7, reading_bytes: int = 1 << 30):  # fmt: skip
        self.model, self.slots, self.max_context_tokens = model, slots, max_context_tokens
        self.speculation_tokens = speculation_tokens
        text = model.text
        self.store = KVStore(
            len(text.layers), text.kv_heads, text.head_dim, kv_bytes, kv_dtype, least_tokens=max_context_tokens,
            pairs=prefers_pairs(kv_dtype, text.head_dim),
        )  # fmt: skip
        self.features, self.prefixes = ByteLRU(feature_cache_bytes), PrefixCache(self.store, prefix_cache_bytes)
        self.reader = Reader(model, self.features, self.prefixes, self.store, prefill_chunk_tokens)
        self._fixed = {
            "model": model.name,
            "engine": "qwenvl-torch",
            "quantization": model.quantization,
            "threads": torch.get_num_threads(),
            "demo": model.demo,
            "kernels": {"int8": kernel_name(), **many_rows.kernel_names(model.vision), **kernel_names()},
            "fidelity": summary(model.fidelity),
            "picture": model.picture_limits,
        }
        self._newcomers = Newcomers(reading_bytes, slots)
        self._running: list[Sequence] = []
        self._newcomer_next = True

    # --- what the scheduler calls ---

    def info(self) -> dict:
        """Facts for /health; asked for after every slice."""
        return {
            **self._fixed,
            "feature_cache": dataclasses.asdict(self.features.stats()),
            "prefix_cache": dataclasses.asdict(self.prefixes.stats()),
        }

    def start(self, question: Question, name: str = "-") -> Sequence:
        """Take a question in, which the log will know by `name`. Cheap: no picture is looked at yet.

        Raises `ContextLengthExceeded`, or `ImageTooLarge` for pictures that there is no memory for.
        """
        grids = tuple(self.model.grid(picture) for picture in question.pictures)
        prompt = self.model.prompts.build(question, grids)
        room = self.max_context_tokens - len(prompt.ids)
        if room < 1:
            raise ContextLengthExceeded(
                f"Pictures and text are {len(prompt.ids)} tokens; at most {self.max_context_tokens - 1} fit. "
                "Use less detail, fewer pictures or a shorter text."
            )
        letters = self.model.token_bytes
        sequence = Sequence(
            question, prompt, grids, Detokenizer(letters), Guesser(prompt.ids), Repetition(letters.text), name
        )
        sequence.max_tokens = min(question.options.max_new_tokens, room)
        work = self.reader.plan(sequence, self._running)
        if work.nbytes > self._newcomers.max_bytes:
            raise ImageTooLarge(
                f"Reading these pictures takes {work.nbytes >> 20} MiB of memory, and this server has "
                f"{self._newcomers.max_bytes >> 20} for it. Use less detail or fewer pictures."
            )
        self._newcomers.add(sequence, work, self.reader.read(sequence, lambda: self._running))
        return sequence

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """One slice: a layer of a picture or part of it, a prefill chunk, or one token of every running answer."""
        if self._newcomers and (self._newcomer_next or not self._running):
            self._newcomer_next = False
            return self._advance_newcomer()
        self._newcomer_next = True
        return self._decode(self._running) if self._running else []

    @torch.inference_mode()
    def cancel(self, sequence: Sequence, reason: str) -> Answer:
        """Free an answer wherever it is; what was written so far comes back."""
        self._keep_prefix(sequence)
        self._remove(sequence)
        sequence.add_text(sequence.detokenizer.finish())
        return self._answer(sequence, reason)

    def forget(self, sha256: str) -> None:
        """Drop a picture from the caches, in every detail; answers that are still about it will leave nothing there."""
        self.reader.forget(sha256)
        for sequence in [*self._running, *self._newcomers]:
            sequence.forgotten |= any(picture.sha256 == sha256 for picture in sequence.question.pictures)

    # --- newcomers ---

    def _advance_newcomer(self) -> list[Event]:
        for newcomer in self._newcomers.in_turn():
            sequence = newcomer.sequence
            try:
                progress = next(newcomer.reading)
            except StopIteration:
                self._newcomers.finish(newcomer)
                self._running.append(sequence)
                return self._write(sequence)
            except Exception:
                return [self._fail(sequence)]
            if progress is not None:
                self._newcomers.note_slice()
                return [(sequence, progress)]
        return []

    # --- running answers ---

    def _decode(self, batch: list[Sequence]) -> list[Event]:
        """A token for every running answer, or several where a guess was right; all rows go through together."""
        guesses = self._guesses(batch)
        try:
            hidden = self.model.text.forward([self._rows(s, g) for s, g in zip(batch, guesses, strict=True)])
            logits = self.model.text.logits(hidden)
        except Exception:
            if len(batch) == 1:
                return [self._fail(batch[0])]
            # nothing counts until all layers are through, so each can be tried alone: only the culprit fails
            return [event for sequence in list(batch) for event in self._decode([sequence])]
        events: list[Event] = []
        own = logits.split([1 + len(guessed) for guessed in guesses])
        for sequence, guessed, rows in zip(list(batch), guesses, own, strict=True):
            events += self._write_while_right(sequence, guessed, rows)
        return events

    def _guesses(self, batch: list[Sequence]) -> list[list[int]]:
        """Tokens to try behind the last one, for each sequence; few or none when the batch is large already."""
        guesses, spare = [], min(self.speculation_tokens, MOST_ROWS - len(batch))
        for sequence in batch:
            guesses.append(sequence.guesser.guess(min(spare, sequence.max_tokens - len(sequence.tokens) - 1)))
            spare -= len(guesses[-1])
        return guesses

    def _rows(self, sequence: Sequence, guessed: list[int]) -> Rows:
        """The last token written, which has no keys and values yet, and the guesses behind it."""
        x = self.model.text.embed(torch.tensor([sequence.tokens[-1], *guessed]))
        positions = torch.arange(sequence.next_position, sequence.next_position + len(x)).expand(3, -1)
        return Rows(x, positions, sequence.kv)

    def _write_while_right(self, sequence: Sequence, guessed: list[int], logits: Tensor) -> list[Event]:
        """Write the next token, and go on while it is the one that was guessed. logits [1 + guesses, V]."""
        events: list[Event] = []
        sequence.kv.advance(-len(guessed))  # they count one by one, as they turn out right
        for right, row in enumerate(logits):
            sequence.kv.advance(1 if right else 0)
            sequence.next_position += 1
            sequence.logits = row
            events += self._write(sequence)
            if sequence.kv is None or [sequence.tokens[-1]] != guessed[right : right + 1]:
                break
        sequence.guesser.learn(len(guessed), right)
        return events

    def _write(self, sequence: Sequence) -> list[Event]:
        """Choose the next token from the logits in hand; print it, or end the answer."""
        sequence.logits[list(self.model.suppressed)] = -torch.inf
        token = choose(sequence.logits, sequence.question.options.temperature)
        if token in self.model.end_ids:
            return self._finish(sequence, "stop")
        sequence.tokens.append(token)
        sequence.guesser.push(token)
        pieces = sequence.add_text(sequence.detokenizer.push(token))
        events: list[Event] = [(sequence, piece) for piece in pieces]
        if sequence.repetition.push(token):
            return events + self._finish(sequence, "repetition")
        if len(sequence.tokens) >= sequence.max_tokens:
            return events + self._finish(sequence, "length")
        return events

    def _finish(self, sequence: Sequence, reason: str) -> list[Event]:
        self._keep_prefix(sequence)
        self._remove(sequence)
        last: list[Piece] = sequence.add_text(sequence.detokenizer.finish())
        return [*((sequence, piece) for piece in last), (sequence, Finished(self._answer(sequence, reason)))]

    def _answer(self, sequence: Sequence, reason: str) -> Answer:
        return sequence.answer(reason, self.model.name, self.model.token_side)

    def _keep_prefix(self, sequence: Sequence) -> None:
        """What an answer leaves for the next question. One given up before its first token leaves nothing."""
        if sequence.prefilled is not None and sequence.kv is not None and not sequence.forgotten:
            self.prefixes.put(self.reader.prefix(sequence))

    def _fail(self, sequence: Sequence) -> Event:
        """End one answer after an exception; the log has the traceback, the user a sentence."""
        log.exception("Request %s failed in the engine.", sequence.name)
        self._remove(sequence)
        return sequence, Failed(Internal("The model failed on this question. Please try again."))

    def _remove(self, sequence: Sequence) -> None:
        self._running = [s for s in self._running if s is not sequence]
        self._newcomers.give_up(sequence)
        if sequence.kv is not None:
            sequence.kv.release()
            sequence.kv = None
