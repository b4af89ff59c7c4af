"""What docs/metrics.md lists."""

from __future__ import annotations

import re

from helpers.paths import ROOT

PAGE = ROOT / "docs" / "metrics.md"
ROLE, SPLIT = "(policy|judge|adapter|labeller)", "(?!judge$)[a-z_]+"


def page_patterns() -> dict[str, re.Pattern[str]]:
    """The metrics of the page by name, as patterns: ROLE and SPLIT stand for several."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert len(names) == len(set(names)), "a metric is listed twice"
    return {name: re.compile(name.replace("ROLE", ROLE).replace("SPLIT", SPLIT)) for name in names}


def unlisted(names: set[str]) -> set[str]:
    """Those that the page does not list."""
    patterns = page_patterns().values()
    return {name for name in names if not any(each.fullmatch(name) for each in patterns)}
