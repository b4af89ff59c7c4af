"""The whole loop on real models and the real engine, checked from its store alone."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from helpers.events import points
from helpers.guess import FEW, GUESS
from helpers.metrics_page import unlisted
from rlanything.algorithm.curriculum import accepts
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.progress import Progress
from rlanything.runs.store.codec import StoredCompletion
from rlanything.runs.store.schema import CONTENT
from rlanything.runs.store.store import Store
from rlanything.runs.store.stored import StoredTrajectory
from rlanything.runs.trainer import Trainer

# Two iterations of groups of four in which candidates are made and settled.
EAGER = ("seed=2", "curriculum.alpha_low=0.25", "curriculum.alpha_high=0.75")
EAGER += ("environment.workers=2", "evaluation.episodes=4", "evaluation.judged_episodes=2")

UNEXAMINED = "evaluation.episodes=0"


def run_tiny(folder: Path, *overrides: str) -> Path:
    recipe = load_recipe(GUESS, [*FEW, f"run_dir={folder}", *EAGER, *overrides])
    Trainer(recipe, progress=Progress(Console(quiet=True))).train()
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny(tmp_path_factory.mktemp("tiny") / "run")


@pytest.fixture
def store(run: Path) -> Iterator[Store]:
    opened = Store(run / "run.sqlite")
    yield opened
    opened.close()


def recipe_of(store: Store) -> Recipe:
    return load_recipe(json.loads(store.query("SELECT value FROM run WHERE key = 'recipe'")[0][0]))


def scores_of(store: Store) -> dict[str, list[list[int]]]:
    """S_ij by trajectory."""
    scores: dict[str, list[list[int]]] = defaultdict(list)
    for trajectory, step, judgement, score in store.query(
        "SELECT id, step, judgement, score FROM judgements JOIN trajectories ON number = trajectory"
        " ORDER BY 1, 2, 3"
    ):
        if judgement == 0:
            assert len(scores[trajectory]) == step
            scores[trajectory].append([])
        scores[trajectory][step].append(score)
    return scores


def standardized(values: list[float]) -> list[float]:
    mean = sum(values) / len(values)
    deviation = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
    return [0.0 if deviation < 1e-9 else (v - mean) / deviation for v in values]


def expected_advantages(store: Store) -> tuple[dict[str, float], dict[str, float]]:
    """Policy and judge advantages by sample, from recorded outcomes and scores: Eq. 1 and Eq. 2,
    and the balance of the judge's, written out a second time, with plain Python."""
    feedback = recipe_of(store).feedback
    assert feedback.judge_reward.options == {}
    scores = scores_of(store)
    policy: dict[str, float] = {}
    judge: dict[str, float] = {}
    rejected = {
        (task, iteration)
        for task, iteration in store.query(
            "SELECT task, iteration FROM slot_events WHERE kind = 'rejected'"
        )
    }
    for iteration, task in store.query("SELECT iteration, task FROM groups"):
        if (task, iteration) in rejected:
            continue
        members: list[tuple[str, int]] = store.query(  # type: ignore[assignment]
            "SELECT id, outcome FROM trajectories WHERE iteration = ? AND task = ?", iteration, task
        )
        accuracy = sum(outcome == 1 for _, outcome in members) / len(members)
        longest = max(len(scores[name]) for name, _ in members)
        if feedback.policy_window[0] <= accuracy <= feedback.policy_window[1]:
            for i in range(longest):
                present = [(n, o) for n, o in members if len(scores[n]) > i]
                rewards = [o + feedback.policy_lambda * mean(scores[n][i]) for n, o in present]
                for (name, _), advantage in zip(present, standardized(rewards), strict=True):
                    policy[f"{name}/{i}"] = advantage
        if feedback.judge_window[0] <= accuracy <= feedback.judge_window[1]:
            steps = sum(len(scores[name]) for name, _ in members)
            for name, outcome in members:
                other = sum(len(scores[n]) for n, o in members if o != outcome)
                for i, step in enumerate(scores[name]):
                    reward = outcome + feedback.judge_lambda * mean(step)
                    consistency = [reward * s if s else -2.0 for s in step]
                    for j, advantage in enumerate(standardized(consistency)):
                        judge[f"{name}/{i}/{j}"] = 2 * other / steps * advantage
    return policy, judge


def mean(values: list[int]) -> float:
    return sum(values) / len(values)


def test_every_advantage_follows_from_the_recorded_outcomes_and_scores(store: Store) -> None:
    policy, judge = expected_advantages(store)
    for role, expected in (("policy", policy), ("judge", judge)):
        given = dict(store.query("SELECT source, advantage FROM samples WHERE role = ?", role))
        nonzero = {source for source, advantage in expected.items() if abs(advantage) > 1e-9}
        assert given.keys() == nonzero
        for source in nonzero:
            assert given[source] == pytest.approx(expected[source], abs=1e-9)
        assert given, f"the {role} must have trained on something for this test to mean anything"


def trajectories_of(store: Store) -> list[StoredTrajectory]:
    return [store.trajectory(name) for (name,) in store.query("SELECT id FROM trajectories")]


def test_every_training_sample_has_its_tokens_in_the_store(store: Store) -> None:
    written: dict[str, StoredCompletion] = {}
    for trajectory in trajectories_of(store):
        for i, step in enumerate(trajectory.steps):
            written[f"{trajectory.id}/{i}"] = step.completion
            for j, judgement in enumerate(step.judgements):
                written[f"{trajectory.id}/{i}/{j}"] = judgement.completion
    sources = [source for (source,) in store.query("SELECT source FROM samples")]
    assert len(sources) == len(set(sources))
    for source in sources:
        assert written[source].token_ids
        assert len(written[source].token_ids) == len(written[source].logprobs)


def test_the_judgements_of_a_step_answer_one_prompt_of_its_own(store: Store) -> None:
    hashes = [
        {judgement.completion.prompt_hash for judgement in step.judgements}
        for trajectory in trajectories_of(store)
        for step in trajectory.steps
    ]
    assert all(len(each) == 1 for each in hashes)
    assert len(set[bytes]().union(*hashes)) > len(hashes) / 2


def test_sampled_responses_end_with_the_end_of_turn_token(run: Path, store: Store) -> None:
    config = json.loads((run / "checkpoints/iter-00002/policy/config.json").read_text())
    ends = []
    for trajectory in trajectories_of(store):
        for step in trajectory.steps:
            assert all(logprob <= 0 for logprob in step.completion.logprobs)
            ends.append(step.completion.token_ids[-1] == config["eos_token_id"])
    assert sum(ends) / len(ends) > 0.9


def test_accepted_candidates_satisfy_the_rule_on_recorded_rollouts(store: Store) -> None:
    curriculum = recipe_of(store).curriculum
    settled = store.query(
        "SELECT kind, iteration, task, direction, parent_accuracy, candidate_accuracy"
        " FROM slot_events WHERE kind IN ('accepted', 'rejected')"
    )
    assert settled, "no candidate was settled"
    for kind, iteration, task, direction, parent, candidate in settled:
        outcomes = [
            outcome
            for (outcome,) in store.query(
                "SELECT outcome FROM trajectories WHERE iteration = ? AND task = ?", iteration, task
            )
        ]
        assert candidate == sum(outcome == 1 for outcome in outcomes) / len(outcomes)
        low, high = curriculum.alpha_low, curriculum.alpha_high
        assert accepts(direction, parent, candidate, low, high) == (kind == "accepted")


def test_candidates_are_settled_one_iteration_after_their_proposal(store: Store) -> None:
    proposed = dict(store.query("SELECT task, iteration FROM slot_events WHERE kind = 'proposed'"))
    assert proposed
    for task, iteration in store.query(
        "SELECT task, iteration FROM slot_events WHERE kind <> 'proposed'"
    ):
        assert iteration == proposed[task] + 1


def weights(run: Path, iteration: int, role: str) -> str:
    path = run / f"checkpoints/iter-{iteration:05d}/{role}/model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_both_trained_roles_move_their_weights(run: Path) -> None:
    for role in ("policy", "judge"):
        assert weights(run, 1, role) != weights(run, 2, role)


def test_the_same_seed_gives_the_same_metrics_and_weights(run: Path, tmp_path: Path) -> None:
    # Another number of workers: scheduling must not matter either.
    again = run_tiny(tmp_path / "again", "environment.workers=1")
    for role in ("policy", "judge"):
        assert weights(again, 2, role) == weights(run, 2, role)
    first, second = Store(run / "run.sqlite"), Store(again / "run.sqlite")
    assert first.query(CONTENT["metrics"]) == second.query(CONTENT["metrics"])
    first.close()
    second.close()


class KillingProgress(Progress):
    """Kills a worker in the middle of the first rollouts."""

    run: Trainer
    killed = 0

    @contextmanager
    def phase(self, name: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        with super().phase(name, total, unit) as advance:

            def killing(count: int) -> None:
                if name == "rollouts" and not self.killed:
                    opened = self.run._session.opened
                    assert opened is not None
                    self.killed = opened.environments.process_ids[0]
                    os.kill(self.killed, signal.SIGKILL)
                advance(count)

            yield killing


def test_a_killed_worker_does_not_lose_the_iteration(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    progress = KillingProgress(Console(quiet=True))
    progress.run = Trainer(
        GUESS, overrides=[*FEW, f"run_dir={folder}", *EAGER, UNEXAMINED], progress=progress
    )
    progress.run.train()
    assert progress.killed
    for role in ("policy", "judge"):
        assert weights(folder, 2, role) == weights(run, 2, role)


def test_another_seed_gives_another_run(run: Path, tmp_path: Path) -> None:
    other = run_tiny(tmp_path / "other", "seed=1", "loop.iterations=1", UNEXAMINED)
    assert weights(other, 1, "policy") != weights(run, 1, "policy")


def test_every_metric_of_a_run_is_listed_in_the_docs(store: Store) -> None:
    assert unlisted({name for row in store.history().values() for name in row}) == set()


def test_tensorboard_holds_every_metric_of_the_store_once(run: Path, store: Store) -> None:
    stored = {
        (name, iteration): value
        for iteration, row in store.history().items()
        for name, value in row.items()
        if value is not None
    }
    found = [(name, iteration) for name, iteration, _ in points(run / "tensorboard")]
    assert len(found) == len(stored)
    assert set(found) == set(stored)


def test_the_tokens_of_the_roles_are_those_of_what_they_wrote(store: Store) -> None:
    written = {"policy": 0, "judge": 0}
    for trajectory in trajectories_of(store):
        for step in trajectory.steps:
            written["policy"] += len(step.completion.token_ids)
            written["judge"] += sum(len(each.completion.token_ids) for each in step.judgements)
    for role, tokens in written.items():
        counted = [row.get(f"{role}/completion_tokens") or 0 for row in store.history().values()]
        assert sum(counted) == tokens
