"""Models of a few thousand weights that look at images, made of configuration alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers as tf
from torch import Tensor

from helpers.tiny import tiny_tokenizer
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.vision_spec import VisionSpec
from rlanything.engines.images import ImageBook, noise_png

MARKS = (
    *("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"),
    *("<image>", "<fake_token_around_image>", "<global-img>"),
    *("<row_1_col_1>", "<row_1_col_2>", "<row_2_col_1>", "<row_2_col_2>"),
    *("<IMG_CONTEXT>", "<img>", "</img>"),
)
TEMPLATE = """
{%- for message in messages %}{{ '<|' + message.role + '|>' }}
{%- for part in message.content %}
{%- if part.type == 'image' %}IMAGE{% else %}{{ part.text }}{% endif %}
{%- endfor %}{{ '<|end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
"""
"""As published ones have it: a message is a list of texts and images."""
TEXT: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "bos_token_id": None,
}
SIGLIP: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
QWEN_TOWER: dict[str, Any] = {
    "num_heads": 2,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}


def _rope(text: Any) -> dict[str, Any]:
    quarter = text["head_dim"] // 4
    sections = [quarter, quarter // 2, quarter // 2]
    return {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections}


def _qwen2(text: Any, ids: Any) -> Any:
    width = text["hidden_size"]
    tower = QWEN_TOWER | {"depth": 2, "embed_dim": 16, "hidden_size": width, "mlp_ratio": 2}
    text = text | {"rope_parameters": _rope(text)}
    return tf.Qwen2VLConfig(text_config=text, vision_config=tower, **ids)


def _qwen2_5(text: Any, ids: Any) -> Any:
    tower = QWEN_TOWER | {
        **{"depth": 2, "hidden_size": 16, "intermediate_size": 24},
        **{"window_size": 16, "fullatt_block_indexes": [1]},
        "out_hidden_size": text["hidden_size"],
    }
    text = text | {"rope_parameters": _rope(text)}
    return tf.Qwen2_5_VLConfig(text_config=text, vision_config=tower, **ids)


def _qwen3(text: Any, ids: Any) -> Any:
    tower = QWEN_TOWER | {
        **{"depth": 3, "hidden_size": 16, "intermediate_size": 24},
        **{"num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]},
        "out_hidden_size": text["hidden_size"],
    }
    text = text | {"rope_parameters": _rope(text) | {"mrope_interleaved": True}}
    return tf.Qwen3VLConfig(text_config=text, vision_config=tower, **ids)


def _tiled(config: Any) -> Callable[[Any, Any], Any]:
    def build(text: Any, ids: Any) -> Any:
        text = text | {"model_type": "llama"}
        return config(text_config=text, vision_config=dict(SIGLIP), scale_factor=2, **ids)

    return build


def _llava(text: Any, ids: Any) -> Any:
    return tf.LlavaConfig(
        text_config=text | {"model_type": "llama"},
        vision_config=SIGLIP | {"model_type": "clip_vision_model", "projection_dim": 16},
        vision_feature_layer=-2,
        **ids,
    )


def _internvl(text: Any, ids: Any) -> Any:
    tower = SIGLIP | {"image_size": [32, 32], "patch_size": [8, 8]}
    text = text | {"model_type": "qwen2"}
    return tf.InternVLConfig(text_config=text, vision_config=tower, **ids)


def vision_processor(kind: str) -> Any:
    """What makes pixels of images of 16 x 24."""
    if kind.startswith("qwen"):
        size = {"shortest_edge": 8 * 8 * 4, "longest_edge": 8 * 8 * 30}
        return tf.Qwen2VLImageProcessorPil(
            size=size, patch_size=4, merge_size=2, temporal_patch_size=2
        )
    if kind in ("smolvlm", "idefics3"):
        made: Any = (
            tf.SmolVLMImageProcessorPil if kind == "smolvlm" else tf.Idefics3ImageProcessorPil
        )
        # Images become tiles and the whole.
        return made(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    square = {"height": 32, "width": 32}
    if kind == "llava":
        return tf.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=square)
    return tf.GotOcr2ImageProcessorPil(size=square, max_patches=2)


KINDS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "qwen2_vl": (_qwen2, "<|image_pad|>"),
    "qwen2_5_vl": (_qwen2_5, "<|image_pad|>"),
    "qwen3_vl": (_qwen3, "<|image_pad|>"),
    "smolvlm": (_tiled(tf.SmolVLMConfig), "<image>"),
    "idefics3": (_tiled(tf.Idefics3Config), "<image>"),
    "llava": (_llava, "<image>"),
    "internvl": (_internvl, "<IMG_CONTEXT>"),
}
"""How each family is configured, and the token that stands for an image."""


def vision_tokenizer(kind: str) -> tf.PreTrainedTokenizerFast:
    """The tiny tokenizer with the marks of images, and a template that shows them."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [*MARKS]})
    shown = KINDS[kind][1]
    around = "<|vision_start|>IMAGE<|vision_end|>" if kind.startswith("qwen") else "IMAGE"
    template = TEMPLATE.strip().replace("IMAGE", around)
    tokenizer.chat_template = template.replace("IMAGE", shown)
    return tokenizer


def vision_network(kind: str, tokenizer: Any, seed: int = 0, head: int = 8) -> Any:
    """A random network whose log-probs lie near -5, and on which images have an effect: on a sharp
    one every comparison of log-probs is of zeros. `head`: the dimension of its text's heads."""
    build, shown = KINDS[kind]
    token: Any = tokenizer.convert_tokens_to_ids
    text = TEXT | {
        "head_dim": head,
        "hidden_size": 4 * head,
        "vocab_size": len(tokenizer),
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    ids: dict[str, Any] = {"image_token_id": token(shown), "tie_word_embeddings": True}
    if kind.startswith("qwen"):
        ids["video_token_id"] = token("<|video_pad|>")
        ids["vision_start_token_id"] = token("<|vision_start|>")
        ids["vision_end_token_id"] = token("<|vision_end|>")
    torch.manual_seed(seed)
    network: Any = tf.AutoModelForImageTextToText.from_config(build(text, ids))
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if weights.ndim > 1:
                narrow = weights.shape[-1] ** -0.5 if weights.ndim == 2 else 0.1
                scale = 0.2 if "embed" in name else narrow
                weights.copy_(torch.randn(weights.shape, generator=generator) * scale)
    return network.eval()


def vision_model(
    kind: str, seed: int = 0, dtype: torch.dtype = torch.float32, head: int = 8
) -> tuple[LanguageModel, list[str]]:
    """A random model of a family, and the names of images of noise in its book, of several
    sizes; the first and the third of one size."""
    tokenizer = vision_tokenizer(kind)
    network = vision_network(kind, tokenizer, seed, head).to(dtype)
    book = ImageBook()
    names = [book.add(noise_png(number, *size)) for number, size in enumerate(SIZES)]
    spec = VisionSpec(network.config, tokenizer, vision_processor(kind), book)
    return LanguageModel(network, tokenizer, vision=spec), names


SIZES = ((16, 24), (24, 16), (16, 24), (16, 16))
"""Height and width in pixels."""


def tokens_of(model: LanguageModel, parts: Sequence[str | Sequence[int]]) -> list[int]:
    """Token ids of texts as ids and of images by their names, between their marks."""
    assert model.vision is not None
    ids: list[int] = []
    around = "<|vision_start|>IMAGE<|vision_end|>" if model.in_grid else "IMAGE"
    for part in parts:
        if isinstance(part, str):
            shown = around.replace("IMAGE", model.vision.image_tokens(part).text)
            ids += model.vision.placed(model.encode(shown), [part])
        else:
            ids += part
    return ids


def plain_states(model: LanguageModel, ids: Sequence[int]) -> Tensor:
    """[tokens, hidden] of one sequence as transformers computes it from pixels."""
    network: Any = model.network
    tokens, pixels = model.plain_inputs(ids)
    return network.base_model(input_ids=tokens, use_cache=False, **pixels).last_hidden_state[0]


def plain_seen_logprobs(model: LanguageModel, ids: Sequence[int]) -> Tensor:
    """[tokens, vocab] of one sequence as transformers computes it from pixels, over the tokens that
    can be sampled."""
    return model.logits(plain_states(model, ids)).log_softmax(-1)
