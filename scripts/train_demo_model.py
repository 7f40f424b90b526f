"""Train the bundled demo model: a small Qwen3-VL that really answers about coloured shapes and printed text.

Usage: `python scripts/train_demo_model.py --minutes 110 --out qwenvl/demo`. Stop and start it as you like: it goes on
from `--work`. Two phases share the time budget: first the vision tower alone learns to name the character at the
centre of each 16-pixel patch (end-to-end training never learns to read); then everything learns to answer, with that
head's loss beside it.

The modules and weight names are transformers' own `Qwen3VLForConditionalGeneration`; the forward pass here is the
batched, same-size special case of it, which trains several times faster than the general one.
"""

import argparse
import copy
import json
import random
import time
from pathlib import Path

import demo_pictures as pictures
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration

SPECIALS = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
).split()
MERGE, PATCH = 2, 16
SLOTS = 3  # characters that one patch may name
CHAR_IDS = {c: i + 1 for i, c in enumerate(pictures.CHARACTERS)}
CHAT_TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.content is string %}{{- message.content }}{%- else %}{%- for part in message.content %}"
    "{%- if part.type == 'image' or 'image' in part or 'image_url' in part %}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{%- elif 'text' in part %}{{- part.text }}{%- endif %}{%- endfor %}{%- endif %}{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)


# --- tokenizer ------------------------------------------------------------------------------------------------------


def corpus(seed: int = 5, scenes: int = 4000) -> list[str]:
    """Questions and answers in both languages, without what is printed in the pictures."""
    rng, texts = random.Random(seed), []
    for _ in range(scenes):
        scene = pictures.make_scene(rng, (128, 128))
        for zh in (False, True):
            for qa in pictures.questions(scene, rng, zh):
                texts.append(qa.question)
                if not qa.reading:
                    texts.append(qa.answer)
    for zh in (False, True):
        texts += [pictures.NO_PICTURE[zh], *pictures.SMALL_TALK[zh]]
        texts += [pictures.of_several(pictures.QA("?", "", ""), i, zh).question for i in (0, 1)]
    return texts


def make_tokenizer() -> Tokenizer:
    """A byte-level BPE whose merges spell each frequent word from its first letter on.

    Such merges never join letters in the middle of a word, so printed words stay one token a letter, which is what
    makes reading learnable for a model this small.
    """
    byte_letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?[A-Za-z]+|\p{N}| ?[^\s\p{L}\p{N}]+|\p{Han}|\s+|\p{L}+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    counts: dict[str, int] = {}
    for text in corpus():
        for word, _ in split.pre_tokenize_str(text):
            counts[word] = counts.get(word, 0) + 1
    vocab, merges = {c: i for i, c in enumerate(byte_letters)}, []
    for word in sorted((w for w, n in counts.items() if n >= 3 and len(w) > 1), key=lambda w: -counts[w]):
        for i in range(1, len(word)):
            if word[: i + 1] not in vocab:
                vocab[word[: i + 1]] = len(vocab)
                merges.append((word[:i], word[i]))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    return tokenizer


# --- model ----------------------------------------------------------------------------------------------------------


def make_config(tokenizer: Tokenizer) -> Qwen3VLConfig:
    ids = {name: tokenizer.token_to_id(name) for name in SPECIALS}
    vocab = -(-tokenizer.get_vocab_size() // 64) * 64
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    return Qwen3VLConfig(
        text_config=dict(
            vocab_size=vocab, hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=4096, rms_norm_eps=1e-6, rope_parameters=rope,
            bos_token_id=None, eos_token_id=ids["<|im_end|>"], pad_token_id=None, tie_word_embeddings=True,
        ),
        vision_config=dict(
            depth=4, hidden_size=128, intermediate_size=512, num_heads=4, patch_size=PATCH, spatial_merge_size=MERGE,
            temporal_patch_size=2, out_hidden_size=192, num_position_embeddings=256, deepstack_visual_indexes=[1, 2],
        ),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )  # fmt: skip


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Trainee(nn.Module):
    """transformers' model, a throw-away character head, and a forward pass for pictures of one size.

    Shapes: B pictures or rows, N patches, D vision width, T tokens.
    """

    def __init__(self, config: Qwen3VLConfig):
        super().__init__()
        self.model = Qwen3VLForConditionalGeneration(config)
        self.chars = nn.Linear(config.vision_config.hidden_size, SLOTS * (len(CHAR_IDS) + 1))
        self.tables: dict = {}

    def _vision_tables(self, h: int, w: int):
        """Interpolation and rotary tables of one grid, made once by transformers' own helpers."""
        if (h, w) not in self.tables:
            from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

            grid, visual = torch.tensor([[1, h, w]]), self.model.model.visual
            index, weight = get_vision_interpolation_indices_and_weights(
                grid, visual.num_grid_per_side, mode="bilinear", align_corners=True, spatial_merge_size=MERGE
            )
            cos, sin = visual.rotary_pos_emb(torch.zeros(1), get_vision_position_ids(grid, MERGE))
            self.tables[h, w] = index, weight, cos[None, None], sin[None, None]
        return self.tables[h, w]

    def encode(self, images: torch.Tensor):
        """uint8 [B, H, W, 3] -> merged [B, N/4, text width], the DeepStack levels, last hidden [B, N, D]."""
        visual = self.model.model.visual
        B, H, W, _ = images.shape
        h, w = H // PATCH, W // PATCH
        x = images.reshape(B, h // 2, 2, PATCH, w // 2, 2, PATCH, 3).permute(0, 1, 4, 2, 5, 7, 3, 6)
        x = x.reshape(B, h * w, 3 * PATCH * PATCH).float() / 127.5 - 1
        conv = visual.patch_embed.proj
        index, weight, cos, sin = self._vision_tables(h, w)
        x = F.linear(x, conv.weight.sum(2).flatten(1), conv.bias)  # both temporal halves see the same still picture
        x = x + (visual.pos_embed(index) * weight[:, :, None]).sum(1)
        levels = []
        for i, block in enumerate(visual.blocks):
            x = self._vision_block(block, x, cos, sin)
            if i in visual.deepstack_visual_indexes:
                merger = visual.deepstack_merger_list[visual.deepstack_visual_indexes.index(i)]
                levels.append(merger(x.reshape(-1, x.shape[-1])).view(B, h * w // 4, -1))
        merged = visual.merger(x.reshape(-1, x.shape[-1])).view(B, h * w // 4, -1)
        return merged, levels, x

    @staticmethod
    def _vision_block(block, x, cos, sin):
        B, N, D = x.shape
        q, k, v = block.attn.qkv(block.norm1(x)).view(B, N, 3, block.attn.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        out = F.scaled_dot_product_attention(q, k, v)
        x = x + block.attn.proj(out.transpose(1, 2).reshape(B, N, D))
        return x + block.mlp(block.norm2(x))

    def decode(self, ids, position_ids, spans, merged, levels):
        """ids [B, T], position_ids [3, B, T], spans [(start, end)] of the pictures -> last hidden [B, T, width]."""
        text = self.model.model.language_model
        x = text.embed_tokens(ids)
        if spans:
            x = self._put(x, spans, merged, torch.zeros_like(x), 0.0)
        cos, sin = (t[:, None] for t in text.rotary_emb(x, position_ids))
        for i, layer in enumerate(text.layers):
            x = self._text_layer(layer, x, cos, sin)
            if spans and i < len(levels):
                x = self._put(x, spans, levels[i], x, 1.0)
        return text.norm(x)

    @staticmethod
    def _put(x, spans, values, base, keep: float):
        """Replace (keep=0) or add to (keep=1) the rows of the pictures; same places in every row of the batch."""
        parts, at, used = [], 0, 0
        per = values.view(x.shape[0], -1, values.shape[-1])
        for start, end in spans:
            parts += [x[:, at:start], base[:, start:end] * keep + per[:, used : used + end - start]]
            at, used = end, used + end - start
        return torch.cat([p.to(x.dtype) for p in (*parts, x[:, at:])], 1)

    @staticmethod
    def _text_layer(layer, x, cos, sin):
        B, T, _ = x.shape
        attn, y = layer.self_attn, layer.input_layernorm(x)
        q = attn.q_norm(attn.q_proj(y).view(B, T, -1, attn.head_dim)).transpose(1, 2)
        k = attn.k_norm(attn.k_proj(y).view(B, T, -1, attn.head_dim)).transpose(1, 2)
        v = attn.v_proj(y).view(B, T, -1, attn.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        groups = attn.num_key_value_groups
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + attn.o_proj(out.transpose(1, 2).reshape(B, T, -1))
        return x + layer.mlp(layer.post_attention_layernorm(x))

    def char_loss(self, hidden, targets):
        """hidden [B, N, D], targets [B, N, SLOTS]; empty patches weigh little, as they are most."""
        logits = self.chars(hidden).view(-1, len(CHAR_IDS) + 1).float()
        weight = torch.ones(len(CHAR_IDS) + 1)
        weight[0] = 0.15
        return F.cross_entropy(logits, targets.reshape(-1), weight=weight), logits


# --- batches --------------------------------------------------------------------------------------------------------


def patch_order(h: int, w: int) -> np.ndarray:
    """[h, w] -> place of each patch in the order of the processor (2x2 blocks)."""
    order = np.arange(h * w).reshape(h // 2, w // 2, 2, 2).transpose(0, 2, 1, 3).reshape(h, w)
    return order


def char_targets(scene: pictures.Scene) -> np.ndarray:
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
        return rng.choices(pictures.SIZES, pictures.SIZE_WEIGHTS)[0]

    def dense(self, rng: random.Random) -> dict:
        size = self.size(rng)
        scenes = [
            pictures.dense_text_scene(rng, size) if rng.random() < 0.75 else pictures.text_scene(rng, size)
            for _ in range(self.batch)
        ]
        return {"images": self._stack(scenes), "chars": torch.from_numpy(np.stack([char_targets(s) for s in scenes]))}

    @staticmethod
    def _stack(scenes) -> torch.Tensor:
        return torch.from_numpy(np.stack([np.asarray(s.picture) for s in scenes]))

    def answers(self, rng: random.Random) -> dict:
        count = rng.choices((1, 2, 0), (90, 7, 3))[0]
        size, turns = self.size(rng), rng.choices((1, 2, 3), (35, 35, 30))[0]
        rows = self.batch if count < 2 else self.batch // 2
        groups = [[pictures.make_scene(rng, size) for _ in range(count)] for _ in range(rows)]
        talks = [self._talk(group, turns, rng) for group in groups]
        tokens = (size[0] // 32) * (size[1] // 32)
        out = self._sequences(talks, [tokens] * count, (size[1] // 32, size[0] // 32))
        scenes = [s for group in groups for s in group]
        if scenes:
            out["images"] = self._stack(scenes)
            out["chars"] = torch.from_numpy(np.stack([char_targets(s) for s in scenes]))
        return out

    def _talk(self, group, turns: int, rng: random.Random) -> list[tuple[str, str]]:
        zh, talk = rng.random() < 0.45, []
        for _ in range(turns):
            zh = zh if rng.random() < 0.85 else not zh
            if not group:
                asked = rng.choice(pictures.SMALL_TALK[zh]) if rng.random() < 0.6 else self._any_question(rng, zh)
                talk.append((pictures.reword(asked, rng), pictures.NO_PICTURE[zh]))
                continue
            index = rng.randrange(len(group))
            qa = rng.choice(pictures.questions(group[index], rng, zh))
            if len(group) > 1:
                qa = pictures.of_several(qa, index, zh)
            talk.append((pictures.reword(qa.question, rng), qa.answer))
        return talk

    @staticmethod
    def _any_question(rng: random.Random, zh: bool) -> str:
        return rng.choice(pictures.questions(pictures.make_scene(rng, (128, 128)), rng, zh)).question

    def ids(self, text: str) -> list[int]:
        return self.t.encode(text, add_special_tokens=False).ids

    def prompt(self, talk: list[tuple[str, str | None]], tokens: list[int]):
        """Ids and answer mask of one conversation; the last answer may be None (to be generated)."""
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
                ids, mask = ids + said + self.ids("\n"), mask + [1] * len(said) + [0] * len(self.ids("\n"))
        return ids, mask

    def _sequences(self, talks, tokens: list[int], grid: tuple[int, int]) -> dict:
        rows = [self.prompt(talk, tokens) for talk in talks]
        T = max(len(ids) for ids, _ in rows)
        pad = self.special["<|endoftext|>"]
        ids = torch.tensor([r + [pad] * (T - len(r)) for r, _ in rows])
        mask = torch.tensor([m + [0] * (T - len(m)) for _, m in rows], dtype=torch.bool)
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


# --- training -------------------------------------------------------------------------------------------------------


def make_optimizers(net: Trainee) -> list:
    """Muon for the matrices inside layers, AdamW for embeddings, norms, biases and heads."""
    inner, outer = [], []
    for name, p in net.named_parameters():
        matrix = p.ndim == 2 and ("blocks." in name or "layers." in name or "merger" in name)
        (inner if matrix else outer).append(p)
    muon = torch.optim.Muon(inner, lr=1.0, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.AdamW(outer, lr=1.0, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    muon.peak, adam.peak = 2.5e-3, 2.0e-3
    return [muon, adam]


class Run:
    """One resumable training run, steered by the clock: the learning rate falls to zero when the budget ends."""

    def __init__(self, args):
        self.args, self.work = args, Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        self.tokenizer = make_tokenizer()
        self.net = Trainee(make_config(self.tokenizer))
        self.optimizers = make_optimizers(self.net)
        self.elapsed, self.step = 0.0, 0
        self.budget = args.minutes * 60
        self.vision_budget = args.vision_minutes * 60
        self.resume()

    @property
    def state_file(self) -> Path:
        return self.work / "state.pt"

    def resume(self) -> None:
        if self.state_file.exists():
            state = torch.load(self.state_file, weights_only=False)  # our own file
            self.net.load_state_dict(state["net"])
            for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(kept)
            self.elapsed, self.step = state["elapsed"], state["step"]
            print(f"going on at step {self.step}, {self.elapsed / 60:.1f} minutes in", flush=True)

    def save(self) -> None:
        state = {
            "net": self.net.state_dict(), "optimizers": [o.state_dict() for o in self.optimizers],
            "elapsed": self.elapsed, "step": self.step,
        }  # fmt: skip
        temporary = self.state_file.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(self.state_file)

    def rate(self) -> float:
        """Warm-up, then down with the clock: half a cosine over each phase, the first one ending at 40 %."""
        vision = self.elapsed < self.vision_budget
        start, end = (0, self.vision_budget) if vision else (self.vision_budget, self.budget)
        done = min(1.0, max(0.0, (self.elapsed - start) / max(1, end - start)))
        warm = min(1.0, done * max(1, end - start) / 45 + 0.02)
        floor = 0.4 if vision else 0.0
        return float(warm * (floor + (1 - floor) * 0.5 * (1 + np.cos(np.pi * done))))

    def losses(self, batch: dict):
        net = self.net
        with torch.autocast("cpu", torch.bfloat16):
            if "ids" not in batch:
                hidden = net.encode(batch["images"])[2]
                loss, logits = net.char_loss(hidden, batch["chars"])
                named = batch["chars"].flatten() > 0
                right = (logits.argmax(1) == batch["chars"].flatten())[named].float().mean()
                return loss, {"chars": loss.item(), "right": right.item()}
            merged, levels, chars = None, [], torch.zeros(())
            if batch["spans"]:
                merged, levels, hidden = net.encode(batch["images"])
                chars = net.char_loss(hidden, batch["chars"])[0]
            ids, mask = batch["ids"], batch["mask"]
            out = net.decode(ids, batch["positions"], batch["spans"], merged, levels)
            wanted = mask[:, 1:]
            logits = net.model.lm_head(out[:, :-1][wanted]).float()
            answer = F.cross_entropy(logits, ids[:, 1:][wanted])
        return answer + 0.3 * chars, {"answer": answer.item(), "chars": chars.item()}

    def train(self) -> None:
        while self.elapsed < self.budget:
            phase = 1 if self.elapsed < self.vision_budget else 2
            end = self.vision_budget if phase == 1 else self.budget
            data = Batches(self.tokenizer, phase, self.args.batch, seed=self.step + 1)
            loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=1, prefetch_factor=6)
            self.run_phase(iter(loader), end)
        self.export(Path(self.args.out))

    def run_phase(self, batches, end: float) -> None:
        before, sums, saved = time.monotonic(), {}, time.monotonic()
        while self.elapsed < end:
            batch = next(batches)
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = optimizer.peak * self.rate()
            loss, parts = self.losses(batch)
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad()
            now = time.monotonic()
            # a pause of the whole process (or of the machine) is not training time
            self.elapsed += min(now - before, 5.0)
            before, self.step = now, self.step + 1
            for k, v in parts.items():
                sums.setdefault(k, []).append(v)
            if self.step % 25 == 0:
                means = "  ".join(f"{k} {np.mean(v):.3f}" for k, v in sums.items())
                print(f"step {self.step}  {self.elapsed / 60:.1f} min  {means}  lr x{self.rate():.2f}", flush=True)
                sums = {}
            if now - saved > 180:
                self.save()
                saved = now
        self.save()

    def export(self, out: Path) -> None:
        """Write the folder in Hugging Face layout, weights in bfloat16."""
        out.mkdir(parents=True, exist_ok=True)
        model = copy.deepcopy(self.net.model).to(torch.bfloat16)
        model.save_pretrained(out)
        end = self.tokenizer.token_to_id("<|im_end|>"), self.tokenizer.token_to_id("<|endoftext|>")
        generation = {"bos_token_id": end[1], "eos_token_id": list(end), "pad_token_id": end[1], "do_sample": False}
        (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
        PreTrainedTokenizerFast(
            tokenizer_object=self.tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=4096,
            additional_special_tokens=[t for t in SPECIALS if t not in ("<|im_end|>", "<|endoftext|>")],
        ).save_pretrained(out)  # fmt: skip
        (out / "chat_template.jinja").write_text(CHAT_TEMPLATE)
        processor = {
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "size": {"shortest_edge": 16384, "longest_edge": 40960},
            "patch_size": PATCH, "temporal_patch_size": 2, "merge_size": MERGE,
            "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
        }  # fmt: skip
        (out / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=110, help="training time in all")
    parser.add_argument("--vision-minutes", type=float, default=18, help="of which the vision tower alone")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", default=".work/demo", help="folder of the resumable state")
    parser.add_argument("--out", default="qwenvl/demo")
    parser.add_argument("--export", action="store_true", help="only write out what has been learnt so far")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    run = Run(args)
    if args.export:
        run.export(Path(args.out))
    else:
        run.train()


if __name__ == "__main__":
    main()
