"""Own forward pass == transformers in float32: every level of vision, every logit of text, whatever the shapes."""

import json
import shutil

import pytest
import torch
from transformers import Qwen3VLForConditionalGeneration

from qwenvl.engine.engine import Engine
from qwenvl.engine.hub import Source
from qwenvl.engine.loading import load_model
from tests.engine.conftest import SIZES, noise, question, silent


def encode(engine: Engine, picture):
    work = engine.model.vision.encode(*engine.reader.pixels(picture))
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def reference_logits(reference, engine: Engine, pictures, ids) -> torch.Tensor:
    """transformers' logits [V] after the last of `ids`."""
    ids = torch.tensor([ids])
    inputs = engine.model.processor(images=[p.rgb for p in pictures], return_tensors="pt") if pictures else {}
    kinds = (ids == reference.config.image_token_id).int()
    with torch.no_grad():
        return reference(input_ids=ids, mm_token_type_ids=kinds, **inputs).logits[0, -1]


def first_logits(engine: Engine, sequence) -> torch.Tensor:
    while sequence.logits is None:
        engine.step()
    return sequence.logits


@pytest.mark.parametrize("size", SIZES)
def test_merged_tokens_and_every_deepstack_level(reference, float_engine, size):
    picture = noise(*size)
    with torch.inference_mode():
        ours = encode(float_engine, picture)
        inputs = float_engine.model.processor(images=[picture.rgb], return_tensors="pt")
        theirs = reference.model.visual(inputs["pixel_values"], inputs["image_grid_thw"])
    assert ours.grid == float_engine.model.grid(picture)
    torch.testing.assert_close(ours.merged, theirs.pooler_output, rtol=1e-4, atol=1e-5)
    assert len(ours.levels) == len(theirs.deepstack_features) == 2
    for mine, other in zip(ours.levels, theirs.deepstack_features, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_logits_with_any_number_of_pictures(reference, float_engine, count):
    pictures = [noise(*size, seed=i) for i, size in enumerate(SIZES[:count])]
    sequence = float_engine.start(question(*pictures))
    ours = first_logits(float_engine, sequence)
    theirs = reference_logits(reference, float_engine, pictures, sequence.prompt.ids)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_greedy_decode_follows_the_reference(reference, float_engine):
    """Positions after a picture go on from its larger side, not from the number of tokens."""
    picture = noise(300, 200)
    sequence = float_engine.start(question(picture, max_new_tokens=6))
    first_logits(float_engine, sequence)
    while len(sequence.tokens) < 5 and sequence.kv is not None:
        float_engine.step()
        # the logits in hand are those that chose the last token; picture tokens are struck out of them
        theirs = reference_logits(reference, float_engine, [picture], [*sequence.prompt.ids, *sequence.tokens[:-1]])
        torch.testing.assert_close(sequence.logits[:600], theirs[:600], rtol=1e-3, atol=1e-3)
    assert len(sequence.tokens) >= 3


@pytest.mark.parametrize("chunk", [1, 7, 32, 10_000])
def test_any_prefill_chunk_gives_the_same_logits(float_model, chunk):
    """Boundaries fall before, inside and after the pictures."""
    pictures = [noise(300, 200), noise(100, 260, seed=1)]
    whole = Engine(float_model, kv_dtype=torch.float32, prefill_chunk_tokens=100_000)
    parts = Engine(float_model, kv_dtype=torch.float32, prefill_chunk_tokens=chunk)
    expected = first_logits(whole, whole.start(question(*pictures)))
    got = first_logits(parts, parts.start(question(*pictures)))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_older_layouts_load_alike(folder, reference, float_engine, tmp_path):
    """transformers 4.x config, several shards, min_pixels, chat_template.json."""
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    (old / "model.safetensors").unlink()
    Qwen3VLForConditionalGeneration.from_pretrained(folder).save_pretrained(old, max_shard_size="300KB")
    assert len(list(old.glob("model-*.safetensors"))) > 2
    config = json.loads((folder / "config.json").read_text())
    rope = config["text_config"].pop("rope_parameters")
    config["text_config"]["rope_theta"] = rope["rope_theta"]
    scaling = {"mrope_interleaved": True, "mrope_section": rope["mrope_section"], "rope_type": "default"}
    config["text_config"]["rope_scaling"] = scaling
    config["vision_config"].pop("rope_parameters", None)
    config["vision_config"]["model_type"] = "qwen3_vl"
    (old / "config.json").write_text(json.dumps(config))
    template = (old / "chat_template.jinja").read_text()
    (old / "chat_template.jinja").unlink()
    (old / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    sizes = json.loads((old / "preprocessor_config.json").read_text())
    size = sizes.pop("size")
    sizes |= {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
    (old / "preprocessor_config.json").write_text(json.dumps(sizes))

    engine = Engine(load_model(Source(old, "old"), "none", "", silent), kv_dtype=torch.float32)
    asked = question(noise(300, 200))
    ours, theirs = (first_logits(e, e.start(asked)) for e in (engine, float_engine))
    assert torch.equal(ours, theirs)


def test_several_end_of_text_ids(folder):
    from qwenvl.engine.checkpoint import Checkpoint

    checkpoint = Checkpoint(folder)
    names = {checkpoint.tokenizer.convert_ids_to_tokens(i) for i in checkpoint.end_ids}
    assert names == {"<|im_end|>", "<|endoftext|>"}
