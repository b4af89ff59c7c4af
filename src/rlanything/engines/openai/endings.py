"""How endpoints say that an answer is not whole, or that there will be none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NO_ROOM = re.compile(
    rb"context[ _](length|size|window)|model length|prompt is too long", re.IGNORECASE
)
_NO_CREDIT = re.compile(
    rb"insufficient_quota|billing_(hard_limit_reached|not_active)|exceeded your current quota|"
    rb"insufficient_(credits|funds|balance)|credit balance is too low",
    re.IGNORECASE,
)
_CUT = frozenset({"length", "max_tokens", "model_length", "max_output_tokens"})
_WITHHELD = frozenset(
    {"content_filter", "refusal", "safety", "recitation", "blocklist", "prohibited_content", "spii"}
)


def says_no_room(status: int, body: bytes) -> bool:
    """Whether a refusal says that the prompt does not fit."""
    return 400 <= status < 500 and bool(_NO_ROOM.search(body))


def says_no_credit(status: int, body: bytes) -> bool:
    """Whether a refusal says that the account has nothing left: waiting does not help."""
    return status == 402 or (status == 429 and bool(_NO_CREDIT.search(body)))


def was_cut(choice: Mapping[str, Any]) -> bool:
    """Whether the limit of tokens cut an answer off."""
    return _reason(choice) in _CUT


def was_withheld(choice: Mapping[str, Any]) -> bool:
    """Whether the endpoint withheld an answer, or broke it off: a refusal, a content filter."""
    return _reason(choice) in _WITHHELD or bool(choice["message"].get("refusal"))


def _reason(choice: Mapping[str, Any]) -> str:
    return str(choice.get("finish_reason") or "").lower()
