# %% [markdown]
# # 6. Judge rollouts of TRL or verl
#
# You stay with your trainer, and have its rollouts scored step by step: two commands turn a file of
# rollouts into advantages for a policy and for a judge. They need
# `pip install packages/rlanything-judge`.

# %%
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

FILES = Path("runs/notebook-6")
shutil.rmtree(FILES, ignore_errors=True)
FILES.mkdir(parents=True)

# %% [markdown]
# First some rollouts, as TRL keeps them: a prompt, a completion with its turns, a reward. Here a
# careless player guesses numbers, eight times for each of four prompts.

# %%
RULE = "Answer with a thought, then > and one action."


def rollout(secret, rng):
    prompt = f"Guess a number between 1 and 8 in 4 tries.\n{RULE}\nYou have 4 tries."
    turns, low, high = [], 1, 8
    for _ in range(4):
        careless = rng.random() < 0.5
        guess = rng.randint(1, 8) if careless else (low + high) // 2
        turns.append({"role": "assistant", "content": f"{low} to {high} > {guess}"})
        if guess == secret:
            break
        low, high = (max(low, guess + 1), high) if guess < secret else (low, min(high, guess - 1))
        turns.append({"role": "user", "content": "Higher." if guess < secret else "Lower."})
    won = turns[-1]["role"] == "assistant"
    said = [{"role": "user", "content": f"Prompt {secret}. {prompt}"}]
    return {"prompt": said, "completion": turns, "reward": float(won)}


rng = random.Random(0)
rows = [rollout(secret, rng) for secret in (2, 3, 6, 7) for _ in range(8)]
(FILES / "trl.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
print(json.dumps(rows[0])[:300], "...")


# %% [markdown]
# The first command recognises the format, splits each completion into steps, and has every step
# judged. The shipped judge knows this game and no other text: for your rollouts take an
# instruction-tuned model, an endpoint, or a judge that you trained.


# %%
def rlanything(line):
    print("$ rlanything", line)
    command = [sys.executable, "-m", "rlanything", *shlex.split(line)]
    plain = {"FORCE_COLOR": "", "COLUMNS": "100"}  # no bars and colours here
    done = subprocess.run(
        command, cwd=FILES, capture_output=True, text=True, env=os.environ | plain
    )
    print((done.stdout + done.stderr).strip())
    assert done.returncode == 0


rlanything("judge trl.jsonl --win-at 1 --judge nano-guess --domain text --out scored.jsonl")

# %% [markdown]
# A scored episode: each step has its scores, and the judge's words under `judgements`.

# %%
scored = [json.loads(line) for line in (FILES / "scored.jsonl").read_text().splitlines()]
episode = next(one for one in scored if len(one["steps"]) > 2 and one["outcome"] == -1)
print("outcome", episode["outcome"])
for step in episode["steps"]:
    print(f"  {step['response']:16} {step['scores']}  {step['judgements'][0]!r}")

# %% [markdown]
# The second command turns outcomes and scores into advantages, by the same equations as in a run.

# %%
rlanything("feedback scored.jsonl --out signals.jsonl policy_window='[0, 1]'")
signals = [json.loads(line) for line in (FILES / "signals.jsonl").read_text().splitlines()]
print(json.dumps(signals[scored.index(episode)]))

# %% [markdown]
# verl writes `input`, `output` and `score`; nothing else changes. A conversation of several turns
# is one text there, so it stays one step.

# %%
verl = [
    {"input": row["prompt"][0]["content"], "output": row["completion"][0]["content"]}
    | {"score": row["reward"], "step": 1}
    for row in rows
]
(FILES / "verl.jsonl").write_text("".join(json.dumps(row) + "\n" for row in verl))
rlanything("feedback verl.jsonl --win-at 1 --out verl-signals.jsonl")

# %%
readable = [score != 0 for one in scored for step in one["steps"] for score in step["scores"]]
assert len(signals) == len(rows) == len(scored)
assert sum(readable) > 0.9 * len(readable), "the judge writes a score for nearly every step"

# %% [markdown]
# Try next:
#
# - `rlanything serve` gives the same scores over HTTP, also as a reward function of TRL and verl
#   ([how](../packages/rlanything-judge/README.md#over-http)).
# - [Other formats](../packages/rlanything-judge/README.md#rollouts-of-other-programs): SWE-agent,
#   tau-bench, prime-rl, OpenAI's logs, ...
