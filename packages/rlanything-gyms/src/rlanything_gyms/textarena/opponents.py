"""Opponents: the players in the other seats."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Tag

from rlanything.domains.base import CodeName, DomainError, DomainOptions, EndpointOptions
from rlanything.domains.registry import named_function
from rlanything.records import Messages
from rlanything.replies import key_headers

Opponent = Callable[[str], str]
"""A function of all text that a player has seen; returns its move."""
_LISTED = re.compile(r"\[[^\[\]\n]{1,40}\]")
_OFFER = re.compile(
    r"\b(?:available|valid|legal|possible|your)\s+(?:moves|actions|options|choices)\b"
    r"(?:\s+are\b\s*:?|\s*:)",
    re.IGNORECASE,
)
"""The words with which a game offers moves. Other brackets are examples in its rules."""
_BLANK = re.compile(r"\[[A-Za-z]{2,}(?: [XYN])+\]|\[.*<.*>.*\]")
"""A form to fill in, such as `[bet X]`, which is not a move."""
_SYSTEM = "You play a game. Answer with your move, in the form that the rules ask for, and no more."
_SECONDS, _RETRIES = 25.0, 1
"""All retries together take less than a worker may, so that the error names the endpoint."""


class FrozenModelOptions(EndpointOptions):
    """A frozen opponent, as a recipe describes it."""

    model: str
    """Name of the model at the endpoint."""
    decoding: Literal["choices", "free"] | None = None
    """For a copy of the policy that `rlanything serve-policy` serves: its `policy.decoding`. It is
    asked as the policy is, and answers `thought > move`. None: any model, asked for its move
    alone."""


class RoleOptions(DomainOptions):
    """An opponent that is a role of the recipe."""

    role: str
    """Name of a second role that acts. Its responses are the run's own, so it can learn."""


def _way(named: object) -> str:
    """Returns how an opponent is written; anything unknown is reported as a faulty model.

    Not one word: messages drop what is no key of the given opponent."""
    if isinstance(named, str):
        return "a name"
    if isinstance(named, RoleOptions) or (isinstance(named, Mapping) and "role" in named):
        return "a role"
    return "a function" if callable(named) and not isinstance(named, Mapping) else "a model"


OpponentOption: TypeAlias = (
    Annotated[
        Annotated[CodeName, Tag("a name")]
        | Annotated[FrozenModelOptions, Tag("a model")]
        | Annotated[RoleOptions, Tag("a role")]
        | Annotated[Opponent, Tag("a function")],
        Discriminator(_way),
    ]
    | None
)
"""An opponent as an option. What is wrong with a model is said of its own keys."""


def opponent_of(named: str | FrozenModelOptions | RoleOptions | Opponent | None) -> Player | None:
    """Returns the opponent in a recipe, or None. Raises `DomainError`."""
    if isinstance(named, RoleOptions):
        return named
    if isinstance(named, FrozenModelOptions):
        kind = FrozenModel if named.decoding is None else FrozenPolicy
        return kind(named)
    if not isinstance(named, str) or named == "random":
        return named
    if ":" not in named:
        raise DomainError(
            f"opponent is {named!r:.80}: use random, module:function, {{url, model}} or {{role}}"
        )
    return named_function("opponent", named, "what a player sees")


def listed_moves(said: str) -> tuple[str, ...]:
    """Returns the moves in brackets that a game offered last (`Available moves: [a], [b]`); empty
    if it offered none. `said`: the game's own text."""
    for line in reversed(said.splitlines()):
        offers = list(_OFFER.finditer(line))
        moves = _LISTED.findall(line, offers[-1].end()) if offers else []
        if moves := [move for move in moves if not _BLANK.fullmatch(move)]:
            return tuple(dict.fromkeys(moves))
    return ()


class OpponentGone(RuntimeError):
    """An opponent's model that cannot be reached; one line that ends with the remedy."""


class _Endpoint:
    """A model behind an OpenAI-compatible endpoint."""

    def __init__(self, options: FrozenModelOptions) -> None:
        self._options = options

    def _answer(self, messages: Any, **more: Any) -> str:
        """Returns the model's answer. Raises `OpponentGone`."""
        import openai

        url, variable = self._options.url, self._options.key_variable
        key = os.environ.get(variable or "", "none")
        with openai.OpenAI(
            base_url=url,
            api_key=key,
            timeout=_SECONDS,
            max_retries=_RETRIES,
            default_headers=key_headers(key, openai.omit),
            # A redirect would send the game to another host.
            http_client=openai.DefaultHttpxClient(follow_redirects=False),
        ) as client:
            try:
                answer = client.chat.completions.create(
                    model=self._options.model, messages=messages, **more
                )
                return (answer.choices[0].message.content or "").strip()
            except (openai.BadRequestError, openai.UnprocessableEntityError):
                raise  # what the policy wrote may be too long for it
            except (openai.APIError, LookupError, TypeError) as fault:
                reason = f"the opponent's model at {url} gives no move ({fault})"
                raise OpponentGone(f"{' '.join(reason.split()):.300}: see to its server") from fault


class FrozenModel(_Endpoint):
    """A model that sees its own side of the game and is asked for its move alone."""

    def __call__(self, seen: str) -> str:
        """Returns the model's move. Raises `OpponentGone`."""
        chat = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": seen}]
        return self._answer(chat, temperature=0.0)


class FrozenPolicy(_Endpoint):
    """A copy of the policy, asked with the policy's own prompt; it samples as its server does."""

    def respond(self, chat: Messages, choices: Sequence[str] | None) -> str:
        """Returns its whole answer. Raises `OpponentGone`."""
        messages = [{"role": each.role, "content": each.content} for each in chat]
        if choices is None or self._options.decoding == "free":
            return self._answer(messages)
        listed = {"structured_outputs": {"choice": list(choices)}}
        return self._answer(messages, extra_body=listed)


Player: TypeAlias = Opponent | FrozenPolicy | RoleOptions | Literal["random"]
"""The player in one of the other seats."""
