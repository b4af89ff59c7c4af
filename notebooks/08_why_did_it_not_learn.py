# %% [markdown]
# # 8. Why did it not learn?
#
# A run with three faults. You find them with the tools of the library, one after another: warnings,
# the run's numbers, and replays. The replays need `pip install packages/rlanything-lab`.

# %%
import shutil
import warnings
from pathlib import Path
from statistics import mean

import rlanything as rl
from rlanything.progress import RunWarning

RUNS = Path("runs/notebook-8")
shutil.rmtree(RUNS, ignore_errors=True)


def run(name, iterations, **overrides):
    """Trains, prints what the run warns of, and returns the run."""
    settings = {"loop.iterations": iterations, "curriculum.adapt_tasks": False}
    settings |= {"evaluation.episodes": 128, "evaluation.judged_episodes": 0}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lines = rl.Trainer("guess", run_dir=RUNS / name, overrides=settings | overrides).train()
    for warning in caught:
        if issubclass(warning.category, RunWarning):
            print("-", warning.message)
    print(lines[0])
    return rl.open_run(RUNS / name)


# %% [markdown]
# ## The broken run
#
# Somebody saved tokens, asked for tasks that are won half of the time, and was careful with the
# learning rate.

# %%
broken = {
    "judge.max_tokens": 8,
    "feedback.policy_window": [0.49, 0.51],
    "policy.learning_rate": 0.0,
}
first = run("broken", 3, **broken)

# %% [markdown]
# ## 1. Warnings
#
# Each warning names a measurement and ends with what to try. The report and the closing lines
# repeat them. Start with the judge: its answers end before the score. With longer answers:

# %%
del broken["judge.max_tokens"]
second = run("longer-answers", 3, **broken)

# %% [markdown]
# ## 2. The run's numbers
#
# The judge is repaired, and still nothing improves. Follow the signal from the rollouts to the
# weights: how many tasks are in the policy's window, how many steps have an advantage, how far the
# update moved the policy.

# %%
NAMES = ("rollouts/success", "policy/window_share", "policy/trained_share", "policy/kl")


def numbers(finished):
    rows = [row for row in finished.metrics() if row["iteration"] > 0]
    for name in NAMES:
        print(f"{name:22}", *(f"{row.get(name) or 0:8.4f}" for row in rows))
    return {name: mean(row.get(name) or 0 for row in rows) for name in NAMES}


narrow = numbers(second)

# %% [markdown]
# Few steps train: of eight episodes exactly four must be won. And those that do train move nothing:
# the KL is 0. Open the window first.

# %%
del broken["feedback.policy_window"]
open_window = numbers(run("open-window", 3, **broken))

# %% [markdown]
# ## 3. Replays
#
# Many steps train now, and the KL is still 0. Before blaming the learning rate, ask whether there
# is anything to learn. The judge `replays` measures it: the policy plays on several times from
# before and after each step, and the difference of success is what the step was worth.

# %%
replays = {"judge.name": "replays", "judge.options": {"replays": 8, "max_steps": 6}}
measured = run("replays", 1, **broken, **replays)
worth = []
for trajectory in measured.trajectories():
    for step in trajectory.steps:
        before, after = (float(word) for word in step.judgements[0].completion.text.split()[1::2])
        worth.append(after - before)
print(f"{len(worth)} steps: mean size of what a step changes {mean(map(abs, worth)):.0%}")

# %% [markdown]
# Steps change the chance of winning, so there is something to learn, and the policy does not move:
# the update is at fault. The last of the three settings is the learning rate.

# %%
repaired = run("repaired", 8)
moved = numbers(repaired)

# %%
before, after = (
    row["evaluation/in_domain/success"]
    for row in repaired.metrics()
    if row.get("evaluation/in_domain/success") is not None
)
assert narrow["policy/trained_share"] < open_window["policy/trained_share"]
assert open_window["policy/kl"] < 1e-6 < moved["policy/kl"], "only the repaired policy moves"
assert mean(map(abs, worth)) > 0.05
assert after > before, "the repaired run learns"

# %% [markdown]
# Try next:
#
# - `rlanything judge-check RUN` corrupts steps and counts how often the judge notices; `rlanything
#   report RUN RUN` compares two runs ([the lab](../packages/rlanything-lab/README.md)).
# - [Every metric](../docs/metrics.md) and every warning with its remedy.
