"""The tiny models that installed packages ship, by the names that recipes call them."""

from __future__ import annotations

import json
from pathlib import Path

from rlanything.plugins import shipped_models

NAMES = shipped_models()
"""The folder of each shipped set of models by its name (`nano`, `nano-coding`, ...); it has one
folder a role."""


ROLES = ("policy", "judge", "adapter")
"""The roles that a set of models may have."""


def is_path(model: str) -> bool:
    """Whether a name can only be a local path, not a model hub id or `package:FILE`."""
    if ":" in model:
        return False
    path = Path(model)
    return model.startswith((".", "/", "~")) or path.suffix == ".gguf" or len(path.parts) > 2


def domain_of(model: str) -> str | None:
    """Returns the name of the domain that a shipped model was made for; None for other models, and
    for one that was made for several domains."""
    if model not in NAMES:
        return None
    plan = json.loads((NAMES[model] / "card.json").read_text(encoding="utf-8"))["plan"]
    return None if "worlds" in plan.get("options", ()) else plan["domain"]


def roles_of(model: str) -> list[str]:
    """Returns the roles of a shipped set of models: those that its card has measured; all of them
    if the card is missing."""
    card = NAMES[model] / "card.json"
    measured = json.loads(card.read_text(encoding="utf-8"))["measured"] if card.is_file() else ROLES
    return [role for role in ROLES if role in measured]


def resolve(model: str, role: str) -> str:
    """Returns the folder of a shipped model's role; any other name unchanged."""
    return str(NAMES[model] / role) if model in NAMES else model
