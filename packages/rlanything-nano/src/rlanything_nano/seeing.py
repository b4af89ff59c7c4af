"""A nano vision model: a Qwen3-VL of a million parameters, trained from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.vision_spec import VisionSpec
from rlanything.engines.images import ImageBook
from rlanything_nano.making import Shape
from rlanything_nano.tokenizer import IMAGE_MARKS

PATCH = 16
"""Width and height in pixels of the part of a screenshot that becomes one token."""
MOST_PATCHES = 1024
WIDER_EMBEDDINGS, WIDER_LAYERS, WIDER_PLACES = 5.0, 3.0, 25.0
"""Factors on the initial weights; transformers uses a standard deviation of 0.02."""
TOWER: dict[str, Any] = {
    "depth": 3,
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_heads": 4,
    "patch_size": PATCH,
    "spatial_merge_size": 1,
    "temporal_patch_size": 2,
    # A click needs the position of a patch; it is learned here, and relative in the decoder.
    "num_position_embeddings": 256,
    "deepstack_visual_indexes": [],
}


def new_seeing_model(
    shape: Shape, tokenizer: Any, seed: int, images: Sequence[Path]
) -> LanguageModel:
    """Returns an untrained model; `images`: the folders with its screenshots."""
    torch.manual_seed(seed)
    image, video, start, end = tokenizer.convert_tokens_to_ids([*IMAGE_MARKS])
    head = shape.hidden // shape.heads
    text = {
        **shape.settings(tokenizer),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_interleaved": True,
            "mrope_section": [head // 2 - 2 * (head // 6), head // 6, head // 6],
        },
    }
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=TOWER | {"out_hidden_size": shape.hidden},
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=True,
    )
    processor = Qwen2VLImageProcessorPil(
        patch_size=PATCH,
        merge_size=1,
        temporal_patch_size=2,
        size={"shortest_edge": PATCH * PATCH, "longest_edge": MOST_PATCHES * PATCH * PATCH},
    )
    network = Qwen3VLForConditionalGeneration(config)
    _widen(network)
    return LanguageModel(
        network, tokenizer, vision=VisionSpec(config, tokenizer, processor, ImageBook(images))
    )


@torch.no_grad()
def _widen(network: Qwen3VLForConditionalGeneration) -> None:
    """Enlarges the initial weights, which transformers scales for models a hundred times as wide.
    Otherwise layers this narrow would add little to their input, and positions would hardly
    differ."""
    for name, weights in network.model.language_model.named_parameters():
        if weights.dim() > 1:
            weights.mul_(WIDER_EMBEDDINGS if name.startswith("embed_tokens") else WIDER_LAYERS)
    network.model.visual.pos_embed.weight.mul_(WIDER_PLACES)
