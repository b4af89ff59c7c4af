# %% [markdown]
# # 4. Your own advantage, your own loss
#
# You write the two functions that decide what a run learns: an advantage, which says how much each
# step counts, and a loss, which says how far one update may go. You check both by hand, then train.

# %%
import shutil
from pathlib import Path

import rlanything as rl
from rlanything.algorithm.advantages import AdvantageInputs
from rlanything.algorithm.losses import LossInputs, LossOutputs, with_kl

RUNS = Path("runs/notebook-4")
shutil.rmtree(RUNS, ignore_errors=True)

# %% [markdown]
# This advantage wants fast wins: the outcome, minus 0.2 for every step of the episode, compared
# with the mean of the task's episodes. It gets one task's group and returns a number for each step.


# %%
def hasty(inputs: AdvantageInputs) -> list[list[float]]:
    worth = [
        outcome - 0.2 * steps for outcome, steps in zip(inputs.outcomes, inputs.steps, strict=True)
    ]
    mean = sum(worth) / len(worth)
    return [[one - mean] * steps for one, steps in zip(worth, inputs.steps, strict=True)]


# %% [markdown]
# `rl.task_signals` computes signals without a run. Three episodes of one task: a win in one step, a
# win in three, a loss in two.

# %%
group = {"outcomes": [1, 1, -1], "scores": [[[1]], [[1], [1], [1]], [[1], [-1]]]}
feedback = rl.FeedbackSettings()
shipped = rl.task_signals(**group, settings=feedback).policy
print("step: ", [steps.round(2).tolist() for steps in shipped])
scores, weights = {"judge": group["scores"]}, {"judge": 1.0}
by_hand = hasty(AdvantageInputs(group["outcomes"], scores, weights, settings=feedback))
print("hasty:", [[round(one, 2) for one in steps] for steps in by_hand])

# %% [markdown]
# The shipped `step` compares steps at the same index, so the two wins begin alike. With `hasty` the
# fast win counts more than the slow one.
#
# The loss gets the tokens of a sample and returns one number per token. This one keeps the gradient
# of every token and bounds its weight, where the usual clipped loss drops the gradient.


# %%
def bounded(inputs: LossInputs) -> LossOutputs:
    ratio = inputs.log_ratio.exp()
    weight = ratio.clamp(max=1.2).detach()
    loss = -inputs.importance * weight * inputs.advantages * inputs.new_logprobs
    return with_kl(inputs, loss, ratio)


# %% [markdown]
# Train with the default and with both functions, from the same seed.

# %%
settings = {
    "curriculum.adapt_tasks": False,
    "loop.iterations": 6,
    "evaluation.episodes": 256,
    "evaluation.judged_episodes": 0,
}
arms = {"default": {}, "mine": {"advantage": hasty, "loss": bounded}}
for arm, parts in arms.items():
    rl.Trainer("guess", run_dir=RUNS / arm, overrides=settings, **parts).train()


def held_out(arm, iteration):
    """Success, and the mean number of tries of won episodes."""
    rows = [r for r in rl.open_run(RUNS / arm).evaluations() if r["iteration"] == iteration]
    won = [row["steps"] for row in rows if row["outcome"] == 1]
    return len(won) / len(rows), sum(won) / len(won)


results = {arm: (held_out(arm, 0), held_out(arm, 6)) for arm in arms}
for arm, ((success, tries), (later, fewer)) in results.items():
    print(f"{arm:8} won {success:.0%} -> {later:.0%}, tries in a win {tries:.2f} -> {fewer:.2f}")

# %% [markdown]
# One seed says little about which is better: `rlanything ablate` compares arms over seeds, with
# intervals ([how](../packages/rlanything-lab/README.md)).

# %%
assert by_hand[0][0] > by_hand[1][0] > 0 > by_hand[2][0]
assert all(later > success for (success, _), (later, _) in results.values())

# %% [markdown]
# Try next:
#
# - Give the functions options that a recipe can set, and register them by name:
#   [your own](../docs/losses.md#your-own).
# - `overrides={"feedback.advantage": "leave_one_out"}`: [what ships](../docs/losses.md).
