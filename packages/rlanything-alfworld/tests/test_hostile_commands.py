"""No policy raises its measured success above its true one by what it says: commands."""

from __future__ import annotations

from helpers.hostile import COMMANDS, TEXTS, check, measured
from rlanything_alfworld.domain import AlfWorld


def test_text_games_count_every_episode() -> None:
    domain = AlfWorld()
    attacks = [*TEXTS, *(f"> {text}" for text in (*TEXTS, *COMMANDS))]
    check(*measured(domain, domain.tasks("in_domain", 8, 3), attacks, 40), 8)
