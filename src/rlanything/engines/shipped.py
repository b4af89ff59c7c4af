"""The tiny models that ship with the package, by their names in recipes."""

from __future__ import annotations

from pathlib import Path

MODELS = Path(__file__).parent.parent / "nano" / "models"
"""One folder per role (policy, judge, adapter); other domains have subfolders by name."""

NAMES = {
    "nano": MODELS,
    **{
        f"nano-{path.name}": path for path in sorted(MODELS.iterdir()) if (path / "policy").is_dir()
    },
}
"""`nano` (AlfWorld), `nano-coding`, `nano-miniwob`, ..."""


def is_path(model: str) -> bool:
    """Whether a name can only be a local path, not a model hub id or `package:FILE`."""
    if ":" in model:
        return False
    path = Path(model)
    return model.startswith((".", "/", "~")) or path.suffix == ".gguf" or len(path.parts) > 2


def resolve(model: str, role: str) -> str:
    """Returns the folder of a shipped model's role; any other name unchanged."""
    return str(NAMES[model] / role) if model in NAMES else model
