"""No policy raises its measured success above its true one by what it says,."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.guess import GUESS
from helpers.hostile import COMMANDS, TEXTS, check, measured
from rlanything.config.recipe import load_recipe
from rlanything.domains.base import Observation, StepResult
from rlanything.domains.registry import load_domain
from rlanything.domains.text import TextDomain
from rlanything.records import Step, Task


class Careless(TextDomain):
    """Somebody's domain, whose environment trusts what is said."""

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        return [Task(f"{split}-{i}", "Say the number.", data={"number": i}) for i in range(count)]

    def environment(self) -> CarelessEnvironment:
        return CarelessEnvironment()

    def expert(self, task: Task, steps: Sequence[Step]) -> str:
        return f"> {task.data['number']}"


class CarelessEnvironment:
    def reset(self, task: Task) -> Observation:
        self._number = task.data["number"]
        return Observation("?")

    def step(self, response: str) -> StepResult:
        said = int(TextDomain.action_in(response) or "")
        return StepResult(Observation("!"), str(said), True, 1 if said == self._number else -1)


def test_a_careless_environment_counts_every_episode() -> None:
    tasks = Careless().tasks("in_domain", 2 * len(TEXTS), 0)
    evaluation, truth = measured(Careless(), tasks, [f"> {text}" for text in TEXTS], 3, 2)
    check(evaluation, truth, 2 * len(tasks))


def test_the_guess_game_counts_every_episode() -> None:
    recipe = load_recipe(GUESS)
    domain = load_domain(recipe.domain.name, {})
    attacks = [*TEXTS, *(f"> {text}" for text in (*TEXTS, *COMMANDS))]
    check(*measured(domain, domain.tasks("in_domain", 8, 3), attacks, 6), 8)
