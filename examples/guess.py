"""Bring your own domain: guess a number between 1 and 8 in four tries.

rlanything train guess                        # under a minute, with tiny models that ship
rlanything nano build --domain guess:Guess    # builds such models, in models/guess
"""

import random

from rlanything.domains.base import DomainError, InvalidTask, Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.records import Task

SPLITS = ("train", "tune", "in_domain", "ood")
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


def left_after(steps):
    left = NUMBERS
    for step in steps:
        if step.next_observation == "Higher.":
            left = [n for n in left if int(n) > int(step.action)]
        if step.next_observation == "Lower.":
            left = [n for n in left if int(n) < int(step.action)]
    return left


class Guess(TextDomain):
    def tasks(self, split, count, seed):
        if split not in SPLITS:
            raise DomainError(f"no split {split!r}: use one of {', '.join(SPLITS)}")
        rng = random.Random(f"{split}/{seed}")
        return [self.task(f"{split}-{i}", rng.randint(1, 8), 4) for i in range(count)]

    def task(self, task_id, secret, tries):
        instruction = f"Guess a number between 1 and 8 in {tries} tries."
        return Task(task_id, instruction, data={"secret": secret, "tries": tries})

    def environment(self):
        return GuessEnvironment()

    def parse_candidate(self, root, task_id, completion):
        tries = next((int(c) for c in completion if c in "23456"), None)
        if tries in (None, root.data["tries"]):
            raise InvalidTask("no other number of tries between 2 and 6 in the answer")
        return self.task(task_id, root.data["secret"], tries)

    # From here on: what models of its own are taught from.
    def expert(self, task, steps):  # the middle of what is left
        left = left_after(steps)
        return f"{left[0]} to {left[-1]} > {left[len(left) // 2]}"

    def oracle(self, task, steps):  # a good guess is one that may still be right
        return [1 if s.action in left_after(steps[:i]) else -1 for i, s in enumerate(steps)]

    def rewrites(self, root, direction):
        return [f"{n} tries" for n in ((2, 3) if direction == "harder" else (5, 6))]
