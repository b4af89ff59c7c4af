"""The wait before a request is tried again."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0


def backoff_seconds(tries: int, asked_seconds: float | None) -> float:
    """Returns the seconds to wait after `tries` tries: doubled each time, and between half and all
    of that by chance, so that clients refused together do not return together.

    `asked_seconds`: the wait that the server asked for; the result is never less. None: it asked
    for none."""
    wait = min(FIRST_WAIT_SECONDS * 2 ** min(tries - 1, 16), LONGEST_WAIT_SECONDS)
    return max(wait * random.uniform(0.5, 1.0), asked_seconds or 0.0)


def asked_seconds(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that a Retry-After header asks for, itself in seconds or a date; None:
    there is none that can be read. Finite, but of any size."""
    said = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", said):
        return float(said)
    try:
        seconds = parsedate_to_datetime(said).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(seconds, 0.0)
