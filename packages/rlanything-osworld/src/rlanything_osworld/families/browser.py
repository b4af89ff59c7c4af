"""Families of tasks on pages of the desktop in a browser."""

from __future__ import annotations

import random

from rlanything_osworld.families.base import (
    DESKTOP,
    DesktopDraft,
    DesktopFamily,
    DesktopGoal,
    absent,
    launch,
    moves,
    place_files,
)

TOPICS = ("Gardens", "Bridges", "Trains", "Rivers", "Bread", "Music", "Winter", "Maps")


def bookmark(rng: random.Random) -> DesktopDraft:
    topics = rng.sample(TOPICS, 4)
    names = [f"{topic.lower()}.html" for topic in topics[:3]]
    links = "".join(
        f'<p><a href="{name}">{topic}</a></p>' for name, topic in zip(names, topics, strict=False)
    )
    files = {
        name: {"text": f"<title>{topic}</title><h1>{topic}</h1>{links}"}
        for name, topic in zip(names, topics, strict=False)
    }
    save = (
        "press ctrl+d",
        "click [combo box Folder]",
        "press home",
        "press enter",
        "click [button Done]",
    )
    goals = (
        _kept(
            "open",
            names[0],
            (
                "Bookmark the open page on the bookmarks bar.",
                f"Put a bookmark of the page {topics[0]}, which is open, on the bookmarks bar.",
            ),
            save,
        ),
        _kept(
            "linked",
            names[1],
            (
                f"Open the page {topics[1]} by its link, and bookmark it on the bookmarks bar.",
                f"The bookmarks bar should have the page {topics[1]}, which is linked here.",
            ),
            (f"click [link {topics[1]}]", *save),
        ),
        absent(f"Open the page {topics[3]} by its link, and bookmark it on the bookmarks bar."),
    )
    config = (place_files(*names), launch("google-chrome", f"file://{DESKTOP}/{names[0]}"))
    return DesktopDraft(config, files, goals)


def _kept(kind: str, name: str, wordings: tuple[str, ...], actions: tuple[str, ...]) -> DesktopGoal:
    rules = {"type": "bookmark_bar_websites_urls", "urls": [f"file://{DESKTOP}/{name}"]}
    evaluator = {
        "func": "is_expected_bookmarks",
        "result": {"type": "bookmarks"},
        "expected": {"type": "rule", "rules": rules},
        # The browser saves them after some seconds.
        "postconfig": [{"type": "sleep", "parameters": {"seconds": 3}}],
    }
    hint = "Press ctrl+d, choose the bookmarks bar under Folder, and click Done."
    return DesktopGoal(kind, wordings, evaluator, moves(*actions), hint)


FAMILIES = (DesktopFamily("browser-bookmark", "browser", bookmark),)
