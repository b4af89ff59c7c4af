"""Calls in the formats of model families: chosen by the template, read as they were rendered."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.tiny import tiny_model
from rlanything.domains.calls import family_of, parse_calls
from rlanything.engines.base import ModelError
from rlanything.records import Completion, Message, ToolCall
from rlanything.roles.chat_template import Chat
from rlanything_agent.call_formats import FAMILIES

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
#CUT
