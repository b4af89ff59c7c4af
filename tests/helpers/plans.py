"""Figures of a plan."""

from __future__ import annotations

from rlanything_planning.report import Plan


def values(plan: Plan, title: str) -> dict[str, float]:
    """Values by name in the sections whose title begins with `title`."""
    sections = [section for section in plan.sections if section.title.startswith(title)]
    return {q.name: q.value for s in sections for q in s.quantities if q.value is not None}


def value(plan: Plan, name: str) -> float:
    """The value of the only quantity with this name."""
    [found] = [q.value for section in plan.sections for q in section.quantities if q.name == name]
    assert found is not None
    return found
