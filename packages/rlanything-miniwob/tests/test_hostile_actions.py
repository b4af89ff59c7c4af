"""No policy raises its measured success above its true one by what it says: on web pages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from helpers.chromium import require_chromium
from helpers.hostile import WEB_ACTIONS, check, dozen, measured
from rlanything_miniwob.domain import MiniWob

PAGES = ("enter-password", "login-user", "enter-text-2", "login-user-popup")
"""Pages that are not won by accident."""


def check_miniwob(attacks: Sequence[str], count: int, max_steps: int) -> None:
    require_chromium()
    domain = MiniWob()
    try:
        tasks = [t for t in domain.tasks("train", 200, 3) if t.data["start"]["page"] in PAGES]
        said = [f"> {action}" for action in attacks]
        check(*measured(domain, tasks[:count], said, max_steps), count)
    finally:
        domain.browser.close()


def test_web_tasks_count_every_episode() -> None:
    check_miniwob(dozen(WEB_ACTIONS, 3), 4, 5)


@pytest.mark.slow
def test_web_tasks_count_every_episode_of_the_whole_list() -> None:
    check_miniwob(WEB_ACTIONS, 20, 20)
