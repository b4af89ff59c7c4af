"""A tiny Qwen3-VL with random weights, made from its configuration alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as tf

from rlanything.engines import shipped
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.vision_spec import VisionSpec
from rlanything.engines.hf.vision_tower import tower_weights
from rlanything.engines.images import ImageBook

MARKS = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message.role + '|>' }}"
    "{% for part in message.content %}{% if part.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{{ '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
PATCH, MERGE = 10, 2
"""A page of 160 x 210 pixels becomes 8 x 11 tokens."""
TEXT: dict[str, Any] = {
    **{"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
    **{"max_position_embeddings": 4096, "bos_token_id": None},
}
TOWER: dict[str, Any] = {
    **{"depth": 2, "hidden_size": 64, "intermediate_size": 192, "num_heads": 4},
    **{"patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": 2},
    **{"out_hidden_size": 128, "num_position_embeddings": 256, "deepstack_visual_indexes": [0]},
}
ROPE: dict[str, Any] = {
    **{"rope_type": "default", "rope_theta": 1e4},
    **{"mrope_section": [8, 4, 4], "mrope_interleaved": True},
}


def tiny_vision_model(images: Path, seed: int) -> LanguageModel:
    """Returns the model, with a frozen tower and the tokenizer of `nano-miniwob`, for the images of
    a folder."""
    folder = shipped.resolve("nano-miniwob", "policy")
    tokenizer = tf.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    tokenizer.add_special_tokens({"additional_special_tokens": [*MARKS]})
    tokenizer.chat_template = TEMPLATE
    network = _network(tokenizer, seed)
    for weights in tower_weights(network).values():
        weights.requires_grad_(False)
    sizes = {"shortest_edge": (PATCH * MERGE) ** 2, "longest_edge": 1 << 20}
    processor = tf.Qwen2VLImageProcessorPil(
        size=sizes, patch_size=PATCH, merge_size=MERGE, temporal_patch_size=2
    )
    spec = VisionSpec(network.config, tokenizer, processor, ImageBook([images]))
    return LanguageModel(network, tokenizer, vision=spec)


def _network(tokenizer: Any, seed: int) -> Any:
    image, video, start, end = map(tokenizer.convert_tokens_to_ids, MARKS)
    own = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = tf.Qwen3VLConfig(
        text_config={**TEXT, **own, "vocab_size": len(tokenizer), "rope_parameters": ROPE},
        vision_config=TOWER,
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    network: Any = tf.AutoModelForImageTextToText.from_config(config)
    # As they begin, weights are so small that images and context change next to nothing, and
    # every comparison is of the same numbers.
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if weights.ndim > 1:
                narrow = weights.shape[-1] ** -0.5 if weights.ndim == 2 else 0.1
                scale = 0.1 if "embed" in name else narrow
                weights.copy_(torch.randn(weights.shape, generator=generator) * scale)
    return network.eval()
