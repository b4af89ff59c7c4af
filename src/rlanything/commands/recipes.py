"""`rlanything recipes`: the recipes that ship, to train by name."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from rlanything.terminal import show, write_json


def recipes(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """List the recipes that ship: `rlanything train NAME` runs one from any folder."""
    from rlanything.config.recipe import load_recipe
    from rlanything.config.shipped import shipped_recipes

    rows = [
        {"name": name, "what": what, "domain": load_recipe(name).domain.name}
        for name, what in shipped_recipes().items()
    ]
    if as_json:
        write_json({"recipes": rows})
        return
    table = Table()
    table.add_column("name", no_wrap=True)
    table.add_column("what it is")
    table.add_column("domain", no_wrap=True)
    for row in rows:
        table.add_row(row["name"], row["what"], row["domain"])
    show(table)
