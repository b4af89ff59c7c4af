"""Outputs are compared as competitive judges do."""

from __future__ import annotations

import pytest

from rlanything.domains.coding.sandbox.base import Verdict
from rlanything.domains.coding.sandbox.comparison import same_tokens, verdict_on


@pytest.mark.parametrize(
    ("said", "expected", "tolerance", "same"),
    [
        ("1 2\n3", "1 2 3\n", None, True),
        ("1\r\n2  \n\n", "1\n2", None, True),
        ("12", "1 2", None, False),
        ("1 2", "1", None, False),
        ("", "", None, True),
        ("Yes", "YES", None, False),
        ("0.10", "0.1", None, False),
        ("0.10", "0.1", 0.0, True),
        ("1.0000001", "1", 1e-6, True),
        ("1.1", "1", 1e-6, False),
        ("1000000.5", "1000000", 1e-6, True),
        ("1000002", "1000000", 1e-6, False),
        ("-0.0000001", "0", 1e-6, True),
        ("nan", "1", 1e9, False),
        ("1", "nan", 1e9, False),
        ("inf", "1", 1e9, False),
        ("inf", "Infinity", 1e-6, True),
        ("inf", "-inf", 1e-6, False),
        ("yes 1.0", "yes 1", 1e-6, True),
        ("no 1.0", "yes 1", 1e-6, False),
    ],
)
def test_tokens(said: str, expected: str, tolerance: float | None, same: bool) -> None:
    assert same_tokens(said, expected, tolerance) is same


def test_an_output_that_is_no_text_is_wrong_and_nothing_expected_is_ok() -> None:
    assert verdict_on(b"caf\xe9", "café", None) is Verdict.WRONG
    assert verdict_on(b"caf\xe9", None, None) is Verdict.OK
