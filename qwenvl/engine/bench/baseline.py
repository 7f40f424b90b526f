"""Another engine on the same weights, picture, prompt and threads: `python -m qwenvl.engine.bench.baseline JOB`.

It runs in a process of its own and prints one line of JSON. What is measured is what a guide would have people write:
`from_pretrained`, perhaps `quantize_dynamic`, `generate`. Knows nothing of our engine but how a folder is read.
"""

import time
from pathlib import Path

import torch
from transformers import Qwen3VLForConditionalGeneration
from transformers.utils import logging

from qwenvl.engine.bench.child import answer_job, run_child, say
from qwenvl.engine.bench.limits import parameters
from qwenvl.engine.bench.machine import free_gb, peak_rss_gb, require_gb
from qwenvl.engine.bench.sample import sample_picture, sample_question
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.prompt import PromptBuilder

QUANTIZED = "stock_quantize_dynamic"
BASELINES = ("transformers_float32", "transformers_bfloat16", QUANTIZED)
# beside the weights: libraries, activations, keys and values
OTHER_GB = 1.3


def measure_baselines(folder: Path, threads: int, tokens: int) -> dict[str, dict]:
    """All of them, one after another, each in its own process; a failure is that one's `error`."""
    job = {"folder": str(folder), "threads": threads, "tokens": tokens}
    return {kind: run_child(__name__, {"kind": kind, **job}) for kind in BASELINES}


def measure(job: dict) -> dict:
    """One baseline: figures named as ours."""
    kind, checkpoint = job["kind"], Checkpoint(Path(job["folder"]))
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(job["threads"])
    say(f"{kind}: loading")
    started = time.monotonic()
    model, note = load(kind, checkpoint)
    load_s = time.monotonic() - started
    loading = {"load_s": round(load_s, 2), "peak_load_rss_gb": peak_rss_gb(), **note}
    say(f"{kind}: one question about a new picture")
    answering = answer(model, checkpoint, job["tokens"])
    return {**loading, **answering, "peak_rss_gb": peak_rss_gb()}


def load(kind: str, checkpoint: Checkpoint) -> tuple[Qwen3VLForConditionalGeneration, dict[str, str]]:
    """The model, and perhaps a note on how it was made. Raises `QwenVLError` where there is too little memory."""
    gigaparams = parameters(checkpoint) / 1e9
    dtype = torch.bfloat16 if kind == "transformers_bfloat16" else torch.float32
    require_gb(gigaparams * dtype.itemsize * 1.05 + OTHER_GB)
    model = Qwen3VLForConditionalGeneration.from_pretrained(checkpoint.folder, dtype=dtype).eval()
    _touch(model)
    if kind != QUANTIZED:
        return model, {}
    say(f"{kind}: quantising")
    # by default it works on a copy: float32 twice, then int8; in place the speed is the same
    copy_gb = gigaparams * (dtype.itemsize + 1)
    in_place = free_gb() < copy_gb
    model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8, inplace=in_place)
    note = f"quantised in place, because the usual copy takes {copy_gb:.1f} GB more"
    return model, {"note": note} if in_place else {}


@torch.inference_mode()
def _touch(model: torch.nn.Module) -> None:
    """Read a number of every page: weights in their own dtype stay mapped, and reading them is part of loading."""
    for weight in model.parameters():
        weight.flatten()[:: 4096 // weight.element_size()].sum()


@torch.inference_mode()
def answer(model: Qwen3VLForConditionalGeneration, checkpoint: Checkpoint, tokens: int) -> dict:
    """One question: seconds by stage, counted as for our engine, and the speed of the `tokens` after the first."""
    picture, config, processor = sample_picture(), checkpoint.config, checkpoint.processor
    encoded, written = [], []
    model.model.visual.register_forward_hook(lambda *_: encoded.append(time.monotonic()))
    model.register_forward_hook(lambda *_: written.append(time.monotonic()))
    # answers are measured, not read: they go on for as long as the measurement does
    model.generation_config.eos_token_id = None
    _, h, w = processor(images=[picture.rgb], return_tensors="pt")["image_grid_thw"][0].tolist()
    grid = (h // processor.merge_size, w // processor.merge_size)
    prompts = PromptBuilder(checkpoint.tokenizer, config.image_token_id)
    ids = torch.tensor([prompts.build(sample_question(picture), [grid]).ids])
    kinds = (ids == config.image_token_id).int()
    started = time.monotonic()
    inputs = processor(images=[picture.rgb], return_tensors="pt")
    model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), mm_token_type_ids=kinds, **inputs,
                   max_new_tokens=tokens + 1, do_sample=False)  # fmt: skip
    return {
        "encode_s": round(encoded[0] - started, 4),
        "prefill_s": round(written[0] - encoded[0], 4),
        "first_token_s": round(written[0] - started, 4),
        "decode_tokens_per_s": round((len(written) - 1) / (written[-1] - written[0]), 2),
    }


if __name__ == "__main__":
    answer_job(measure)
