"""From a question to token ids: the model's own chat template, with users' words kept plain letters. Knows no tensors.

Text that people typed never becomes a special token: the template is rendered with marks in place of their words, and
only what the template itself wrote is read with special tokens. Their words go through a tokenizer that has none.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from qwenvl.messages import Question

# characters for private use: they cannot clash with the template, and users' own are out of the way before it is
# rendered
MARK = "\ue000{}\ue001"
MARKS = re.compile("\ue000(\\d+)\ue001")


@dataclass(frozen=True)
class Prompt:
    """Token ids, the same as segments (text lengths and picture grids), and where each picture's tokens start."""

    ids: tuple[int, ...]
    segments: tuple[int | tuple[int, int], ...]
    picture_starts: tuple[int, ...]


class PromptBuilder:
    def __init__(self, tokenizer: PreTrainedTokenizerBase, image_id: int):
        self.tokenizer, self.image_id = tokenizer, image_id

    @cached_property
    def plain(self) -> Tokenizer:
        """The same tokenizer with no added tokens at all."""
        description = json.loads(self.tokenizer.backend_tokenizer.to_str())
        description["added_tokens"], description["post_processor"] = [], None
        return Tokenizer.from_str(json.dumps(description))

    def build(self, question: Question, grids: Sequence[tuple[int, int]]) -> Prompt:
        """The prompt for a question whose pictures become `grids` of merged tokens (h, w)."""
        ids, pictures = [], iter(grids)
        segments: list[int | tuple[int, int]] = []
        starts, text_from = [], 0
        for token in self._ids(question):
            if token != self.image_id:
                ids.append(token)
                continue
            grid = next(pictures)
            segments += [len(ids) - text_from, grid]
            starts.append(len(ids))
            ids += [self.image_id] * (grid[0] * grid[1])
            text_from = len(ids)
        segments.append(len(ids) - text_from)
        return Prompt(tuple(ids), tuple(segments), tuple(starts))

    def _ids(self, question: Question) -> list[int]:
        """Ids with one image token a picture."""
        words, messages = [], []
        for turn in (*question.history, None):
            role, text = (turn.role, turn.content) if turn else ("user", question.text)
            parts = [{"type": "image"}] * len(question.pictures) if not messages else []
            parts.append({"type": "text", "text": MARK.format(len(words))})
            messages.append({"role": role, "content": parts if role == "user" else parts[-1]["text"]})
            words.append(text.strip())
        rendered = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = []
        for i, part in enumerate(MARKS.split(rendered)):
            if i % 2:
                ids += self.plain.encode(words[int(part)], add_special_tokens=False).ids
            elif part:
                ids += self.tokenizer.encode(part, add_special_tokens=False)
        return ids
