"""A folder in Hugging Face layout, read one tensor at a time. Knows files and names, not what the tensors are for.

transformers reads the configuration (both its 4.x and 5.x styles) and the tokenizer; safetensors reads the weights.
"""

import json
from functools import cached_property
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig

from qwenvl.errors import ModelError


class Checkpoint:
    """Configuration, tokenizer, picture processor and tensors of one model folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        kind = self._json("config.json").get("model_type")
        if kind != "qwen3_vl":
            raise ModelError(f"{folder} holds a {kind or 'nameless'} model; this server runs qwen3_vl models")
        self.config: Qwen3VLConfig = Qwen3VLConfig.from_pretrained(folder)

    def _json(self, name: str, *, optional: bool = False) -> dict:
        path = self.folder / name
        if not path.is_file():
            if optional:
                return {}
            raise ModelError(f"{self.folder} has no {name}; is it a whole model folder?")
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise ModelError(f"{path} is not valid JSON; download the model again") from None

    @cached_property
    def shards(self) -> dict[str, Path]:
        """Tensor name -> file, from the index or from the one file; every file must be there."""
        index = self._json("model.safetensors.index.json", optional=True)
        names = sorted(set(index.get("weight_map", {}).values())) or ["model.safetensors"]
        where: dict[str, Path] = {}
        for name in names:
            path = self.folder / name
            if not path.is_file():
                raise ModelError(f"{self.folder} lacks {name}; the download is not complete")
            try:
                with safe_open(path, framework="pt") as shard:
                    where.update(dict.fromkeys(shard.keys(), path))
            except SafetensorError:
                raise ModelError(f"{path} is damaged or cut short; download it again") from None
        return where

    @property
    def files(self) -> list[Path]:
        """The files with tensors in them."""
        return sorted(set(self.shards.values()))

    def __contains__(self, name: str) -> bool:
        return name in self.shards

    def tensor(self, name: str) -> Tensor:
        """A tensor as stored, mapped from its file: pages are read when touched and leave memory with the tensor.

        The file is opened anew each time, so that nothing but the tensor keeps its pages.
        """
        if name not in self.shards:
            raise ModelError(f"{self.folder} has no tensor {name}; is it a Qwen3-VL checkpoint?")
        with safe_open(self.shards[name], framework="pt") as shard:
            return shard.get_tensor(name)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        tokenizer = AutoTokenizer.from_pretrained(self.folder)
        separate = self.folder / "chat_template.jinja"
        if separate.is_file():
            tokenizer.chat_template = separate.read_text(encoding="utf-8")
        elif "chat_template" in (older := self._json("chat_template.json", optional=True)):
            tokenizer.chat_template = older["chat_template"]
        if not tokenizer.chat_template:
            raise ModelError(f"{self.folder} has no chat template (chat_template.jinja, chat_template.json)")
        return tokenizer

    @cached_property
    def processor(self) -> Qwen2VLImageProcessorPil:
        """transformers' picture processor without torchvision, with this folder's sizes, means and deviations."""
        wanted = self._json("preprocessor_config.json")
        size = wanted.get("size") or {"shortest_edge": wanted["min_pixels"], "longest_edge": wanted["max_pixels"]}
        keys = ("patch_size", "temporal_patch_size", "merge_size", "image_mean", "image_std")
        return Qwen2VLImageProcessorPil(size=size, **{k: wanted[k] for k in keys if k in wanted})

    @cached_property
    def generation(self) -> dict:
        """`generation_config.json`, or nothing."""
        return self._json("generation_config.json", optional=True)

    @property
    def end_ids(self) -> frozenset[int]:
        """Every id that ends a text: the generation config may name several."""
        ends = self.generation.get("eos_token_id", self.config.text_config.eos_token_id)
        ends = ends if isinstance(ends, list) else [ends]
        return frozenset(e for e in [*ends, self.tokenizer.eos_token_id] if e is not None)
