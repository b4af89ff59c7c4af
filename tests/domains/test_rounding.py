"""Rewards that miss a bound by rounding."""

from __future__ import annotations

from rlanything.domains.rounding import as_good


def test_only_rounding_is_forgiven() -> None:
    assert as_good(0.1 + 0.2 + 0.7 - 1e-12, 1.0) == 1.0
    assert as_good(1e-12, 0.0) == 0.0
    assert as_good(0.999, 1.0) == 0.999
    # Whole numbers are exact, however large.
    assert as_good(1e9, 1e9 + 1) == 1e9
