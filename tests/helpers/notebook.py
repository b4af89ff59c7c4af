"""The notebook of the README, cell by cell: own domain, own judge, two environment workers."""

CELLS = (
    """
import random

import rlanything as rl

NUMBERS = tuple(str(n) for n in range(1, 9))


class GuessEnvironment:
    def reset(self, task):
        self.secret, self.left = task.data["secret"], task.data["tries"]
        return rl.Observation(f"You have {self.left} tries.", NUMBERS)

    def step(self, response):
        action = Guess.action_in(response)
        self.left -= 1
        lost = None if self.left else -1
        if action not in NUMBERS:
            return rl.StepResult(rl.Observation("Say a number.", NUMBERS), action, False, lost)
        if int(action) == self.secret:
            return rl.StepResult(rl.Observation("Right.", NUMBERS), action, True, 1)
        hint = "Higher." if int(action) < self.secret else "Lower."
        return rl.StepResult(rl.Observation(hint, NUMBERS), action, True, lost)


class Guess(rl.TextDomain):
    def tasks(self, split, count, seed):
        rng = random.Random(f"{split}/{seed}")
        secrets = [rng.randint(1, 8) for _ in range(count)]
        return [
            rl.Task(f"{split}-{i}", "Guess a number.", data={"secret": secret, "tries": 4})
            for i, secret in enumerate(secrets)
        ]

    def environment(self):
        return GuessEnvironment()
""",
    """
def sensible(trajectory, i):
    return 1 if trajectory.steps[i].valid else -1


trainer = rl.Trainer(
    "guess",
    domain=Guess(),
    judge=rl.FunctionJudge(sensible),
    run_dir="runs/mine",
    overrides={
        **{"loop.iterations": 2, "loop.tasks_per_iteration": 4, "loop.rollouts_per_task": 4},
        **{"evaluation.episodes": 8, "environment.workers": 2},
    },
)
for iteration in trainer:
    under_way = rl.open_run("runs/mine").metrics()
    print("iteration", iteration.number, iteration.metrics["rollouts/success"], len(under_way))
print("success", trainer.evaluate("in_domain", episodes=8))
""",
    """
run = rl.open_run("runs/mine")
print("read", len(run.metrics()), len(run.evaluations()), len(run.tasks()))
print("episodes", {len(t.steps) > 0 for t in run.trajectories(iteration=1)})
""",
    """
again = rl.Trainer.resume(
    "runs/mine",
    domain=Guess(),
    judge=rl.FunctionJudge(sensible),
    overrides={"loop.iterations": 3},
)
print("resumed", [iteration.number for iteration in again])
""",
)
