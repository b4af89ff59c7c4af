"""Writes the transcript of the AlfWorld package: all that is asked and answered about one episode
with the prompts of alfworld-qwen2.5-7b.

    python benchmarks/transcript.py > packages/rlanything-alfworld/transcript.md

A random model of two layers stands in for Qwen's: its words mean nothing. What others must read, a
box or a goal, is put behind them here.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, cycle
from typing import Any

from rlanything.config.recipe import load_recipe
from rlanything.domains.registry import load_domain
from rlanything.engines.base import Sampling
from rlanything.records import Completion
from rlanything.roles.adapter import LLMAdapter, RewriteRequest
from rlanything.roles.chat_model import ChatRequest
from rlanything.roles.judges.llm import LLMJudge
from rlanything.roles.policy import LanguagePolicy
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool

RECIPE = "alfworld-qwen2.5-7b"
TURNS, TOKENS, SEED = 3, 12, 1
SCORES = (1, 1, -1, -1, -1, -1, -1, -1, -1)
ENDINGS = {
    # A number, one that is not in the list, and a command in its own words.
    "policy": ("\\boxed{2}", "\\boxed{99}", "\\boxed{look}"),
    "judge": tuple(f"\\boxed{{{score}}}" for score in SCORES),
    "critic": ("",),
    "adapter": ("\nobject: fork place: cabinet", "\nobject: bread place: microwave"),
}
HEAD = f"""\
# A transcript with the paper's recipe

Written by `python benchmarks/transcript.py`: one episode of {TURNS} turns with the options of
[`{RECIPE}`](src/rlanything_alfworld/recipes/{RECIPE}.yaml), on a generated game.
The words of the answers are those of a random model of two layers and mean nothing; what must be
read (`\\boxed{{...}}`, a goal) the script puts behind them: a number, a number that is not in the
list (so the first command is played), a command in its own words. Real answers are up to thousands
of tokens long, and a proposal has eight tries in place of two. The
judge is shown boxes of others without their backslash: nothing that it quotes can be a score.
"""

Say = Callable[[str, ChatRequest, int], str]
"""Answers a request of a role, with a seed."""


class Recorded:
    """A chat model of one role that says what `say` says and keeps all of it as text."""

    def __init__(self, name: str, say: Say, page: list[str]) -> None:
        self._name, self._say, self._page = name, say, page
        self._asked = Counter[str]()

    def answer(
        self, questions: Sequence[ChatRequest], sampling: Sampling, on_samples: Any = None
    ) -> list[list[Completion]]:
        """Returns completions [questions][n], without tokens."""
        del sampling
        return [self._answered(question) for question in questions]

    def check_marker(self, marker: str) -> None: ...

    def release_cache(self) -> None: ...

    def pop_usage(self) -> dict[str, int]:
        return {}

    def _answered(self, question: ChatRequest) -> list[Completion]:
        [message] = question.messages
        name = self._name
        if name == "adapter" and "object: TYPE" not in message.content:
            name = "critic"
        answers = [self._say(name, question, seed) for seed in question.seeds]
        self._asked[name] += 1
        title = f"\n## {name.capitalize()} {self._asked[name]}"
        self._page += [title, fenced("Prompt", message.content)]
        self._page += [fenced("Answer", text) for text in answers]
        return [Completion.unsampled(text) for text in answers]


def fenced(title: str, text: str) -> str:
    return f"\n{title}:\n\n~~~text\n{text}\n~~~"


def transcript(say: Say) -> str:
    """Returns the page for these answers."""
    recipe = load_recipe(RECIPE)
    domain = load_domain("alfworld", {**recipe.domain.options, "idle_actions": True})
    page = [HEAD.rstrip()]
    policy, judge, adapter = (Recorded(n, say, page) for n in ("policy", "judge", "adapter"))
    sampling = Sampling(1.0, TOKENS)
    [task] = domain.tasks("train", 1, 0)
    agent = LanguagePolicy(policy, domain, sampling, recipe.policy.decoding, 0)
    request = RolloutRequest("episode", task, SEED)
    with EnvironmentPool(domain, {}, 0, 60.0) as pool:
        played = rollout(agent, pool, [request], TURNS, 1)
    samples = recipe.judges["judge"].samples_per_step
    judged = LLMJudge(judge, domain, sampling, samples).judge(played.trajectories, SEED)
    rewriter = LLMAdapter(
        adapter, domain, sampling, 2, recipe.adapter.most_critics, recipe.adapter.rejected_by
    )
    asked = RewriteRequest("slot", task, task, "easier", tuple(judged))
    [proposal] = rewriter.propose([asked], 1, SEED)
    new = proposal.task.instruction if proposal.task else "none"
    page += ["\n## What came of it\n", f"The candidate: {new}."]
    page += [f"Refused, {each.stage}: {each.text}." for each in proposal.refused]
    return "\n".join(page) + "\n"


def random_words() -> Say:
    """Returns a random model's way to answer, with the endings of its roles in turn."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from rlanything.cluster.models import load_role
    from rlanything.config.roles import PolicyConfig
    from rlanything.engines.hf.engine import HFEngine
    from rlanything.engines.hf.model import LanguageModel
    from rlanything.roles.chat_model import LocalChatModel

    tokenizer = load_role(PolicyConfig()).tokenizer
    torch.manual_seed(SEED)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    network: Any = Qwen2ForCausalLM(config)
    model = LanguageModel(network, tokenizer)
    chat_model = LocalChatModel(model, HFEngine(model))
    endings = {name: cycle(texts) for name, texts in ENDINGS.items()}

    def say(name: str, question: ChatRequest, seed: int) -> str:
        alone = replace(question, seeds=(seed,), conversation="", after=None)
        [[completion]] = chat_model.answer([alone], Sampling(1.0, TOKENS))
        shown = "".join(c for c in completion.text if c.isprintable() and c != "\ufffd")
        words = " ".join(shown.split())
        return " ".join(chain([words], filter(None, [next(endings[name])])))

    return say


if __name__ == "__main__":
    sys.stdout.write(transcript(random_words()))
