"""Domains are found by name, and what goes wrong is said in one line with its remedy."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from rlanything import plugins
from rlanything.domains.base import DomainError
from rlanything.domains.registry import load_domain
from rlanything.domains.text import TextRollouts


class Plain(TextRollouts):
    def __init__(self, size: int = 3, colour: str = "red") -> None:
        if size < 0:
            raise DomainError("size must not be negative: use 0 or more")
        self.size, self.colour = size, colour


class Distribution:
    """Stands for an installed distribution."""

    name = "toys"


@pytest.fixture
def installed(monkeypatch):
    """Installs entry points: name to `module:Class`."""

    def install(**entries: str) -> None:
        points = [EntryPoint(name, path, "rlanything.domains") for name, path in entries.items()]
        for point in points:
            vars(point)["dist"] = Distribution()
        found = EntryPoints(points)
        monkeypatch.setattr(plugins, "entry_points", lambda group: found.select(group=group))

    return install


def complaint(name: str, options: dict[str, Any] | None = None) -> str:
    with pytest.raises(DomainError) as error:
        load_domain(name, options or {})
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_class_is_found_by_its_path_and_gets_the_options():
    domain: Any = load_domain(f"{__name__}:Plain", {"size": 5})
    assert (domain.size, domain.colour) == (5, "red")


def test_a_registered_domain_is_found_by_its_name(installed):
    installed(plain=f"{__name__}:Plain")
    domain: Any = load_domain("plain", {"colour": "blue"})
    assert (domain.size, domain.colour) == (3, "blue")


def test_an_unknown_name_lists_the_known_ones(installed):
    installed(plain=f"{__name__}:Plain", other="nowhere:Other")
    assert complaint("plane") == "unknown domain 'plane': use one of other, plain, or `module:name`"
    assert complaint("alfworld").endswith(
        "'rlanything[alfworld]' (in a checkout: pip install packages/rlanything-alfworld)"
    )


def test_an_unexpected_option_lists_the_known_ones():
    said = complaint(f"{__name__}:Plain", {"weight": 1})
    assert "unexpected keyword argument 'weight'" in said
    assert said.endswith("its options are: size, colour")


def test_a_missing_dependency_names_the_extra_to_install(installed):
    installed(blocks="no_such_toys.blocks:Blocks [wood]", marbles="no_such_toys:Marbles")
    assert complaint("blocks").endswith(
        "needs the module no_such_toys: install its extra with `pip install 'toys[wood]'`"
    )
    assert complaint("marbles").endswith("install what provides no_such_toys")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no_such_module:Thing", "there is no module no_such_module"),
        (f"{__name__}:Thing", "has no attribute 'Thing'"),
        (f"{__name__}:", "write it as `module:name`"),
        (":Thing", "write it as `module:name`"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(path, said):
    assert said in complaint(path)


def test_a_registered_domain_that_is_gone_says_so(installed):
    installed(gone=f"{__name__}:Gone")
    assert "cannot be imported" in complaint("gone")


def test_a_domains_own_complaint_is_passed_on():
    assert complaint(f"{__name__}:Plain", {"size": -1}).startswith("size must not be negative")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pettingzoo", "unknown domain 'pettingzoo': use one of .*TextArena.*`seat: alternate`"),
        (
            "mcp",
            r"pip install 'packages/rlanything-gyms\[mcp\]'\); see the domain `tools`: packages/",
        ),
        ("TRL", "unknown domain 'TRL': use one of .*the domain `tools`: packages/rlanything-gyms/"),
    ],
)
def test_libraries_that_are_not_here_have_a_remedy(name: str, said: str) -> None:
    with pytest.raises(DomainError, match=said):
        load_domain(name, {})


def test_a_class_with_reset_and_step_alone_is_told_to_inherit(monkeypatch, tmp_path) -> None:
    source = "class Env:\n    def reset(self): ...\n    def step(self, action): ...\n"
    (tmp_path / "trl_style.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DomainError, match=r"inherit rlanything\.TextDomain, which has all but"):
        load_domain("trl_style:Env", {})


def test_an_option_of_another_domain_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(DomainError, match=r"options\.datum: unknown key, did you mean data\?"):
        load_domain("helpers.at_least:AtLeast", {"datum": "file"})
