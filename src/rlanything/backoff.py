"""How long to wait before a request is tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0


def backoff_seconds(tries: int, asked_seconds: float | None) -> float:
    """Before the next try, after so many: doubled each time, and between half and all of it by
    chance, so that those who were refused together do not return together.

    `asked_seconds`: the wait that the server asked for; never less than that."""
    wait = min(FIRST_WAIT_SECONDS * 2 ** min(tries - 1, 16), LONGEST_WAIT_SECONDS)
    return max(wait * random.uniform(0.5, 1.0), asked_seconds or 0.0)


def asked_seconds(headers: Mapping[str, str]) -> float | None:
    """What a Retry-After header asks for, in seconds or as a date; None: nothing readable."""
    said = headers.get("retry-after", "").strip()
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(said).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if seconds == seconds else None
