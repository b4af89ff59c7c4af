"""Recipes and examples that ship with the package, found by name from any folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from rlanything.config.problems import RecipeError
from rlanything.config.trust import names_in
from rlanything.config.yaml import typed, visible
from rlanything.plugins import shipped_packages

PACKAGE = Path(__file__).parents[1]
SUFFIXES = (".yaml", ".yml")


def examples_folder() -> Path:
    """Returns the folder of the examples: inside the package where it was installed from a wheel,
    at the top of the repository where it is used in place."""
    inside = PACKAGE / "examples"
    return inside if inside.is_dir() else PACKAGE.parent.parent / "examples"


def shipped_files() -> dict[str, Path]:
    """Returns the shipped recipes by name: those of installed packages, then the examples."""
    folders = [*(package / "recipes" for package in shipped_packages()), examples_folder()]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def shipped_recipes() -> dict[str, str]:
    """Returns a description of each shipped recipe by name: the comment in its first line."""
    return {
        name: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()
        for name, path in shipped_files().items()
    }


def find_recipe(source: str | Path, shipped: Mapping[str, Path]) -> Path:
    """Returns the recipe file for a path, or for the name of one of the `shipped_files`.

    An existing file wins. Raises `RecipeError`, with near matches, if there is neither."""
    path = Path(source)
    try:
        there = path.exists() and not (path.is_dir() and str(source) in shipped)
        of_run = there and all((path / name).is_file() for name in ("recipe.yaml", "run.sqlite"))
    except (OSError, ValueError) as error:  # not a possible path
        raise RecipeError(f"{visible(source)}: cannot be read ({error})") from None
    if of_run:
        raise RecipeError(
            f"{visible(source)}: a run's directory; continue it with "
            f"`rlanything resume {typed(path)}`, or start another run with "
            f"{typed(path / 'recipe.yaml')} and run_dir=PATH"
        )
    if there:
        return path
    if str(source) in shipped:
        return shipped[str(source)]
    raise RecipeError(f"{visible(source)}: no such recipe; {_remedy(path, list(shipped))}")


def ships_module(domain: object, folder: Path | None) -> list[str]:
    """Returns everything that a recipe's domain names as `module:name` of a module that ships with
    the examples, and so is as trusted as the package. `folder`: the recipe file's folder."""
    if not isinstance(domain, dict):
        return []
    examples = examples_folder().resolve()
    if str(domain.get("module_folder") or folder) != str(examples):
        return []
    return [name for name in names_in(domain) if _ships(name, examples)]


def see_shipped(name: str) -> None:
    """Adds the examples' folder to the end of Python's search path if a `module:Class` ships
    there, after the working directory."""
    examples = examples_folder().resolve()
    if _ships(name, examples):
        sys.path += [folder for folder in (os.getcwd(), str(examples)) if folder not in sys.path]


def _ships(name: str, examples: Path) -> bool:
    module, colon, _ = name.partition(":")
    return bool(colon) and module.isidentifier() and (examples / f"{module}.py").is_file()


def domain_section(name: str) -> dict[str, str]:
    """Returns the section `domain` of a recipe for a domain that an installed package registers or
    whose module is one of the examples."""
    examples = examples_folder().resolve()
    return {"name": name, **({"module_folder": str(examples)} if _ships(name, examples) else {})}


def near_recipes(name: str) -> list[str]:
    """Returns the shipped recipes whose names resemble `name`, the nearest first."""
    return get_close_matches(name, list(shipped_files()), cutoff=0.7)


def _remedy(path: Path, shipped: list[str]) -> str:
    siblings = [str(file) for end in SUFFIXES for file in path.parent.glob(f"*{end}")]
    near = [*near_recipes(path.stem), *get_close_matches(str(path), siblings, cutoff=0.7)]
    known = f"the installed ones are {', '.join(shipped)}; other packages bring more (README.md)"
    return f"did you mean {' or '.join(map(visible, near[:3]))}?" if near else known
