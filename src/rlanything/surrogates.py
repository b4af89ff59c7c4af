"""Repairs text of environments and models that contains half of a surrogate pair."""

from __future__ import annotations

import re

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def whole_characters(text: str) -> str:
    """Returns the text with U+FFFD for halves of surrogate pairs, which neither tokenizers nor
    UTF-8 accept."""
    return _HALF_CHARACTER.sub("\ufffd", text)
