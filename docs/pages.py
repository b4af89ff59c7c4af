"""Hook of the site: its pages are Markdown files of the repository, at the paths they have there.

So links between pages lead where they lead on GitHub, and no page is written twice. Files that
pages link to, such as a module, become pages that show their text. `Shapes` is for docstrings."""

from __future__ import annotations

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
    linked = {path for page in pages for path in _links(page)} - set(pages)
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


def _links(page: Path) -> set[Path]:
    """Files of the repository that a page links to."""
    targets = (match[1] or match[2] for match in LINK.finditer(page.read_text(encoding="utf-8")))
    paths = ((page.parent / target).resolve() for target in targets if ":" not in target)
    return {path for path in paths if path.is_file() and path.is_relative_to(ROOT)}


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
