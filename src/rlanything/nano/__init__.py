"""Tiny language models, made from a seed by `rlanything nano build`; the package ships them."""

from pathlib import Path

MODELS = Path(__file__).parent / "models"
"""One folder per role, policy, judge, adapter; those for other domains in a folder of its name."""

NAMES = {
    "nano": MODELS,
    "nano-coding": MODELS / "coding",
    "nano-miniwob": MODELS / "miniwob",
}
"""What a recipe calls them."""


def resolve(model: str, role: str) -> str:
    """A name stands for the shipped model of a role; anything else for itself."""
    return str(NAMES[model] / role) if model in NAMES else model
