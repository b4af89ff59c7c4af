# %% [markdown]
# # 3. Your own judge
#
# You write two judges as functions, one that reads the game and one that does not, and measure
# which of them is worth listening to before you train with it.

# %%
import shutil
from pathlib import Path

import rlanything as rl

RUNS = Path("runs/notebook-3")
shutil.rmtree(RUNS, ignore_errors=True)

# %% [markdown]
# A judge scores step `i` of an episode: 1 for a good step, -1 for a bad one, 0 if it has no
# verdict. It may add the reason, which the report shows. The first judge checks that a guess fits
# the hints so far. The second one likes low numbers.


# %%
def fits(trajectory, i):
    low, high = 1, 8
    for step in trajectory.steps[:i]:
        if step.next_observation == "Higher.":
            low = max(low, int(step.action) + 1)
        if step.next_observation == "Lower.":
            high = min(high, int(step.action) - 1)
    guess = trajectory.steps[i].action
    if guess is None:
        return 0, "no guess"
    return (1 if low <= int(guess) <= high else -1), f"{low} to {high} is possible"


def likes_low(trajectory, i):
    guess = trajectory.steps[i].action
    return (1, "low") if guess and int(guess) < 5 else (-1, "not low")


# %% [markdown]
# Both score the same kind of rollouts, one iteration each, with a policy that stays as it is.

# %%
frozen = {
    "policy.learning_rate": 0,
    "curriculum.adapt_tasks": False,
    "loop.iterations": 1,
    "loop.tasks_per_iteration": 32,
    "evaluation.episodes": 0,
}


def measured(judge):
    run_dir = RUNS / judge.__name__
    trainer = rl.Trainer("guess", judge=rl.FunctionJudge(judge), run_dir=run_dir, overrides=frozen)
    return next(iter(trainer)).metrics


measures = {judge.__name__: measured(judge) for judge in (fits, likes_low)}
for name, metrics in measures.items():
    print(
        f"{name:10} mu {metrics['judge/mu']:.2f},",
        f"Outcome Acc {metrics['judge/outcome_accuracy']:.0%},",
        f"balanced Process Acc {metrics['judge/balanced_process_accuracy']:.0%}",
    )

# %% [markdown]
# - **mu** is the share of good verdicts on steps of won episodes plus the share of bad ones on
#   steps of lost episodes. At 1 a judge knows nothing; below 1 it misleads.
# - **Outcome Acc** compares each score with how the episode ended. A good step of a lost game
#   counts against the judge, so even a perfect judge stays below 100%.
# - **Process Acc** compares with the game's own labels (`oracle`), which most games do not have.
#   Chance is 50%.
#
# Only the first judge is worth training with. A judge of yours is an object here; in a recipe it is
# `judge: {name: "my_judge:fits"}` ([plug-ins](../docs/plugins.md#judges)).

# %%
trainer = rl.Trainer(
    "guess",
    judge=rl.FunctionJudge(fits),
    run_dir=RUNS / "train",
    overrides={"loop.iterations": 6, "curriculum.adapt_tasks": False, "evaluation.episodes": 0},
)
before = trainer.evaluate("in_domain", episodes=256, seed=7)
trainer.train()
after = trainer.evaluate("in_domain", episodes=256, seed=7)
print("before:", before)
print("after: ", after)

# %%
assert measures["fits"]["judge/mu"] > 1.1 > measures["likes_low"]["judge/mu"]
assert measures["fits"]["judge/balanced_process_accuracy"] > 0.95
assert after.success.estimate > before.success.estimate

# %% [markdown]
# Try next:
#
# - Train with `likes_low`, and watch the warning about `mu`.
# - Let the rule score next to the judge that learns, with a weight: `roles` in
#   [plug-ins](../docs/plugins.md#judges).
# - [A judge that learns](../docs/concepts/judge.md) is what the paper is about.
