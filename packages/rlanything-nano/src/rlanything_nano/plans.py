"""Finds a domain's teacher and builds its nano models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlanything.config.worlds import SEVERAL
from rlanything.domains.base import DomainError
from rlanything.domains.registry import load_domain
from rlanything.plugins import load_plugin
from rlanything.progress import Progress
from rlanything_nano.expert_teacher import ExpertTeacher
from rlanything_nano.making import ROLES, RoleName
from rlanything_nano.several_teacher import SeveralTeacher
from rlanything_nano.step_domains import StepDomainBuilder
from rlanything_nano.teaching import (
    StepPlan,
    StepTeacher,
    TaughtDomain,
    UnitTestTeacher,
    ValueTeacher,
)
from rlanything_nano.unit_test_domains import UnitTestDomainBuilder


def build(
    domain: str,
    seed: int,
    out: Path,
    workers: int,
    progress: Progress,
    roles: Sequence[RoleName] = ROLES,
) -> dict[str, Any]:
    """Builds the nano models of a domain (a registered name or `module:Class`; several, separated
    by commas, share the models) in the folder `out` and returns the measurements.

    `roles`: roles to build; the others are read from the folder. Raises `PluginError` for an
    unknown domain. Raises `DomainError` for a domain without a teacher that also lacks an expert or
    an oracle, and for a folder that cannot be created."""
    teacher = teacher_of(domain)
    if "value" in roles and not isinstance(teacher, ValueTeacher):
        raise DomainError(
            f"domain {domain} cannot teach a judge of value: give its teacher a method "
            "valuation(task, steps, grade) (ValueTeacher of rlanything_nano.teaching)"
        )
    try:  # before an hour's work
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DomainError(f"--out {out}: {error.strerror}; name another folder") from error
    if isinstance(teacher, StepTeacher):
        several = isinstance(teacher, SeveralTeacher)
        plan = replace(teacher.plan, seed=seed, domain=SEVERAL if several else domain)
        roles = _teachable(teacher, domain, roles, progress)
        measured = StepDomainBuilder(plan, teacher, out, workers, progress).build(roles)
        for section in recipe_sections(plan, out):
            progress.log(f"for a recipe: {section}")
        return measured
    plan = replace(teacher.plan, seed=seed, domain=domain)
    return UnitTestDomainBuilder(plan, teacher, out, workers, progress).build(roles)


def teacher_of(domain: str) -> StepTeacher | UnitTestTeacher:
    """Returns the teacher of a domain class; without one, a teacher that uses its expert and
    oracle. Raises the same errors as `build`."""
    if "," in domain:
        return _of_several([name.strip() for name in domain.split(",")])
    domain_class = load_plugin("domain", domain)
    if not isinstance(domain_class, TaughtDomain):
        made = load_domain(domain, {})
        if made.capabilities.judge == "tests":
            raise DomainError(
                f"domain {domain} has no teacher for nano models, which one whose judge writes "
                "tests needs: give its class a static method nano_teacher() that returns a "
                "UnitTestTeacher of rlanything_nano.teaching"
            )
        return ExpertTeacher(domain, made)
    teacher: object = domain_class.nano_teacher()
    if not isinstance(teacher, (StepTeacher, UnitTestTeacher)):
        raise DomainError(
            f"domain {domain}: nano_teacher() returns a {type(teacher).__name__}, which lacks "
            "something of StepTeacher or UnitTestTeacher (rlanything_nano.teaching): implement "
            "one of them whole"
        )
    return teacher


def _of_several(names: Sequence[str]) -> SeveralTeacher:
    """Returns the teacher of models that several domains share. Raises `DomainError`."""
    teachers: dict[str, StepTeacher] = {}
    for name in names:
        teacher = teacher_of(name)
        if not isinstance(teacher, StepTeacher):
            raise DomainError(
                f"domain {name} has a judge that writes tests: build its models alone"
            )
        teachers[name] = teacher
    if len(teachers) < len(names):
        raise DomainError(f"--domain {','.join(names)}: name each domain once")
    return SeveralTeacher(teachers)


def _teachable(
    teacher: StepTeacher, domain: str, roles: Sequence[RoleName], progress: Progress
) -> Sequence[RoleName]:
    """Returns the roles for which the teacher has examples, and reports the others."""
    limited = isinstance(teacher, ExpertTeacher | SeveralTeacher)
    if "adapter" not in roles or not limited or teacher.rewrites:
        return roles
    remedy = "give it rewrites(root, direction), or train with curriculum.adapt_tasks=false"
    if len(roles) == 1:
        raise DomainError(f"domain {domain} has nothing to teach an adapter: {remedy}")
    progress.warn(f"no adapter is built: domain {domain} cannot rewrite tasks; {remedy}")
    return tuple(role for role in roles if role != "adapter")


def recipe_sections(plan: StepPlan, out: Path) -> list[str]:
    """Returns the recipe sections that use the models in `out`, as lines of YAML."""
    settings = {
        "policy": f"decoding: {plan.decoding}, max_tokens: {plan.response_tokens}"
        + (f", thought_tokens: {plan.thought_tokens}" if plan.decoding == "choices" else ""),
        "judge": f"max_tokens: {plan.judgement_tokens}",
        "adapter": f"max_tokens: {plan.proposal_tokens}",
        "value": f"name: value, max_tokens: {plan.judgement_tokens}",
    }
    return [
        f"{'judge' if role == 'value' else role}: {{model: {out / role}, {setting}}}"
        for role, setting in settings.items()
        if (out / role).is_dir()
    ]
