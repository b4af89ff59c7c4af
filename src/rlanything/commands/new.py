"""`rlanything new`: the first files of a package of your own."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from rlanything.commands.registry import CommandLineError
from rlanything.files import new_folder
from rlanything.plugins import plugin_names
from rlanything.terminal import write_line
from rlanything.version import __version__

TEMPLATE = Path(__file__).with_name("environment_template")
"""Files of a new package: `$name`, `$module` and `$title` stand for its names, also in paths, which
end in `.in`."""

app = typer.Typer(no_args_is_help=True, help="The first files of a package of your own.")


@app.command()
def environment(
    name: Annotated[str, typer.Argument(help="Name of the domain, such as `my-game`.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to create; default: rlanything-NAME here.")
    ] = None,
) -> None:
    """Create a package with an environment, a recipe and a test, which trains at once.

    It holds a small game to replace with yours.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise CommandLineError(
            f"{name!r}: use lower-case letters, digits and single dashes, such as my-game"
        )
    if name in plugin_names("domain"):
        raise CommandLineError(f"{name}: an installed domain has this name; choose another")
    place = out or Path(f"rlanything-{name}")
    if place.exists():
        raise CommandLineError(f"{place} exists already: name a new folder with --out")
    words = {
        "name": name,
        "module": f"rlanything_{name.replace('-', '_')}",
        "title": "".join(word.capitalize() for word in name.split("-")),
        "version": ".".join(__version__.split(".")[:2]),
    }
    try:
        with new_folder(place) as folder:
            for source in sorted(TEMPLATE.rglob("*.in")):
                name_in = str(source.relative_to(TEMPLATE))[: -len(".in")]
                target = folder / Template(name_in).substitute(words)
                target.parent.mkdir(parents=True, exist_ok=True)
                text = Template(source.read_text(encoding="utf-8")).substitute(words)
                target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandLineError(
            f"{place} cannot be made ({error.strerror}): choose another place with --out"
        ) from None
    write_line(f"{place}: a package with a small game to replace with yours. Next:")
    write_line(f"  pip install --editable {place}")
    write_line(f"  rlanything train {name}")
    write_line(f"  pytest {place}")
