"""The API of a served policy: the three dialects, `POST /outcomes` and `GET /health`."""

from __future__ import annotations

import hmac
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlanything.serving.address import LOCAL_ONLY, is_local
from rlanything.strict_json import read_json
from rlanything_agent.asked import Asked, Denial
from rlanything_agent.conversation import PolicyAnswer, Sent
from rlanything_agent.dialects.base import Dialect
from rlanything_agent.dialects.responses import Responses
from rlanything_agent.endpoint import DIALECTS, Api, Door, body_of, json_reply
from rlanything_agent.helpers import Helpers
from rlanything_agent.late import OWN_HEADERS
from rlanything_agent.serving.episodes import Answered
from rlanything_agent.serving.service import Outcome, PolicyService

MODEL = "policy"
MOST_OUTCOMES = 1024
"""Largest number of outcomes in a request."""
_OUTCOME_BYTES = 2**20
_NAME = re.compile(r"(?!(?:chatcmpl-|msg_|resp_|episode-)\d)[A-Za-z0-9._-]{1,100}")
"""Names that clients may give: none that answers, or episodes without a name, get."""
_FORM = (
    'send {"outcomes": [{"id": "...", "outcome": 1}]}: the id of the episode\'s last answer, '
    f"1 or -1, and a finite reward if there is one; at most {MOST_OUTCOMES:,} in a request"
)


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of clients; None: everybody who reaches the server may do that."""

    ask: str | None = None
    """Key of clients that may ask the policy."""
    teach: str | None = None
    """Key of clients that may also teach it."""

    def access(self, given: str) -> bool:
        """Returns whether a client may teach the policy. Raises `Denial` for one that may not even
        ask it."""
        if self.teach is not None and hmac.compare_digest(given.encode(), self.teach.encode()):
            return True
        if self.ask is not None and not hmac.compare_digest(given.encode(), self.ask.encode()):
            raise Denial(
                "unknown key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`",
                status=401,
                code="invalid_api_key",
            )
        return self.teach is None


class _Caller:
    """A request to the service, from a client with certain rights."""

    def __init__(self, service: PolicyService, name: str, teaches: bool) -> None:
        self._ask = partial(service.ask, name=name, teaches=teaches)
        self.exchange: Answered | None = None
        """The answers that it got."""

    async def ask(self, asked: Asked, sent: Sent) -> list[PolicyAnswer]:
        exchange = await self._ask(asked, sent)
        assert isinstance(exchange, Answered)
        self.exchange = exchange
        return exchange.answers

    async def count(self, asked: Asked, sent: Sent) -> int:
        counted = await self._ask(asked, sent)
        assert isinstance(counted, int)
        return counted


class PolicyApi(Api):
    """The application. Every path of a dialect may follow `/episodes/NAME`, which names the episode
    of a client that rewrites its conversation."""

    def __init__(self, service: PolicyService, keys: Keys, local: bool) -> None:
        """`local`: only accept requests that address this machine by a loopback name."""
        self._service = service
        self._keys = keys
        self._local = local
        self._dialects = [kind() for kind in DIALECTS]
        self._remember()
        self._helpers = Helpers({}, 1.0)
        others = [
            Route("/outcomes", self._outcomes, methods=["POST"]),
            Route("/health", self._health, methods=["GET"]),
        ]
        super().__init__(("", "/episodes/{episode}"), others, retried=True)

    def _door(self, request: Request) -> Door:
        teaches = self._teaches(request)
        name = request.path_params.get("episode", "")
        if name and not _NAME.fullmatch(name):
            raise Denial(
                "/episodes/NAME: use up to 100 letters, digits, dots, _ and -, and no id of an "
                "answer or of an episode without a name"
            )
        request.state.caller = caller = _Caller(self._service, name, teaches)
        return Door("", caller, (MODEL,), self._helpers, False, self._dialects, any_name=True)

    async def _replied(
        self, request: Request, door: Door, dialect: Dialect, asked: Asked, sent: Sent
    ) -> Response:
        """Returns the reply, with the version and the episode in its headers."""
        response = await super()._replied(request, door, dialect, asked, sent)
        exchange: Answered | None = request.state.caller.exchange
        if exchange is not None:
            response.headers[f"{OWN_HEADERS}version"] = str(exchange.version)
            response.headers[f"{OWN_HEADERS}episode"] = exchange.episode.name
            response.background = BackgroundTask(self._service.heard, exchange)
        return response

    def _remember(self) -> None:
        """Has the replies from before a restart again, for requests that refer to them."""
        [responses] = (each for each in self._dialects if isinstance(each, Responses))
        for exchange in self._service.exchanges():
            if exchange.request is not None:
                with suppress(Denial):  # it continues a response of an episode that has ended
                    asked = responses.read(exchange.request, images=False)
                    responses.reply(asked, exchange.answers)

    async def _outcomes(self, request: Request) -> Response:
        may_teach = self._teaches(request)
        if not self._service.takes_outcomes:
            raise Denial(
                "this policy takes no outcomes: serve it with --learn and without --idle-seconds",
                status=409,
                code="no_outcomes",
            )
        if not may_teach:
            raise Denial(
                "this key may ask the policy, but not teach it: send the key of "
                "--outcome-key-variable",
                status=403,
                code="insufficient_permissions",
            )
        try:
            body = read_json(await body_of(request, _OUTCOME_BYTES))
        except (ValueError, RecursionError):
            raise Denial(f"the body is no JSON: {_FORM}", code="invalid_json") from None
        listed = body.get("outcomes") if isinstance(body, Mapping) else None
        if not isinstance(listed, list) or not 0 < len(listed) <= MOST_OUTCOMES:
            raise Denial(_FORM, "outcomes")
        outcomes = [_outcome(i, given) for i, given in enumerate(listed)]
        return json_reply(self._service.take(outcomes))

    async def _health(self, request: Request) -> Response:
        self._check_host(request)
        return json_reply(self._service.health())

    def _teaches(self, request: Request) -> bool:
        """Returns whether a client may teach the policy. Raises `Denial`."""
        self._check_host(request)
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        bearer = key.strip() if kind.lower() == "bearer" else ""
        return self._keys.access(bearer or request.headers.get("x-api-key", ""))

    def _check_host(self, request: Request) -> None:
        sent = request.headers
        if self._local and not is_local(sent.getlist("host"), sent.getlist("origin")):
            raise Denial(f"this policy {LOCAL_ONLY}", status=403, code="foreign_host")


def _outcome(number: int, given: Any) -> Outcome:
    place = f"outcomes[{number}]"
    if not isinstance(given, Mapping) or given.keys() - {"id", "outcome", "reward"}:
        raise Denial(f"{place}: {_FORM}", place)
    name, outcome, reward = given.get("id"), given.get("outcome"), given.get("reward")
    if not isinstance(name, str) or outcome not in (1, -1) or isinstance(outcome, bool):
        raise Denial(f"{place}: {_FORM}", place)
    # Not `isfinite`, which fails at an integer beyond the largest float.
    within = isinstance(reward, int | float) and abs(reward) <= sys.float_info.max
    if isinstance(reward, bool) or not (reward is None or within):
        raise Denial(f"{place}: {_FORM}", place)
    return Outcome(name, int(outcome), None if reward is None else float(reward))
