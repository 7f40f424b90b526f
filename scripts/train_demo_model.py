"""Train the bundled demo model: a small Qwen3-VL that really answers about coloured shapes and printed text.

Usage: `python scripts/train_demo_model.py --minutes 140 --out qwenvl/demo`. Stop and start it as you like: it goes on
from `--work`. Two phases share the time budget: first the vision tower alone learns to name the character at the centre
of each 16-pixel patch (end-to-end training never learns to read); then everything learns to answer, with that head's
loss beside it. `docs/demo-model.md` tells the whole story.
"""

import argparse
import copy
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from demo_model.batches import Batches
from demo_model.network import MERGE, PATCH, ShapeHead, Trainee, make_config
from demo_model.tokenizer import CHAT_TEMPLATE, SPECIALS, make_tokenizer

CHAR_WEIGHT = 0.3  # of the character head's loss beside the answers'
SHAPE_WEIGHT = 0.3  # of the shape head's
WARM_STEPS = 200  # in which new heads learn from a finished model before it learns from them


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
        self.tokenizer = self.kept_tokenizer()
        self.net = Trainee(make_config(self.tokenizer))
        self.optimizers = make_optimizers(self.net)
        self.shapes = ShapeHead(self.net.model.config.text_config.hidden_size)
        self.elapsed, self.step = 0.0, 0
        self.heads_learn_until = WARM_STEPS if args.more else 0
        self.budget = args.minutes * 60
        self.vision_budget = 0.0 if args.more else args.vision_minutes * 60
        if args.more:
            finished = Qwen3VLForConditionalGeneration.from_pretrained(args.more, dtype=torch.float32)
            self.net.model.load_state_dict(finished.state_dict())
        self.resume()
        self.resumed_at = self.elapsed

    def kept_tokenizer(self) -> Tokenizer:
        """The tokenizer of this run: made once, as the weights know its ids and no others."""
        path = self.work / "tokenizer.json"
        if not path.exists() and self.args.more:
            path.write_bytes((self.args.more / "tokenizer.json").read_bytes())
        elif not path.exists():
            make_tokenizer().save(str(path))
        return Tokenizer.from_file(str(path))

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
            if "shapes" in state:
                self.shapes.load_state_dict(state["shapes"])
            else:
                self.heads_learn_until = self.step + WARM_STEPS
            print(f"going on at step {self.step}, {self.elapsed / 60:.1f} minutes in", flush=True)

    def save(self) -> None:
        state = {
            "net": self.net.state_dict(), "optimizers": [o.state_dict() for o in self.optimizers],
            "elapsed": self.elapsed, "step": self.step, "shapes": self.shapes.state_dict(),
        }  # fmt: skip
        temporary = self.state_file.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(self.state_file)

    def rate(self) -> float:
        """Warm-up, then down with the clock: half a cosine over each phase, the first one ending at 40 %.

        With `--from-rate` a straight line from there to zero, for a run that goes on where another one ended.
        """
        if self.args.from_rate:
            left = (self.budget - self.elapsed) / max(1, self.budget - self.resumed_at)
            return float(self.args.from_rate * max(0.0, left) * min(1.0, self.step / WARM_STEPS))
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
            merged, levels, heads, named = None, [], torch.zeros(()), {}
            if batch["spans"]:
                merged, levels, hidden = net.encode(batch["images"])
                heads, named = self.head_losses(batch, merged, hidden)
            ids, mask = batch["ids"], batch["mask"]
            out = net.decode(ids, batch["positions"], batch["spans"], merged, levels)
            weight, wanted = mask[:, 1:], mask[:, 1:] > 0
            logits = net.model.lm_head(out[:, :-1][wanted]).float()
            each = F.cross_entropy(logits, ids[:, 1:][wanted], reduction="none")
            answer = (each * weight[wanted]).sum() / weight.sum()
        return answer + heads, {"answer": answer.item(), **named}

    def head_losses(self, batch: dict, merged, hidden):
        """What the heads that are thrown away afterwards say of the tower's work."""
        if self.step < self.heads_learn_until:
            merged, hidden = merged.detach(), hidden.detach()
        chars = self.net.char_loss(hidden, batch["chars"])[0]
        shapes, right = self.shapes.loss(merged, batch["shapes"])
        return CHAR_WEIGHT * chars + SHAPE_WEIGHT * shapes, {"chars": chars.item(), "shapes": right}

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
            for optimizer in (*self.optimizers, self.shapes.optimizer):
                optimizer.step()
                optimizer.zero_grad()
            now = time.monotonic()
            # a pause of the whole process (or of the machine) is not training time
            self.elapsed += min(now - before, 5.0)
            before, self.step = now, self.step + 1
            for k, v in parts.items():
                sums.setdefault(k, []).append(v)
            if self.step % 25 == 0:
                means = "  ".join(f"{k} {np.nanmean(v):.3f}" for k, v in sums.items())
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
    parser.add_argument("--minutes", type=float, default=140, help="training time in all")
    parser.add_argument("--vision-minutes", type=float, default=28, help="of which the vision tower alone")
    parser.add_argument("--from-rate", type=float, default=0.0, help="go on with this part of the peak learning rate")
    parser.add_argument("--more", type=Path, help="go on from a finished model, such as qwenvl/demo, in a new --work")
    parser.add_argument("--batch", type=int, default=32)
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
