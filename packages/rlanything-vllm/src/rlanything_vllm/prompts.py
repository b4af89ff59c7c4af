"""Prompts for vLLM. For an image it gets the learner's pixels and a single placeholder, which it
expands to the image's tokens itself; it would silently expand each of several placeholders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlanything.engines.hf.vision_spec import VisionSpec
from rlanything.engines.hf.vision_tower import opened, pixels
from rlanything.engines.images import split_ids

SERVED = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Values of `model_type` whose models are shown images by vLLM."""


def vision_settings() -> dict[str, Any]:
    """Returns vLLM's settings for a vision model."""
    from vllm import EngineArgs  # pyright: ignore

    settings: dict[str, Any] = {
        # Any number of images, no videos.
        "limit_mm_per_prompt": {"image": 999, "video": 0},
        # It would compute the largest possible image to find the memory left for the KV cache,
        # whose size is given.
        "skip_mm_profiling": True,
    }
    if hasattr(EngineArgs, "mm_device_do_normalize"):
        # The learner's pixels are normalised. vLLM would use normalisation constants from its dummy
        # weights, which no hand-over corrects. Older releases never normalise on the device.
        settings["mm_device_do_normalize"] = False
    return settings


class Prompts:
    """The prompts of one call; each image is opened once."""

    def __init__(self, spec: VisionSpec | None) -> None:
        self._spec = spec
        self._images: dict[str, Any] = {}

    def prompt(self, ids: Sequence[int]) -> dict[str, Any]:
        """Returns the prompt of token ids, which may be virtual."""
        if self._spec is None or min(ids) >= 0:
            return {"prompt_token_ids": list(ids)}
        tokens = np.array(ids, dtype=np.int64)
        _, offsets = split_ids(tokens)
        names = [name for _, name in self._spec.images_of(tokens)]
        return {
            "prompt_token_ids": self._written(tokens[(tokens >= 0) | (offsets == 0)]),
            "multi_modal_data": {"image": [self._opened(name) for name in names]},
            # vLLM's caches identify images by these.
            "multi_modal_uuids": {"image": names},
        }

    def check(self, ids: Sequence[int], taken: Sequence[int] | None) -> None:
        """Raises `ValueError` unless vLLM expanded the prompt to these token ids."""
        tokens = np.array(ids, dtype=np.int64)
        ours = list(ids) if self._spec is None else self._written(tokens)
        if list(taken or ()) != ours:
            raise ValueError(
                f"vLLM expanded a prompt of {len(ours)} tokens to other {len(taken or ())}: this "
                "version's image tokens differ from the model's processor"
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
    """Makes vLLM use the learner's image processor for a model, which needs no tokenizer or other
    parts of vLLM's own processor."""
    from transformers import BatchFeature
    from vllm import ModelRegistry  # pyright: ignore
    from vllm.multimodal import MULTIMODAL_REGISTRY  # pyright: ignore
    from vllm.multimodal.processing import PromptReplacement  # pyright: ignore

    model = ModelRegistry.models[architecture].load_model_cls()
    own = model._processor_factory

    class Info(own.info):
        def get_tokenizer(self) -> None:
            """Older releases ask for one, and use it for text alone."""

        def get_supported_mm_limits(self) -> dict[str, None]:
            return {"image": None}

        def get_supported_mm_processor_kwargs(self) -> dict[str, set[str]]:
            return {}

        def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Any) -> dict[str, int]:
            return {"image": seq_len}

    class Processor(own.processor):
        requires_tokenizer = False

        def _apply_hf_processor_main(
            self, *, mm_items: Any, prompt: Any = None, **others: Any
        ) -> Any:
            images = _images(mm_items)
            features = BatchFeature(pixels(spec, images) if images else {})
            # Older releases give the prompt as well, and take it back: not expanded yet.
            return features if prompt is None else (prompt, features, False)

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
    # vLLM leaves out cached images.
    return items["image"].get_all() if "image" in items else []
