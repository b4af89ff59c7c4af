"""Several worlds as one domain: a recipe's list `domains`.

A task's id begins with the label of its world (`guess/train-3`), as do its kind and the name of a
split (`guess/in_domain`). Every question about a task goes to the domain of its world, which sees
the task as its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any

from pydantic import Field, field_validator

from rlanything.algorithm.curriculum import label_of, shares
from rlanything.config.worlds import WorldConfig
from rlanything.domains.base import (
    AgentEnvironment,
    Capabilities,
    ClosableEnvironment,
    Domain,
    DomainError,
    DomainOptions,
    Environment,
    MissingData,
    Observation,
    RewriteRequest,
    StepResult,
)
from rlanything.domains.registry import load_domain
from rlanything.domains.requests import Reply
from rlanything.records import JudgedTrajectory, Messages, Task, Trajectory


class SeveralOptions(DomainOptions):
    worlds: Annotated[tuple[WorldConfig, ...], Field(strict=False)]
    """The worlds, in the order of the recipe."""

    @field_validator("worlds")
    @classmethod
    def _several(cls, worlds: tuple[WorldConfig, ...]) -> tuple[WorldConfig, ...]:
        labels = [world.called for world in worlds]
        if len(labels) < 2:
            raise ValueError("name at least two worlds, or write the one as domain: {name: ...}")
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise ValueError(f"two worlds are called {twice}: give one of them a label")
        if not any(world.weight for world in worlds):
            raise ValueError("every weight is 0, so nothing is played: raise one")
        return worlds


def _asked(name: str) -> Any:
    """Returns a method that asks the domain of a task's world, or of a judged episode's."""

    def ask(self: Several, about: Task | JudgedTrajectory, *rest: Any) -> Any:
        world, own = self.of(about) if isinstance(about, Task) else self.judged(about)
        return getattr(world, name)(own, *rest)

    return ask


class Several(Domain):
    """Worlds that one policy plays. Their judges must give answers of the same kind, and their
    actions follow the same marker."""

    Options = SeveralOptions

    def __init__(self, **options: Any) -> None:
        """Raises `DomainError` for a world that cannot be made, or does not fit the others."""
        super().__init__(**options)
        named: dict[str, WorldConfig] = {world.called: world for world in self.options.worlds}
        self.weights = {label: world.weight for label, world in named.items()}
        """Weight of each world, by label."""
        self.worlds = {label: _made(i, world) for i, (label, world) in enumerate(named.items())}
        """The domain of each world, by label."""
        first, *others = self.worlds
        for other in others:
            _check_fit((first, self.worlds[first]), (other, self.worlds[other]))
        self.action_marker = self.worlds[first].action_marker

    @property
    def capabilities(self) -> Capabilities:
        by_world = {label: world.capabilities for label, world in self.worlds.items()}
        every = [*by_world.values()]
        sizes = [each.screen_size for each in every if each.screen_size]
        return Capabilities(
            judge=every[0].judge,
            rewrites_tasks=any(each.rewrites_tasks for each in every),
            shows_images=any(each.shows_images for each in every),
            screen_size=max(sizes, default=None),
            staged_critics=all(each.staged_critics for each in every if each.rewrites_tasks),
            repairs_programs=all(each.repairs_programs for each in every),
            offers_tools=any(each.offers_tools for each in every),
            players=tuple(dict.fromkeys(chain.from_iterable(each.players for each in every))),
            whole_splits=tuple(
                f"{label}/{split}"
                for label, abilities in by_world.items()
                for split in abilities.whole_splits
            ),
        )

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        """Returns tasks of one world for a split `world/split`, else of all worlds by weight."""
        label, slash, own = split.partition("/")
        if slash and label in self.worlds:
            return self._tasks(label, own, count, seed)
        by_world = shares(self.weights, count)
        if empty := [w for w, share in by_world.items() if self.weights[w] and not share]:
            raise DomainError(
                f"{count} tasks leave none for {empty[0]}: ask for more, or raise its weight"
            )
        # Spread evenly, so that the first tasks are a sample of all.
        spread = [
            ((i + 0.5) / share, task)
            for label, share in by_world.items()
            for i, task in enumerate(self._tasks(label, split, share, seed) if share else ())
        ]
        return [task for _, task in sorted(spread, key=lambda placed: placed[0])]

    def environment(self) -> Environment:
        return _Environment(self)

    policy_prompt = _asked("policy_prompt")
    judge_prompt = _asked("judge_prompt")
    value_prompt = _asked("value_prompt")
    critic_prompt = _asked("critic_prompt")
    step_critic_prompt = _asked("step_critic_prompt")
    staged_critic_prompt = _asked("staged_critic_prompt")
    oracle = _asked("oracle")
    expert = _asked("expert")
    run_tests = _asked("run_tests")
    test_outputs = _asked("test_outputs")
    repair_prompt = _asked("repair_prompt")

    def adapter_prompt(self, request: RewriteRequest) -> Messages:
        world, root = self.of(request.root)
        own = replace(
            request,
            slot=root.id,
            root=root,
            active=self.of(request.active)[1],
            rollouts=tuple(self.judged(member)[1] for member in request.rollouts),
        )
        return world.adapter_prompt(own)

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        world, own = self.of(root)
        label = label_of(root.id)
        parsed = world.parse_candidate(own, task_id.removeprefix(f"{label}/"), completion)
        return _in_world(label, parsed)

    def objection(self, task: Task, trajectories: Sequence[Trajectory]) -> str | None:
        world, own = self.of(task)
        return world.objection(own, [replace(t, task=self.of(t.task)[1]) for t in trajectories])

    def stand_ins(self, count: int) -> Sequence[Task]:
        """Returns the tasks of worlds whose data are here, and stand-ins of the others."""
        given: list[Task] = []
        for label, share in shares(self.weights, count).items():
            if not share:
                continue
            try:
                given += self._tasks(label, "train", share, 0)
            except MissingData:
                given += [_in_world(label, each) for each in self.worlds[label].stand_ins(share)]
        return given

    def of(self, task: Task) -> tuple[Domain, Task]:
        """Returns the domain of a task's world, and the task as that domain knows it."""
        label, _, own = task.id.partition("/")
        kind = task.kind.removeprefix(label).removeprefix("/")
        return self.worlds[label], replace(task, id=own, kind=kind)

    def judged(self, judged: JudgedTrajectory) -> tuple[Domain, JudgedTrajectory]:
        """Returns the domain of an episode's world, and the episode as that domain knows it."""
        world, own = self.of(judged.trajectory.task)
        return world, replace(judged, trajectory=replace(judged.trajectory, task=own))

    def _tasks(self, label: str, split: str, count: int, seed: int) -> list[Task]:
        """Returns tasks of a world, the same as if it were played alone."""
        try:
            given = self.worlds[label].tasks(split, count, seed)
        except DomainError as error:
            raise type(error)(f"{label}: {error}") from error
        return [_in_world(label, task) for task in given]


class _Environment:
    """Plays episodes of all worlds, each in an environment of its world, made when first needed."""

    def __init__(self, domain: Several) -> None:
        self._domain = domain
        self._made: dict[str, Environment] = {}
        self._playing = ""

    @property
    def _now(self) -> Environment:
        return self._made[self._playing]

    def reset(self, task: Task) -> Observation:
        self._playing = label = label_of(task.id)
        world, own = self._domain.of(task)
        if label not in self._made:
            self._made[label] = world.environment()
        return self._now.reset(own)

    def step(self, response: str) -> StepResult:
        return self._now.step(response)

    def take(self, reply: Reply) -> None:
        if isinstance(self._now, AgentEnvironment):
            self._now.take(reply)

    def reply(self, reply: Reply) -> StepResult:
        assert isinstance(self._now, AgentEnvironment)  # only its observations have a request
        return self._now.reply(reply)

    def close(self) -> None:
        with ExitStack() as stack:  # closes the others too if one fails to close
            for environment in self._made.values():
                if isinstance(environment, ClosableEnvironment):
                    stack.callback(environment.close)


def _made(number: int, world: WorldConfig) -> Domain:
    """Returns the domain of a world; `number`: its place in the recipe, for messages."""
    try:
        return load_domain(world.name, world.options)
    except DomainError as error:
        said = str(error)
        place = "domain.options"
        if said.startswith(place):
            said = f"domains.{number}.options{said.removeprefix(place)}"
        raise type(error)(said) from error


def _check_fit(one: tuple[str, Domain], other: tuple[str, Domain]) -> None:
    """Raises `DomainError` for two worlds that cannot share a policy and a judge."""
    (label, domain), (second, another) = one, other
    kinds, fault = {"steps": "scores steps", "tests": "writes tests of programs"}, ""
    judges = [kinds[each.capabilities.judge] for each in (domain, another)]
    if judges[0] != judges[1]:
        fault = f"the judge of {label} {judges[0]}, that of {second} {judges[1]}"
    elif domain.action_marker != another.action_marker:
        markers = f"{domain.action_marker!r} in {label} and {another.action_marker!r} in {second}"
        fault = f"actions follow {markers}"
    if fault:
        raise DomainError(f"domains: {fault}: train them in two runs")


def _in_world(label: str, task: Task) -> Task:
    """Returns a domain's own task with the label of its world."""
    kind = f"{label}/{task.kind}" if task.kind else label
    return replace(task, id=f"{label}/{task.id}", kind=kind)
