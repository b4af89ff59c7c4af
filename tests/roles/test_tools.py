"""Requests of agents as a model is asked them: tools, stop, limits, and what cannot be rendered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from helpers.scripted import ScriptedEngine
from helpers.tiny import tiny_model
from rlanything.domains.requests import PromptTokens, RequestsRefused
from rlanything.engines.base import PromptsTooLong, Request, Sampling
from rlanything.engines.hf.engine import embedded_engine
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Completion, Message, ToolCall
from rlanything.roles.chat_model import Actions, ChatRequest, LocalChatModel
from rlanything.roles.chat_template import Chat

# As Qwen2.5's, without its preamble.
WITH_TOOLS = (
    "{% if tools %}<|system|><tools>"
    "{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools><|end|>{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'tool' %}"
    "<|user|><tool_response>{{ message.content }}</tool_response><|end|>"
    "{% elif message.tool_calls %}<|assistant|>{{ message.content }}"
    "{% for call in message.tool_calls %}"
    '<tool_call>{"name": "{{ call.function.name }}", '
    '"arguments": {{ call.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}<|end|>"
    "{% else %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endif %}"
    "{% endfor %}<|assistant|>"
)
PICKY = (
    "{% for message in messages %}"
    "{% if loop.first and message.role == 'assistant' %}"
    "{{ raise_exception('the user comes first') }}{% endif %}"
    "{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}"
    "{% endfor %}<|assistant|>"
)
TOOL = {"name": "search", "description": "Looks <|end|> up.", "parameters": {"type": "object"}}
CALL = '<tool_call>{"name": "search", "arguments": {"word": "cup"}}</tool_call>'
CHAT = (
    Message("user", "Go."),
    Message("assistant", "", calls=(ToolCall("search", '{"word": "cup"}'),)),
    Message("tool", "a <|user|> cup"),
)


def model_with(template: str) -> LanguageModel:
    model = tiny_model()
    model.tokenizer.chat_template = template
    return model


def test_tools_calls_and_results_stand_where_the_template_has_them() -> None:
    text = Chat(model_with(WITH_TOOLS)).prompt(CHAT, [TOOL]).text
    assert text.startswith("<|system|><tools>")
    assert '"description": "Looks < |end|> up."' in text
    assert f"<|assistant|>{CALL}<|end|>" in text
    assert "<tool_response>a < |user|> cup</tool_response>" in text
    assert text.count("<|end|>") == 4


def test_a_template_without_tools_is_told_in_words() -> None:
    chat = Chat(tiny_model())
    text = chat.prompt(CHAT, [TOOL]).text
    assert text.startswith("<|system|># Tools")
    assert '"name": "search"' in text
    assert '<tool_call>\n{"name": "search", "arguments": {"word": "cup"}}\n</tool_call>' in text
    assert "<|user|><tool_response>\na < |user|> cup" in text
    system = (Message("system", "Be brief."), *CHAT)
    assert chat.prompt(system, [TOOL]).text.startswith("<|system|>Be brief.\n\n# Tools")


def test_a_call_that_was_sampled_stays_as_it_was_sampled() -> None:
    model = model_with(WITH_TOOLS)
    chat = Chat(model)
    first = chat.prompt(CHAT[:1], [TOOL])
    # Any tokens that spell it, not those that the tokenizer would choose.
    ids = tuple(token for letter in CALL for token in model.encode(letter))
    said = Completion((), (*ids, model.stop_ids[0]), (), (), "stop", CALL)
    following = chat.following(first, said, CHAT, [TOOL])
    begun = (*first.ids, *said.token_ids)
    assert following.ids[: len(begun)] == begun
    assert model.decode(following.ids) == following.text


def answered(text: str, *, stop: tuple[str, ...]) -> Completion:
    model = tiny_model()
    chat_model = LocalChatModel(model, ScriptedEngine(model, lambda prompt, seed: text))
    question = ChatRequest((Message("user", "Go."),), (0,), stop=stop)
    return chat_model.answer([question], Sampling(1.0, 64))[0][0]


@pytest.mark.parametrize(
    ("stop", "text", "reason"),
    [
        (("Observation:",), "Look around.\n", "stop"),
        (("around", "Observation"), "Look ", "stop"),
        (("nowhere",), "Look around.\nObservation: a cup", "stop"),
        ((), "Look around.\nObservation: a cup", "stop"),
    ],
)
def test_an_answer_ends_before_a_stop_and_keeps_what_was_sampled_up_to_it(
    stop: tuple[str, ...], text: str, reason: str
) -> None:
    whole = answered("Look around.\nObservation: a cup", stop=())
    cut = answered("Look around.\nObservation: a cup", stop=stop)
    assert (cut.text, cut.stop_reason) == (text, reason)
    kept = len(cut.token_ids)
    assert cut.token_ids == whole.token_ids[:kept]
    assert (len(cut.logprobs), len(cut.allowed)) == (kept, kept)
    said = tiny_model().decode(cut.token_ids)
    assert said.startswith(text)
    if text != whole.text:
        shortest = tiny_model().decode(cut.token_ids[:-1])
        assert not any(word in shortest for word in stop)


def test_a_stop_inside_the_reasoning_ends_nothing() -> None:
    cut = answered("<think>Stop here?</think>Go. Stop now.", stop=("Stop",))
    assert cut.answer == "Go. "


def test_each_request_has_its_own_limit_and_the_same_tokens_up_to_it() -> None:
    model = tiny_model()
    chat_model = LocalChatModel(model, embedded_engine(model))
    whole = ChatRequest((Message("user", "You see a cup"),), (7,))
    questions = [replace(whole, max_tokens=limit) for limit in (None, 3, 99, 5, 3)]
    answers = [group[0] for group in chat_model.answer(questions, Sampling(1.0, 8))]
    lengths = [min(limit, len(answers[0].token_ids)) for limit in (8, 3, 8, 5, 3)]
    assert [len(answer.token_ids) for answer in answers] == lengths
    for answer, length in zip(answers, lengths, strict=True):
        assert answer.token_ids == answers[0].token_ids[:length]
        assert answer.logprobs == pytest.approx(answers[0].logprobs[:length], abs=1e-5)


def test_what_the_template_cannot_render_is_refused_before_anything_is_generated() -> None:
    model = model_with(PICKY)
    engine = ScriptedEngine(model, lambda prompt, seed: "fine")
    chat_model = LocalChatModel(model, engine)
    fine = ChatRequest((Message("user", "Go."),), (0,), refusable=True)
    odd = ChatRequest((Message("assistant", "Go."), Message("user", "No.")), (0,), refusable=True)
    with pytest.raises(RequestsRefused) as refused:
        chat_model.answer([fine, odd], Sampling(1.0, 8))
    assert list(refused.value.reasons) == [1]
    assert "the user comes first" in refused.value.reasons[1]
    assert engine.calls == []


def test_arguments_that_are_nested_too_deeply_are_refused() -> None:
    deep = '{"a": ' * 5000 + "1" + "}" * 5000
    chat_model = LocalChatModel(model := model_with(WITH_TOOLS), embedded_engine(model))
    call = Message("assistant", "", calls=(ToolCall("search", deep),))
    with pytest.raises(RequestsRefused) as refused:
        chat_model.answer([ChatRequest((*CHAT, call), (0,), refusable=True)], Sampling(1.0, 8))
    assert "nested too deeply; send a flatter one" in refused.value.reasons[0]


def test_requests_that_are_too_long_or_whose_actions_would_be_cut_are_refused_alone() -> None:
    model = tiny_model()
    long = ChatRequest((Message("user", "Go."),), (0,), refusable=True)

    class Short(ScriptedEngine):
        def generate(
            self, requests: Sequence[Request], sampling: Sampling, on_samples: Any = None
        ) -> Any:
            raise PromptsTooLong("policy: too long; raise it", [len(requests) - 1])

    chat_model = LocalChatModel(model, Short(model, lambda prompt, seed: "fine"))
    with pytest.raises(RequestsRefused) as refused:
        chat_model.answer([long, long], Sampling(1.0, 8))
    assert refused.value.reasons == {1: "policy: too long; raise it"}
    with pytest.raises(RequestsRefused) as refused:
        chat_model.answer([replace(long, refusable=False), long], Sampling(1.0, 8))
    assert list(refused.value.reasons) == [1]
    chat_model = LocalChatModel(model, ScriptedEngine(model, lambda prompt, seed: "fine"))
    assert model.context is not None
    room = Sampling(1.0, model.context)
    assert len(chat_model.answer([long], room)) == 1  # it does not ask for so many
    over = replace(long, messages=(Message("user", "Go. " * model.context),))
    with pytest.raises(RequestsRefused) as refused:
        chat_model.answer([long, over], Sampling(1.0, 8))
    assert list(refused.value.reasons) == [1]
    assert f"exceed its context of {model.context}; send fewer" in refused.value.reasons[1]
    chat_model.answer([long, replace(over, refusable=False)], Sampling(1.0, 8))
    cut = replace(long, actions=Actions(">", ("a very long action that is cut",), 0))
    with pytest.raises(RequestsRefused) as refused:
        chat_model.answer([cut], Sampling(1.0, 3))
    assert "policy.max_tokens: 3 would cut the action" in refused.value.reasons[0]


def test_a_prompt_whose_tokens_are_counted_is_not_answered() -> None:
    model = model_with(WITH_TOOLS)
    engine = ScriptedEngine(model, lambda prompt, seed: "fine")
    chat_model = LocalChatModel(model, engine)
    asked = ChatRequest(CHAT, (0,), tools=(TOOL,), refusable=True)
    with pytest.raises(RequestsRefused) as refused:
        chat_model.answer([asked, replace(asked, count_only=True)], Sampling(1.0, 8))
    [(place, count)] = refused.value.reasons.items()
    assert engine.calls == []
    [[answer]] = chat_model.answer([asked], Sampling(1.0, 8))
    assert (place, type(count), int(count)) == (1, PromptTokens, len(answer.prompt_ids))
