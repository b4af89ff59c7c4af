"""The benchmark of images, in miniature: two episodes of two steps, recorded here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.benchmark_module import load_benchmark, load_part
from helpers.chromium import require_chromium
from rlanything.domains.base import Image
from rlanything.engines.images import noise_png
from rlanything.records import Completion, Step, Task, Trajectory

script: Any = load_benchmark("vision")
episodes: Any = load_part("vision_steps.episodes")
measuring: Any = load_part("vision_steps.measuring")
POLICY, TEXT, JUDGE = measuring.VIEWS


@pytest.fixture
def played(tmp_path: Path) -> list[Trajectory]:
    """Two episodes that begin alike, with screenshots of noise in a folder."""
    images = [Image(noise_png(seed, 40, 60)) for seed in range(3)]
    for image in images:
        (tmp_path / image.name).write_bytes(image.data)
    first, *others = (image.name for image in images)

    def step(image: str, after: str | None) -> Step:
        said = Completion.unsampled("> click [1]")
        return Step('button "a" [1]', said, "click [1]", True, 'button "b" [1]', image, after)

    task = Task("page", "Click.")
    return [
        Trajectory(f"page/{i}", task, (step(first, then), step(then, None)), 1)
        for i, then in enumerate(others)
    ]


@pytest.mark.parametrize("view", [POLICY, JUDGE], ids=["policy", "judge"])
def test_what_is_shared_is_computed_once_and_all_ways_compute_the_same(view, played, tmp_path):
    row = measuring.measure(view, played, tmp_path, 1, 0)
    assert row.distinct <= row.computed("packed") <= 1.05 * row.distinct
    assert row.played.distinct <= row.played.computed <= 1.05 * row.played.distinct
    assert row.played.computed <= row.played.padded < row.sample_tokens
    assert row.computed("alone") == row.sample_tokens
    given = {POLICY: 6, JUDGE: 18}[view]
    assert (row.played.given, row.played.images, row.played.encoded) == (given, 3, 3)
    assert {name: way.images for name, way in row.ways.items()} == {
        "packed": 3,
        "padded": 3,
        "alone": given,
    }
    assert max(*row.logprobs.values(), *row.gradients.values()) < 1e-4
    page = script.page([row], played, 1)
    assert f"| {view.name} | {given} | 3 | 3 | 3 | 3 | {given} |" in page


def test_the_comparison_is_not_of_certainties_and_images_matter(played, tmp_path):
    one, blind = (measuring.play(view, played, tmp_path, 0) for view in (POLICY, TEXT))
    assert (blind.given, blind.encoded) == (0, 0)
    means = [torch.tensor(each.completion.logprobs).mean() for each in one.samples]
    assert -9 < min(means) <= max(means) < -4
    # Both episodes begin alike, and go on with another screenshot.
    a, b = (each.completion.prompt_ids for each in one.samples[:2])
    assert a == b
    c, d = (each.completion.prompt_ids for each in one.samples[2:])
    assert len(c) == len(d)
    assert c != d


def test_episodes_are_recorded_with_their_screenshots(tmp_path):
    require_chromium()
    played = episodes.record(["enter-password"], 2, 2, 0, tmp_path / "images")
    assert [each.id for each in played] == ["enter-password/0", "enter-password/1"]
    named = {step.image for each in played for step in each.steps}
    assert named <= {path.name for path in (tmp_path / "images").iterdir()}
