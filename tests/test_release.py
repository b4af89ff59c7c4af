"""A release is of one piece: versions, lock, Dockerfiles, workflows and what they name agree."""

from __future__ import annotations

import re
import runpy
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from helpers.paths import PACKAGES, ROOT
from rlanything import __version__

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DOCKERFILES = sorted((ROOT / "docker").iterdir())
NAMED = [*WORKFLOWS, ROOT / "AGENTS.md", ROOT / "SECURITY.md", *DOCKERFILES]
"""Files that name targets of make and commands."""
FILE = re.compile(r"(?<![\w./-])((?:packages|docker|docs|tests|src|\.ci)/[\w./-]+\w)(?![\w./*-])")
HOSTS = {"pypi.org", "files.pythonhosted.org"}


@cache
def read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


CORE = read(ROOT / "pyproject.toml")
NEIGHBOURS = [read(path) for path in sorted(PACKAGES.glob("*/pyproject.toml"))]
EXTRAS = CORE["project"]["optional-dependencies"]


def locked() -> dict[str, list[dict[str, Any]]]:
    """The packages of the lock by name; vLLM holds some of them back, so they are there twice."""
    packages: dict[str, list[dict[str, Any]]] = {}
    for package in read(ROOT / "uv.lock")["package"]:
        packages.setdefault(package["name"], []).append(package)
    return packages


def test_every_package_has_the_version_of_the_core() -> None:
    assert {each["project"]["version"] for each in NEIGHBOURS} == {__version__}
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == __version__
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_a_neighbour_takes_any_core_of_its_minor_version() -> None:
    major, minor, _ = (int(part) for part in __version__.split("."))
    core = f"rlanything>={major}.{minor},<{major}.{minor + 1}"
    projects = [each["project"] for each in NEIGHBOURS]
    # Boxes are plain Python that needs nothing, not even the core.
    alone = [each["name"] for each in projects if core not in each.get("dependencies", [])]
    assert alone == ["rlanything-sandbox"]


def required(project: dict[str, Any]) -> set[tuple[str, SpecifierSet, str]]:
    """Name, versions and extra of everything that a project requires; "" for no extra."""
    groups = {"": project.get("dependencies", []), **project.get("optional-dependencies", {})}
    requirements = set[tuple[str, SpecifierSet, str]]()
    for extra, lines in groups.items():
        for each in map(Requirement, lines):
            if each.name == project["name"]:  # extras of itself
                lines_of = [line for own in each.extras for line in map(Requirement, groups[own])]
                requirements |= {(line.name, line.specifier, extra) for line in lines_of}
            requirements.add((canonicalize_name(each.name), each.specifier, extra))
    return requirements


def required_in_lock(package: dict[str, Any]) -> set[tuple[str, SpecifierSet, str]]:
    lines = package.get("metadata", {}).get("requires-dist", [])
    marked = [(line, re.search(r"extra == '(.+?)'", line.get("marker", ""))) for line in lines]
    return {
        (line["name"], SpecifierSet(line.get("specifier", "")), match[1] if match else "")
        for line, match in marked
    }


@pytest.mark.parametrize("project", [CORE, *NEIGHBOURS], ids=lambda each: each["project"]["name"])
def test_the_lock_is_of_what_the_packages_require(project: dict[str, Any]) -> None:
    packages = locked()
    [package] = packages[project["project"]["name"]]
    ours = {name for name in packages if name.startswith("rlanything")}
    wanted = {each for each in required(project["project"]) if each[0] not in ours}
    there = {each for each in required_in_lock(package) if each[0] not in ours}
    assert there == wanted, "run `make lock`"
    assert package.get("version", __version__) == __version__, "run `make lock`"


def test_the_lock_has_the_pins_of_constraints_and_pypi_alone() -> None:
    pins = re.findall(
        r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    packages = locked()
    others = [
        f"uv lock --upgrade-package {name}=={version}"
        for name, version in pins
        if (there := packages.get(canonicalize_name(name)))
        and version not in [package["version"] for package in there]
    ]
    assert len(pins) > 100
    assert others == []
    text = (ROOT / "uv.lock").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://([^/\"]+)", text)) == HOSTS


@pytest.mark.parametrize("path", NAMED, ids=lambda path: path.name)
def test_what_a_file_names_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert targets is not None
    assert set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", text)) <= set(targets[1].split())
    entries = [each["project"].get("entry-points", {}) for each in (CORE, *NEIGHBOURS)]
    commands = {name for entry in entries for name in entry.get("rlanything.commands", {})}
    called = r"(?:docker run .*rlanything(?::cuda)?|bin/rlanything) ([a-z-]+)"
    assert set(re.findall(called, text)) <= commands
    assert set(re.findall(r"--extra (\S+)", text)) <= set(EXTRAS)
    files = FILE.findall(text)
    assert [name for name in files if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_write_nothing_unless_a_job_says_so(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["runs-on"].startswith(("ubuntu-", "macos-")), name
        assert all(("uses" in step) != ("run" in step) for step in job["steps"]), name


def test_workflows_run_every_python_that_the_package_names() -> None:
    named = {line.split(" :: ")[-1] for line in CORE["project"]["classifiers"] if ":: 3." in line}
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\"(3\.\d+)\"", text)) == named


def test_images_are_made_with_the_uv_that_locks() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in DOCKERFILES]
    versions = {version for text in texts for version in re.findall(r"/uv:(\S+) ", text)}
    assert versions == set(re.findall(r"\buv==(\S+)", makefile))
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert {"src", "packages", "uv.lock", "pyproject.toml", "README.md", "LICENSE"} <= {*copied}


def test_the_check_of_extras_knows_them() -> None:
    check = runpy.run_path(str(ROOT / ".ci" / "extras.py"))
    assert {*check["RECIPES"], *check["RESOLVED"]} <= set(check["EXTRAS"]) == set(EXTRAS)


def test_templates_of_issues_ask_something() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(form)
        assert all(field["attributes"]["label"] for field in form["body"])
