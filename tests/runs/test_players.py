"""A run with two roles that act: each learns from its own steps and outcomes, under its name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from helpers.agents import Scripted
from helpers.paths import ROOT, TESTS
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.domains.base import DomainError, Episode, Observation, StepResult
from rlanything.domains.registry import load_domain
from rlanything.domains.requests import RequestsRefused
from rlanything.progress import Progress
from rlanything.records import Completion, JudgedTrajectory, Judgement, Step, Task, Trajectory
from rlanything.roles.judges.base import FunctionJudge
from rlanything.roles.judges.panel import JudgePanel
from rlanything.roles.policy import Players
from rlanything.runs.build import build_components
from rlanything.runs.eval_target import EvalArgs, run_eval
from rlanything.runs.report.facts import Reader
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer

RECIPE = ROOT / "examples" / "race.yaml"
QUIET = Progress(Console(quiet=True))
SMALL = (
    *("loop.iterations=2", "loop.tasks=2", "loop.tasks_per_iteration=2"),
    *("loop.rollouts_per_task=4", "evaluation.episodes=2", "evaluation.judged_episodes=1"),
    *("judge.samples_per_step=2", "judge.minibatches=1", "policy.minibatches=1"),
    *("feedback.policy_window=[0, 1]", "feedback.judge_window=[0, 1]"),
    "curriculum.adapt_tasks=false",
)
KILLED = """
import sys
from pathlib import Path
from helpers.survivor import DeadlyView, attempt
recipe, run, *overrides = sys.argv[1:]
print(attempt(Path(recipe), Path(run), overrides, 0, DeadlyView("rival update", 2, 0.0)))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("players") / "run"
    recipe = load_recipe(RECIPE, [f"run_dir={folder}", *SMALL], allow_code=True)
    Trainer(recipe, progress=QUIET).train()
    return folder


def weights(run: Path, role: str, iteration: int = 2) -> bytes:
    return (run / f"checkpoints/iter-0000{iteration}/{role}/model.safetensors").read_bytes()


def step(player: str, saw: str, then: str, tokens: Sequence[int] = (1,)) -> Step:
    completion = Completion((), tuple(tokens), (0.0,) * len(tokens), (), "stop", "x > y")
    return Step(saw, completion, "y", True, then, player=player)


def played(number: int, outcome: int, rival: int, turns: str) -> Trajectory:
    """An episode in which `a` (the first role) and `b` (rival) take these turns."""
    players = ["" if turn == "a" else "rival" for turn in turns]
    steps = [step(p, f"{p}{i}", f"seen {i}") for i, p in enumerate(players)]
    return Trajectory(str(number), Task("t", "play"), tuple(steps), outcome, None, {"rival": rival})


ALONE = (played(0, 1, -1, "b"), played(1, 1, -1, "b"), played(2, -1, 1, "b"))
"""Episodes in which the first role never moved."""


def test_both_learn_and_what_is_kept_goes_by_the_role(run: Path) -> None:
    first = {role: weights(run, role, 1) for role in ("policy", "rival", "judge")}
    assert len({*first.values()}) == 3
    assert all(weights(run, role) != before for role, before in first.items())
    with closing(Store(run / "run.sqlite")) as store:
        metrics = store.metrics(2)
        by_role = dict(store.query("SELECT role, COUNT(*) FROM samples GROUP BY role"))
        turns = store.query("SELECT role FROM steps WHERE trajectory = 1 ORDER BY step")
        assert Reader(store, run).facts().policy.name == "policy"
    assert [role for (role,) in turns[:2]] == ["policy", "rival"]
    assert by_role.keys() == {"policy", "rival", "judge"}
    assert {"rival/success", "rival/kl", "rival/window_share", "rival/requests"} <= metrics.keys()
    assert "policy/success" not in metrics, "rollouts/success is the first role's"
    for role in ("policy", "rival"):
        assert (metrics[f"{role}/mismatch_max"] or 1) < 1e-4, "its own tokens under its own model"


def test_a_killed_run_is_resumed_bit_for_bit(run: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, RECIPE, killed, *SMALL, "domain.name=race:Race"]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "9", done.stderr
    Trainer.resume(killed, progress=QUIET, allow_code=True).train()
    with (
        closing(Store(run / "run.sqlite")) as whole,
        closing(Store(killed / "run.sqlite")) as parted,
    ):
        assert [*parted.dump()] == [*whole.dump()]
    for role in ("policy", "rival", "judge"):
        assert weights(killed, role) == weights(run, role)


def test_an_evaluation_has_the_trained_rival_play(run: Path) -> None:
    args = EvalArgs(str(run), "in_domain", 3, None, None, None, 0, 0, allow_code=True)
    trajectories = run_eval(args, QUIET).evaluation.trajectories
    assert all({s.player for s in each.steps} == {"", "rival"} for each in trajectories)


def test_a_frozen_rival_plays_and_does_not_learn(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    overrides = [f"run_dir={folder}", *SMALL, "roles.rival.train=false", "loop.iterations=1"]
    [record] = Trainer(load_recipe(RECIPE, overrides, allow_code=True), progress=QUIET)
    assert "rival/kl" not in record.metrics
    assert record.metrics["rival/trained_share"] == 0
    assert {each.name for each in (folder / "checkpoints/iter-00001").iterdir()} == {
        *("policy", "judge", "pool.json", "manifest.json"),
    }


def test_a_view_has_own_steps_own_outcome_and_what_that_player_saw_next() -> None:
    first, rival = played(7, 1, -1, "abba").views
    assert [s.observation for s in first.steps] == ["0", "3"]
    assert [s.next_observation for s in first.steps] == ["3", "seen 3"]
    assert [s.next_observation for s in rival.steps] == ["rival2", "seen 3"]
    assert (first.id, first.outcome, rival.id, rival.outcome) == ("7", 1, "7/rival", -1)
    alone = played(8, 1, 1, "aa")
    assert alone.views == (alone,)
    cut_off = Trajectory("9", alone.task, (*alone.steps, step("rival", "", "")), -1)
    assert cut_off.views[1].outcome == -1
    [forfeit] = played(11, 1, -1, "bb").views
    assert (forfeit.id, forfeit.player, forfeit.outcome) == ("11", "rival", -1)
    assert forfeit.views == (forfeit,)
    assert played(11, 1, -1, "bb").first_view.outcome == 1
    empty = Trajectory("10", alone.task, (), -1)
    assert (empty.views, empty.player) == ((empty,), "")


def test_each_player_is_compared_with_itself_by_its_own_outcomes() -> None:
    def judge(trajectory: Trajectory, i: int) -> int:
        assert len({s.player for s in trajectory.steps}) == 1
        return 1 if (i + len(trajectory.steps)) % 2 else -1

    panel = JudgePanel({"judge": FunctionJudge(judge)})
    episodes = [
        *(played(0, 1, -1, "aba"), played(1, -1, 1, "abab")),
        *(played(2, -1, -1, "a"), played(3, 1, 1, "bab")),
    ]
    settings = FeedbackSettings(policy_window=(0, 1), judge_window=(0, 1))
    whole = panel.judge(episodes, {"judge": 0})
    signals = panel.signals(whole, settings)
    assert signals.accuracy == 0.5
    for player in ("", "rival"):
        views = [v for one in whole for v in one.views if v.trajectory.player == player]
        alone = panel.signals(views, settings)
        of_view = iter(range(len(views)))
        for i, one in enumerate(whole):
            own = [k for k, s in enumerate(one.trajectory.steps) if s.player == player]
            if own:
                view = next(of_view)
                assert [signals.policy[i][k] for k in own] == [*alone.policy[view]]
                mine = [signals.judges["judge"][i][k] for k in own]
                np.testing.assert_array_equal(mine, alone.judges["judge"][view])


class Recording:
    """A policy that keeps what it is asked."""

    def __init__(self, name: str) -> None:
        self.name, self.seen = name, list[Episode]()

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        self.seen += episodes
        return [Completion.unsampled(f"{self.name} {seed}") for seed in seeds]

    def release_cache(self) -> None: ...


def test_a_player_that_was_alone_learns_from_its_own_outcome() -> None:
    judged = [JudgedTrajectory(one, ((),) * len(one.steps)) for one in ALONE]
    signals = JudgePanel({}).signals(judged, FeedbackSettings(policy_reward="outcome"))
    assert signals.accuracy == 2 / 3, "of the first role"
    [forfeit, lost, won] = [row[0] for row in signals.policy]
    assert forfeit == lost < 0 < won


def test_each_player_is_asked_about_its_own_steps() -> None:
    policies: dict[str, Any] = {"": Recording("first"), "rival": Recording("rival")}
    steps = [*played(0, 1, 1, "ab").steps]
    texts = ("yes", "", "refuse: too long")
    episodes = [
        Episode(
            *(str(i), Task("t", "play", data={"says": [texts[i]]})),
            *(Observation(f"now {i}", player=player), steps),
        )
        for i, player in enumerate(("rival", "", "rival"))
    ]
    said = [each.text for each in Players(policies).respond(episodes, [10, 11, 12])]
    assert said == ["rival 10", "first 11", "rival 12"]
    [asked] = policies[""].seen
    assert [(s.observation, s.next_observation) for s in asked.steps] == [("0", "now 1")]
    policies["rival"] = Scripted()
    with pytest.raises(RequestsRefused) as refused:
        Players(policies).respond(episodes, [10, 11, 12])
    assert refused.value.reasons == {2: "too long"}
    stranger = Episode("3", Task("t", "play"), Observation("?", player="nobody"))
    with pytest.raises(DomainError, match="'nobody'"):
        Players(policies).respond([stranger], [0])


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"domain.name": "guess:Guess"}, "roles.rival: guess:Guess has no role act besides the"),
        ({"roles": {"other": {"does": "acts"}}}, "roles.other: race:Race has rival act besides"),
        ({"roles": {}}, "roles.rival: race:Race has rival act .* add it with does: acts"),
        ({"policy.train": False}, "policy.train: the first role that acts learns"),
        (
            {
                "roles.rival": {
                    "does": "acts",
                    "model": "m",
                    "engine": {"name": "openai", "url": "http://127.0.0.1:1/v1"},
                }
            },
            "roles.rival: engine: an endpoint .* roles.rival.train=false",
        ),
    ],
)
def test_what_cannot_play_is_refused(overrides: dict[str, Any], said: str) -> None:
    recipe = load_recipe(RECIPE, overrides, allow_code=True)
    with pytest.raises(RecipeError, match=said):
        build_components(recipe, load_domain(recipe.domain.name, recipe.domain.options))


def test_an_outcome_of_another_player_is_won_or_lost() -> None:
    with pytest.raises(ValueError, match="not 0"):
        StepResult(Observation(""), None, True, 1, others={"rival": 0})


def test_views_of_judgements_follow_their_steps() -> None:
    rows = tuple((Judgement(Completion.unsampled(str(i)), 1),) for i in range(3))
    first, rival = JudgedTrajectory(played(0, 1, -1, "aba"), rows).views
    assert [row[0].completion.text for row in first.judgements] == ["0", "2"]
    assert rival.judgements == rows[1:2]
