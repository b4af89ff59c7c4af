"""Prompts as vLLM takes them. Of images it is given the pixels that the learner reads too, and one
placeholder each, which it makes as many of as the image has tokens: were they written out, it would
write each of them out again, and say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlanything.engines.hf.vision_spec import VisionSpec
from rlanything.engines.hf.vision_tower import opened, pixels
from rlanything.engines.images import split_ids

SERVED = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""The kinds of models, by their `model_type`, that are shown images by vLLM."""
VISION_SETTINGS: dict[str, Any] = {
    # Of images there may be any number; nothing here is a video.
    "limit_mm_per_prompt": {"image": 999, "video": 0},
    # The learner's pixels are normalised. vLLM would keep what it normalises by among weights that
    # are nobody's, which no hand-over puts right.
    "mm_device_do_normalize": False,
    # It would compute the largest image there can be, to know how much memory is left for keys and
    # values; it is told how much there is.
    "skip_mm_profiling": True,
}
"""vLLM's settings for a model that sees."""


class Prompts:
    """The prompts of one call, each of whose images is opened once."""

    def __init__(self, spec: VisionSpec | None) -> None:
        self._spec = spec
        self._images: dict[str, Any] = {}

    def prompt(self, ids: Sequence[int]) -> dict[str, Any]:
        """Returns the prompt of token ids, some of them virtual."""
        if self._spec is None or min(ids) >= 0:
            return {"prompt_token_ids": list(ids)}
        tokens = np.array(ids, dtype=np.int64)
        _, offsets = split_ids(tokens)
        names = [name for _, name in self._spec.images_of(tokens)]
        return {
            "prompt_token_ids": self._written(tokens[(tokens >= 0) | (offsets == 0)]),
            "multi_modal_data": {"image": [self._opened(name) for name in names]},
            # By these it knows an image again, and that two prompts differ in one.
            "multi_modal_uuids": {"image": names},
        }

    def check(self, ids: Sequence[int], taken: Sequence[int] | None) -> None:
        """Raises `ValueError` unless vLLM took token ids for what they are."""
        tokens = np.array(ids, dtype=np.int64)
        ours = list(ids) if self._spec is None else self._written(tokens)
        if list(taken or ()) != ours:
            raise ValueError(
                f"a prompt of {len(ours)} tokens became another of {len(taken or ())}: this vLLM "
                "writes images out as the model's processor does not"
            )

    def _written(self, tokens: np.ndarray) -> list[int]:
        assert self._spec is not None
        return np.where(tokens < 0, self._spec.placeholder, tokens).tolist()

    def _opened(self, name: str) -> Any:
        assert self._spec is not None
        if name not in self._images:
            self._images[name] = opened(self._spec, name)
        return self._images[name]


def register_image_processor(spec: VisionSpec, architecture: str) -> None:
    """Has vLLM read the images of a model as the learner does: by the same processor, which needs
    no tokenizer, nor the other parts of the one that vLLM would open."""
    from transformers import BatchFeature
    from vllm import ModelRegistry  # pyright: ignore
    from vllm.multimodal import MULTIMODAL_REGISTRY  # pyright: ignore
    from vllm.multimodal.processing import PromptReplacement  # pyright: ignore

    model = ModelRegistry.models[architecture].load_model_cls()
    own = model._processor_factory

    class Info(own.info):
        def get_supported_mm_limits(self) -> dict[str, None]:
            return {"image": None}

        def get_supported_mm_processor_kwargs(self) -> dict[str, set[str]]:
            return {}

        def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Any) -> dict[str, int]:
            return {"image": seq_len}

    class Processor(own.processor):
        requires_tokenizer = False

        def _apply_hf_processor_main(self, mm_items: Any, hf_kwargs: Any) -> BatchFeature:
            images = _images(mm_items)
            return BatchFeature(pixels(spec, images) if images else {})

        def _get_prompt_updates(
            self, mm_items: Any, hf_processor_mm_kwargs: Any, out_mm_kwargs: Any
        ) -> list[Any]:
            sizes = [(image.height, image.width) for image in _images(mm_items)]

            def written(number: int) -> list[int]:
                taken = spec.family.image_tokens(spec, *sizes[number])
                return [spec.placeholder] * taken.tokens

            return [PromptReplacement("image", [spec.placeholder], written)]

    register = MULTIMODAL_REGISTRY.register_processor
    register(Processor, info=Info, dummy_inputs=own.dummy_inputs)(model)


def _images(items: Any) -> list[Any]:
    # Those that it has seen already it does not ask for.
    return items["image"].get_all() if "image" in items else []
