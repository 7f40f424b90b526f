"""From a folder to a running engine: quantised now and checked for fidelity, or as an earlier start left it."""

import dataclasses
import gc
import logging
import time
from pathlib import Path

import torch

from qwenvl import kernels
from qwenvl.config import Settings
from qwenvl.engine import many_rows
from qwenvl.engine.attention import kernel_names
from qwenvl.engine.builder import Builder
from qwenvl.engine.calibration import QUESTION, calibration_picture
from qwenvl.engine.checkpoint import Checkpoint
from qwenvl.engine.detokenizer import TokenBytes
from qwenvl.engine.engine import Engine
from qwenvl.engine.fidelity import LayerFidelity, Probe, settled
from qwenvl.engine.hub import Report, Source, cache_folder, find_model
from qwenvl.engine.linear import int8_available, kernel_name, stored_form
from qwenvl.engine.model import Model
from qwenvl.engine.prompt import PromptBuilder
from qwenvl.engine.quantized import open_saved, open_writer, version_of
from qwenvl.engine.threads import default_threads
from qwenvl.errors import ModelError
from qwenvl.memory import give_back, reading_bytes
from qwenvl.messages import Failed, Options, Progress, Question

log = logging.getLogger(__name__)

# a smaller checkpoint is quantised before anybody notices
WORTH_KEEPING_BYTES = 64 << 20


def load_engine(settings: Settings, report: Report) -> Engine:
    """Find, read and quantise the model of `settings`, reporting stage and fraction. Raises `ModelError`."""
    torch.set_num_threads(settings.threads or default_threads())
    if settings.isa:
        kernels.use(settings.isa)
    source = find_model(settings.model, report)
    kept = cache_folder(settings.cache_dir)
    model = load_model(
        source, settings.quantization, settings.quantization_skip, report,
        kept=kept, fidelity_limit=settings.fidelity_percent / 100,
    )  # fmt: skip
    if model.quantization in ("int8", "int4") and many_rows.onednn_is_faster(kept):
        model = dataclasses.replace(model, vision=many_rows.moved(model.vision))
    return Engine(
        model,
        feature_cache_bytes=settings.feature_cache_bytes,
        prefix_cache_bytes=settings.prefix_cache_bytes,
        kv_bytes=settings.kv_bytes,
        max_context_tokens=settings.max_context_tokens,
        speculation_tokens=settings.speculation_tokens,
        reading_bytes=reading_bytes(settings),
        kv_dtype=_kv_dtype(settings.kv_dtype, model.quantization),
    )


def _kv_dtype(wanted: str, quantization: str) -> torch.dtype:
    if wanted == "auto":
        wanted = "float32" if quantization == "none" else "bfloat16"
    return {"bfloat16": torch.bfloat16, "float32": torch.float32, "int8": torch.int8}[wanted]


def load_model(source: Source, quantization: str, skip: str, report: Report, *,
               kept: Path | None = None, fidelity_limit: float = 0.0) -> Model:  # fmt: skip
    """A whole model from its folder. Quantised weights are kept in the folder `kept` for the next time.

    Products whose relative error in int8 is over `fidelity_limit` are smoothed or stay in bfloat16; 0 checks nothing.
    """
    started = time.monotonic()
    checkpoint = Checkpoint(source.folder)
    quantization = _possible(quantization)
    if quantization in ("int8", "int4"):
        model = _quantized_model(checkpoint, source, quantization, skip, report, kept, fidelity_limit)
    else:
        model = _model(source, Builder(checkpoint, quantization, skip, report))
    give_back()
    log.info(
        "loaded %s as %s in %.1f s with %d threads; kernels: int8 %s, attention %s",
        source.name, quantization, time.monotonic() - started, torch.get_num_threads(),
        kernel_name(), ", ".join(kernel_names().values()),
    )  # fmt: skip
    return model


def _possible(quantization: str) -> str:
    """What of it there are kernels for here."""
    if quantization == "int4" and not kernels.available():
        log.warning("int4 needs kernels of our own, which are not built or not in use here: running in int8")
        quantization = "int8"
    if quantization == "int8" and not int8_available():
        log.warning("this build of torch has no int8 kernels: running unquantised, slower and with more memory")
        quantization = "none"
    return quantization


def _model(source: Source, build: Builder) -> Model:
    checkpoint = build.checkpoint
    c = checkpoint.config
    return Model(
        name=source.name,
        demo=source.demo,
        quantization=build.quantization,
        vision=build.vision(),
        text=build.text(),
        processor=checkpoint.processor,
        prompts=PromptBuilder(checkpoint.tokenizer, c.image_token_id),
        token_bytes=TokenBytes(checkpoint.tokenizer),
        end_ids=checkpoint.end_ids,
        suppressed=(c.image_token_id, c.video_token_id, c.vision_start_token_id, c.vision_end_token_id),
    )


def _quantized_model(checkpoint: Checkpoint, source: Source, quantization: str, skip: str, report: Report,
                     kept: Path | None, limit: float) -> Model:  # fmt: skip
    """From the weights kept by an earlier start, or from the checkpoint, keeping them for this one and the next."""
    size = sum(path.stat().st_size for path in checkpoint.files)
    if kept is None or size < WORTH_KEEPING_BYTES:
        return _quantized(checkpoint, source, quantization, skip, report, limit)[0]
    folder = kept_folder(checkpoint, kept, skip, limit, quantization)
    if (saved := open_saved(folder)) is None:
        made, build = _quantized(checkpoint, source, quantization, skip, report, limit)
        writer = open_writer(folder, owner=_owner(checkpoint.folder, quantization), size=size // 2)
        if writer is None:
            return made
        report("keeping the quantised weights", 0.0)
        build.keep(writer)
        writer.finish([dataclasses.asdict(layer) for layer in made.fidelity])
        if (saved := open_saved(folder)) is None:
            return made
        # gone before the file's pages are mapped, or both copies would be in memory together
        del made, build, writer
        gc.collect()  # the engine that answered once is a ring of references
        give_back()
    model = _model(source, Builder(checkpoint, quantization, skip, lambda stage, fraction: None, saved=saved))
    saved.warm(lambda fraction: report("loading the model", fraction))
    return dataclasses.replace(model, fidelity=tuple(LayerFidelity(**layer) for layer in saved.notes))


def kept_folder(checkpoint: Checkpoint, kept: Path, skip: str, limit: float, quantization: str = "int8") -> Path:
    """Where in `kept` a checkpoint's quantised weights are or would be: a folder for each way to quantise it."""
    files = [checkpoint.folder / "config.json", *checkpoint.files]
    version = version_of(files, stored_form(quantization), skip, f"fidelity {limit}")
    return kept / f"{checkpoint.folder.resolve().name}-{version}"


def _owner(folder: Path, quantization: str) -> str:
    """A checkpoint's name whatever its revision: in the Hub's cache each revision is a folder of its own.

    Its weights in 4 bits go by another name, so that whoever compares the two has both at hand.
    """
    folder = folder.resolve()
    name = str(folder.parent.parent if folder.parent.name == "snapshots" else folder)
    return name if quantization == "int8" else f"{name} in {quantization}"


def _quantized(checkpoint: Checkpoint, source: Source, quantization: str, skip: str, report: Report,
               limit: float) -> tuple:  # fmt: skip
    """The model made from its checkpoint now, and the builder that made it."""
    if not limit:
        build = Builder(checkpoint, quantization, skip, report)
        return _model(source, build), build
    probes: list[Probe] = []

    def probe(*facts) -> Probe:
        probes.append(Probe(*facts, limit))
        return probes[-1]

    build = Builder(checkpoint, quantization, skip, lambda stage, fraction: None, make=probe)
    model = _model(source, build)
    _answer_once(model, report)
    fidelity = tuple(probe.fidelity for probe in probes)
    for layer in fidelity:
        if layer.treatment in ("smoothed", "bfloat16"):
            log.warning("%s: int8 is off by %.1f %%, so it is %s", layer.name, 100 * layer.int8_error, layer.treatment)
        elif layer.treatment == "int8" and layer.int4_error is not None:
            log.info("%s: int4 is off by %.1f %%, so it is int8", layer.name, 100 * layer.int4_error)
    return dataclasses.replace(settled(model), fidelity=fidelity), build


@torch.inference_mode()
def _answer_once(model: Model, report: Report) -> None:
    """One question through every product, each called once, up to its first logits."""
    engine = Engine(model, kv_bytes=1, prefix_cache_bytes=0, prefill_chunk_tokens=1 << 20, kv_dtype=torch.float32)
    picture = calibration_picture()
    sequence = engine.start(Question((picture,), QUESTION, (), Options(max_new_tokens=1)))
    while sequence.logits is None:
        for _, message in engine.step():
            if isinstance(message, Failed):
                raise ModelError("the model fails on its first question; is the checkpoint whole?")
            if isinstance(message, Progress):
                half = 0.0 if message.stage == "encoding" else 0.5
                report("quantising and checking the model", half + message.fraction / 2)
