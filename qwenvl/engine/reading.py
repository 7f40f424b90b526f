"""One question up to its first token: pictures through the tower or its cache, the prompt through the decoder.

All of it is a generator that stops after every bounded slice of work. Knows nothing of other answers, except that their
keys and values may be shared.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from qwenvl.cache import ByteLRU
from qwenvl.engine.kv import KV, PAGE_TOKENS, KVStore, pages_for
from qwenvl.engine.language import Rows
from qwenvl.engine.model import Model
from qwenvl.engine.newcomers import Work
from qwenvl.engine.prefix import LEAST_TOKENS, Prefix, PrefixCache, token_numbers
from qwenvl.engine.prompt import Prompt
from qwenvl.engine.rope import token_positions
from qwenvl.engine.sequence import Sequence
from qwenvl.engine.vision import Features
from qwenvl.images import Picture
from qwenvl.messages import Progress

# pictures whose number is remembered; one that is forgotten gets a new number, and shares nothing with its past
KNOWN_PICTURES = 4096
# float32 rows of the tower's width that encoding holds for a patch at most: itself, its query, key and value, the
# pixels twice, what attention and mergers lay out
ROWS_A_PATCH = 10


class Reader:
    """Reads questions for one model; owns both caches, `features` of pictures and `prefixes` of prompts."""

    def __init__(self, model: Model, features: ByteLRU, prefixes: PrefixCache, store: KVStore, chunk: int):
        """Prompts are read `chunk` tokens a slice."""
        self.model, self.features, self.prefixes, self.store, self.chunk = model, features, prefixes, store, chunk
        self._picture_numbers: OrderedDict[tuple, int] = OrderedDict()
        self._pictures_seen = 0

    def feature_key(self, picture: Picture) -> tuple:
        """All that decides a picture's features; the model and its quantisation never change within a reader."""
        return picture.sha256, picture.detail, picture.rgb.size

    @property
    def kv_dtype(self) -> torch.dtype:
        return self.store.dtype

    def forget(self, sha256: str) -> None:
        """Drop a picture, in every detail, from both caches."""
        self.features.drop(lambda key: key[0] == sha256)
        self.prefixes.forget(sha256)

    def prefix(self, sequence: Sequence) -> Prefix:
        """What a sequence's keys and values hold, by the numbers of its tokens."""
        numbers = np.concatenate((sequence.numbers, np.array(sequence.tokens, dtype=np.int64)))
        pictures = frozenset(picture.sha256 for picture in sequence.question.pictures)
        return Prefix(numbers[: sequence.kv.length], pictures, sequence.kv)

    def _number(self, picture: Picture) -> int:
        """A picture's own number, below zero. Counted, not hashed: two pictures can never meet in one."""
        key = self.feature_key(picture)
        if key not in self._picture_numbers:
            self._pictures_seen += 1
            self._picture_numbers[key] = -self._pictures_seen
            if len(self._picture_numbers) > KNOWN_PICTURES:
                self._picture_numbers.popitem(last=False)
        self._picture_numbers.move_to_end(key)
        return self._picture_numbers[key]

    def plan(self, sequence: Sequence, running: Iterable[Sequence]) -> Work:
        """What reading a question would take now; and its numbers, which `read` needs."""
        pictures, prompt, vision = sequence.question.pictures, sequence.prompt, self.model.vision
        sequence.numbers = token_numbers(prompt, [self._number(picture) for picture in pictures])
        done = self.prefixes.length(sequence.numbers, [self.prefix(other) for other in running])
        unread = [
            (self.feature_key(picture), h * w)
            for picture, start, (h, w) in zip(pictures, prompt.picture_starts, sequence.grids, strict=True)
            if start + h * w > done
        ]
        encoded = {key: tokens * vision.merge**2 for key, tokens in unread if key not in self.features}
        slices = -(-(len(prompt.ids) - done) // self.chunk) + sum(map(vision.slices, encoded.values()))
        token_bytes = 4 * self.model.text.embedding.shape[1] * (1 + len(vision.deepstack))
        held = token_bytes * sum(tokens for _, tokens in unread)
        working = 4 * ROWS_A_PATCH * vision.width * max(encoded.values(), default=0)
        return Work(slices, held + working, frozenset(encoded))

    def read(self, sequence: Sequence, running: Callable[[], Iterable[Sequence]]) -> Generator[Progress | None]:
        """Bring a sequence to its first logits. Stops after every slice with the progress made; None is no progress.

        `running()` are the answers being written when its turn comes.
        """
        while not self._begin(sequence, running()):
            yield None  # the keys and values of running answers need the room
        sequence.cached_tokens = sequence.kv.length
        encoded = yield from self._pictures(sequence, sequence.kv.length)
        sequence.encoded = time.monotonic()
        yield from self._prefill(sequence, encoded)
        sequence.prefilled = time.monotonic()

    def _begin(self, sequence: Sequence, running: Iterable[Sequence]) -> bool:
        """Give a sequence its pages, with what it shares already in them; False if there is no room yet."""
        tokens = len(sequence.prompt.ids) + sequence.max_tokens
        shared, length = self._shared(sequence, running)
        sequence.kv = self.store.begin(tokens, shared, length)
        # what was found is the most recently used now, so it is the last to go
        if sequence.kv is None and self.prefixes.make_room(pages_for(tokens) - length // PAGE_TOKENS):
            sequence.kv = self.store.begin(tokens, *self._shared(sequence, running))
        return sequence.kv is not None

    def _shared(self, sequence: Sequence, running: Iterable[Sequence]) -> tuple[KV | None, int]:
        """Keys and values to begin with, and for how many tokens they hold."""
        shared, length = self.prefixes.find(sequence.numbers, [self.prefix(other) for other in running])
        after_pictures = _end_of_pictures(sequence.prompt)
        if 0 < after_pictures <= length < after_pictures + LEAST_TOKENS:
            # a word or two in common are not worth that the chunks fall otherwise than without the cache
            length = after_pictures
        return shared, length

    # --- pictures ---

    def _pictures(self, sequence: Sequence, done: int) -> Generator[Progress, None, dict[int, Features]]:
        """Features of the pictures whose tokens are not done yet, by their place in the question."""
        pictures, starts = sequence.question.pictures, sequence.prompt.picture_starts
        encoded: dict[int, Features] = {}
        for i, (picture, start, (h, w)) in enumerate(zip(pictures, starts, sequence.grids, strict=True)):
            if start + h * w <= done:
                sequence.cached_pictures.add(i)
                continue
            key = self.feature_key(picture)
            features = self.features.get(key)
            if features is not None:
                sequence.cached_pictures.add(i)
            else:
                features = yield from self._encode(picture, i, len(pictures))
                # only here, whole: a picture given up half-way is never stored
                if not sequence.forgotten:
                    self.features.put(key, features, features.nbytes)
            encoded[i] = features
        return encoded

    def _encode(self, picture: Picture, index: int, count: int) -> Generator[Progress, None, Features]:
        """One picture through the tower; progress is of all `count` pictures of the question."""
        started = time.monotonic()
        work = self.model.vision.encode(*self.pixels(picture))
        while True:
            try:
                done = next(work)
            except StopIteration as end:
                return end.value
            left = (time.monotonic() - started) * ((count - index) / done - 1)
            yield Progress("encoding", (index + done) / count, eta_s=round(left, 2))

    def pixels(self, picture: Picture) -> tuple[Tensor, int, int]:
        """Normalised patches [N, 3 * patch * patch] and the patch grid (h, w)."""
        processor = self.model.processor
        out = processor(images=[picture.rgb], return_tensors="pt")
        _, h, w = out["image_grid_thw"][0].tolist()
        # a still picture is its own second frame; the tower's kernel has both halves added up
        frames = out["pixel_values"].view(h * w, 3, processor.temporal_patch_size, -1)
        return frames[:, :, 0].reshape(h * w, -1), h, w

    # --- prompt ---

    def _prefill(self, sequence: Sequence, encoded: dict[int, Features]) -> Iterator[Progress]:
        """The rest of the prompt through the decoder, a chunk a slice; a boundary may lie inside a picture."""
        text, prompt, kv = self.model.text, sequence.prompt, sequence.kv
        positions, sequence.next_position = token_positions(prompt.segments)
        first, T, started = kv.length, len(prompt.ids), time.monotonic()
        cut = _end_of_pictures(prompt) if self.prefixes.max_bytes else 0
        for start, end in self._chunks(first, T, cut):
            x, visual, levels = self._inputs(prompt, encoded, start, end)
            hidden = text.forward([Rows(x, positions[:, start:end], kv, visual, levels)])
            left = (time.monotonic() - started) * (T - end) / (end - first)
            if end == T:
                sequence.logits = text.logits(hidden[-1:])[0]
            yield Progress("prefill", end / T, eta_s=round(left, 2))

    def _chunks(self, start: int, end: int, cut: int) -> Iterator[tuple[int, int]]:
        """Slices of the prompt. One ends with the pictures, where the next question about them will go on."""
        while start < end:
            stop = min(start + self.chunk, end)
            if start < cut < stop:
                stop = cut
            yield start, stop
            start = stop

    def _inputs(self, prompt: Prompt, encoded: dict[int, Features], start: int, end: int
                ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:  # fmt: skip
        """Some tokens' embeddings [T, H], pictures in place; rows of picture tokens [n]; DeepStack levels [n, H]."""
        x = self.model.text.embed(torch.tensor(prompt.ids[start:end]))
        rows, levels = [], []
        for i, features in encoded.items():
            at = prompt.picture_starts[i]
            first, last = max(start, at), min(end, at + features.tokens)
            if first < last:
                x[first - start : last - start] = features.merged[first - at : last - at]
                rows.append(torch.arange(first - start, last - start))
                levels.append([level[first - at : last - at] for level in features.levels])
        if not rows:
            return x, torch.empty(0, dtype=torch.long), ()
        return x, torch.cat(rows), tuple(torch.cat(level) for level in zip(*levels, strict=True))


def _end_of_pictures(prompt: Prompt) -> int:
    """Tokens up to the end of the last picture and the mark behind it; 0 without pictures."""
    if not prompt.picture_starts:
        return 0
    h, w = next(segment for segment in reversed(prompt.segments) if not isinstance(segment, int))
    return prompt.picture_starts[-1] + h * w + 1
