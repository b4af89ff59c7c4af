"""Text that others can take: environments and models may bring half of a surrogate pair."""

from __future__ import annotations

import re

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def whole_characters(text: str) -> str:
    """Halves of surrogate pairs, which no tokenizer and no UTF-8 takes, become U+FFFD."""
    return _HALF_CHARACTER.sub("\ufffd", text)
