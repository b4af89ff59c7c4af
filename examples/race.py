"""Two roles that act: each guesses a number of its own, in turns, and fewer guesses win.

rlanything train examples/race.yaml --allow-code     # both learn, from tiny models that ship
"""

from typing import Any

from guess import NUMBERS, Guess

from rlanything.domains.base import Capabilities, Observation, StepResult
from rlanything.domains.text import TextDomain

FIRST, RIVAL = "", "rival"  # the recipe's first role that acts, and the second by its name


class RaceEnvironment:
    def reset(self, task):
        self.secret = {FIRST: task.data["secret"], RIVAL: 9 - task.data["secret"]}
        self.left = dict.fromkeys(self.secret, task.data["tries"])
        self.hint = {player: f"You have {left} tries." for player, left in self.left.items()}
        self.found, self.player = {}, FIRST
        return self.shown()

    def shown(self):
        return Observation(self.hint[self.player], NUMBERS, player=self.player)

    def step(self, response):
        player, action = self.player, TextDomain.action_in(response)
        valid = action in NUMBERS
        self.left[player] -= 1
        if valid and int(action) == self.secret[player]:
            self.found[player] = -self.left[player]
        elif valid:
            self.hint[player] = "Higher." if int(action) < self.secret[player] else "Lower."
        else:
            self.hint[player] = "Say a number."
        other = RIVAL if player == FIRST else FIRST
        playing = [p for p in (other, player) if self.left[p] and p not in self.found]
        if playing:
            self.player = playing[0]
            return StepResult(self.shown(), action, valid)
        best = min(self.found.values(), default=None)
        won = {p: 1 if p in self.found and self.found[p] == best else -1 for p in self.secret}
        over = Observation("The race is over.")
        return StepResult(over, action, valid, won[FIRST], others={RIVAL: won[RIVAL]})


class Race(Guess):
    """Guess with a rival: its prompts are asked for each player, about that player's own steps."""

    @property
    def capabilities(self):
        return Capabilities(rewrites_tasks=True, players=(RIVAL,))

    def environment(self) -> Any:
        return RaceEnvironment()
