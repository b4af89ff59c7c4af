"""The run directory of a served policy, as its command opens it, and updates from episodes.

It is like a run's, with a recipe, a store and a checkpoint for each update, so every command that
reads the policy of a run also reads this one. `conversations.jsonl` is its journal.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.config.yaml import typed
from rlanything.domains.base import Episode
from rlanything.domains.registry import load_domain
from rlanything.progress import Progress
from rlanything.records import Completion, Task
from rlanything.roles.adapter import NullAdapter
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.judges.panel import JudgePanel
from rlanything.rollout.groups import RolloutGroup, ScheduledTask
from rlanything.runs.build import RunComponents, build_components
from rlanything.runs.checkpoint import begin_checkpoint, prune
from rlanything.runs.directory import MAY_CHANGE, create_run, day_begun, now, run_lock
from rlanything.runs.parts import Parts
from rlanything.runs.paths import CHECKPOINTS, RECIPE, STORE, run_path
from rlanything.runs.recovery import last_position
from rlanything.runs.store.store import Store
from rlanything.runs.target import RecipeTarget, RunTarget, find_target
from rlanything.seeds import derive
from rlanything_agent.serving.episodes import Update

JOURNAL = "conversations.jsonl"
BEGUN_FROM = "policy_served_from"
"""The fact in the store that names the policy with which a directory began."""
BY_BATCH = (
    "feedback.advantage=leave_one_out",
    "feedback.policy_window=[0, 1]",
    "feedback.judge_window=[0, 1]",
)
"""Settings that need no several rollouts of a task: an update compares all of its episodes."""
EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class PolicySource:
    """The name of a policy, and how it is to learn."""

    name: str
    """A run directory, or a recipe."""
    overrides: Sequence[str] = ()
    allow_code: bool = False
    judged_alone: bool = False
    """Whether episodes have no outcomes, so that only judges score them."""

    @property
    def target(self) -> RunTarget | RecipeTarget:
        """Raises `RecipeError` for a name of something else."""
        target = find_target(self.name)
        if not isinstance(target, RunTarget | RecipeTarget):
            raise RecipeError(f"{self.name} is no run and no recipe: name one whose policy learns")
        return target

    def recipe(self, directory: Path | None) -> Recipe:
        """Returns the recipe by which the policy is served, and learns in `directory` (None: it
        does not learn). Raises `RecipeError`."""
        target = self.target
        if directory is None:
            return target.recipe(self.overrides, self.allow_code)
        learns = [*BY_BATCH, "curriculum.adapt_tasks=false"]
        if self.judged_alone:
            learns.append("feedback.policy_reward=judge")
        recipe = target.recipe([*learns, *self.overrides], self.allow_code)
        if self.judged_alone and recipe.feedback.policy_reward != "judge":
            raise RecipeError(
                "feedback.policy_reward: with --idle-seconds there are no outcomes, and judges "
                "alone score the policy; leave it out"
            )
        return recipe.model_copy(update={"run_dir": directory})


class LearningPolicy:
    """A policy with its judges and learners, which an update trains in turn."""

    def __init__(self, recipe: Recipe, components: RunComponents, directory: Path | None) -> None:
        """`directory`: where its updates are kept; None: it does not learn."""
        self.recipe = recipe
        policy = recipe.policy  # a learner elsewhere generates too, with caches of its own
        self.exact = policy.engine.name == EMBEDDED and policy.learner is None
        self._components = components
        self._directory = directory
        self._judges = components.judges if recipe.reads_scores else JudgePanel({})

    @property
    def reads_calls(self) -> bool:
        """Whether the calls of functions that its model writes can be read."""
        chat_model = self._components.chat_models[self.recipe.acting]
        return not (isinstance(chat_model, LocalChatModel) and chat_model.unknown_calls)

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        return self._components.train_policy.respond(episodes, seeds)

    def release_cache(self) -> None:
        self._components.train_policy.release_cache()

    def update(self, update: Update) -> str:
        """Judges the episodes, trains on them as one group, and writes a checkpoint; depends on
        nothing but the weights, the episodes and the number of the update. Raises
        `CheckpointError`, and what judges and learners raise."""
        assert self._directory is not None
        components, recipe, number = self._components, self.recipe, update.number
        for engine in components.engines:  # caches of a restarted process are empty, too
            engine.sync_weights()
        trajectories = [episode.trajectory() for episode in update.episodes]
        seeds = {name: derive(recipe.seed, number, name) for name in self._judges.judges}
        judged = self._judges.judge(trajectories, seeds)
        signals = self._judges.signals(judged, recipe.feedback)
        scheduled = ScheduledTask("served", Task("served", ""), candidate=False)
        group = RolloutGroup(scheduled, tuple(judged), signals.accuracy, signals)
        seed, trained = derive(recipe.seed, number, "minibatches"), 0
        ended = all(episode.outcome is not None for episode in update.episodes)
        for role, model in components.trained_models.items():
            if not ended and role != recipe.acting:  # without outcomes, nothing teaches a judge
                continue
            samples = [
                (sample.source.partition("/")[0], sample)
                for sample in group.samples(role, recipe.acting)
            ]
            model.learner.update(samples, seed)
            trained += len(samples)
        for engine in components.engines:
            engine.sync_weights()
        self.save(self._directory, number)
        kept = recipe.checkpoints
        prune(run_path(self._directory, CHECKPOINTS), kept.keep, kept.every)
        won = sum(episode.outcome == 1 for episode in update.episodes)
        said = f" ({won} won)" if ended else ""
        return (
            f"version {number}: trained on {trained} answers and judgements of "
            f"{len(trajectories)} episodes{said}"
        )

    def save(self, directory: Path, number: int) -> None:
        """Writes the checkpoint of an update."""
        folder = run_path(directory, CHECKPOINTS)
        begin_checkpoint(folder, number, self._components.trained_models, None)()


@contextmanager
def open_policy(
    source: PolicySource, out: Path | None, replay: Path | None, progress: Progress
) -> Iterator[tuple[LearningPolicy, int]]:
    """Yields a policy and the number of its updates. It learns if `out` names its directory, which
    is created if it does not exist, and locked. `replay`: another such directory, with whose
    conversations a new one begins.

    Raises `RecipeError` for a policy that cannot learn or go on there, `LockedError` if another
    process serves it, and the errors of models and domains."""
    if out is not None and out.exists():
        if replay is not None:
            raise RecipeError(f"--replay: {out} exists already; name a new directory with --out")
        if (begun_from := policy_served_from(out)) is None:
            raise RecipeError(f"--out: {out} exists and is no served policy; name a new directory")
        with run_lock(out):  # before it is read: another process may be about to write
            yield from _going_on(source, begun_from, out, progress)
        return
    recipe, target = source.recipe(out), source.target
    if out is not None:
        _check_learns(source, recipe)
    weights = target.checkpoint(progress) if isinstance(target, RunTarget) else None
    begun = now() if replay is None else day_begun(replay).isoformat()
    with _opened(recipe, weights, out, datetime.fromisoformat(begun)) as policy:
        if out is None:
            yield policy, 0
            return
        _create(out, source, recipe, policy, begun, replay)
        with run_lock(out):
            yield policy, 0


def _create(
    out: Path,
    source: PolicySource,
    recipe: Recipe,
    policy: LearningPolicy,
    begun: str,
    replay: Path | None,
) -> None:
    """Creates the directory with the first checkpoint: all of it appears at once, or nothing."""
    partial = out.with_name(f".{out.name}.{secrets.token_hex(4)}.partial")
    try:
        create_run(partial, recipe, begun)
        with closing(Store(partial / STORE)) as store:
            store.describe({BEGUN_FROM: source.name})
        policy.save(partial, 0)
        if replay is not None:
            shutil.copyfile(run_path(replay, JOURNAL), partial / JOURNAL)
        try:
            partial.rename(out)
        except OSError as error:
            raise RecipeError(f"--out: {out} cannot be made ({error.strerror})") from None
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _going_on(
    source: PolicySource, begun_from: str, out: Path, progress: Progress
) -> Iterator[tuple[LearningPolicy, int]]:
    recipe = _kept_recipe(source, begun_from, out)
    position = last_position(out, progress.log)
    if position.checkpoint is None:
        raise RecipeError(
            f"{out} has no intact checkpoint of its policy: restore one from a copy, or serve "
            f"{source.name} with another --out"
        )
    with _opened(recipe, position.checkpoint, out, day_begun(out)) as policy:
        yield policy, position.iteration


@contextmanager
def _opened(
    recipe: Recipe, weights: Path | None, out: Path | None, day: datetime
) -> Iterator[LearningPolicy]:
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    if out is not None and recipe.reads_scores and domain.capabilities.judge == "tests":
        raise RecipeError(
            f"--learn: judges of {recipe.domain.name} write tests for programs and score no "
            "conversations; let outcomes alone train, with feedback.policy_reward=outcome and "
            "judge.train=false"
        )
    components = build_components(recipe, domain, weights, Parts(adapter=NullAdapter()), day)
    try:
        if weights is not None:
            for role, trained in components.trained_models.items():
                trained.load_state(weights / role)
        yield LearningPolicy(recipe, components, out)
    finally:
        components.models.close()


def _check_learns(source: PolicySource, recipe: Recipe) -> None:
    if recipe.acting not in recipe.trained_roles:
        raise RecipeError(
            f"--learn: the policy of {source.name} does not learn (policy.train=false or a "
            "learning rate of 0); serve it without --learn, or name another"
        )
    if recipe.reads_scores and recipe.feedback.policy_lambda_control == "adaptive":
        raise RecipeError(
            "feedback.policy_lambda_control: adaptive lambda is measured over many tasks, and an "
            "update of a served policy has one group: set feedback.policy_lambda_control=fixed"
        )


def policy_served_from(directory: Path) -> str | None:
    """Returns the policy with which a directory began; None if it is no served policy's. Raises
    `StoreError`."""
    if not all((directory / name).is_file() for name in (RECIPE, STORE)):
        return None
    with closing(Store(directory / STORE)) as store:
        return store.fact(BEGUN_FROM)


def _kept_recipe(source: PolicySource, begun_from: str, out: Path) -> Recipe:
    """Returns the recipe of a directory that goes on. Raises `RecipeError` if the command that
    began it was another one."""
    kept = load_recipe(out / RECIPE, allow_code=source.allow_code)
    if source.judged_alone and kept.feedback.policy_reward != "judge":
        raise RecipeError(f"--idle-seconds: {out} learns from outcomes; leave it out")
    if source.name == str(out):
        if source.overrides:
            raise RecipeError(f"{source.overrides[0]}: {out} goes on as it is; leave it out")
        return kept
    if begun_from != source.name:
        raise RecipeError(
            f"--out: {out} was begun from {begun_from}: go on with that, or name a new directory"
        )
    wanted, was = source.recipe(out).model_dump(mode="json"), kept.model_dump(mode="json")
    free = {name.partition(".")[0] for name in MAY_CHANGE} - {"loop"}
    other = next((key for key in was if key not in free and was[key] != wanted.get(key)), None)
    if other is not None:
        raise RecipeError(
            f"--out: {out} was begun with other settings of `{other}` (see {typed(out / RECIPE)}); "
            "go on with the command that began it, or name a new directory"
        )
    return kept
