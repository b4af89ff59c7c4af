# %% [markdown]
# # 5. An agent of yours
#
# You train the model behind a program that calls a model over HTTP. The program is written three
# times, for the three dialects that agents speak: OpenAI's chat completions, OpenAI's Responses and
# Anthropic's Messages. It needs `pip install packages/rlanything-sandbox
# packages/rlanything-agent`.

# %%
import json
import random
import shutil
import urllib.request
from pathlib import Path

import rlanything as rl
from rlanything_agent.domain import AgentDomain

RUNS = Path("runs/notebook-5")
shutil.rmtree(RUNS, ignore_errors=True)

# %% [markdown]
# The agent knows nothing of training: it asks a model for a number, plays it, and returns whether
# it won. Each request becomes a step, and what it returns becomes the outcome. `choices` limits the
# answer to a number; a tiny model needs that, a large one does not.

# %%
NUMBERS = [str(n) for n in range(1, 9)]
CHOICES = {"structured_outputs": {"choice": NUMBERS}}


def play(task, ask):
    """Returns whether the number was guessed; `ask` answers a list of messages."""
    text = f"{task.instruction}\nAnswer with a thought, then > and one action.\nYou have 4 tries."
    messages = [{"role": "user", "content": text}]
    for _ in range(4):
        said = ask(messages)
        guess = said.rpartition(">")[2].strip()
        if guess == task.data["secret"]:
            return True
        hint = "Say a number."
        if guess in NUMBERS:
            hint = "Higher." if guess < task.data["secret"] else "Lower."
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": hint}]
    return False


# %% [markdown]
# The three dialects. `client` is an `openai.OpenAI` with the address of this episode. The third
# function uses no client library, only the address and the key: any program can do that.


# %%
def completions(task, client):
    def ask(messages):
        create = client.chat.completions.create
        reply = create(model="policy", messages=messages, extra_body=CHOICES)
        return reply.choices[0].message.content

    return play(task, ask)


def responses(task, client):
    def ask(messages):
        reply = client.responses.create(model="policy", input=messages, extra_body=CHOICES)
        return reply.output_text

    return play(task, ask)


def messages(task, client):
    def ask(messages):
        body = {"model": "policy", "max_tokens": 16, "messages": messages} | CHOICES
        headers = {"content-type": "application/json", "x-api-key": client.api_key}
        url = f"{str(client.base_url).rstrip('/')}/messages"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)["content"][0]["text"]

    return play(task, ask)


# %% [markdown]
# Train the same policy behind each of them, from the same seed. Tasks are rows; the program reads
# their `data`, the policy does not.

# %%
rng = random.Random(0)
tasks = [
    {
        "id": str(i),
        "instruction": "Guess a number between 1 and 8 in 4 tries.",
        "data": {"secret": rng.choice(NUMBERS)},
        "split": "train" if i < 16 else "in_domain",
    }
    for i in range(48)
]
settings = {
    "curriculum.adapt_tasks": False,
    "loop.iterations": 2,
    "loop.tasks": 16,
    "loop.tasks_per_iteration": 8,
    "evaluation.episodes": 32,
    "evaluation.judged_episodes": 0,
}
successes = {}
for solve in (completions, responses, messages):
    domain = AgentDomain(tasks=tasks, solve=solve)
    run_dir = RUNS / solve.__name__
    trainer = rl.Trainer("guess", domain=domain, run_dir=run_dir, overrides=settings)
    successes[solve.__name__] = [row.metrics["rollouts/success"] for row in trainer]
    print(f"{solve.__name__:11}", *(f"{share:.1%}" for share in successes[solve.__name__]))

# %% [markdown]
# The rows are equal: the same conversation is the same episode in every dialect, token by token,
# so it trains the same policy.

# %%
step = rl.open_run(RUNS / "messages").trajectories(iteration=2)[0].steps[0]
print(step.response, "->", step.next_observation)

# %%
assert successes["completions"] == successes["responses"] == successes["messages"]

# %% [markdown]
# Try next:
#
# - `command: [python, agent.py]` in place of `solve` runs a program in any language, in a box
#   ([a command](../packages/rlanything-agent/README.md#a-command)).
# - Claude Code, Codex, smolagents and others run as they are:
#   [agents](../packages/rlanything-agent/README.md#coding-agents-as-they-are).
# - `rlanything train guess_agent` is such an agent as a recipe.
