"""Comparison of rewards with a bound, up to rounding."""

from __future__ import annotations

import math

_NEAR, _NEAR_ZERO = 1e-6, 1e-9
"""Relative and absolute tolerance for equal numbers: sums of floats are off by that much,
especially in single precision."""


def as_good(value: float, bound: float) -> float:
    """Returns the bound if a value differs from it only by rounding, else the value. Whole numbers
    are exact."""
    whole = value.is_integer() and bound.is_integer()
    near = math.isclose(value, bound, rel_tol=_NEAR, abs_tol=_NEAR_ZERO)
    return bound if near and not whole else value
