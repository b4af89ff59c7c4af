"""Makes the files of generated tasks from their descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import docx  # pyright: ignore[reportMissingImports]
import openpyxl  # pyright: ignore[reportMissingModuleSource]
import pptx  # pyright: ignore[reportMissingImports]


def make(path: Path, contents: dict[str, Any]) -> None:
    """Writes a file. `contents`: its kind (`text`, `sheets`, `paragraphs` or `slides`), with its
    content."""
    ((kind, content),) = contents.items()
    _MAKERS[kind](path, content)


def _text(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


def _sheets(path: Path, content: dict[str, list[list[Any]]]) -> None:
    """Writes a workbook of sheets by name, each a list of rows."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name, rows in content.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)


def _paragraphs(path: Path, content: list[list[str]]) -> None:
    """Writes a document of paragraphs, each with a style and a text."""
    document = docx.Document()
    for style, text in content:
        document.add_paragraph(text, style)
    document.save(str(path))


def _slides(path: Path, content: list[list[str]]) -> None:
    """Writes a presentation of slides, each with a title and a text."""
    presentation = pptx.Presentation()
    for title, text in content:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text_frame.text = text
    presentation.save(str(path))


_MAKERS = {"text": _text, "sheets": _sheets, "paragraphs": _paragraphs, "slides": _slides}
