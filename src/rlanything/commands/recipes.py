"""`rlanything recipes`: lists the shipped recipes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from rlanything.terminal import show, write_json

if TYPE_CHECKING:
    from rlanything.config.recipe import Recipe

START = ("guess", "tiny", "quickstart")
"""Recipes for a first try: minutes on two CPU cores, with no model to download."""


def recipes(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """List the recipes that ship: `rlanything train NAME` runs one from any folder."""
    from rlanything.config.shipped import shipped_recipes

    rows = [_row(name, what) for name, what in shipped_recipes().items()]
    if as_json:
        write_json({"recipes": rows})
        return
    places = {name: place for place, name in enumerate(START)}
    table = Table(box=None, pad_edge=False)
    table.add_column("recipe", no_wrap=True)
    table.add_column("needs")
    table.add_column("what it is")
    for row in sorted(rows, key=lambda row: places.get(str(row["name"]), len(START))):
        if row["name"] not in START and START[-1] in places:
            places.clear()  # a gap before the first of the others
            table.add_section()
            table.add_row()
        table.add_row(row["name"], row["needs"] or "-", row["what"])
    show(table)
    show(
        "\nThe first take minutes on two CPU cores. [name]: an extra, as in "
        "`pip install 'rlanything[name]'`; model: its weights, downloaded or made first; "
        "`rlanything plan NAME` (extra planning) estimates memory and time."
    )


def _row(name: str, what: str) -> dict[str, str | None]:
    """Returns a row of the list. A recipe that needs a package which is not installed has no domain
    here: it cannot be read."""
    from rlanything.config.recipe import RecipeError, load_recipe

    try:
        recipe = load_recipe(name)
    except RecipeError as error:
        extra = re.search(r"rlanything(\[[\w-]+\])", str(error))
        needs = extra[1] if extra else "see `rlanything train`"
        return {"name": name, "what": what, "domain": None, "needs": needs}
    return {
        "name": name,
        "what": what,
        "domain": " + ".join(recipe.domain.names),
        "needs": _needs(recipe),
    }


def _needs(recipe: Recipe) -> str:
    """Returns what a recipe needs beyond the library: extras, models that do not ship, GPUs."""
    from rlanything.engines.shipped import NAMES
    from rlanything.plugins import extras_of

    models = recipe.model_sections
    plugged = [("domain", name) for name in recipe.domain.names]
    plugged += [("engine", name) for name in sorted({role.engine.name for role in models})]
    needs = [f"[{extra}]" for kind, name in plugged for extra in extras_of(kind, name)]
    shipped = {*NAMES, *recipe.roles}  # a role's model may be that of another
    if any(getattr(role, "lora", None) is not None for role in models):
        needs.append("[lora]")
    if any(role.model not in shipped for role in models):
        needs.append("model")
    if any(role.device.startswith("cuda") for role in models):
        needs.append(f"{recipe.cluster.seats} GPUs")
    return ", ".join(needs)
