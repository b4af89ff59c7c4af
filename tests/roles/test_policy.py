"""The policy: a thought, a marker, an action the environment admits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from transformers import AddedToken

from helpers.delayed import delayed, spoken
from helpers.scripted import Counting, ScriptedEngine
from helpers.tiny import plain_logprobs, tiny_model
from rlanything.domains.base import Episode, Observation
from rlanything.engines.base import ModelError, Request, Sampling
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Completion, Step, Task
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.policy import LanguagePolicy

TASK = Task("t", "count to 3")
ACTIONS = ("take the cup", "take the cup from desk 1", "look")
SAMPLING = Sampling(1.0, 40)


class Recording:
    """An engine that passes everything on, and keeps it."""

    def __init__(self, model: LanguageModel) -> None:
        self._engine = HFEngine(model)
        self.requests: list[Request] = []

    def generate(self, requests, sampling, on_samples=None):
        self.requests = list(requests)
        return self._engine.generate(requests, sampling, on_samples)

    def sync_weights(self) -> None:
        self._engine.sync_weights()

    def release_cache(self) -> None:
        self._engine.release_cache()


def policy_with(
    model: LanguageModel, decoding: str = "choices", thought_tokens: int = 4
) -> tuple[LanguagePolicy, Recording]:
    engine = Recording(model)
    chat_model = LocalChatModel(model, engine)
    policy = LanguagePolicy(chat_model, Counting(), SAMPLING, decoding, thought_tokens)
    return policy, engine


def episode(name: str, choices: tuple[str, ...] | None = ACTIONS) -> Episode:
    return Episode(name, TASK, Observation(f"{name} begins", choices))


def carry_on(each: Episode, completion: Completion, text: str = "Next.") -> None:
    each.steps.append(Step(each.observation.text, completion, None, True, text))
    each.observation = Observation(text, ACTIONS)


def test_choices_lead_to_an_admitted_action_and_the_end_of_the_turn(frozen_model):
    policy, _ = policy_with(frozen_model)
    episodes = [episode(f"e{i}") for i in range(40)]
    completions = policy.respond(episodes, range(40))
    acted = [each for each in completions if " > " in each.text]
    # The rest ended their turn inside the thought.
    assert len(acted) > 30
    assert {each.text.rpartition(" > ")[2] for each in acted} == set(ACTIONS)
    for each in acted:
        assert each.stop_reason == "stop"
        assert each.token_ids[-1] == frozen_model.tokenizer.eos_token_id


def test_free_decoding_restricts_nothing(frozen_model):
    policy, engine = policy_with(frozen_model, "free")
    [completion] = policy.respond([episode("e")], [1])
    assert engine.requests[0].choices is None
    assert set(completion.allowed) == {()}


@pytest.mark.parametrize("actions", [None, ()])
def test_an_environment_that_lists_no_actions_is_answered_freely(frozen_model, actions):
    policy, engine = policy_with(frozen_model)
    policy.respond([episode("e", actions)], [1])
    assert engine.requests[0].choices is None


def test_a_marker_of_several_tokens_is_refused_with_the_remedy(frozen_model):
    domain = Counting()
    domain.action_marker = "=> Action:"
    chat_model = LocalChatModel(frozen_model, HFEngine(frozen_model))
    with pytest.raises(ModelError, match=re.escape("'=> Action:'") + ".*decoding: free") as error:
        LanguagePolicy(chat_model, domain, SAMPLING, "choices", 4)
    assert "\n" not in str(error.value)
    LanguagePolicy(chat_model, domain, SAMPLING, "free", 4)


def test_an_episode_continues_from_the_tokens_it_sampled(frozen_model):
    policy, engine = policy_with(frozen_model)
    episodes = [episode("a"), episode("b")]
    for turn in range(4):
        completions = policy.respond(episodes, [turn, turn + 10])
        for each, completion in zip(episodes, completions, strict=True):
            if each.steps:
                last = each.steps[-1].completion
                begun = (*last.prompt_ids, *last.token_ids)
                # A special token in the thought would have been defused, and so written anew.
                if not set(last.token_ids[:-1]) & set(range(5)):
                    assert completion.prompt_ids[: len(begun)] == begun
            carry_on(each, completion)
    assert [request.conversation for request in engine.requests] == ["a", "b"]


def test_logprobs_stay_exact_over_an_episode(frozen_model):
    policy, _ = policy_with(frozen_model)
    only = episode("a")
    for turn in range(4):
        [completion] = policy.respond([only], [turn])
        expected = plain_logprobs(frozen_model, completion).tolist()
        assert completion.logprobs == pytest.approx(expected, abs=1e-4)
        carry_on(only, completion)


def test_a_response_depends_on_its_seed_and_not_on_its_company(frozen_model):
    together, _ = policy_with(frozen_model)
    alone, _ = policy_with(frozen_model)
    found = together.respond([episode("a"), episode("b"), episode("c")], [1, 2, 3])
    [single] = alone.respond([episode("b")], [2])
    assert found[1].token_ids == single.token_ids
    [other] = alone.respond([episode("b")], [4])
    assert other.token_ids != single.token_ids


def test_an_episode_that_sat_out_a_call_can_go_on(frozen_model):
    policy, _ = policy_with(frozen_model)
    waiting = episode("a")
    [first] = policy.respond([waiting], [1])
    policy.respond([episode("b")], [2])
    carry_on(waiting, first)
    [second] = policy.respond([waiting], [3])
    assert frozen_model.decode(second.prompt_ids).endswith("<|user|>Next.<|end|><|assistant|>")
    assert second.prompt_ids[: len(first.tokens)] == first.tokens


def test_a_language_model_says_the_same_whoever_it_is_asked_with(frozen_model):
    expected, _ = delayed(policy_with(frozen_model)[0], [[0.0] * 4] * 6, 0, lockstep=True)
    delays = np.random.default_rng(0).choice([0.0, 0.05, 0.15], (6, 4)).tolist()
    rollouts, _ = delayed(policy_with(frozen_model)[0], delays, 3, lockstep=False)
    assert spoken(rollouts) == spoken(expected)
    for mine, other in zip(rollouts.trajectories, expected.trajectories, strict=True):
        for one, two in zip(mine.steps, other.steps, strict=True):
            assert one.completion.prompt_ids == two.completion.prompt_ids
            assert one.completion.logprobs == pytest.approx(two.completion.logprobs, abs=1e-4)


def test_a_new_episode_of_the_same_name_forgets_the_old_one(frozen_model):
    policy, _ = policy_with(frozen_model)
    fresh, _ = policy_with(frozen_model)
    old = episode("a")
    carry_on(old, policy.respond([old], [1])[0])
    policy.respond([old], [2])
    [again], [first] = policy.respond([episode("a")], [3]), fresh.respond([episode("a")], [3])
    assert (again.prompt_ids, again.token_ids) == (first.prompt_ids, first.token_ids)


def test_episodes_and_seeds_must_match(frozen_model):
    policy, _ = policy_with(frozen_model)
    with pytest.raises(ValueError, match="zip"):
        policy.respond([episode("a")], [1, 2])


def test_options_are_spelled_with_the_models_own_end_of_turn():
    model = tiny_model()
    policy, engine = policy_with(model)
    policy.respond([episode("a")], [1])
    choices = engine.requests[0].choices
    assert choices is not None
    assert choices.free_tokens == 4
    assert model.decode([choices.marker]) == " >"
    assert [model.decode(option) for option in choices.options] == [
        f" {action}<|end|>" for action in ACTIONS
    ]
    changed = replace(choices, free_tokens=0)
    [[completion]] = engine.generate([replace(engine.requests[0], choices=changed)], SAMPLING)
    assert completion.text.removeprefix(" > ") in ACTIONS


def test_the_space_before_a_marker_may_be_a_token_of_its_own():
    model = tiny_model(spaces_apart=True)
    policy, engine = policy_with(model)
    completions = policy.respond([episode("a"), episode("b")], [1, 2])
    choices = engine.requests[0].choices
    assert choices is not None
    assert model.decode([choices.marker]) == ">"
    assert {each.text.rpartition("> ")[2] for each in completions} <= set(ACTIONS)


# The turns of well-known models: the template, its special tokens, the tokenizer's end of sequence,
# what generation_config.json lists, and the token that ends a turn.
BRACKETED = (
    "{{% for m in messages %}}{{{{ '{open}' + m.role + '{close}' + m.content + '{end}' }}}}"
    "{{% endfor %}}{{% if add_generation_prompt %}}{{{{ '{open}assistant{close}' }}}}{{% endif %}}"
)
GLM4 = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
PHI3 = BRACKETED.format(open="<|", close="|>\n", end="<|end|>\n") + (
    "{% if not add_generation_prompt %}{{ '<|endoftext|>' }}{% endif %}"
)
GEMMA = BRACKETED.format(open="<start_of_turn>", close="\n", end="<end_of_turn>\n")
LLAMA3 = BRACKETED.format(
    open="<|start_header_id|>", close="<|end_header_id|>\n\n", end="<|eot_id|>"
)
QWEN = BRACKETED.format(open="<|im_start|>", close="\n", end="<|im_end|>\n")
TURNS: dict[str, tuple[str, str | None, list[str], str]] = {
    "Gemma": (GEMMA, "<eos>", ["<eos>", "<end_of_turn>"], "<end_of_turn>"),
    "Gemma, whose configuration forgot it": (GEMMA, "<eos>", ["<eos>"], "<end_of_turn>"),
    "Phi-3": (PHI3, "<|endoftext|>", ["<|endoftext|>", "<|end|>"], "<|end|>"),
    "GLM-4": (GLM4, "<|endoftext|>", ["<|endoftext|>", "<|user|>"], "<|user|>"),
    "Llama-3": (LLAMA3, "<|end_of_text|>", ["<|end_of_text|>", "<|eot_id|>"], "<|eot_id|>"),
    "Qwen": (QWEN, "<|im_end|>", ["<|im_end|>", "<|endoftext|>"], "<|im_end|>"),
    "no end of sequence": (QWEN, None, ["<|im_end|>"], "<|im_end|>"),
    "no marks": ("{% for m in messages %}{{ m.content }};{% endfor %}", "<eos>", [], "<eos>"),
}


def model_of_turns(template: str, eos: str | None, stops: list[str], end: str) -> LanguageModel:
    """The tiny model with other marks of turns."""
    model = tiny_model()
    tokenizer = model.tokenizer
    names = dict.fromkeys(re.findall(r"<[^ >']+>", template))
    names |= dict.fromkeys(["<|user|>", *stops, end, *([eos] if eos else [])])
    marks = [AddedToken(name, special=True, normalized=False) for name in names]
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    tokenizer.chat_template, tokenizer.eos_token = template, eos
    network: Any = model.network
    network.resize_token_embeddings(len(tokenizer))
    listed: Any = tokenizer.convert_tokens_to_ids(stops)
    network.generation_config.eos_token_id = listed
    return LanguageModel(network, tokenizer)


@pytest.mark.parametrize("family", TURNS)
def test_an_action_ends_with_the_models_own_end_of_turn(family):
    *_, end = TURNS[family]
    model = model_of_turns(*TURNS[family])
    policy, engine = policy_with(model)
    [completion] = policy.respond([episode("a")], [1])
    choices = engine.requests[0].choices
    assert choices is not None
    assert {model.decode(option[-1:]) for option in choices.options} == {end}
    assert model.end_of_turn in model.stop_ids
    assert completion.stop_reason == "stop"


def test_a_model_without_any_end_of_turn_cannot_choose():
    model = model_of_turns("{% for m in messages %}{{ m.content }};{% endfor %}", None, [], "x")
    with pytest.raises(ModelError, match="eos_token_id") as error:
        policy_with(model)
    assert "\n" not in str(error.value)


def test_actions_that_max_tokens_would_cut_are_refused_before_anything_is_sampled(frozen_model):
    chat_model = LocalChatModel(frozen_model, ScriptedEngine(frozen_model, lambda *_: ""))
    actions = ("go to sofa 10", "go to sofa 1")
    needed = 2 + 1 + len(frozen_model.encode(" go to sofa 10")) + 1
    for room in (needed, needed - 1):
        policy = LanguagePolicy(chat_model, Counting(), Sampling(1.0, room), "choices", 2)
        if room == needed:
            policy.respond([episode("a", actions)], [1])
            continue
        with pytest.raises(ModelError, match=f"'go to sofa 10'.* take {needed}; raise") as error:
            policy.respond([episode("a", actions)], [1])
        assert "\n" not in str(error.value)
