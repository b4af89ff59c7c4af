"""Finds a domain's teacher and builds its nano models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlanything.domains.base import DomainError
from rlanything.domains.teaching import StepTeacher, TaughtDomain, UnitTestTeacher
from rlanything.nano.making import ROLES, RoleName
from rlanything.nano.step_domains import StepDomainBuilder
from rlanything.nano.unit_test_domains import UnitTestDomainBuilder
from rlanything.plugins import load_plugin
from rlanything.progress import Progress


def build(
    domain: str,
    seed: int,
    out: Path,
    workers: int,
    progress: Progress,
    roles: Sequence[RoleName] = ROLES,
) -> dict[str, Any]:
    """Builds the nano models of a domain (a registered name or `module:Class`) in the folder `out`
    and returns what was measured.

    `roles`: those to make; the others are read from the folder. Raises `PluginError` for an unknown
    domain and `DomainError` for one without a teacher."""
    teacher = teacher_of(domain)
    if isinstance(teacher, StepTeacher):
        plan = replace(teacher.plan, seed=seed, domain=domain)
        return StepDomainBuilder(plan, teacher, out, workers, progress).build(roles)
    plan = replace(teacher.plan, seed=seed, domain=domain)
    return UnitTestDomainBuilder(plan, teacher, out, workers, progress).build(roles)


def teacher_of(domain: str) -> StepTeacher | UnitTestTeacher:
    """Returns the teacher that a domain class brings. Raises as `build` does."""
    domain_class = load_plugin("domain", domain)
    if not isinstance(domain_class, TaughtDomain):
        raise DomainError(
            f"domain {domain} has no teacher for nano models: give its class a static method "
            "nano_teacher() that returns a StepTeacher or a UnitTestTeacher of "
            "rlanything.domains.teaching"
        )
    teacher: object = domain_class.nano_teacher()
    if not isinstance(teacher, (StepTeacher, UnitTestTeacher)):
        raise DomainError(
            f"domain {domain}: nano_teacher() returns a {type(teacher).__name__}, which lacks "
            "something of StepTeacher or UnitTestTeacher (rlanything.domains.teaching): implement "
            "one of them whole"
        )
    return teacher
