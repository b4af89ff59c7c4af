"""Embedded coding problems: families of short programs with any number of tests and slips."""

from rlanything_coding.families.catalogue import DIFFICULTIES, OOD, TRAIN
from rlanything_coding.families.problem_generator import (
    fresh_tests,
    make_problem,
    reference,
    slips,
)

train = tuple(family.name for family in TRAIN)
ood = tuple(family.name for family in OOD)

__all__ = [
    "DIFFICULTIES",
    "fresh_tests",
    "make_problem",
    "ood",
    "reference",
    "slips",
    "train",
]
