"""Tokens per screenshot of a vision model, from its image processor's config and the domain's
screen size: no image is read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeAlias

from transformers import AutoImageProcessor

from rlanything.config.recipe import Recipe
from rlanything.config.roles import RoleConfig
from rlanything.domains.base import Domain
from rlanything.engines import shipped
from rlanything.engines.hf.damage import reason_of
from rlanything.engines.hf.vision_spec import FAMILIES
from rlanything_planning.architecture import KNOWN, read_config

Tokens: TypeAlias = dict[str, tuple[float, str]]
NONE_SHOWN = "none is shown"
JUDGED = 2
"""Screenshots per judgement: before and after the step."""
_QWEN3 = {"patch_size": 16, "merge_size": 2}
_PROCESSORS: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-VL-8B-Thinking": {
        **_QWEN3,
        "size": {"shortest_edge": 65_536, "longest_edge": 16_777_216},
    }
}
"""preprocessor_config.json of the known vision models."""


def screenshot_tokens(recipe: Recipe, domain: Domain) -> Tokens:
    """Returns the tokens of one screenshot for each role that acts or scores, by the name of the
    assumption; if unknown, none and the reason."""
    return {
        f"{name}_image_tokens": _of_role(role, domain)
        for name, role in recipe.roles.items()
        if role.does in ("acts", "scores")
    }


def _of_role(role: RoleConfig, domain: Domain) -> tuple[float, str]:
    if not (domain.capabilities.shows_images and getattr(role, "by_model", True)):
        return 0.0, NONE_SHOWN
    if domain.capabilities.screen_size is None:
        return 0.0, "left out: the domain does not say how large its screens are"
    if role.remote:
        return 0.0, "left out: the model is at an endpoint"
    width, height = domain.capabilities.screen_size
    model = shipped.resolve(role.model, role.shipped_role)
    try:
        tokens = tokens_of(model, width, height)
    except Exception as error:  # libraries may raise anything for foreign files
        return 0.0, f"left out: its image processor cannot be used ({reason_of(error)})"
    known = "by this library's table" if model in KNOWN else "by its image processor"
    return float(tokens), f"a screen of {width} x {height}, {known}"


def tokens_of(model: str, width: int, height: int) -> int:
    """Returns the tokens of an image of this size in pixels. Raises whatever libraries raise for a
    model that cannot read it."""
    config = read_config(model)
    if config.model_type not in FAMILIES:
        raise ValueError(f"images are not supported for models of type {config.model_type}")
    if model in _PROCESSORS:
        processor: Any = SimpleNamespace(**_PROCESSORS[model])
    else:
        processor = AutoImageProcessor.from_pretrained(
            model, backend="pil", trust_remote_code=False
        )
    family = FAMILIES[config.model_type]
    spec: Any = SimpleNamespace(token="", processor=processor, config=config, family=family)
    return family.image_tokens(spec, height, width).tokens
