"""One browser for all tests of web tasks; without a Chromium they are skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.chromium import require_chromium
from rlanything_miniwob.browser import Browser
from rlanything_miniwob.domain import MiniWob


@pytest.fixture(scope="session")
def miniwob() -> Iterator[MiniWob]:
    require_chromium()
    domain = MiniWob()
    yield domain
    assert domain.browser.page_errors == []
    domain.browser.close()


@pytest.fixture(scope="session")
def browser(miniwob: MiniWob) -> Browser:
    return miniwob.browser
