"""Everything loaded from a folder, in one frozen value. Knows no questions and no policy."""

from dataclasses import dataclass

from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

from qwenvl.engine.detokenizer import TokenBytes
from qwenvl.engine.fidelity import LayerFidelity
from qwenvl.engine.language import TextModel
from qwenvl.engine.prompt import PromptBuilder
from qwenvl.engine.vision import VisionTower
from qwenvl.images import Picture


@dataclass(frozen=True)
class Model:
    """Weights, picture processor and text on both sides. `suppressed` (picture and vision) ids are never written.

    `fidelity` says what int8 does to each product, where that was measured.
    """

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
    fidelity: tuple[LayerFidelity, ...] = ()

    @property
    def token_side(self) -> int:
        """Pixels on a side of the square that becomes one token."""
        return self.processor.patch_size * self.processor.merge_size

    @property
    def picture_limits(self) -> dict[str, int]:
        """Pixels on a token's side, and the least and most pixels that a picture is read with."""
        size = self.processor.size
        return {
            "token_side": self.token_side,
            "min_pixels": size["shortest_edge"],
            "max_pixels": size["longest_edge"],
        }

    def grid(self, picture: Picture) -> tuple[int, int]:
        """Merged tokens (h, w) that a picture becomes."""
        size, side = self.processor.size, self.token_side
        height, width = smart_resize(
            picture.rgb.height, picture.rgb.width, side, size["shortest_edge"], size["longest_edge"]
        )
        return height // side, width // side
