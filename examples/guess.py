"""Bring your own domain: guess a number between 1 and 8 in four tries.

rlanything train examples/guess.yaml
"""

import random

from rlanything.domains.base import InvalidTask, Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.records import Task

NUMBERS = tuple(str(n) for n in range(1, 9))


class GuessEnvironment:
    def reset(self, task):
        self.secret, self.left = task.data["secret"], task.data["tries"]
        return Observation(f"You have {self.left} tries.", NUMBERS)

    def step(self, response):
        action = TextDomain.action_in(response)
        self.left -= 1
        if action not in NUMBERS:
            return StepResult(Observation("Say a number.", NUMBERS), action, False, self.lost())
        if int(action) == self.secret:
            return StepResult(Observation("Right.", NUMBERS), action, True, 1)
        hint = "Higher." if int(action) < self.secret else "Lower."
        return StepResult(Observation(hint, NUMBERS), action, True, self.lost())

    def lost(self):
        return None if self.left else -1


class Guess(TextDomain):
    def tasks(self, split, count, seed):
        rng = random.Random(f"{split}/{seed}")
        return [self.task(f"{split}-{i}", rng.randint(1, 8), 4) for i in range(count)]

    def task(self, task_id, secret, tries):
        instruction = f"Guess a number between 1 and 8 in {tries} tries."
        return Task(task_id, instruction, data={"secret": secret, "tries": tries})

    def environment(self):
        return GuessEnvironment()

    def parse_candidate(self, root, task_id, completion):
        digits = [c for c in completion if c in "23456"]
        if not digits:
            raise InvalidTask("no number of tries between 2 and 6 in the answer")
        return self.task(task_id, root.data["secret"], int(digits[0]))
