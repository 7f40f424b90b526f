"""Training batches: pictures of one size, conversations about them as token ids, and which tokens are answers."""

import random

import numpy as np
import torch
from tokenizers import Tokenizer

from demo_model.drawing import Scene
from demo_model.network import CHAR_IDS, MERGE, PATCH, SHAPE_IDS, SLOTS
from demo_model.questions import NO_PICTURE, QA, of_several, questions
from demo_model.scenes import SIZE_WEIGHTS, SIZES, dense_text_scene, make_scene, shapes_scene, text_scene
from demo_model.tokenizer import SPECIALS
from demo_model.wordings import ask, reword

# what is learnt last is asked more often; of a lone shape the place is learnt at once, of one among others very late
HARD = {"place": 2.0, "count": 1.5, "label": 3.0, "word": 2.0}
PLACE_AMONG_OTHERS = 3.0


def _scene(rng: random.Random, size: tuple[int, int]) -> Scene:
    """A scene to learn from: more print and more shapes together, which take longest, than in those to be tried on."""
    chance = rng.random()
    if chance < 0.35:
        return text_scene(rng, size)
    while chance < 0.45:
        scene = shapes_scene(rng, size)
        if len(scene.facts["items"]) > 1:
            return scene
    return make_scene(rng, size)


def _weight(question: QA, scene: Scene) -> float:
    if question.kind == "place" and len(scene.facts.get("items", ())) > 1:
        return PLACE_AMONG_OTHERS
    return HARD.get(question.kind, 1.0)


def patch_order(h: int, w: int) -> np.ndarray:
    """[h, w] -> place of each patch in the order of the processor (2x2 blocks)."""
    order = np.arange(h * w).reshape(h // 2, w // 2, 2, 2).transpose(0, 2, 1, 3).reshape(h, w)
    return order


def char_targets(scene: Scene) -> np.ndarray:
    """[N, SLOTS] character ids by patch, in reading order inside a patch; 0 = none."""
    W, H = scene.picture.size
    h, w = H // PATCH, W // PATCH
    order, target, used = patch_order(h, w), np.zeros((h * w, SLOTS), np.int64), np.zeros(h * w, np.int64)
    for glyph in scene.glyphs:
        row, column = int(glyph.y * h), int(glyph.x * w)
        if not (0 <= row < h and 0 <= column < w):
            continue
        n = order[row, column]
        if used[n] < SLOTS:
            target[n, used[n]] = CHAR_IDS[glyph.char]
            used[n] += 1
    return target


def shape_targets(scene: Scene) -> np.ndarray:
    """[n, 2] by merged token, row by row: its shape (0 = none) and the ninth that shape lies in; -1 = not asked.

    A token names the shape whose middle it holds or that covers its own middle; of those that only touch one, nothing
    is asked.
    """
    h, w = scene.picture.size[1] // (PATCH * MERGE), scene.picture.size[0] // (PATCH * MERGE)
    y, x = np.meshgrid((np.arange(h) + 0.5) / h, (np.arange(w) + 0.5) / w, indexing="ij")
    target = np.zeros((h, w, 2), np.int64)
    target[..., 1] = -1
    for mark in scene.marks:
        dx, dy = np.abs(x - mark.x), np.abs(y - mark.y)
        touched = (dx < mark.rx + 0.5 / w) & (dy < mark.ry + 0.5 / h)
        inside = np.hypot(dx / mark.rx, dy / mark.ry) < 0.8
        holds = (dx <= 0.5 / w) & (dy <= 0.5 / h)
        target[touched & (target[..., 0] <= 0)] = -1
        target[inside | holds] = SHAPE_IDS[mark.shape], mark.cell
    return target.reshape(h * w, 2)


class Batches(torch.utils.data.IterableDataset):
    """Endless training batches, one picture size each. Also knows how a conversation becomes ids and positions."""

    def __init__(self, tokenizer: Tokenizer, phase: int, batch: int, seed: int):
        self.t, self.phase, self.batch, self.seed = tokenizer, phase, batch, seed
        self.special = {name: tokenizer.token_to_id(name) for name in SPECIALS}

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        rng = random.Random(self.seed * 1000 + (info.id if info else 0))
        while True:
            yield self.dense(rng) if self.phase == 1 else self.answers(rng)

    def size(self, rng: random.Random):
        return rng.choices(SIZES, SIZE_WEIGHTS)[0]

    def dense(self, rng: random.Random) -> dict:
        size = self.size(rng)
        scenes = [
            dense_text_scene(rng, size) if rng.random() < 0.75 else text_scene(rng, size) for _ in range(self.batch)
        ]
        return {"images": self._stack(scenes), "chars": torch.from_numpy(np.stack([char_targets(s) for s in scenes]))}

    @staticmethod
    def _stack(scenes) -> torch.Tensor:
        return torch.from_numpy(np.stack([np.asarray(s.picture) for s in scenes]))

    def answers(self, rng: random.Random) -> dict:
        count = rng.choices((1, 2, 0), (90, 7, 3))[0]
        size, room = self.size(rng), rng.choices((1, 50, 105), (15, 25, 60))[0]
        rows = self.batch if count < 2 else self.batch // 2
        groups = [[_scene(rng, size) for _ in range(count)] for _ in range(rows)]
        talks = [self._talk(group, room, rng) for group in groups]
        tokens = (size[0] // 32) * (size[1] // 32)
        out = self._sequences(talks, [tokens] * count, (size[1] // 32, size[0] // 32))
        scenes = [s for group in groups for s in group]
        if scenes:
            out["images"] = self._stack(scenes)
            out["chars"] = torch.from_numpy(np.stack([char_targets(s) for s in scenes]))
            out["shapes"] = torch.from_numpy(np.stack([shape_targets(s) for s in scenes]))
        return out

    def _talk(self, group, room: int, rng: random.Random) -> list[tuple[str, str]]:
        """One conversation that ends after `room` tokens: many questions about one picture cost little beside it."""
        zh, talk, told, used = rng.random() < 0.45, [], set(), 0
        short_first = rng.random() < 0.7
        for _ in range(8):
            zh = zh if rng.random() < 0.85 else not zh
            if group:
                index = rng.randrange(len(group))
                found = [q for q in questions(group[index], rng, zh) if (index, q.kind, q.answer) not in told]
                # whatever tells the whole picture leaves nothing to look up in it for the questions that follow
                short = [q for q in found if q.kind not in ("describe", "read")]
                if not found:
                    continue
                pool = short if short and short_first and used + 60 < room else found
                qa = rng.choices(pool, [_weight(q, group[index]) for q in pool])[0]
                told.add((index, qa.kind, qa.answer))
                if len(group) > 1:
                    qa = of_several(qa, index, zh)
                talk.append((reword(qa.question, rng), qa.answer))
            else:
                question = ask(rng, "small talk", zh) if rng.random() < 0.6 else self._any_question(rng, zh)
                talk.append((reword(question, rng), NO_PICTURE[zh]))
            used += sum(len(self.ids(said)) for said in talk[-1]) + 8
            if used >= room:
                break
        return talk

    @staticmethod
    def _any_question(rng: random.Random, zh: bool) -> str:
        return rng.choice(questions(make_scene(rng, (128, 128)), rng, zh)).question

    def ids(self, text: str) -> list[int]:
        return self.t.encode(text, add_special_tokens=False).ids

    def prompt(self, talk: list[tuple[str, str | None]], tokens: list[int]):
        """Ids and weights of one conversation, 0 outside answers; the last answer may be None (to be generated).

        A long answer counts more than a short one, but less than by its length: else printed text drowns out the rest.
        """
        s = self.special
        ids, mask = [s["<|im_start|>"], *self.ids("user\n")], []
        for n in tokens:
            ids += [s["<|vision_start|>"], *[s["<|image_pad|>"]] * n, s["<|vision_end|>"]]
        mask = [0] * len(ids)
        for i, (question, answer) in enumerate(talk):
            part = ([] if i == 0 else [s["<|im_start|>"], *self.ids("user\n")]) + self.ids(question)
            part += [s["<|im_end|>"], *self.ids("\n"), s["<|im_start|>"], *self.ids("assistant\n")]
            ids, mask = ids + part, mask + [0] * len(part)
            if answer is not None:
                said = [*self.ids(answer), s["<|im_end|>"]]
                gap = self.ids("\n")
                ids, mask = ids + said + gap, mask + [len(said) ** -0.25] * len(said) + [0] * len(gap)
        return ids, mask

    def _sequences(self, talks, tokens: list[int], grid: tuple[int, int]) -> dict:
        rows = [self.prompt(talk, tokens) for talk in talks]
        T = max(len(ids) for ids, _ in rows)
        pad = self.special["<|endoftext|>"]
        ids = torch.tensor([r + [pad] * (T - len(r)) for r, _ in rows])
        mask = torch.tensor([m + [0] * (T - len(m)) for _, m in rows], dtype=torch.float32)
        spans, at = [], len([1, *self.ids("user\n")])
        for n in tokens:
            spans.append((at + 1, at + 1 + n))
            at += n + 2
        return {"ids": ids, "mask": mask, "spans": spans, "positions": positions(T, spans, grid)}


def positions(T: int, spans, grid: tuple[int, int]) -> torch.Tensor:
    """M-RoPE positions [3, 1, T] of rows whose pictures (all of one merged grid) lie at `spans`."""
    out, at, nxt = [], 0, 0
    h, w = grid
    for start, end in spans:
        out.append(torch.arange(nxt, nxt + start - at).expand(3, -1))
        nxt += start - at
        y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        out.append(torch.stack([torch.zeros(h * w, dtype=torch.long), y.flatten(), x.flatten()]) + nxt)
        nxt, at = nxt + max(h, w), end
    out.append(torch.arange(nxt, nxt + T - at).expand(3, -1))
    return torch.cat(out, 1)[:, None]
