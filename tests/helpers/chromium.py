"""The browser of web tasks, which a machine may lack."""

from __future__ import annotations

import pytest

from rlanything.domains.base import DomainError
from rlanything_miniwob.browser import executable


def require_chromium() -> None:
    """Skips the test if there is no Chromium."""
    try:
        executable()
    except DomainError as reason:
        pytest.skip(str(reason))
