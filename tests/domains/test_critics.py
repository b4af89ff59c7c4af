"""What critics are told of rejected steps, in text domains."""

from __future__ import annotations

from rlanything.domains.text import TextDomain
from rlanything.records import Completion, JudgedTrajectory, Judgement, Step, Task, Trajectory


def judged(*texts: str) -> JudgedTrajectory:
    """Two steps; of the second, judgements with these texts that reject it."""
    task = Task("t", "press the button")
    steps = tuple(
        Step(f"screen {i}", Completion.unsampled(f"so > click [{i}]"), f"click [{i}]", True, "s")
        for i in (1, 2)
    )
    against = tuple(Judgement(Completion.unsampled(text), -1) for text in texts)
    return JudgedTrajectory(Trajectory("e", task, steps, -1), ((), against) if texts else ())


def test_a_text_domains_critic_reads_why_steps_were_rejected() -> None:
    [message] = TextDomain().critic_prompt(judged("That is\nno button.", "That is no button."), [1])
    assert "condemned: 2.\nOf step 2: That is no button.\nSay why" in message.content


def test_a_text_domains_critic_is_as_it_was_where_judges_gave_no_reasons() -> None:
    for failed in (judged(), judged("", " ")):
        [message] = TextDomain().critic_prompt(failed, [1])
        assert message.content.endswith("condemned: 2. Say why it failed in two short sentences.")
