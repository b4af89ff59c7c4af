# %% [markdown]
# # 1. A first run and its report
#
# You train a tiny policy and a tiny judge on a guessing game, read what the run says about them,
# and look at one episode step by step. The models ship with the package; nothing is downloaded.

# %%
import shutil
from pathlib import Path

import rlanything as rl

RUN = Path("runs/notebook-1")
shutil.rmtree(RUN, ignore_errors=True)  # a run never overwrites another

# %% [markdown]
# `guess` is a shipped recipe: guess a number between 1 and 8 in four tries. `rlanything recipes`
# lists the others. The command line does the same with `rlanything train guess`.

# %%
trainer = rl.Trainer("guess", run_dir=RUN, overrides={"evaluation.judged_episodes": 32})
for iteration in trainer:
    metrics = iteration.metrics
    print(
        f"iteration {iteration.number:2}: {metrics['rollouts/success']:.0%} of the episodes won,",
        f"judge right on {metrics['judge/balanced_process_accuracy']:.0%} of the steps,",
        f"{metrics['tasks/proposed']:.0f} tasks rewritten",
    )

# %% [markdown]
# These numbers move with the tasks, which get harder when they become easy. Held-out tasks do not
# change: the run plays them before the first iteration and after the last one.

# %%
run = rl.open_run(RUN)
before, after = (
    row["evaluation/in_domain/success"]
    for row in run.metrics()
    if row.get("evaluation/in_domain/success") is not None
)
print(f"held-out tasks won: {before:.1%} before, {after:.1%} after")
print(trainer.evaluate("in_domain", episodes=128, seed=7))  # fresh tasks, with a 95% interval

# %% [markdown]
# One episode of the last iteration: what the policy saw and said, what the judge scored (1, -1, or
# 0 where it wrote nothing readable), and the advantage that the step trained with. A step's reward
# is the outcome plus the mean score ([how](../docs/concepts/loop.md)).

# %%
trajectory = next(
    t for t in run.trajectories(iteration=10) if len(t.steps) > 2 and t.steps[0].advantage
)
print(trajectory.task, "won" if trajectory.outcome == 1 else "lost")
for step in trajectory.steps:
    scores = [judgement.score for judgement in step.judgements]
    print(f"  {step.observation!r:24} -> {step.response!r:20} {scores}  {step.advantage:+.2f}")

# %% [markdown]
# The report has all of this on one page that loads nothing: curves with intervals, every episode,
# every rewritten task. Open it in a browser, or look at [the report of such a
# run](../docs/first-run.html).

# %%
report = RUN / "report.html"
print(report, f"{report.stat().st_size / 1e6:.1f} MB")

# %%
assert after > before, "the policy wins more held-out tasks than before"
assert report.is_file()

# %% [markdown]
# Try next:
#
# - `overrides={"policy.learning_rate": 0}`: nothing may improve, and nothing does.
# - `overrides={"seed": 1}`: another run of the same recipe. The same seed gives the same numbers.
# - [A run, from its first line to its report](../docs/quickstart.md) explains every number.
