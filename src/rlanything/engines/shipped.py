"""The tiny models that ship with the package, by the names that recipes call them."""

from __future__ import annotations

import json
from pathlib import Path

MODELS = Path(__file__).parent.parent / "nano" / "models"
"""One folder per role (policy, judge, adapter); those for other domains in a folder of its name."""

NAMES = {
    "nano": MODELS,
    **{
        f"nano-{path.name}": path for path in sorted(MODELS.iterdir()) if (path / "policy").is_dir()
    },
    "nano-guess": MODELS.parents[1] / "models" / "nano-guess",
}
"""`nano` (AlfWorld), `nano-guess`, `nano-coding`, `nano-miniwob`, ..."""


def is_path(model: str) -> bool:
    """Whether a name can only be a place on this machine, and no id of a model hub; a file of a
    package, as `package:FILE`, is none."""
    if ":" in model:
        return False
    path = Path(model)
    return model.startswith((".", "/", "~")) or path.suffix == ".gguf" or len(path.parts) > 2


def domain_of(model: str) -> str | None:
    """Returns the name of the domain that a shipped model was made for; None for other models."""
    if model not in NAMES:
        return None
    card = json.loads((NAMES[model] / "card.json").read_text(encoding="utf-8"))
    return card["plan"]["domain"]


def resolve(model: str, role: str) -> str:
    """Returns the folder of a shipped model's role; any other name as it is."""
    return str(NAMES[model] / role) if model in NAMES else model
