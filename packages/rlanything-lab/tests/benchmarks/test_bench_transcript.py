"""The page with a transcript holds the prompts that are rendered today."""

from __future__ import annotations

import re

from helpers.benchmark_module import load_benchmark
from helpers.paths import PACKAGES

PAGE = PACKAGES / "rlanything-alfworld" / "transcript.md"


def test_the_transcripts_answers_still_lead_to_the_same_prompts() -> None:
    page = PAGE.read_text(encoding="utf-8")
    answers = iter(re.findall(r"^Answer:\n\n~~~text\n(.*?)\n~~~$", page, re.DOTALL | re.MULTILINE))
    again = load_benchmark("transcript").transcript(lambda name, question, seed: next(answers))
    assert page == again, (
        "python benchmarks/transcript.py > packages/rlanything-alfworld/transcript.md"
    )
    assert next(answers, None) is None
    # All that there is to see is on it.
    for seen in (
        "\\boxed{99}",
        "Turn 2, REJECTED: examine cabinet 2",
        "The candidate: cool some bread",
    ):
        assert seen in page
