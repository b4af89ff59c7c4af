"""Prompts of critics about rejected steps, in text domains."""

from __future__ import annotations

from helpers.scripted import rejected
from rlanything.domains.text import TextRollouts


def test_a_text_domains_critic_reads_why_steps_were_rejected() -> None:
    [message] = TextRollouts().critic_prompt(
        rejected("That is\nno button.", "That is no button."), [1]
    )
    assert "condemned: 2.\nOf step 2: That is no button.\nSay why" in message.content


def test_a_text_domains_critic_is_as_it_was_where_judges_gave_no_reasons() -> None:
    for failed in (rejected(), rejected("", " ")):
        [message] = TextRollouts().critic_prompt(failed, [1])
        assert message.content.endswith("condemned: 2. Say why it failed in two short sentences.")
