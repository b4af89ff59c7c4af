# %% [markdown]
# # 7. Two worlds in one run
#
# You train one policy on two games at once and read success for each of them.

# %%
import shutil
import sys
from pathlib import Path

import rlanything as rl

RUNS = Path("runs/notebook-7")
shutil.rmtree(RUNS, ignore_errors=True)
RUNS.mkdir(parents=True)

# %% [markdown]
# The first world is `guess`, which ships. The second is a loaded die: the number is 2 or 7, and
# there are two tries ([notebook 2](02_your_own_game.ipynb) builds it step by step). A recipe names
# worlds as `module:Class`, so this one is written to a file.

# %%
DIE = """
import random
import rlanything as rl

SIDES = tuple(str(n) for n in range(1, 9))


class Throw:
    def reset(self, task):
        self.shown, self.left = task.data["shown"], 2
        return rl.Observation("You have 2 tries.", SIDES)

    def step(self, response):
        said = Die.action_in(response) or ""
        self.left -= 1
        won = said == str(self.shown)
        hint = "Right." if won else "Higher." if said < str(self.shown) else "Lower."
        outcome = 1 if won else None if self.left else -1
        return rl.StepResult(rl.Observation(hint, SIDES), said, said in SIDES, outcome)


class Die(rl.TextDomain):
    def tasks(self, split, count, seed):
        rng = random.Random(f"{split}/{seed}")
        text = "Guess a number between 1 and 8 in 2 tries."
        throws = [{"shown": rng.choice((2, 7))} for _ in range(count)]
        return [rl.Task(f"{split}-{i}", text, data=data) for i, data in enumerate(throws)]

    def environment(self):
        return Throw()
"""
(RUNS / "loaded.py").write_text(DIE)
sys.path.insert(0, str(RUNS))

# %% [markdown]
# A recipe with a list `domains` in place of `domain`. Each world has a `weight`, its share of the
# tasks. Advantages compare episodes of one task, so worlds need no common scale. The models are
# those of `guess`; only outcomes train, because the judge does not know the die.

# %%
recipe = rl.load_recipe("guess").model_dump(mode="json", exclude_defaults=True)
recipe.pop("domain", None)
recipe |= {
    "name": "two-worlds",
    "domains": [{"name": "guess:Guess"}, {"name": "loaded:Die", "weight": 1.0}],
}
settings = {
    "feedback.policy_reward": "outcome",
    "curriculum.adapt_tasks": False,
    "loop.iterations": 8,
    "evaluation.episodes": 128,
    "evaluation.judged_episodes": 0,
}
trainer = rl.Trainer(recipe, run_dir=RUNS / "run", overrides=settings, allow_code=True)
for iteration in trainer:
    shares = [iteration.metrics[f"rollouts/success/{world}"] for world in ("guess", "die")]
    print(f"iteration {iteration.number}: guess {shares[0]:.0%}, die {shares[1]:.0%}")

# %% [markdown]
# Held-out tasks of each world, before the first iteration and after the last one:

# %%
rows = [row for row in rl.open_run(RUNS / "run").metrics() if row["iteration"] in (0, 8)]
held_out = {
    world: [row[f"evaluation/{world}/in_domain/success"] for row in rows]
    for world in ("guess", "die")
}
for world, (before, after) in held_out.items():
    print(f"{world:6} {before:.1%} -> {after:.1%}")

# %%
assert held_out["die"][1] > held_out["die"][0] + 0.2
assert held_out["guess"][1] > held_out["guess"][0]

# %% [markdown]
# Try next:
#
# - `"weight": 0` for the die: it is still evaluated, and shows whether one game helps the other.
# - [Several worlds](../docs/recipes.md#several-worlds) has the keys that a world may set.
# - [Two worlds, measured over seeds](../benchmarks/two-worlds.md): numbers and physics.
