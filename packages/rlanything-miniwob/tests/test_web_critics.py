"""Prompts of critics about rejected steps of web tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.scripted import rejected
from rlanything.records import Completion, JudgedTrajectory, Judgement
from rlanything_miniwob.domain import MiniWob


def test_a_web_critic_says_when_not_every_judge_condemned_a_step() -> None:
    failed = rejected("No button.")
    split = (*failed.judgements[1], Judgement(Completion.unsampled("Fine."), 1))
    [message] = MiniWob().critic_prompt(JudgedTrajectory(failed.trajectory, ((), split)), [1])
    assert "condemned by at least one judge." in message.content


def test_web_prompts_of_ones_own_can_show_critics_why_steps_were_rejected(tmp_path: Path) -> None:
    (tmp_path / "critic_step.txt").write_text("\n$mark$action: $reasoning")
    [message] = MiniWob(prompts=str(tmp_path)).critic_prompt(rejected("No button."), [1])
    assert "\nclick [1]: \n(bad) click [2]: No button.\n" in message.content


@pytest.mark.parametrize("texts", [(), ("No button.",)])
def test_the_nano_models_web_critics_are_as_they_were(texts: tuple[str, ...]) -> None:
    [message] = MiniWob().critic_prompt(rejected(*texts), [1])
    assert message.content == (
        "An agent failed on a web page. Say why in two short sentences. Steps marked (bad) were "
        "condemned by every judge.\nTask: press the button\nso > click [1]\n(bad) so > click [2]\n"
        "At the end:\nscreen 2"
    )
