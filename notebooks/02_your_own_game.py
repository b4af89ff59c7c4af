# %% [markdown]
# # 2. Your own game
#
# You write a game in 30 lines, check it without a model, train on it and see the policy learn
# something that no prompt says.

# %%
import random
import shutil
from pathlib import Path

import rlanything as rl

RUN = Path("runs/notebook-2")
shutil.rmtree(RUN, ignore_errors=True)

# %% [markdown]
# A loaded die with eight sides: it only ever shows 2 or 7, and the policy has two tries. An
# environment has two methods. `reset` returns the first observation, with the actions that are
# possible. `step` gets a response of the policy and returns what follows, whether the action was
# valid, and the outcome (1 or -1) once the episode is over.

# %%
SIDES = tuple(str(n) for n in range(1, 9))


class Throw:
    def reset(self, task):
        self.shown, self.left = task.data["shown"], task.data["tries"]
        return rl.Observation(f"You have {self.left} tries.", SIDES)

    def step(self, response):
        said = Die.action_in(response) or ""  # the text after the last `>`
        self.left -= 1
        won = said == str(self.shown)
        hint = "Right." if won else "Higher." if said < str(self.shown) else "Lower."
        outcome = 1 if won else None if self.left else -1
        return rl.StepResult(rl.Observation(hint, SIDES), said, said in SIDES, outcome)


class Die(rl.TextDomain):
    def tasks(self, split, count, seed):
        rng = random.Random(f"{split}/{seed}")
        text = "Guess a number between 1 and 8 in 2 tries."
        throws = [{"shown": rng.choice((2, 7)), "tries": 2} for _ in range(count)]
        return [rl.Task(f"{split}-{i}", text, data=data) for i, data in enumerate(throws)]

    def environment(self):
        return Throw()


# %% [markdown]
# Play one episode by hand first. An error in a game is easier to see here than in a run.

# %%
game = Die().environment()
task = rl.Task("by-hand", "Guess.", data={"shown": 7, "tries": 2})
print(game.reset(task).text, game.step("low first > 2").observation.text, game.step("> 7").outcome)

# %% [markdown]
# A policy must win now and then, or there is nothing to learn from. The shipped `nano-guess` knows
# these words from another game, so it can begin. For words of your own, `expert` and `oracle` in
# the class are enough for `rlanything nano build`, which teaches tiny models
# ([how](../packages/rlanything-nano/README.md)). The shipped judge does not know this game, so only
# outcomes train here, and tasks stay as they are.

# %%
trainer = rl.Trainer(
    "guess",
    domain=Die(),
    judge=rl.FunctionJudge(lambda trajectory, i: 1 if trajectory.steps[i].valid else -1),
    run_dir=RUN,
    overrides={
        "feedback.policy_reward": "outcome",
        "curriculum.adapt_tasks": False,
        "loop.iterations": 8,
        "evaluation.episodes": 128,
        "evaluation.judged_episodes": 0,
    },
)
before = trainer.evaluate("in_domain", episodes=128, seed=7)
for iteration in trainer:
    print(f"iteration {iteration.number}: {iteration.metrics['rollouts/success']:.0%} won")
after = trainer.evaluate("in_domain", episodes=128, seed=7)
print("before:", before)
print("after: ", after)

# %% [markdown]
# What was learned: the first guess is 2, 7 or a number between them, whose hint tells which of the
# two it is; the second guess is then hardly ever a number that the die does not show.

# %%
run = rl.open_run(RUN)
for number in (1, 8):
    episodes = run.trajectories(iteration=number)
    for which in (0, 1):
        said = [t.steps[which].action for t in episodes if len(t.steps) > which]
        shares = (f"{side}: {said.count(side) / len(said):.0%}" for side in SIDES)
        print(f"iteration {number}, guess {which + 1}: ", *shares)

# %%
assert after.success.low > before.success.high, "the intervals do not overlap"

# %% [markdown]
# Try next:
#
# - Give the game `parse_candidate`, so that the adapter may rewrite its tasks
#   ([a domain of your own](../docs/domains.md) has every method).
# - `rlanything new environment my-game` writes a package with such a game, a recipe and a test.
# - Does your game exist in another library? [It may need no
#   class](../packages/rlanything-gyms/README.md).
