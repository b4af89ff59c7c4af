"""Teaches the nano models of AlfWorld before the loop begins: examples for the three roles.

The teacher is deliberately imperfect: it explores without knowing the places of things, and it
makes mistakes, so that reinforcement learning has something to improve.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from rlanything.domains.base import Episode
from rlanything.records import Direction, Step, Task
from rlanything_alfworld import assets
from rlanything_alfworld.commands import ACTION_MARKER
from rlanything_alfworld.expert import Subgoal, next_subgoal, plan
from rlanything_alfworld.game import Game
from rlanything_alfworld.goal import Goal
from rlanything_alfworld.player_memory import PlayerMemory
from rlanything_alfworld.scene_goals import scene_inventory
from rlanything_alfworld.tasks import candidate_goals, load_game
from rlanything_alfworld.world import World
from rlanything_nano.teaching import Demonstrator, StepPlan


class AlfWorldDemonstrator(Demonstrator):
    """Plays like a person who knows the rules but not the room. With probability `slip` it takes a
    random possible action."""

    def __init__(self, slip: float, first_of_kind: bool = False) -> None:
        """`first_of_kind`: whether it explores the first unseen place of some kind, as
        `PlayerMemory` names them, instead of any unseen place."""
        super().__init__(slip)
        self._first_of_kind = first_of_kind
        self._worlds: dict[str, tuple[Game, World, int]] = {}

    def release_cache(self) -> None:
        self._worlds = {}

    def answer(self, episode: Episode, rng: random.Random) -> str:
        game, world = self._follow(episode)
        choices = episode.observation.choices or ()
        subgoal = next_subgoal(world, game.goal)
        action = _pursue(episode, game, world, subgoal, self._first_of_kind, rng)
        if rng.random() < self._slip or action not in choices:
            action = rng.choice(choices)
        return f"{subgoal.text()} {ACTION_MARKER} {action}"

    def _follow(self, episode: Episode) -> tuple[Game, World]:
        """Returns the game of an episode and its hidden state, kept up to date with the steps."""
        if not episode.steps:
            game = load_game(episode.task.data)
            self._worlds[episode.id] = (game, game.world(), 0)
        game, world, played = self._worlds[episode.id]
        for step in episode.steps[played:]:
            if step.valid and step.action is not None:
                world.play(step.action)
        self._worlds[episode.id] = (game, world, len(episode.steps))
        return game, world


def _pursue(
    episode: Episode,
    game: Game,
    world: World,
    subgoal: Subgoal,
    first_of_kind: bool,
    rng: random.Random,
) -> str:
    """Returns a command for the subgoal; empty if there is none."""
    if subgoal.verb == "stuck":
        return ""
    if subgoal.verb == "find":
        memory = knowledge(
            episode.task.instruction, episode.steps, episode.observation.text, first_of_kind
        )
        if memory.at in memory.closed:
            return f"open {memory.at}"
        if memory.unseen:
            return f"go to {rng.choice(memory.unseen)}"
    if subgoal.verb == "take":
        known = [
            (name, place)
            for name, place in sorted(world.inside)
            if name in world.seen and world.setting.objects[name] == subgoal.object
        ]
        targets = world.setting.receptacles_of(game.goal.receptacle.lower())
        needed = [each for each in known if game.goal.count == 1 or each[1] not in targets]
        if needed:
            name, place = min(needed, key=lambda item: not world.here(item[1]))
            if not world.here(place):
                return f"go to {place}"
            return f"take {name} from {place}" if world.accessible(place) else f"open {place}"
    return plan(world, game.goal)[0]


def knowledge(
    task: str, steps: Sequence[Step], observation: str, first_of_kind: bool = False
) -> PlayerMemory:
    """Returns the agent's knowledge after some steps."""
    first = steps[0].observation if steps else observation
    memory = PlayerMemory.at_start(task, first, first_of_kind)
    for step in steps:
        memory.read(step.next_observation)
    return memory


def describe_step(task: Task, steps: Sequence[Step]) -> str:
    """Returns the last step in a judge's words: the subgoal, as far as it could be known, and what
    was done instead, such as `find mug: a known place.` It does not say whether that was good."""
    world, aim = _after(task, steps[:-1])
    return f"{aim.text()}: {_deed(world, aim, steps[-1])}"


def describe_state(task: Task, steps: Sequence[Step]) -> str:
    """Returns the state after the steps in the words of a judge of value: the next subgoal, such as
    `find mug.`, or `done.`"""
    _, aim = _after(task, steps)
    return f"{aim.text() or 'done'}."


def _after(task: Task, steps: Sequence[Step]) -> tuple[World, Subgoal]:
    """Returns the world after the steps, and the next subgoal there, as far as it is known."""
    game = load_game(task.data)
    world = game.world()
    for step in steps:
        if step.valid and step.action is not None:
            world.play(step.action)
    return world, next_subgoal(world, game.goal)


def _deed(world: World, aim: Subgoal, step: Step) -> str:
    if step.action is None:
        return "no action."
    if not step.valid:
        return "nothing happens."
    verb, _, rest = step.action.partition(" ")
    if verb in ("go", "open"):
        place = rest.removeprefix("to ")
        if aim.verb == "find":
            known = world.visited if verb == "go" else world.opened_before
            return "a known place." if place in known else "a new place."
        return "the right place." if _serves(world, aim, place) else "a wrong place."
    if put := world.wording.put_in(step.action):
        right = aim.verb == "drop" or (aim.verb == "bring" and _serves(world, aim, put[1]))
        return "the right place." if right else "a wrong place."
    if verb != aim.verb:
        return "not now."
    kind = world.setting.objects.get(re.split(" from | with ", rest)[0])
    return "the right thing." if kind in (aim.object, aim.receptacle) else "a wrong thing."


def _serves(world: World, aim: Subgoal, place: str) -> bool:
    """Returns whether a place serves the next subgoal, given what was shown."""
    if aim.receptacle and world.setting.receptacles.get(place) == aim.receptacle:
        return True
    wanted = {"take": aim.object, "use": aim.object}.get(aim.verb)
    return any(
        inside == place and name in world.seen and world.setting.objects[name] == wanted
        for name, inside in world.inside
    )


def explain_failure(task: str, steps: Sequence[Step], rejected: Sequence[int]) -> str:
    """Returns two short sentences on why an episode failed."""
    end = knowledge(task, steps, steps[0].observation)
    held = end.holds if end.holds is not None and end.wanted(end.holds) else None
    seen = [name for names in end.contents.values() for name in names if end.wanted(name)]
    if held is not None:
        cause = f"The {held.rsplit(' ', 1)[0]} was found but not used as asked."
    elif seen:
        cause = f"The {seen[0].rsplit(' ', 1)[0]} was seen but not brought to its place."
    else:
        cause = "What is wanted was never found."
    wasted = len(rejected) * 3 >= len(steps)
    return f"{cause} {'Many steps were wasted.' if wasted else 'The room was too large.'}"


def propose_goal(root: Task, direction: Direction, rng: random.Random) -> str | None:
    """Returns a good answer to the adapter's prompt: a goal of the wanted difficulty, or None if
    there is none.

    Difficulty is the length of the expert's plan plus the number of places that may have to be
    searched first."""
    game = load_game(root.data)
    world = game.world()
    inventory = scene_inventory(game)

    def difficulty(goal: Goal) -> float:
        homes = inventory.objects.get(goal.object.lower(), ())
        return len(plan(world, goal)) + len(world.setting.receptacles) / max(len(homes), 1)

    here = difficulty(game.goal)
    fitting = [
        goal
        for goal in candidate_goals(root)
        if (difficulty(goal) > here if direction == "harder" else difficulty(goal) < here)
    ]
    if not fitting:
        return None
    fitting.sort(key=difficulty, reverse=direction == "harder")
    goal = rng.choice(fitting[: max(1, len(fitting) // 2)])
    return f"object: {goal.object.lower()} place: {goal.receptacle.lower()}"


class AlfWorldTeacher:
    """The teacher of AlfWorld's nano models (a `StepTeacher`)."""

    plan = StepPlan(options={"receptacles": [4, 7], "objects": [5, 9]})
    first_of_kind = False
    """The domain's option of that name."""

    def demonstrator(self, slip: float) -> AlfWorldDemonstrator:
        return AlfWorldDemonstrator(slip, self.first_of_kind)

    def interchangeable(self) -> list[list[str]]:
        """Returns the objects that can be carried. Places keep their names: the possible actions
        there depend on them."""
        return [sorted(kind.lower() for kind in assets.pickable_types())]

    def judgement(self, task: Task, steps: Sequence[Step], score: int) -> str:
        return f"{describe_step(task, steps)} \\boxed{{{score}}}"

    def valuation(self, task: Task, steps: Sequence[Step], grade: int) -> str:
        return f"{describe_state(task, steps)} \\boxed{{{grade}}}"

    def critic(self, task: Task, steps: Sequence[Step], rejected: Sequence[int]) -> str:
        return explain_failure(task.instruction, steps, rejected)

    def proposal(self, root: Task, direction: Direction, rng: random.Random) -> str | None:
        return propose_goal(root, direction, rng)


class PublishedTeacher(AlfWorldTeacher):
    """The teacher of nano models for the published games."""

    plan = StepPlan(
        max_steps=50,
        games=3230,
        demonstrations_per_game=1,
        slip=0.2,
        pack_tokens=4096,
        judged_games=300,
        judged_slip=0.5,
        label_noise=0.1,
        judge_epochs=3,
        adapter_games=3230,
        episodes=240,
    )
    first_of_kind = True
