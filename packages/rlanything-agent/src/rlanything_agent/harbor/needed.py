"""Packages that scripts install, and whether they are present."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rlanything.domains.base import DomainError
from rlanything_agent.harbor.stand_ins import plain_words, run_words

_STATUS = Path("/var/lib/dpkg/status")
_ASK = (
    "import importlib.metadata as m, json, sys; "
    "print(json.dumps([sys.prefix, sys.base_prefix, sys.version_info[:2], "
    "{d.name: d.version for d in m.distributions() if d.name}]))"
)
_ASK_SECONDS = 60.0
_SEPARATORS = re.compile(r"&&|\|\||[;|\n(){}]")


@dataclass(frozen=True, slots=True)
class Installed:
    """The packages of a box: those of this machine, and a Python with its own."""

    debian: Mapping[str, str]
    """Versions by name."""
    python: Mapping[str, str]
    """Versions by normalised name."""
    version: tuple[int, int]
    prefix: Path
    base_prefix: Path

    def lacks(self, text: str) -> str | None:
        """Returns the first package that a script installs and this machine lacks, with its
        command; None if everything is present, as far as the text can tell."""
        for words in _commands(text):
            for tool, name in _named(words):
                if not (self._debian(name) if tool == "apt-get install" else self._python(name)):
                    return f"{tool} {name}"
        return None

    def _debian(self, name: str) -> bool:
        bare, _, version = name.partition("=")
        known = self.debian.get(bare.partition(":")[0])
        return known is not None and version in ("", known)

    def _python(self, name: str) -> bool:
        try:
            wanted = Requirement(name)
        except InvalidRequirement:
            return True  # a path or an address: only a try can tell
        if wanted.marker is not None and not wanted.marker.evaluate():
            return True
        known = self.python.get(canonicalize_name(wanted.name))
        return known is not None and wanted.specifier.contains(known, prereleases=True)


@cache
def installed(python: Path) -> Installed:
    """Returns the packages of a box with this Python. Raises `DomainError` if it does not run."""
    try:
        said = subprocess.run(
            [str(python), "-I", "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=_ASK_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise DomainError(
            f"python: {python} does not run ({error}): name a Python in domain.options.python"
        ) from None
    prefix, base, version, packages = json.loads(said)
    if tuple(version) < (3, 11):
        raise DomainError(f"python: {python} is {version[0]}.{version[1]}: 3.11 is the oldest")
    names: dict[str, str] = {canonicalize_name(name): known for name, known in packages.items()}
    return Installed(_of_debian(), names, tuple(version), Path(prefix), Path(base))


def _of_debian() -> dict[str, str]:
    """Returns the versions of Debian's packages on this machine, empty on another system."""
    if not _STATUS.is_file():
        return {}
    known: dict[str, str] = {}
    for entry in _STATUS.read_text(encoding="utf-8", errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Status|Version|Provides): (.*)$", entry, re.M))
        if fields.get("Status", "").endswith(" installed"):
            provided = re.findall(r"[a-z0-9][a-z0-9+.-]+(?=[ ,(]|$)", fields.get("Provides", ""))
            known |= dict.fromkeys([*provided, fields["Package"]], fields.get("Version", ""))
    return known


def _commands(text: str) -> Iterator[list[str]]:
    joined = re.sub(r"^\s*#.*$", "", text.replace("\\\n", " "), flags=re.MULTILINE)
    for line in _SEPARATORS.split(joined):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote around a separator: only a try can tell
            continue
        while words and (words[0] in ("sudo", "then", "do", "!") or re.match(r"\w+=", words[0])):
            words = words[1:]
        if words:
            yield words


def _named(words: list[str]) -> list[tuple[str, str]]:
    """Returns the packages that a command installs, each with what installs it."""
    tool = words[0].rpartition("/")[2]
    if tool in ("apt", "apt-get") and "install" in words:
        return _with("apt-get install", plain_words(words[words.index("install") + 1 :]))
    if words[1:3] == ["-m", "pip"] and tool.startswith("python"):
        tool, words = "pip", words[2:]
    if tool == "uv" and words[1:3] == ["pip", "install"]:
        tool, words = "pip", words[1:]
    if re.fullmatch(r"pip3?(\.\d+)?", tool) and words[1:2] == ["install"] and "-r" not in words:
        return _with("pip install", plain_words(words[2:]))
    if tool == "uvx":
        return _with("uvx --with", run_words(words[1:])[0])
    return []


def _with(tool: str, names: list[str]) -> list[tuple[str, str]]:
    return [(tool, name) for name in names if name[:1].isalnum() and not set(name) & set("$&*/")]
