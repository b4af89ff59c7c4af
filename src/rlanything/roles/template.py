"""A model's chat template: adapts chats to it, and renders them so that no turn can be forged."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from rlanything.domains.calls import HERMES, family_of, parse_calls
from rlanything.domains.thoughts import KNOWN, THINK, THOUGHT_KEYS, Reasoning
from rlanything.engines.base import ModelError
from rlanything.engines.hf.damage import rendering
from rlanything.engines.hf.text import ModelText
from rlanything.engines.hf.vision_spec import VisionSpec
from rlanything.records import ChatRole, Message, Messages, ToolCall
from rlanything.roles.tools import (
    CALL_MARKS,
    PROBE_CALLS,
    PROBE_TOOL,
    Tools,
    call_id,
    everywhere,
    probe,
    shows_tools,
    template_call,
    template_tools,
    tools_in_words,
)
from rlanything.surrogates import whole_characters

# The only clock that templates have.
_CLOCK = re.compile(r"""strftime_now\s*\(\s*(["'])([^"']*)\1\s*\)""")
_AN_ELEMENT = re.compile(r"</?[\w:-]+>")
_A_CONTROL = re.compile(r"<[|｜].*[|｜]>")
_A_BEGUN_MARK = re.compile(r"[<\[][^<>\[\]\s]*\Z")
_ONE, _OTHER = "What is 7 x 6?", "It is 42."


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered chat that ends where the model is to answer."""

    ids: tuple[int, ...]
    text: str
    images: tuple[str, ...] = ()
    """Names of the images in it, in order."""
    unread: tuple[str, ...] = ()
    """Fields of the request that the prompt does not contain."""
    family: str = HERMES
    """The family in whose format the model is to write calls."""


def find_reasoning(model: ModelText) -> Reasoning:
    """Returns the marks around a model's reasoning; `<think>` if it has none of its own.

    Raises `ModelError` if its reasoning could not be separated from its answer."""
    tokenizer = model.tokenizer
    added = (token.content for token in tokenizer.added_tokens_decoder.values())
    known = "\n".join((tokenizer.get_chat_template(), *added))
    marks = [pair for pair in KNOWN if pair.begins in known or pair.ends in known]
    if len(marks) > 1 or (not marks and _shows_reasoning(tokenizer)):
        names = " and ".join(f"{pair.begins} ... {pair.ends}" for pair in marks) or "none known"
        raise ModelError(
            f"model {model.name!r}: its reasoning cannot be separated from its answers (marks: "
            f"{names}); give it a chat template with <think> and </think>, or choose another model"
        )
    return marks[0] if marks else THINK


def _shows_reasoning(tokenizer: Any) -> bool:
    """Whether the template renders an assistant's reasoning."""
    thought = "What can it be?"
    for key in THOUGHT_KEYS:
        turns = [
            {"role": "user", "content": "Is it so?"},
            {"role": "assistant", "content": "It is.", key: thought},
        ]
        try:
            with rendering(str(tokenizer.name_or_path)):
                if thought in str(tokenizer.apply_chat_template(turns, tokenize=False)):
                    return True
        except ModelError:
            continue  # the template refuses this chat
    return False


class ChatTemplate:
    """Renders chats with a model's template.

    A chat is first adapted to what the template supports. Functions become text if the template
    does not render them, or writes calls in a format that cannot be parsed here. A refused system
    message moves to the start of the first user message, or becomes a user message later in a chat.
    Adjacent messages of one role are joined if the template refuses them."""

    def __init__(
        self, model: ModelText, reasoning: Reasoning, day: datetime, options: Mapping[str, Any]
    ) -> None:
        """`options`: variables of the template (`chat_template_kwargs`). Raises `ModelError` for
        options that it does not read, and for a template that computes its date format."""
        self._model = model
        self._template = _dated(model, day)
        self._options = options
        self._reserved = set(inspect.signature(model.tokenizer.apply_chat_template).parameters)
        self._check_options(options)
        if unread := self._unread_options(options):
            raise ModelError(
                f"model {model.name!r}: its chat template does not read {unread[0]!r}; leave it "
                "out of chat_template_kwargs"
            )
        self._special: re.Pattern[str] | None = None
        self._in_parts = model.vision is not None and self._shows_parts(model.vision)
        self._names_calls = self.unknown_calls = False
        self._family = self._find_family()
        marks = sorted(self._marks(reasoning), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, marks))) if marks else None

    def render(
        self, messages: Messages, tools: Tools = (), options: Mapping[str, Any] | None = None
    ) -> Prompt:
        """Returns the prompt of a chat, without its tokens. `options`: further variables of the
        template. Raises `ModelError` for a chat that the template refuses."""
        more = dict(options or {})
        self._check_options(more)
        for name, value in more.items():
            if name in self._options and self._options[name] != value:
                raise ModelError(
                    f"chat_template_kwargs: {name} is {json.dumps(self._options[name])} in this "
                    "run; leave it out"
                )
        of_tools = tools or any(message.calls or message.role == "tool" for message in messages)
        chat, offered, family = messages, tools, self._family
        if of_tools and not self._has_place_for(messages):
            chat, offered, family = tools_in_words(messages, tools), (), HERMES
        try:
            turns = self._turns(self._fitted(chat))
            listed = template_tools(offered, self._harmless)
        except RecursionError:
            raise ModelError(
                "a tool, or the arguments of a call, is nested too deeply; send a flatter one"
            ) from None
        text = self._apply(turns, listed, options=more)
        unread = [f"chat_template_kwargs.{name}" for name in self._unread_options(more)]
        # Some templates cut answers that contain reasoning marks.
        answers = [message.content for message in messages if message.role == "assistant"]
        if any(self._harmless(answer).strip() not in text for answer in answers):
            unread.append("messages.content")
        if any(message.thought for message in messages):
            unread += self._unshown(turns, listed, self._thought_key, "messages.reasoning_content")
        if _renames(messages):
            unread += self._unshown(turns, listed, "name", "messages.name")
        return Prompt((), text, unread=tuple(unread), family=family)

    def _unshown(
        self, turns: list[dict[str, Any]], tools: list[dict[str, Any]] | None, key: str, field: str
    ) -> list[str]:
        """Returns [field] if the template leaves its `key` out of a turn, or no turn has it any
        more; else []."""
        places = [i for i, turn in enumerate(turns) if key in turn]
        marked = [dict(turn) for turn in turns]
        for i in places:
            marked[i][key] = f"§{i}§"
        shown = self._tried(marked, tools)
        return [] if places and all(f"§{i}§" in shown for i in places) else [field]

    def _fitted(self, messages: Messages) -> Messages:
        """Returns a chat without constructs that the template refuses."""
        chat: list[Message] = []
        for message in messages:
            if message.role == "system" and chat and not self._takes_later_system:
                if chat[-1].role == "system":
                    chat[-1] = _joined(chat[-1], message)
                    continue
                message = replace(message, role="user")
            chat.append(message)
        if chat and chat[0].role == "system" and not self._takes_system:
            while len(chat) > 1 and chat[1].role in ("system", "user"):
                chat[:2] = [_joined(chat[0], chat[1])]
                if chat[0].role == "user":
                    break
            chat[0] = replace(chat[0], role="user")
        fitted: list[Message] = []
        for message in chat:
            if fitted and _alike(fitted[-1], message) and not self._takes_neighbours:
                fitted[-1] = _joined(fitted[-1], message)
            else:
                fitted.append(message)
        return tuple(fitted)

    def _turns(self, messages: Messages) -> list[dict[str, Any]]:
        """Returns messages in the format of templates. Results are matched with the calls before
        them, in order."""
        turns: list[dict[str, Any]] = []
        waiting: list[tuple[int, ToolCall]] = []
        calls = 0
        for message in messages:
            turn: dict[str, Any] = {"role": message.role, "content": self._content(message)}
            if message.thought:
                turn[self._thought_key] = self._harmless(message.thought)
            if message.calls:
                waiting = [*enumerate(message.calls, calls)]
                calls += len(waiting)
                turn["tool_calls"] = [
                    template_call(call, number, self._harmless, self._names_calls)
                    for number, call in waiting
                ]
            if message.role == "tool":
                number, call = waiting.pop(0) if waiting else (calls, None)
                name = call.name if call else ""
                turn["tool_call_id"] = self._harmless(call_id(number, name, self._names_calls))
                if name := message.name or name:
                    turn["name"] = self._harmless(name)
            turns.append(turn)
        return turns

    def _content(self, message: Message) -> Any:
        text = self._harmless(message.content)
        if not self._in_parts:
            return text
        images = [{"type": "image"} for _ in message.images]
        return [{"type": "text", "text": text}, *images]

    def _shows_parts(self, spec: VisionSpec) -> bool:
        """Whether the template accepts a message that is a list of texts and images."""
        words = "Is it so?"
        parts = [{"type": "text", "text": words}, {"type": "image"}]
        shown = self._tried([{"role": "user", "content": parts}])
        return shown.count(spec.token) == 1 and shown.count(words) == 1

    @cached_property
    def _takes_system(self) -> bool:
        return self._shows_both(("system", _OTHER), ("user", _ONE))

    @cached_property
    def _takes_later_system(self) -> bool:
        return self._shows_both(
            ("user", "7"), ("assistant", "8"), ("system", _OTHER), ("user", _ONE)
        )

    @cached_property
    def _takes_neighbours(self) -> bool:
        return self._shows_both(("user", _OTHER), ("user", _ONE))

    def _shows_both(self, *said: tuple[ChatRole, str]) -> bool:
        """Whether the template renders a chat with its texts `_ONE` and `_OTHER`."""
        shown = self._tried(self._turns(tuple(Message(role, text) for role, text in said)))
        return _ONE in shown and _OTHER in shown

    @cached_property
    def _thought_key(self) -> str:
        """The template's key for an assistant's reasoning."""
        for key in THOUGHT_KEYS:
            for chat in ((Message("user", _ONE), Message("assistant", _OTHER)), probe(1)):
                turns = self._turns(chat)
                turns[1][key] = "Seven times six"
                if "Seven times six" in self._tried(turns):
                    return key
        return THOUGHT_KEYS[0]

    def _has_place_for(self, messages: Messages) -> bool:
        """Whether the template renders all of a chat's calls and the texts before them, in a format
        that can be parsed here."""
        called = [message for message in messages if message.calls]
        return (
            self._shows_call
            and (self._shows_calls or all(len(message.calls) == 1 for message in called))
            and (self._shows_text or not any(message.content for message in called))
        )

    @cached_property
    def _shows_call(self) -> bool:
        return self._shows(1)

    @cached_property
    def _shows_calls(self) -> bool:
        return self._shows(2)

    @cached_property
    def _shows_text(self) -> bool:
        return self._shows(1, _OTHER)

    def _find_family(self) -> str:
        """Returns the family in whose format the template writes calls; Hermes if it has none."""
        for self._names_calls in (False, True):
            written = self._written(1)
            if family := family_of(written, [PROBE_TOOL], PROBE_CALLS[:1]):
                return family
            self.unknown_calls = json.loads(PROBE_CALLS[0].arguments)["word"] in written
        return HERMES

    def _shows(self, calls: int, text: str = "") -> bool:
        """Whether the template renders this many calls of one message, and the text before them, in
        a format that can be parsed from an answer."""
        said = parse_calls(self._written(calls, text), [PROBE_TOOL], self._family)
        return said.calls == PROBE_CALLS[:calls] and text in said.content

    def _written(self, calls: int, text: str = "") -> str:
        """Returns a turn with this many calls, and text before them, as an answer writes it; empty
        if the template does not render functions and results."""
        chat = probe(calls, text)
        tools = template_tools([PROBE_TOOL], str)
        if not shows_tools(self._tried(self._turns(chat), tools), calls):
            return ""
        plain = (chat[0], Message("assistant", "§"))
        with_calls = self._tried(self._turns(chat[:2]), tools, answering=False)
        without, _, after = self._tried(self._turns(plain), tools, answering=False).rpartition("§")
        # The turn's first mark may begin as other turns' does.
        shared = os.path.commonprefix([with_calls, without])  # noqa: RUF071 (texts, not paths)
        before = _A_BEGUN_MARK.sub("", shared)
        return with_calls[len(before) :].removesuffix(after)

    def _tried(
        self,
        turns: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        answering: bool = True,
    ) -> str:
        """Returns a rendered chat; empty if the template refuses it."""
        try:
            return self._apply(turns, tools, answering)
        except ModelError:
            return ""

    def _apply(
        self,
        turns: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        answering: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        given: Any = everywhere({**self._options, **(options or {})}, self._harmless)
        given |= {"tools": tools} if tools else {}
        with rendering(self._model.name):
            text = self._model.tokenizer.apply_chat_template(
                turns,
                chat_template=self._template,
                tokenize=False,
                add_generation_prompt=answering,
                **given,
            )
        return str(text)

    def _check_options(self, options: Mapping[str, Any]) -> None:
        taken = {"messages", *self._reserved}
        if wrong := [name for name in options if name in taken or not name.isidentifier()]:
            raise ModelError(
                f"chat_template_kwargs: {wrong[0]!r} is not a variable of a chat template; leave "
                "it out"
            )

    def _unread_options(self, options: Mapping[str, Any]) -> list[str]:
        source = self._template or self._model.tokenizer.get_chat_template()
        return [name for name in options if not re.search(rf"\b{re.escape(name)}\b", source)]

    def _marks(self, reasoning: Reasoning) -> set[str]:
        """Returns the tokens that begin or end turns. Other tokens may occur in messages: prompts
        name the marks of reasoning and calls, and answers in the history contain them."""
        model, tokenizer = self._model, self._model.tokenizer
        chats = [("user", "assistant", "user"), ("system", "user")]
        content = self._content(Message("user", "7"))
        turns = [[{"role": role, "content": content} for role in roles] for roles in chats]
        shown = "".join(map(self._tried, turns))
        called = self._tried(self._turns(probe(1)), template_tools([PROBE_TOOL], str))
        marks = {*tokenizer.all_special_tokens, *(model.decode([i]) for i in model.stop_ids)}
        for token in tokenizer.added_tokens_decoder.values():
            word = token.content.strip()
            # Some templates mark turns with added tokens that the tokenizer does not declare as
            # special. Marks of calls and results look like XML elements.
            between = word in shown or (word in called and not _AN_ELEMENT.fullmatch(word))
            control = token.special or _A_CONTROL.fullmatch(word)
            if control or (between and not word.isalnum()):
                marks.add(token.content)
        marks -= CALL_MARKS
        if reasoning.begins[:2] != "<|":  # gpt-oss marks other parts of turns with them too
            marks -= {reasoning.begins, reasoning.ends, THINK.begins, THINK.ends}
        if model.vision is not None:
            marks.add(model.vision.token)
        # A single character belongs to the language; it marks nothing.
        return {mark for mark in marks if len(mark.strip()) > 1}

    def _harmless(self, content: str) -> str:
        """Returns text without any mark of turns, so that no turn can be forged."""
        content = whole_characters(content)
        if self._special is None:
            return content
        return self._special.sub(lambda match: _torn(match[0]), content)


def _renames(messages: Messages) -> bool:
    """Whether a result's name differs from its call's."""
    waiting: list[ToolCall] = []
    for message in messages:
        waiting = [*message.calls] or waiting
        called = waiting.pop(0).name if message.role == "tool" and waiting else ""
        if message.name not in ("", called):
            return True
    return False


def _alike(one: Message, other: Message) -> bool:
    """Whether two messages can be joined."""
    same = one.role == other.role and one.role in ("user", "assistant")
    return same and not one.calls


def _joined(one: Message, other: Message) -> Message:
    """Returns two messages as one, with the role of the second."""
    return replace(
        other,
        content="\n\n".join(filter(None, (one.content, other.content))),
        images=one.images + other.images,
        thought="\n\n".join(filter(None, (one.thought, other.thought))),
    )


def _torn(token: str) -> str:
    """Returns a special token's text with a blank after its first visible character."""
    first = len(token) - len(token.lstrip()) + 1
    return f"{token[:first]} {token[first:]}"


def _dated(model: ModelText, day: datetime) -> str | None:
    """Returns the model's template with calls for the date replaced by this day; None: it has none.
    Raises `ModelError` if the template computes the date format while it renders."""
    template = model.tokenizer.get_chat_template()
    dated = _CLOCK.sub(lambda match: json.dumps(day.strftime(match[2])), template)
    if re.search(r"strftime_now\s*\(", dated):
        raise ModelError(
            f"model {model.name!r}: its chat template computes the format of a date, so that a "
            "run could not be resumed on another day; write the format into chat_template.jinja, "
            'as in strftime_now("%d %b %Y")'
        )
    return None if dated == template else dated
