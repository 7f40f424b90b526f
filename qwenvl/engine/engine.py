"""The engine: answers advance by `step()`, one bounded slice of work a call. Knows no queue, no clock's end, no client.

A newcomer's work (vision layers, then prefill chunks) is a generator that stops after every slice; running answers
advance together, one token each, in one batch. With both kinds waiting, slices take turns: running streams keep
flowing while somebody else's picture is read, and the newcomer is never starved.
"""

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

from qwenvl.cache import ByteLRU
from qwenvl.engine.detokenizer import Detokenizer, TokenBytes
from qwenvl.engine.kv import KV
from qwenvl.engine.language import Rows, TextModel
from qwenvl.engine.prompt import PromptBuilder
from qwenvl.engine.rope import token_positions
from qwenvl.engine.sampling import choose
from qwenvl.engine.sequence import Sequence
from qwenvl.engine.vision import Features, VisionTower
from qwenvl.errors import ContextLengthExceeded, Internal
from qwenvl.images import Picture
from qwenvl.messages import Answer, Failed, Finished, Message, Piece, Progress, Question

log = logging.getLogger(__name__)
Event = tuple[Sequence, Message]


@dataclass(frozen=True)
class Model:
    """Everything loaded from a folder. `suppressed` ids (picture and vision tokens) can never be written."""

    name: str
    demo: bool
    quantization: str
    vision: VisionTower
    text: TextModel
    processor: Qwen2VLImageProcessorPil
    prompts: PromptBuilder
    token_bytes: TokenBytes
    end_ids: frozenset[int]
    suppressed: tuple[int, ...]


class Engine:
    """All running answers of one model. Every call must come from one thread."""

    def __init__(self, model: Model, *, slots: int = 8, feature_cache_bytes: int = 512 << 20,
                 max_context_tokens: int = 8192, prefill_chunk_tokens: int = 128,
                 kv_dtype: torch.dtype = torch.bfloat16):  # fmt: skip
        self.model, self.slots = model, slots
        self.max_context_tokens, self.prefill_chunk_tokens = max_context_tokens, prefill_chunk_tokens
        self.kv_dtype = kv_dtype
        self.features = ByteLRU(feature_cache_bytes)
        self._newcomers: deque[tuple[Sequence, Generator[Progress, None, None]]] = deque()
        self._running: list[Sequence] = []
        self._newcomer_next = True

    # --- what the scheduler calls ---

    def info(self) -> dict:
        """Facts for /health."""
        return {
            "model": self.model.name,
            "engine": "qwenvl-torch",
            "quantization": self.model.quantization,
            "threads": torch.get_num_threads(),
            "demo": self.model.demo,
            "feature_cache": dataclasses.asdict(self.features.stats()),
        }

    def start(self, question: Question) -> Sequence:
        """Take a question in. Cheap: no picture is looked at yet. Raises `ContextLengthExceeded`."""
        grids = tuple(self.grid(picture) for picture in question.pictures)
        prompt = self.model.prompts.build(question, grids)
        room = self.max_context_tokens - len(prompt.ids)
        if room < 1:
            raise ContextLengthExceeded(
                f"Pictures and text are {len(prompt.ids)} tokens; at most {self.max_context_tokens - 1} fit. "
                "Use less detail, fewer pictures or a shorter text."
            )
        sequence = Sequence(question, prompt, grids, Detokenizer(self.model.token_bytes))
        sequence.max_tokens = min(question.options.max_new_tokens, room)
        self._newcomers.append((sequence, self._prepare(sequence)))
        return sequence

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """One slice: a layer of a picture, a prefill chunk, or one token of every running answer."""
        if self._newcomers and (self._newcomer_next or not self._running):
            self._newcomer_next = False
            return self._advance_newcomer()
        self._newcomer_next = True
        return self._decode(self._running) if self._running else []

    def cancel(self, sequence: Sequence, reason: str) -> Answer:
        """Free an answer wherever it is; what was written so far comes back."""
        self._remove(sequence)
        sequence.add_text(sequence.detokenizer.finish())
        return self._answer(sequence, reason)

    def forget(self, sha256: str) -> None:
        """Drop a picture from the cache, in every detail."""
        self.features.drop(lambda key: key[0] == sha256)

    # --- pictures ---

    def grid(self, picture: Picture) -> tuple[int, int]:
        """Merged tokens (h, w) that a picture becomes."""
        processor = self.model.processor
        side = processor.patch_size * processor.merge_size
        size = processor.size
        height, width = smart_resize(
            picture.rgb.height, picture.rgb.width, side, size["shortest_edge"], size["longest_edge"]
        )
        return height // side, width // side

    def _feature_key(self, picture: Picture) -> tuple:
        # all that decides the value; the model and its quantisation are the engine's own and never change
        return picture.sha256, picture.detail, picture.rgb.size

    def _pixels(self, picture: Picture) -> tuple[Tensor, int, int]:
        """Normalised patches [N, 3 * patch * patch] and the patch grid (h, w)."""
        processor = self.model.processor
        out = processor(images=[picture.rgb], return_tensors="pt")
        _, h, w = out["image_grid_thw"][0].tolist()
        # a still picture is its own second frame; the tower's kernel has both halves added up
        frames = out["pixel_values"].view(h * w, 3, processor.temporal_patch_size, -1)
        return frames[:, :, 0].reshape(h * w, -1), h, w

    # --- one answer, up to its first token ---

    def _prepare(self, sequence: Sequence) -> Generator[Progress, None, None]:
        """Read the pictures, then the prompt. Stops after every slice with the progress made."""
        pictures, encoded = sequence.question.pictures, []
        for i, picture in enumerate(pictures):
            key = self._feature_key(picture)
            features = self.features.get(key)
            if features is not None:
                sequence.cached_pictures.add(i)
            else:
                features = yield from self._encode(picture, i, len(pictures))
                # only here, whole: a picture given up half-way is never stored
                self.features.put(key, features, features.nbytes)
            encoded.append(features)
        sequence.encoded = time.monotonic()
        yield from self._prefill(sequence, encoded)
        sequence.prefilled = time.monotonic()

    def _encode(self, picture: Picture, index: int, count: int) -> Generator[Progress, None, Features]:
        """One picture through the tower; progress is of all `count` pictures of the question."""
        started = time.monotonic()
        work = self.model.vision.encode(*self._pixels(picture))
        while True:
            try:
                done = next(work)
            except StopIteration as end:
                return end.value
            left = (time.monotonic() - started) * ((count - index) / done - 1)
            yield Progress("encoding", (index + done) / count, eta_s=round(left, 2))

    def _prefill(self, sequence: Sequence, encoded: list[Features]) -> Iterator[Progress]:
        """The prompt through the decoder, a chunk a slice; a boundary may lie inside a picture."""
        text, prompt = self.model.text, sequence.prompt
        T = len(prompt.ids)
        positions, sequence.next_position = token_positions(prompt.segments)
        x, visual, levels = self._inputs(sequence, encoded)
        sequence.kv = KV(len(text.layers), text.kv_heads, text.head_dim, T + sequence.max_tokens, self.kv_dtype)
        started = time.monotonic()
        for start in range(0, T, self.prefill_chunk_tokens):
            end = min(start + self.prefill_chunk_tokens, T)
            own = (visual >= start) & (visual < end)
            rows = Rows(
                x[start:end], positions[:, start:end], sequence.kv, visual[own] - start, tuple(t[own] for t in levels)
            )
            hidden = text.forward([rows])
            if end < T:
                left = (time.monotonic() - started) * (T / end - 1)
                yield Progress("prefill", end / T, eta_s=round(left, 2))
        sequence.logits = text.logits(hidden[-1:])[0]
        yield Progress("prefill", 1.0, eta_s=0.0)

    def _inputs(self, sequence: Sequence, encoded: list[Features]) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Embeddings [T, H] with the pictures in place, rows of picture tokens [n], DeepStack levels each [n, H]."""
        x = self.model.text.embed(torch.tensor(sequence.prompt.ids))
        if not encoded:
            return x, torch.empty(0, dtype=torch.long), ()
        places = zip(sequence.prompt.picture_starts, encoded, strict=True)
        visual = torch.cat([torch.arange(start, start + f.tokens) for start, f in places])
        x[visual] = torch.cat([f.merged for f in encoded])
        return x, visual, tuple(torch.cat(level) for level in zip(*(f.levels for f in encoded), strict=True))

    def _advance_newcomer(self) -> list[Event]:
        sequence, work = self._newcomers[0]
        try:
            return [(sequence, next(work))]
        except StopIteration:
            self._newcomers.popleft()
            self._running.append(sequence)
            return self._write(sequence)
        except Exception:
            return [self._fail(sequence)]

    # --- running answers ---

    def _decode(self, batch: list[Sequence]) -> list[Event]:
        """One token for every running answer, all rows through the matrices together."""
        try:
            hidden = self.model.text.forward([self._last_token(s) for s in batch])
            logits = self.model.text.logits(hidden)
        except Exception:
            if len(batch) == 1:
                return [self._fail(batch[0])]
            # nothing counts until all layers are through, so each can be tried alone: only the culprit fails
            return [event for sequence in list(batch) for event in self._decode([sequence])]
        events: list[Event] = []
        for sequence, row in zip(list(batch), logits, strict=True):
            sequence.logits = row
            sequence.next_position += 1
            events += self._write(sequence)
        return events

    def _last_token(self, sequence: Sequence) -> Rows:
        x = self.model.text.embed(torch.tensor(sequence.tokens[-1:]))
        return Rows(x, torch.full((3, 1), sequence.next_position), sequence.kv)

    def _write(self, sequence: Sequence) -> list[Event]:
        """Choose the next token from the logits in hand; print it, or end the answer."""
        sequence.logits[list(self.model.suppressed)] = -torch.inf
        token = choose(sequence.logits, sequence.question.options.temperature)
        if token in self.model.end_ids:
            return self._finish(sequence, "stop")
        sequence.tokens.append(token)
        pieces = sequence.add_text(sequence.detokenizer.push(token))
        if len(sequence.tokens) >= sequence.max_tokens:
            return [(sequence, piece) for piece in pieces] + self._finish(sequence, "length")
        return [(sequence, piece) for piece in pieces]

    def _finish(self, sequence: Sequence, reason: str) -> list[Event]:
        self._remove(sequence)
        last: list[Piece] = sequence.add_text(sequence.detokenizer.finish())
        return [*((sequence, piece) for piece in last), (sequence, Finished(self._answer(sequence, reason)))]

    def _answer(self, sequence: Sequence, reason: str) -> Answer:
        processor = self.model.processor
        return sequence.answer(reason, self.model.name, processor.patch_size, processor.merge_size)

    def _fail(self, sequence: Sequence) -> Event:
        """End one answer after an exception; the log has the traceback, the user a sentence."""
        log.exception("an answer failed")
        self._remove(sequence)
        return sequence, Failed(Internal("The model failed on this question. Please try again."))

    def _remove(self, sequence: Sequence) -> None:
        self._running = [s for s in self._running if s is not sequence]
        for _, work in [n for n in self._newcomers if n[0] is sequence]:
            work.close()
        self._newcomers = deque(n for n in self._newcomers if n[0] is not sequence)
        sequence.kv = None
