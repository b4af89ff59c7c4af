"""The recipes and examples that ship with the package, found by name from any folder."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from pathlib import Path

from rlanything.config.problems import RecipeError
from rlanything.config.trust import names_in
from rlanything.config.yaml import typed, visible

PACKAGE = Path(__file__).parents[1]
KINDS = ("recipes", "examples")
SUFFIXES = (".yaml", ".yml")


def shipped_folder(kind: str) -> Path:
    """Returns the folder `recipes` or `examples`: inside the package where it was installed from a
    wheel, at the top of the repository where it is used in place."""
    inside = PACKAGE / kind
    return inside if inside.is_dir() else PACKAGE.parent.parent / kind


def shipped_files() -> dict[str, Path]:
    """Returns the shipped recipes by name, those of the examples last."""
    return {
        path.stem: path for kind in KINDS for path in sorted(shipped_folder(kind).glob("*.yaml"))
    }


def shipped_recipes() -> dict[str, str]:
    """Returns what each shipped recipe is, by name: the comment in its first line."""
    return {
        name: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()
        for name, path in shipped_files().items()
    }


def find_recipe(source: str | Path) -> Path:
    """Returns the file that a path, or the bare name of a shipped recipe, stands for.

    A file that exists wins. Raises `RecipeError` with near matches for one that does not: it is
    looked up nowhere else."""
    path = Path(source)
    shipped = shipped_files()
    try:
        there = path.exists() and not (path.is_dir() and str(source) in shipped)
        of_run = there and all((path / name).is_file() for name in ("recipe.yaml", "run.sqlite"))
    except (OSError, ValueError) as error:  # a path that no file can have
        raise RecipeError(f"{visible(source)}: cannot be read ({error})") from None
    if of_run:
        raise RecipeError(
            f"{visible(source)}: a run's directory; go on with "
            f"`rlanything resume {typed(path)}`, or begin another as it did with "
            f"{typed(path / 'recipe.yaml')} and run_dir=PATH"
        )
    if there:
        return path
    if str(source) in shipped:
        return shipped[str(source)]
    raise RecipeError(f"{visible(source)}: no such recipe; {_remedy(path, list(shipped))}")


def ships_module(domain: object, folder: Path | None) -> list[str]:
    """Returns all that a recipe's domain names as `module:name` of a module that ships with the
    recipes, and so is as good as installed. `folder`: that of the recipe's file."""
    if not isinstance(domain, dict):
        return []
    examples = shipped_folder("examples").resolve()
    if str(domain.get("module_folder") or folder) != str(examples):
        return []
    return [name for name in names_in(domain) if _ships(name, examples)]


def see_shipped(name: str) -> None:
    """Has Python look for a `module:Class` of the examples where they lie, after everywhere else
    and the folder one works in."""
    examples = shipped_folder("examples").resolve()
    if _ships(name, examples):
        sys.path += [folder for folder in (os.getcwd(), str(examples)) if folder not in sys.path]


def _ships(name: str, examples: Path) -> bool:
    module, colon, _ = name.partition(":")
    return bool(colon) and module.isidentifier() and (examples / f"{module}.py").is_file()


def near_recipes(name: str) -> list[str]:
    """Returns the shipped recipes whose names resemble `name`, the nearest first."""
    return get_close_matches(name, list(shipped_files()), cutoff=0.7)


def _remedy(path: Path, shipped: list[str]) -> str:
    beside = [str(file) for end in SUFFIXES for file in path.parent.glob(f"*{end}")]
    near = [*near_recipes(path.stem), *get_close_matches(str(path), beside, cutoff=0.7)]
    known = f"the shipped ones are {', '.join(shipped)}"
    return f"did you mean {' or '.join(map(visible, near[:3]))}?" if near else known
