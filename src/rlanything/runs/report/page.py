"""A self-contained HTML file without network access.

Model output is data: JSON without a `<`, or base64. The page puts it into text nodes only, and its
security policy allows only the page's own script and no requests."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from importlib.resources import files
from typing import Any

from rlanything.runs.report.payload import Payload

SCRIPTS = ("dom", "format", "charts", "texts", "headlines", "diagnostics", "lineage")
SCRIPTS += ("trajectories", "comparison", "main")
DIGITS = 5
"""Significant digits of numbers in the page."""


def render(payload: Payload) -> str:
    """Returns the page as HTML."""
    folder = files("rlanything.runs.report") / "page"
    style = (folder / "page.css").read_text(encoding="utf-8")
    script = "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    script = f'"use strict";\n{script}'
    names = ", ".join(run["name"] for run in payload.facts["runs"])
    parts = {
        "title": html.escape(names.encode("utf-8", "replace").decode()),
        "policy": "; ".join(
            (
                "default-src 'none'",
                "img-src data:",
                f"style-src '{_hash(style)}'",
                f"script-src '{_hash(script)}'",
                "base-uri 'none'",
                "form-action 'none'",
            )
        ),
        "style": style,
        "facts": _json(payload.facts),
        "data": "\n".join(
            [
                f'<script type="text/plain" id="chunk-{i}">{_base64(chunk)}</script>'
                for i, chunk in enumerate(payload.pages.chunks)
            ]
            + [
                f'<script type="text/plain" data-image="{html.escape(name)}">{_base64(data)}'
                "</script>"
                for name, data in payload.pages.images.items()
            ]
        ),
        "script": script,
    }
    page = (folder / "page.html").read_text(encoding="utf-8")
    # In one pass: inserted text is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], page)


def _json(facts: Any) -> str:
    """Returns JSON that cannot end a script element, whatever its strings."""
    text = json.dumps(_rounded(facts), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _rounded(value: Any) -> Any:
    """Returns the value with numbers rounded to `DIGITS`; None for a number that is not finite."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{_base64(digest)}"
