"""Benchmarks are scripts, not a package: this imports one of them to be tested."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

from helpers.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"


def load_benchmark(name: str) -> ModuleType:
    """Imports the script of that name; what lies beside it is found as when it is run."""
    _find_what_lies_beside()
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def load_part(name: str) -> ModuleType:
    """Imports a module of a package beside the scripts, such as `learner_steps.memory`."""
    _find_what_lies_beside()
    return importlib.import_module(name)


def _find_what_lies_beside() -> None:
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))  # last: a script's name hides no package
