"""The adapter: critics first, then the first valid candidate."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.scripted import Counting, ScriptedEngine, judged
from rlanything.config.problems import RecipeError
from rlanything.config.roles import AdapterConfig
from rlanything.domains.base import DomainError, InvalidTask
from rlanything.engines.base import Sampling
from rlanything.engines.hf.model import LanguageModel
from rlanything.plugins import PluginError
from rlanything.records import JudgedTrajectory, Message, Messages, Task
from rlanything.roles.adapter import (
    LLMAdapter,
    Proposal,
    Refusal,
    RewriteRequest,
    propose,
    rejected_steps,
)
from rlanything.roles.chat_model import ChatRequest, LocalChatModel
from rlanything.runs.build import build_adapter
from rlanything.seeds import derive

ROOT = Task("root", "count to 3")
FAILED = (judged("f1", [(-1, -1), (1, -1)]), judged("f2", [(1, 1)]), judged("f3", [(-1, -1)]))


def ask(
    slot: str = "s1",
    active: Task = ROOT,
    failed: tuple[JudgedTrajectory, ...] = FAILED,
) -> RewriteRequest:
    return RewriteRequest(slot, ROOT, active, "easier", failed)


def adapter_with(
    model: LanguageModel,
    answers: list[str],
    slots: tuple[str, ...] = ("s1",),
    critics: int | None = 2,
    memory: int = 0,
) -> tuple[LLMAdapter, ScriptedEngine]:
    """An adapter whose tries give `answers` for every slot (with iteration's seed 5)."""
    by_seed = {
        derive(5, "goal", slot, attempt): text
        for slot in slots
        for attempt, text in enumerate(answers)
    }

    def script(prompt: str, seed: int) -> str:
        return f" it failed at {len(prompt)} \n" if "CRITIC" in prompt else by_seed[seed]

    engine = ScriptedEngine(model, script)
    chat_model = LocalChatModel(model, engine)
    sampling = Sampling(1.0, 16)
    adapter = LLMAdapter(chat_model, Counting(), sampling, len(answers), critics, memory=memory)
    return adapter, engine


def test_the_first_valid_answer_wins_and_earlier_ones_are_refused_with_reasons(frozen_model):
    answers = ["run away", "count to x", "count to 2", "count to 1", "nonsense"]
    adapter, _ = adapter_with(frozen_model, answers)
    [proposal] = adapter.propose([ask()], iteration=4, seed=5)
    assert proposal.slot == "s1"
    assert proposal.task == Task("s1@4", "count to 2")
    assert proposal.refused == (
        Refusal("unreadable", "'run away': it does not say how far to count"),
        Refusal("invalid", "'count to x': x is not a number"),
    )


def test_without_a_valid_answer_there_is_no_candidate_and_every_reason(frozen_model):
    adapter, _ = adapter_with(frozen_model, ["no", "count to y"])
    [proposal] = adapter.propose([ask()], iteration=0, seed=5)
    assert proposal.task is None
    assert len(proposal.refused) == 2
    assert "y is not a number" in proposal.refused[1].text


def test_a_proposal_says_how_far_the_best_of_its_tries_came(frozen_model):
    def reached(*answers: str) -> int:
        adapter, _ = adapter_with(frozen_model, list(answers))
        return adapter.propose([ask()], iteration=0, seed=5)[0].reached

    assert reached("no", "nor this") == 0
    assert reached("no", "count to y") == 1
    assert reached("count to 2", "no") == 3


def test_the_active_task_again_is_no_candidate(frozen_model):
    adapter, _ = adapter_with(frozen_model, ["count to 2", "count to 1"])
    [proposal] = adapter.propose([ask(active=Task("s1@1", "count to 2"))], 2, seed=5)
    assert proposal.task == Task("s1@2", "count to 1")
    assert "already" in proposal.refused[0].text


def test_a_candidate_that_the_slot_remembers_is_refused(frozen_model):
    tried = ("count to 9", "count to 2", "count to 1")

    def proposed(memory: int) -> str | None:
        adapter, _ = adapter_with(frozen_model, ["count to 2", "count to 9"], memory=memory)
        [proposal] = adapter.propose([replace(ask(), tried=tried)], 4, seed=5)
        return proposal.task and proposal.task.instruction

    assert proposed(memory=0) == "count to 2"
    assert proposed(memory=2) == "count to 9"
    assert proposed(memory=3) is None


def test_what_the_domain_would_not_take_for_new_beside_the_active_task_is_refused(
    frozen_model, monkeypatch
):
    parse = Counting.parse_candidate

    def strict(self, root, task_id, completion):
        if root.instruction.rpartition(" ")[2] == completion.rpartition(" ")[2].lstrip("0"):
            raise InvalidTask("the number is the old one")
        return parse(self, root, task_id, completion)

    monkeypatch.setattr(Counting, "parse_candidate", strict)
    adapter, _ = adapter_with(frozen_model, ["count to 02", "count to 03", "count to 1"])
    [proposal] = adapter.propose([ask(active=Task("s1@1", "count to 2"))], 2, seed=5)
    assert proposal.task == Task("s1@2", "count to 1")
    assert [refusal.text.rpartition(": ")[2] for refusal in proposal.refused] == [
        "the number is the old one"
    ] * 2


def test_rewrites_start_from_the_root_and_name_the_direction_and_critics(frozen_model):
    adapter, engine = adapter_with(frozen_model, ["count to 2"])
    [proposal] = adapter.propose([ask(active=Task("s1@1", "count to 9"))], 2, seed=5)
    prompt = engine.prompts[-1]
    assert "ADAPT count to 3 easier" in prompt
    assert "count to 9" not in prompt
    assert all(critic in prompt for critic in proposal.critics)


def test_critics_are_asked_of_the_first_failed_rollouts_with_their_condemned_steps(frozen_model):
    adapter, engine = adapter_with(frozen_model, ["count to 2"])
    [proposal] = adapter.propose([ask()], 0, seed=5)
    asked = [prompt for prompt in engine.prompts if "CRITIC" in prompt]
    assert ["f1 condemned [0]" in asked[0], "f2 condemned []" in asked[1]] == [True, True]
    assert len(asked) == len(proposal.critics) == 2
    assert all(critic == critic.strip() and critic for critic in proposal.critics)


def test_a_critic_is_asked_of_every_failed_rollout_where_all_are_wanted(frozen_model):
    won = replace(FAILED[1], trajectory=replace(FAILED[1].trajectory, outcome=1))
    adapter, engine = adapter_with(frozen_model, ["count to 2"], critics=None)
    [proposal] = adapter.propose([ask(failed=(*FAILED, won))], 0, seed=5)
    assert len(proposal.critics) == 3
    assert sum("CRITIC" in prompt for prompt in engine.prompts) == 3


def test_critics_go_to_the_slot_whose_rollouts_failed(frozen_model):
    adapter, engine = adapter_with(frozen_model, ["count to 2"], slots=("s1", "s2", "s3"))
    asks = [
        ask("s1", failed=()),
        ask("s2", failed=(judged("only rollout of s2", [(1,)]),)),
        ask("s3", failed=FAILED),
    ]
    proposals = adapter.propose(asks, 0, seed=5)
    assert [proposal.slot for proposal in proposals] == ["s1", "s2", "s3"]
    assert [len(proposal.critics) for proposal in proposals] == [0, 1, 2]
    assert proposals[1].critics[0] not in proposals[2].critics
    # All critics in one call of the engine, all rewrites in another.
    assert [len(call) for call in engine.calls] == [3, 3]


class Staged(Counting):
    """A domain whose critics have two stages."""

    def step_critic_prompt(self, failed: JudgedTrajectory, index: int) -> Messages:
        return (Message("user", f"STEP {failed.trajectory.id} {index}"),)

    def staged_critic_prompt(
        self, failed: JudgedTrajectory, summaries: Mapping[int, str]
    ) -> Messages:
        return (Message("user", f"CRITIC {failed.trajectory.id} {dict(summaries)}"),)


def test_in_two_stages_a_critic_is_made_of_summaries_of_the_rejected_steps(frozen_model):
    def script(prompt: str, seed: int) -> str:
        step = re.search(r"STEP (\w+) (\d)", prompt)
        return f" {step[1]} went wrong at {step[2]}\n" if step else " it failed \n"

    engine = ScriptedEngine(frozen_model, script)
    chat_model = LocalChatModel(frozen_model, engine)
    adapter = LLMAdapter(chat_model, Staged(), Sampling(1.0, 16), 1, 2, "some", critic_stages=2)
    [proposal] = adapter.propose([ask(failed=FAILED[:2])], 0, seed=5)
    assert proposal.critics == ("it failed", "it failed")
    steps, critics = engine.calls[:2]
    assert len(steps) == 2, "both steps of the first rollout, which some judgement rejects"
    asked = [prompt for prompt in engine.prompts if "CRITIC" in prompt]
    assert len(critics) == len(asked) == 2
    assert "CRITIC f1 {0: 'f1 went wrong at 0', 1: 'f1 went wrong at 1'}" in asked[0]
    assert "CRITIC f2 {}" in asked[1]


def test_two_stages_are_refused_where_a_domain_has_one():
    with pytest.raises(RecipeError, match=r"^adapter\.critic_stages: .* leave it at 1$"):
        build_adapter(AdapterConfig(critic_stages=2), Counting(), pytest.fail)


def test_no_failed_rollouts_or_no_wish_for_critics_asks_for_none(frozen_model):
    for critics, failed in ((2, ()), (0, FAILED)):
        adapter, engine = adapter_with(frozen_model, ["count to 2"], critics=critics)
        [proposal] = adapter.propose([ask(failed=failed)], 0, seed=5)
        assert proposal.critics == ()
        assert len(engine.calls) == 1


def test_no_asks_make_no_proposals_and_no_calls(frozen_model):
    adapter, engine = adapter_with(frozen_model, ["count to 2"])
    assert adapter.propose([], 0, seed=5) == []
    assert engine.calls == []


def test_a_candidate_that_is_no_task_is_refused(frozen_model, monkeypatch):
    adapter, _ = adapter_with(frozen_model, ["count to 2"])
    candidate = Task("s1@0", "count to 2", data={"to": {2}})
    monkeypatch.setattr(Counting, "parse_candidate", lambda *_: candidate)
    [proposal] = adapter.propose([ask()], iteration=0, seed=5)
    assert proposal.task is None
    assert "cannot be kept as JSON" in proposal.refused[0].text


class Cut(LocalChatModel):
    """Answers that begin with CUT were cut off."""

    def answer(self, questions: Sequence[ChatRequest], sampling: Sampling, on_samples: Any = None):
        groups = super().answer(questions, sampling, on_samples)
        return [
            [replace(c, stop_reason="length") if c.text.startswith("CUT") else c for c in group]
            for group in groups
        ]


def test_critics_and_candidates_that_were_cut_off_count_for_nothing(frozen_model):
    def script(prompt: str, seed: int) -> str:
        if "CRITIC" in prompt:
            return "CUT it would have" if "f1" in prompt else "it stood still"
        return "CUT count to 1" if seed == derive(5, "goal", "s1", 0) else "count to 2"

    engine = ScriptedEngine(frozen_model, script)
    chat_model = Cut(frozen_model, engine)
    adapter = LLMAdapter(chat_model, Counting(), Sampling(0.8, 16), 2, 2)
    [proposal] = adapter.propose([ask()], 0, seed=5)
    assert proposal.critics == ("it stood still",)
    assert proposal.task is not None
    assert proposal.task.instruction == "count to 2"
    [refusal] = proposal.refused
    assert refusal.stage == "unreadable"
    assert refusal.text.endswith("it was cut off: raise adapter.max_tokens")


def test_a_domain_that_breaks_is_not_mistaken_for_an_invalid_task(frozen_model, monkeypatch):
    adapter, _ = adapter_with(frozen_model, ["count to 2"])

    def broken(*_):
        raise KeyError("a bug")

    monkeypatch.setattr(Counting, "parse_candidate", broken)
    line = (
        r"Counting.parse_candidate failed for s1@0 and the answer .count to 2. \(KeyError: 'a bug'"
    )
    with pytest.raises(DomainError, match=line):
        adapter.propose([ask()], 0, seed=5)


def test_a_candidate_has_its_slots_id_whatever_the_domain_calls_it(frozen_model, monkeypatch):
    adapter, _ = adapter_with(frozen_model, ["count to 2"], ("s1", "s2"))
    monkeypatch.setattr(Counting, "parse_candidate", lambda *_: Task("root", "count to 2"))
    proposals = propose(adapter, [ask("s1"), ask("s2")], 7, seed=5)
    assert [each.task and each.task.id for each in proposals] == ["s1@7", "s2@7"]


@pytest.mark.parametrize("task", [Task("root", "count to 2"), "count to 2"])
def test_a_candidate_of_an_adapter_of_ones_own_that_has_another_id_is_refused(task):
    class Own:
        def propose(self, requests, iteration, seed):
            return [Proposal(request.slot, task, (), ()) for request in requests]

    with pytest.raises(PluginError, match=r"return None, or a Task with the id 's1@"):
        propose(Own(), [ask()], 7, seed=5)


@given(
    st.integers(1, 4).flatmap(
        lambda m: st.lists(st.tuples(*[st.sampled_from((-1, 0, 1))] * m), max_size=6)
    )
)
def test_rejected_steps_are_those_that_all_judgements_reject_or_some(scores):
    by_all = [i for i, row in enumerate(scores) if set(row) == {-1}]
    by_some = [i for i, row in enumerate(scores) if -1 in row]
    assert rejected_steps(judged("f", scores), "all") == by_all
    assert rejected_steps(judged("f", scores), "some") == by_some


def test_a_speaker_counts_a_prompt_with_every_answer_and_forgets_what_was_taken(frozen_model):
    engine = ScriptedEngine(frozen_model, lambda prompt, seed: "yes")
    chat_model = LocalChatModel(frozen_model, engine)
    question = ChatRequest((Message("user", "Well?"),), (1, 2, 3))
    [answers] = chat_model.answer([question], Sampling(1.0, 16))
    assert chat_model.pop_usage() == {
        "requests": 3,
        "prompt_tokens": 3 * len(answers[0].prompt_ids),
        "completion_tokens": sum(len(each.token_ids) for each in answers),
        "too_long": 0,
    }
    assert set(chat_model.pop_usage().values()) == {0}
