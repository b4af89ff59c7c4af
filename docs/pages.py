"""Hook of the site: its pages are Markdown files of the repository, at the paths they have there.

So links between pages lead where they lead on GitHub, and no page is written twice. Files that
pages link to, such as a module, become pages that show their text; notebooks become pages with
their outputs. `Shapes` is for docstrings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/*.md", "docs/concepts/*.md", "packages/*/*.md", "benchmarks/*.md")
SHOWN_AS_THEY_ARE = {".css", ".html", ".js", ".png", ".svg"}
SHAPE = re.compile(r"`[^`]*`|(?:\[\w+\])+")
LINK = re.compile(r"\]\(([^()\s#]+)[^()\s]*\)|(?:src|href)=\"([^\"#]+)\"")


class Shapes(griffe.Extension):
    """Marks shapes such as [G][steps] in docstrings as code; in Markdown they would be links."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = SHAPE.sub(
                lambda match: match[0] if match[0][0] == "`" else f"`{match[0]}`",
                obj.docstring.value,
            )


def on_files(files: Files, config: Any) -> Files:
    """Returns the pages of the repository, what they link to, and the theme's files."""
    found = Files([file for file in files if file.src_dir != config.docs_dir])
    pages = [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    notebooks = sorted(ROOT.glob("notebooks/*.ipynb"))
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    texts |= {path: _notebook(path) for path in notebooks}
    linked = {path for page, text in texts.items() for path in _links(page, text)} - set(texts)
    for path in notebooks:
        name = path.relative_to(ROOT).as_posix()
        found.append(File.generated(config, f"{name}.md", content=texts[path]))
    for path in [*pages, *sorted(linked), *sorted(ROOT.glob("docs/site.*"))]:
        name = path.relative_to(ROOT).as_posix()
        if path in pages or path.suffix in SHOWN_AS_THEY_ARE:
            found.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
        else:
            found.append(File.generated(config, f"{name}.md", content=_shown(path)))
    found.append(File.generated(config, "docs/cli.md", content=_commands()))
    return found


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the page with links to files that have a page of their own led to that page; pages
    that say how to do something come before measurements in the search."""
    if not page.file.src_uri.startswith("benchmarks/"):
        page.meta.setdefault("search", {"boost": 3})
    here = (ROOT / page.file.src_uri).parent

    def led(match: re.Match[str]) -> str:
        target = match[1]
        if not target or not _shown_on_a_page((here / target).resolve()):
            return match[0]
        return match[0].replace(target, f"{target}.md")

    return LINK.sub(led, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Returns the page with a name for the search dialog and without headers that say nothing."""
    named = output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)
    return named.replace("<th></th>", "<td></td>")


def _commands() -> str:
    """A page with the help of every command that is installed."""
    written = [sys.executable, "-m", "typer", "rlanything.cli", "utils", "docs"]
    named = [*written, "--name", "rlanything", "--title", "Commands"]
    return subprocess.run(named, check=True, capture_output=True, text=True).stdout


def _links(page: Path, text: str) -> set[Path]:
    """Files of the repository that a page with this text links to."""
    targets = (match[1] or match[2] for match in LINK.finditer(text))
    paths = ((page.parent / target).resolve() for target in targets if ":" not in target)
    return {path for path in paths if path.is_file() and path.is_relative_to(ROOT)}


def _notebook(path: Path) -> str:
    """A page with the cells of a notebook and their outputs."""
    parts = [f"`{path.relative_to(ROOT).with_suffix('.py')}` is this page as a script."]
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        printed = "".join("".join(each.get("text", "")) for each in cell.get("outputs", ()))
        if printed:
            parts.append(f'```text title="prints"\n{printed.rstrip()}\n```')
    parts[0], parts[1] = parts[1], parts[0]  # the heading first
    return "\n\n".join(parts) + "\n"


def _shown_on_a_page(path: Path) -> bool:
    inside = path.is_relative_to(ROOT) and path.is_file()
    return inside and path.suffix not in {".md", *SHOWN_AS_THEY_ARE}


def _shown(path: Path) -> str:
    """A page with the text of a file, left out of the search."""
    kinds = {".py": "python", ".yaml": "yaml", ".json": "json"}
    text = path.read_text(encoding="utf-8")
    front = f"---\ntitle: {path.name}\nsearch: {{exclude: true}}\n---\n\n"
    fence = f"`````{kinds.get(path.suffix, 'text')}\n{text}\n`````\n"
    return f"{front}# {path.name}\n\n`{path.relative_to(ROOT)}`\n\n{fence}"
