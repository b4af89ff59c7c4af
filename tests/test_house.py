"""The house is what CONTRIBUTING says: arrows point down, no cycles, no file grows too long."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers.paths import ROOT, SOURCE

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])
FILES = sorted((SOURCE / "rlanything").rglob("*.py"))

# Rooms from the ground up; a room may import itself and those before it.
ROOMS = (
    "seeds records surrogates backoff plugins version",
    "progress algorithm",
    "config",
    "domains",
    "rollout",
    "engines",
    "learning",
    "roles",
    "evaluation",
    "loop",
    "runs",
    "nano planning",
    "studies",
    "commands",
    "cli",
    "__main__",
)
HEIGHT = {name: height for height, names in enumerate(ROOMS) for name in names.split()}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def imports(path: Path) -> set[str]:
    """The project's modules that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name in MODULES}


def roots(path: Path) -> set[str]:
    """The first names of all that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
    return found


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_no_two_files_import_each_other_however_indirectly() -> None:
    graph = {name: imports(path) - {name} for name, path in MODULES.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


@pytest.mark.parametrize("name", [name for name in MODULES if room(name)])
def test_arrows_point_down(name: str) -> None:
    for imported in imports(MODULES[name]):
        if room(imported):
            assert HEIGHT[room(imported)] <= HEIGHT[room(name)], f"{name} imports {imported}"


# The shipped domains are plug-ins: a folder each, found by entry point.
DOMAIN_FOLDERS = ("alfworld", "coding", "miniwob")
# What a domain's folder may import of the project, beside itself.
OFFERED_TO_DOMAINS = ["seeds", "records", "backoff", "surrogates", "plugins", "progress"] + [
    f"domains.{name}" for name in ("base", "teaching", "templates", "text")
]
# Files that still import a domain; nothing may be added.
IMPORTERS_OF_DOMAINS = {"rlanything.cli", "rlanything.commands.doctor"}


def domain_folder(module: str) -> str | None:
    """The domain in whose folder a module lies; None: in none."""
    parts = module.split(".")
    return (
        parts[2] if parts[1:2] == ["domains"] and parts[2:] and parts[2] in DOMAIN_FOLDERS else None
    )


def test_nothing_outside_a_domains_folder_imports_it() -> None:
    importers = {
        name
        for name, path in MODULES.items()
        if {domain_folder(imported) for imported in imports(path)} - {None, domain_folder(name)}
    }
    assert importers <= IMPORTERS_OF_DOMAINS


def test_a_domain_imports_only_what_is_offered_to_domains() -> None:
    offered = {f"rlanything.{name}" for name in OFFERED_TO_DOMAINS}
    for name, path in MODULES.items():
        if folder := domain_folder(name):
            others = {module for module in imports(path) if domain_folder(module) != folder}
            assert others <= offered, name


def test_domains_and_what_lies_below_import_no_torch() -> None:
    for name, path in MODULES.items():
        low = room(name) and HEIGHT[room(name)] <= HEIGHT["rollout"]
        if low and not name.startswith("rlanything.algorithm.losses"):
            assert not roots(path) & {"torch", "transformers"}, name


def test_studies_use_the_core_and_nothing_but_their_commands_uses_them() -> None:
    importers = {
        name
        for name, path in MODULES.items()
        if room(name) not in ("studies", "commands")
        and any(room(imported) == "studies" for imported in imports(path))
    }
    assert importers == set()


FRAGMENT = re.compile(r"(Of|Who|Whose|Whom|Whoever|And|What|Whatever)\b")


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_docstring_begins_with_what_a_thing_is_or_does(path: Path) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    fragments = [
        text.splitlines()[0]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, documented)
        and (text := ast.get_docstring(node))
        and FRAGMENT.match(text)
    ]
    assert fragments == []


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_loop_variables_and_results_are_nouns(path: Path) -> None:
    # `each` and `found` may stand inside a comprehension of one line, and nowhere else.
    tree = ast.parse(path.read_text())
    comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    short = {
        id(name)
        for node in ast.walk(tree)
        if isinstance(node, comprehensions) and node.lineno == node.end_lineno
        for name in ast.walk(node)
    }
    bound = [
        f"line {node.lineno}: {node.id}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id in ("each", "found")
        and id(node) not in short
    ]
    assert bound == []


def test_no_file_is_longer_than_an_idea() -> None:
    lengths = {str(path): len(path.read_text().splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > 400} == {}


def test_the_loop_is_short() -> None:
    assert len((SOURCE / "rlanything" / "loop.py").read_text().splitlines()) < 200


def test_no_two_test_files_have_one_name() -> None:
    # pytest imports them by their names alone.
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_the_documentation_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    gone = [each for each in links if "://" not in each and not (page.parent / each).exists()]
    assert not gone


def test_the_environment_of_vllm_has_what_its_tests_and_the_project_need() -> None:
    # It is installed package by package: what is missing there would show in `make test-vllm` only.
    lines = (ROOT / "requirements-vllm.txt").read_text().splitlines()
    there = {canonicalize_name(line.split("==")[0]) for line in lines if "==" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["alfworld"], *extras["lora"], *extras["openai"]]
    needed = {canonicalize_name(Requirement(each).name) for each in wanted}
    tests = Path(__file__).parent
    shared = {path.stem: path for path in tests.glob("*.py")}
    files = {tests / "conftest.py", *(tests / "with_vllm").glob("*.py")}
    while more := {shared[name] for file in files for name in roots(file) & set(shared)} - files:
        files |= more
    packages = packages_distributions()
    imported = set().union(*(roots(file) for file in files))
    needed |= {canonicalize_name(packages[name][0]) for name in imported & set(packages)}
    assert "hypothesis" in needed
    assert needed - there - {"rlanything"} == set()
