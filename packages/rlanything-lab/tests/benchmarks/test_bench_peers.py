"""The benchmark against TRL's agent trainer: both sides play the same, and all is counted."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from helpers.benchmark_module import load_benchmark, load_part
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.config.shipped import shipped_files
from rlanything.domains.registry import load_domain
from rlanything.engines.base import Sampling
from rlanything.engines.shipped import resolve
from rlanything.records import Completion, Step, Task, Trajectory
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import build_components

script: Any = load_benchmark("peers")
own: Any = load_part("peer_steps.own")
pages: Any = load_part("peer_steps.page")
theirs: Any = load_part("peer_steps.trl_rollouts")

QUICKSTART = shipped_files()["quickstart"]
LIKELIEST = 1e-5
"""A temperature at which the likeliest token is drawn."""


def recipe(*overrides: str) -> Recipe:
    return load_recipe(QUICKSTART, [*script.COMPARABLE, "threads=1", *overrides])


@pytest.mark.parametrize("keeps", [True, False])
def test_at_a_low_temperature_both_sides_play_the_same_episodes_token_by_token(keeps: bool) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    chosen = recipe(f"policy.temperature={LIKELIEST}", "policy.max_tokens=9", "loop.max_steps=7")
    domain = load_domain(chosen.domain.name, chosen.domain.options)
    tasks = domain.tasks("train", 3, 0)
    folder = resolve("nano", "policy")
    with EnvironmentPool(chosen.domain.name, chosen.domain.options, 0, 60) as environments:
        player = theirs.TRLRollouts(
            AutoModelForCausalLM.from_pretrained(folder).eval(),
            AutoTokenizer.from_pretrained(folder),
            domain,
            environments,
            {task.id: task for task in tasks},
            Sampling(LIKELIEST, chosen.policy.max_tokens),
            chosen.loop.max_steps,
        )
        player.keeps = keeps
        output = player([task.id for task in tasks], None)
        played = rollout(
            build_components(chosen, domain).train_policy,
            environments,
            [RolloutRequest(task.id, task, 0) for task in tasks],
            chosen.loop.max_steps,
            parallel_episodes=len(tasks),
        )
    for number, expected in enumerate(played.trajectories):
        completions = [step.completion for step in expected.steps]
        # A turn that was cut off is among them: what its end would have been is not the model's.
        whole = output["prompt_ids"][number] + output["completion_ids"][number]
        assert whole == list(completions[-1].tokens)
        mask = output["env_mask"][number]
        ids = output["completion_ids"][number]
        written = [token for token, own_token in zip(ids, mask, strict=True) if own_token]
        assert written == [token for each in completions for token in each.token_ids]
        assert output["won"][number] == expected.outcome
    stops = {s.completion.stop_reason for each in played.trajectories for s in each.steps}
    assert stops == {"stop", "length"}


def episode(task: Task, number: int, steps: int, outcome: int) -> Trajectory:
    completion = Completion((1, 2), (3, 4), (-1.0, -1.0), ((), ()), "stop", "")
    step = Step("", completion, "", True, "")
    return Trajectory(f"{task.id}/{number}", task, (step,) * steps, outcome)


def test_equal_work_is_every_step_of_every_episode() -> None:
    mixed, lost = Task("mixed", ""), Task("lost", "")
    played = [
        episode(task, number, 3, outcome)
        for task, outcomes in ((mixed, (1, -1, -1, -1)), (lost, (-1, -1, -1, -1)))
        for number, outcome in enumerate(outcomes)
    ]
    chosen = own.trained_steps((mixed, lost), played, recipe(), in_full=False)
    every = own.trained_steps((mixed, lost), played, recipe(), in_full=True)
    assert [task for task, _ in chosen] == ["mixed"] * 12
    assert [task for task, _ in every] == ["mixed"] * 12 + ["lost"] * 12
    assert every[:12] == chosen
    assert {sample.advantage for _, sample in every[12:]} == {own.WEIGHTLESS}


def alternation(trl: float, ours: float, full: float) -> Any:
    counts = pages.Counts(8, 2, 90, 700, 50, 400, 3000)
    return pages.Alternation(
        pages.Side(2 * trl, trl, counts),
        pages.Side(8 * trl, trl, counts),
        pages.Side(1.0, ours, counts),
        pages.Side(1.0, full, counts),
    )


def result(*alternations: Any, tried: dict[str, float] | None = None) -> Any:
    return pages.Result(alternations, recipe(), script.QUICK_SETTINGS, tried or {}, 0.1)


def test_ratios_are_of_all_seconds_and_their_interval_is_over_alternations() -> None:
    rollouts, update = pages.PARTS["rollouts"], pages.PARTS["update"]
    chosen, every, again = (sides for _, _, sides in pages.COMPARED)
    # An alternation in which nothing trained has no ratio of its own.
    found = result(alternation(3, 0.0, 1), alternation(3, 1, 2), alternation(3, 2, 3))
    assert found.ratio(update, chosen)[0] == pytest.approx(3)
    assert found.ratio(update, every)[0] == pytest.approx(9 / 6)
    assert found.ratio(rollouts, every) == pytest.approx((6, 6, 6))
    assert found.ratio(rollouts, again) == pytest.approx((24, 24, 24))
    _, low, high = found.ratio(update, every)
    assert 0 < low < 9 / 6 < high
    more = result(*found.alternations * 4)
    assert low < more.ratio(update, every)[1] < 9 / 6 < more.ratio(update, every)[2] < high


def test_the_page_shows_ratios_work_and_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "version", lambda _: "1")
    tried = {"rollouts, a": 2.0, "rollouts, b": 4.0, "update, c": 9.0}
    text = pages.page(result(alternation(3, 1, 2), alternation(3, 1, 2), tried=tried), "command")
    assert "| as each library does it | 6.0x [6.0, 6.0] | 3.0x [3.0, 3.0] | 4.5x" in text
    assert "| equal work: every episode trained | 6.0x [6.0, 6.0] | 1.5x [1.5, 1.5] | 3.0x" in text
    assert "| equal work, TRL's whole conversations again | 24.0x [24.0, 24.0] | 1.5x" in text
    assert "| tokens generated | 1,400 | 1,400 | 1,400 |" in text
    assert "| rollouts, b | 2.00 |" in text
    assert "| update, c | 1.00 |" in text


def test_without_trl_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(
        SystemExit, match=r"^error: TRL is not installed: pip install .*\[bench\]'$"
    ):
        script.main(["--quick"])


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="pip install '.[bench]'")
def test_the_script_plays_as_many_episodes_on_both_sides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.md"
    script.main([str(QUICKSTART), "loop.max_steps=4", "threads=1", "--quick", "--out", str(out)])
    assert "| episodes | 24 | 24 | 24 |" in out.read_text()
    capsys.readouterr()
    script.main([str(QUICKSTART), "loop.max_steps=2", "threads=1", "--quick", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {
        f"{part}/{sides}"
        for part in ("rollouts", "update", "iteration")
        for sides in ("own", "full", "again")
    }
