"""Tiny language models, made from a seed by `rlanything nano build`; the package ships them."""

from pathlib import Path

MODELS = Path(__file__).parent / "models"
"""One folder per role: policy, judge, adapter."""


def resolve(model: str, role: str) -> str:
    """`nano` stands for the shipped model of a role; anything else for itself."""
    return str(MODELS / role) if model == "nano" else model
