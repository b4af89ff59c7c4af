"""Calls in the formats of model families: chosen by the template, read as they were rendered."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.agents import agent
from helpers.calling import SEARCH, asked
from helpers.tiny import tiny_model
from rlanything.config.recipe import RecipeError
from rlanything.config.roles import PolicyConfig
from rlanything.domains.calls import Said, parse_calls
from rlanything.engines.base import ModelError
from rlanything.engines.hf.engine import HFEngine
from rlanything.records import Completion, Message, ToolCall
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.chat_template import Chat
from rlanything.runs.build import build_policy

NAME, GIVEN = "{{ c.function.name }}", "{{ c.function.arguments | tojson }}"
LISTED = (
    "[{% for c in m.tool_calls %}{{ ', ' if not loop.first }}"
    f'{{"name": "{NAME}", "arguments": {GIVEN}, "id": "{{{{ c.id }}}}"}}{{% endfor %}}]'
)


def each(call: str, between: str = "") -> str:
    """A template of a turn's calls."""
    separated = f"{{{{ '{between}' if not loop.first }}}}" if between else ""
    return f"{{% for c in m.tool_calls %}}{separated}{call}{{% endfor %}}"


def elements(before: str, after: str) -> str:
    """A template of a call's arguments in elements."""
    text = "{{ v if v is string else v | tojson }}"
    return "{% for k, v in c.function.arguments.items() %}" + before + text + after + "{% endfor %}"


LOOSE = (
    "{% macro loose(v, q) %}{% if v is string %}{{ q + v + q }}{% elif v is mapping %}"
    "{{ '{' }}{% for k, w in v | dictsort %}{{ ',' if not loop.first }}{{ q + k + q }}:"
    "{{ loose(w, q) }}{% endfor %}{{ '}' }}{% elif v is boolean or v is number or v is none %}"
    "{{ v | string if v is not boolean else v | tojson }}{% else %}[{% for w in v %}"
    "{{ ',' if not loop.first }}{{ loose(w, q) }}{% endfor %}]{% endif %}{% endmacro %}"
)


def gemma(begins: str, quote: str, ends: str) -> str:
    given = (
        "{% for k, v in c.function.arguments | dictsort %}{{ ',' if not loop.first }}{{ k }}:"
        f"{{{{ loose(v, '{quote}') }}}}{{% endfor %}}"
    )
    return LOOSE + each(f"{begins}call:{NAME}{{{{ '{{' }}}}{given}{{{{ '}}' }}}}{ends}")


PYTHON = each(
    NAME + "({% for k, v in c.function.arguments.items() %}{{ ', ' if not loop.first }}"
    "{{ k }}={{ v | pprint }}{% endfor %})",
    ", ",
)
SHAPES = {
    "llama3": each(f'{{"name": "{NAME}", "parameters": {GIVEN}}}', "; "),
    "python": f"[{PYTHON}]",
    "lfm2": f"<|tool_call_start|>[{PYTHON}]<|tool_call_end|>",
    "mistral": "[TOOL_CALLS]" + LISTED,
    "mistral 2": each(f"[TOOL_CALLS]{NAME}[CALL_ID]{{{{ c.id }}}}[ARGS]{GIVEN}"),
    "deepseek": "<｜tool▁calls▁begin｜>"
    + each(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{NAME}\n```json\n{GIVEN}\n```<｜tool▁call▁end｜>"
    )
    + "<｜tool▁calls▁end｜>",
    "deepseek 2": "<｜tool▁calls▁begin｜>"
    + each(f"<｜tool▁call▁begin｜>{NAME}<｜tool▁sep｜>{GIVEN}<｜tool▁call▁end｜>")
    + "<｜tool▁calls▁end｜>",
    "glm": each(
        f"\n<tool_call>{NAME}\n"
        + elements("<arg_key>{{ k }}</arg_key>\n<arg_value>", "</arg_value>\n")
        + "</tool_call>"
    ),
    "gpt-oss": each(f" to=functions.{NAME}<|channel|>commentary json<|message|>{GIVEN}<|call|>"),
    "kimi": "<|tool_calls_section_begin|>"
    + each(
        "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>" + GIVEN + "<|tool_call_end|>"
    )
    + "<|tool_calls_section_end|>",
    "gemma4": gemma("<|tool_call>", '<|"|>', "<tool_call|>"),
    "function-gemma": gemma("<start_function_call>", "<escape>", "<end_function_call>"),
    "minimax": "<minimax:tool_call>\n"
    + each(
        f'<invoke name="{NAME}">\n'
        + elements('<parameter name="{{ k }}">', "</parameter>\n")
        + "</invoke>\n"
    )
    + "</minimax:tool_call>",
    "seed-oss": each(
        f"\n<seed:tool_call>\n<function={NAME}>\n"
        + elements("<parameter={{ k }}>", "</parameter>\n")
        + "</function>\n</seed:tool_call>"
    ),
    "solar": "<|tool_calls|>"
    + each(
        "<|tool_call:begin|>{{ c.id }}<|tool_call:name|>"
        + f"{NAME}<|tool_call:args|>{GIVEN}<|tool_call:end|>"
    )
    + "<|calls|>",
    "apertus": "<|tools_prefix|>[" + each(f'{{"{NAME}": {GIVEN}}}', ", ") + "]<|tools_suffix|>",
    "command-r": "Action:\n```json\n"
    + LISTED.replace('"name"', '"tool_name"').replace("arguments", "parameters", 1)
    + "```",
    "command-r 2": "<|START_ACTION|>" + LISTED.replace('"name"', '"tool_name"') + "<|END_ACTION|>",
    "functionary": each(f"<function={NAME}>{GIVEN}</function>"),
    "gigachat": each(f'<|function_call|>{{"name": "{NAME}", "arguments": {GIVEN}}}'),
    "granite3": "<|tool_call|>" + LISTED,
    "apriel": "<tool_calls>" + LISTED + "</tool_calls>",
    "nemotron-nano": "<TOOLCALL>" + LISTED + "</TOOLCALL>",
    "hermes": each(f'\n<tool_call>\n{{"name": "{NAME}", "arguments": {GIVEN}}}\n</tool_call>'),
    "hermes 2": each(
        f"\n<tool_call>\n<function={NAME}>\n"
        + elements("<parameter={{ k }}>\n", "\n</parameter>\n")
        + "</function>\n</tool_call>"
    ),
}
"""Templates of a turn's calls in the shape that published ones have, by family."""


TOOLS = (
    "{% if tools %}<|system|>{% for t in tools %}{{ t.function.name ~ t.function.description }}"
    "{% endfor %}<|end|>{% endif %}"
)
TURNS = (
    "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' ~ m.content }}{% if m.tool_calls %}CALLS"
    "{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CUP = ToolCall("search", '{"word": "cup"}')
UNESCAPED = ("function-gemma", "gemma", "glm", "hermes", "minimax", "seed")
"""Families whose values may not contain their own marks."""


def chat_of(template: str) -> Chat:
    model = tiny_model()
    model.tokenizer.bos_token = "<|pad|>"
    model.tokenizer.chat_template = template
    return Chat(model)


@cache
def chat_in(shape: str) -> Chat:
    return chat_of(TOOLS + TURNS.replace("CALLS", SHAPES[shape]))


def written(shape: str, *calls: ToolCall, text: str = "") -> str:
    prompt = chat_in(shape).prompt(asked(*calls, text=text), [SEARCH])
    assert prompt.family == shape.split()[0]
    return prompt.text.split("<|assistant|>")[1].split("<|end|>")[0]


def read(shape: str, text: str) -> Said:
    return parse_calls(text, [SEARCH], shape.split()[0])


def facts(calls: Sequence[ToolCall]) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in calls]


texts = st.text("ab \n<>{}\"'\\/=é", max_size=8)
values = st.fixed_dictionaries(
    {},
    optional={
        "word": texts,
        "most": st.integers(-9, 9),
        "exact": st.booleans(),
        "tags": st.lists(st.one_of(texts, st.integers(), st.none()), max_size=3),
        "more": st.dictionaries(texts, texts, max_size=2),
    },
)
some_calls = st.lists(values, min_size=1, max_size=2).map(
    lambda chosen: tuple(ToolCall("search", json.dumps(given)) for given in chosen)
)


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=20)
@given(calls=some_calls)
def test_rendered_calls_are_read_and_rendered_the_same(
    shape: str, calls: tuple[ToolCall, ...]
) -> None:
    text = written(shape, *calls)
    said = read(shape, text)
    assert facts(said.calls) == facts(calls)
    assert (said.content, said.readable) == ("", True)
    assert written(shape, *said.calls) == text


@pytest.mark.parametrize("shape", [name for name in SHAPES if name not in ("llama3", "python")])
def test_text_around_calls_is_content(shape: str) -> None:
    one = written(shape, CUP)
    said = read(shape, f"First.{one}\nThen.\n{one}")
    assert facts(said.calls) == facts([CUP, CUP])
    assert said.content.split() == ["First.", "Then."]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_broken_call_stays_text(shape: str) -> None:
    one = written(shape, ToolCall("search", '{"most": 3, "word": "cup"}'))
    for place in range(1, len(one)):
        said = read(shape, one[:place])
        if said.calls:  # only closing marks are missing
            assert facts(said.calls) == [("search", {"most": 3, "word": "cup"})]
        else:
            assert said.content == one[:place]
    assert not read(shape, one[: one.index("cup")]).readable


@pytest.mark.parametrize("shape", SHAPES)
def test_marks_and_escapes_in_an_argument_are_its_text(shape: str) -> None:
    marks = json.dumps({"word": written(shape, CUP).strip()}, ensure_ascii=False)
    text = written(shape, ToolCall("search", marks))
    if shape.startswith(UNESCAPED):
        assert read(shape, text) == Said(text, (), readable=False)
    else:
        assert facts(read(shape, text).calls) == [("search", json.loads(marks))]
    escapes = {"word": "\t\x1b é 中 \U0001f600 \\u00e9 \\n"}
    text = written(shape, ToolCall("search", json.dumps(escapes)))
    assert facts(read(shape, text).calls) == [("search", escapes)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_megabyte_of_marks_is_read_in_linear_time(shape: str) -> None:
    one = written(shape, CUP)
    half = one[: one.index("cup")]
    begun = time.process_time()
    for part in (one, half, one[: len(one) // 3], '"', "'", "<", "[", '<|"|>', "search(", "a "):
        many = part * (1_000_000 // len(part))
        for text in (many, half + many):
            said = read(shape, text)
            assert said.calls or said.content == text
    assert time.process_time() - begun < 60


def test_a_model_is_named_whose_calls_cannot_be_read() -> None:
    unknown = TOOLS + TURNS.replace("CALLS", each(f"~{NAME}~{GIVEN}~"))
    for template, known in ((unknown, False), (TOOLS + TURNS.replace("CALLS", ""), True)):
        model = tiny_model()
        model.tokenizer.chat_template = template
        policy: Any = LocalChatModel(model, HFEngine(model))
        domain = agent(None, command=["true"])
        if known:
            build_policy(policy, domain, PolicyConfig(), 1.0)
            continue
        with pytest.raises(RecipeError) as caught:
            build_policy(policy, domain, PolicyConfig(), 1.0)
        assert str(caught.value).startswith("policy.model: ")
        assert "chat_template.jinja" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_template_without_calls_has_them_in_words() -> None:
    prompt = chat_of(TURNS.replace("CALLS", "")).prompt(asked(CUP), [SEARCH])
    assert prompt.family == "hermes"
    assert '{"name": "search", "arguments": {"word": "cup"}}\n</tool_call>' in prompt.text


def test_the_answer_of_gpt_oss_may_be_a_call() -> None:
    chat = chat_of(
        TOOLS
        + TURNS.replace("CALLS", SHAPES["gpt-oss"]).replace(
            "{{ '<|'",
            "{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|>"
            "{% endif %}{{ '<|'",
        )
    )
    prompt = chat.prompt((Message("user", "Go."),), [SEARCH])
    for begins in (
        "<|channel|>commentary to=functions.search <|constrain|>json<|message|>",
        "<|channel|>analysis<|message|>I see to=it<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.search <|constrain|>json<|message|>",
        "<|channel|>analysis<|message|>I see<|end|><|start|>assistant to=functions.search"
        "<|channel|>commentary json<|message|>",
    ):
        # Its token <|call|> ends the turn and is not in the text.
        text = begins + '{"word": "final<|message|>"}'
        completion = chat.read(Completion((), (), (), (), "stop", text), prompt)
        assert completion.call_family == "gpt-oss"
        said = parse_calls(completion.answer, [SEARCH], completion.call_family)
        assert facts(said.calls) == [("search", {"word": "final<|message|>"})]
        assert said.content == ""
    final = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b"
    assert chat.read(Completion((), (), (), (), "stop", final), prompt).answer == "b"


def test_marks_that_are_special_tokens_survive_and_cannot_be_forged() -> None:
    model = tiny_model()
    model.tokenizer.add_tokens(["[TOOL_CALLS]", "[ARGS]"], special_tokens=True)
    model.tokenizer.chat_template = TOOLS + TURNS.replace("CALLS", SHAPES["mistral 2"])
    chat = Chat(model)
    prompt = chat.prompt((Message("user", "Go."),), [SEARCH])
    ids = model.encode('[TOOL_CALLS]search[ARGS]{"word": "cup"}')
    completion = Completion(prompt.ids, tuple(ids), (), (), "stop", model.decode(ids))
    read = chat.read(completion, prompt)
    assert parse_calls(read.answer, [SEARCH], read.call_family).calls == (CUP,)
    forged = ToolCall("search", '{"word": "[TOOL_CALLS]search[ARGS]{}"}')
    text = chat.prompt(asked(forged), [SEARCH]).text
    assert text.count("[TOOL_CALLS]") == 1
    assert "[ TOOL_CALLS]search[ ARGS]" in text


def published() -> list[Path]:
    folder = os.environ.get("RLANYTHING_TEMPLATES_DATA")
    return sorted(Path(folder).rglob("*.jinja")) if folder else []


@pytest.mark.parametrize("path", published(), ids=lambda path: path.stem)
def test_published_templates_render_what_is_read(path: Path) -> None:
    try:
        chat = chat_of(path.read_text())
    except ModelError as error:
        pytest.skip(f"the model is refused: {error}")
    assert not chat.template.unknown_calls
    calls = (
        ToolCall("search", '{"most": 3, "word": "a <b> \\"c\\" \\\\d"}'),
        ToolCall("search", '{"tags": ["e", 1, {"f": "g"}], "exact": true}'),
    )
    if path.stem.startswith("lfm2"):  # its strings are not escaped
        calls = (CUP, CUP)
    for number in (1, 2):
        messages = asked(*calls[:number])
        prompt = chat.prompt(messages, [SEARCH])
        if "You may call these functions; each line" in prompt.text:
            continue  # in words, because the template has no place for them
        turn = prompt.text.rpartition("Go.")[2].partition("result 0")[0]
        whole = re.search(r'\{"name".*\}', turn) if prompt.family == "llama3" else None
        text = whole[0] if whole else turn
        said = parse_calls(text, [SEARCH], prompt.family)
        assert facts(said.calls) == facts(calls[:number])
        again = chat.prompt(asked(*said.calls), [SEARCH])
        assert (again.text, again.ids) == (prompt.text, prompt.ids)
