"""Exponential backoff between retries of a request."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0


def backoff_seconds(tries: int, asked_seconds: float | None) -> float:
    """Returns the seconds to wait after `tries` tries. The wait doubles each time and is randomly
    reduced by up to half, so that clients refused together do not return together.

    `asked_seconds`: the server's Retry-After, a lower bound; None: it sent none."""
    wait = min(FIRST_WAIT_SECONDS * 2 ** min(tries - 1, 16), LONGEST_WAIT_SECONDS)
    return max(wait * random.uniform(0.5, 1.0), asked_seconds or 0.0)


def asked_seconds(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds of a Retry-After header (in seconds or a date), finite but unlimited;
    None: there is no readable one."""
    said = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", said):
        return float(said)
    try:
        seconds = parsedate_to_datetime(said).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(seconds, 0.0)
