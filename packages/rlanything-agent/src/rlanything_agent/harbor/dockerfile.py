"""Dockerfiles, as far as a box can carry them out.

A box has the programs of this machine, so an image counts as plain if its base is Debian, Ubuntu or
Python, and its instructions copy files, set variables and run what works without network.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_PLAIN = re.compile(
    r"(?:(?:docker\.io/)?(?:library/)?(?P<name>debian|ubuntu|python)|"
    r"ghcr\.io/laude-institute/t-bench/(?:ubuntu-\d+-\d+|python-(?P<own>\d+-\d+)))"
    r"(?::(?P<tag>[\w.-]+))?(?:@sha256:[0-9a-f]+)?"
)
_VERSION = re.compile(r"(\d+)\.(\d+)")
_HEREDOC = re.compile(r"<<-?\s*([\"']?)([A-Za-z_]\w*)\1")
_VARIABLE = re.compile(r"\\\$|\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_WITHOUT_EFFECT = frozenset({"CMD", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK"})
"""Instructions that leave the files alone. Harbor replaces CMD, and so does a box."""
_SHELLS = (["/bin/sh"], ["/bin/bash"], ["sh"], ["bash"])
_ECHO = "shopt -s xpg_echo\n"
"""The `echo` of /bin/sh on Debian and Ubuntu, for bash."""
_ROOT = ("root", "0", "root:root", "0:0")


class NotPlain(ValueError):
    """A reason why a box cannot play a task; one line that names the instruction."""


@dataclass(frozen=True, slots=True)
class Build:
    """A step that makes an image."""

    instruction: str
    """For messages."""
    script: str
    """Bash script that carries it out; the context is at `CONTEXT`."""
    folder: str
    variables: Mapping[str, str]
    """The environment, PATH included if the Dockerfile sets it."""


@dataclass(frozen=True, slots=True)
class PlainImage:
    """A plain image."""

    python: tuple[int, int] | None
    """Version of Python that its base has; None: any."""
    builds: tuple[Build, ...]
    folder: str
    """Working directory."""
    variables: Mapping[str, str]


CONTEXT = "/run/context"
"""Folder of the Dockerfile in the box that makes its image."""


@dataclass(slots=True)
class _Reader:
    context: Path
    path: str
    """PATH of the box, which ENV may extend."""
    python: tuple[int, int] | None = None
    based: bool = False
    folder: str = "/"
    variables: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    builds: list[Build] = field(default_factory=list)
    echo: str = _ECHO

    def take(self, name: str, rest: str, line: str) -> None:
        """Reads an instruction. Raises `NotPlain`."""
        shell = _listed(rest)[:1] if name == "SHELL" else None
        if shell in _SHELLS:
            self.echo = "" if shell[0].endswith("bash") else _ECHO
            return
        if name in _WITHOUT_EFFECT or (name == "USER" and rest.strip() in _ROOT):
            return
        if name == "FROM":
            self._base(rest, line)
        elif name == "ARG":
            for word in _words(rest, line):
                key, _, value = word.partition("=")
                self.arguments[key] = self._filled(value)
        elif name == "ENV":
            self._set(rest, line)
        elif name == "WORKDIR":
            words = _words(rest, line)
            if len(words) > 1:
                raise NotPlain(f"{line}: more than one folder")
            self.folder = self._absolute(self._filled("".join(words)))
            self._build(line, f"mkdir -p {shlex.quote(self.folder)}")
        elif name in ("COPY", "ADD"):
            self._copy(name, rest, line)
        elif name == "RUN":
            self._run(rest, line)
        else:
            raise NotPlain(f"{line}: a box cannot do this")

    def _base(self, rest: str, line: str) -> None:
        words = [word for word in self._filled(rest).split() if not word.startswith("--")]
        if self.based:
            raise NotPlain(f"{line}: an image of several stages")
        self.based = True
        self.python = _plain(words[0] if words else "", line)

    def _set(self, rest: str, line: str) -> None:
        words = _words(rest, line)
        if words and "=" not in words[0]:  # the old form: ENV NAME the value
            key, _, value = rest.strip().partition(" ")
            self.variables[key] = self._filled(value.strip())
            return
        self.variables |= {
            key: self._filled(value) for key, _, value in (word.partition("=") for word in words)
        }

    def _copy(self, name: str, rest: str, line: str) -> None:
        words = _listed(rest) or _words(rest, line)
        options = [word for word in words if word.startswith("--")]
        paths = [self._filled(word) for word in words if not word.startswith("--")]
        mode = ""
        for option in options:
            key, _, value = option.partition("=")
            if key == "--chmod":
                mode = value
            elif not (key == "--link" or (key == "--chown" and value in _ROOT)):
                raise NotPlain(f"{line}: a box cannot do {option}")
        if len(paths) < 2 or _HEREDOC.search(rest):
            raise NotPlain(f"{line}: not a copy of files")
        *sources, target = paths
        into = target.endswith("/") or len(sources) > 1
        place = shlex.quote(self._absolute(target))
        script = ["set -e", "shopt -s dotglob nullglob"]
        for source in sources:
            script += _copied(self.context, name, source, place, into, mode, line)
        self._build(line, "\n".join(script))

    def _run(self, rest: str, line: str) -> None:
        if rest.lstrip().startswith("--"):
            raise NotPlain(f"{line}: a box cannot do options of RUN")
        words = _listed(rest)
        self._build(line, f"{self.echo}set -eo pipefail\n{shlex.join(words) or rest}")

    def _build(self, line: str, script: str) -> None:
        known = {**self.arguments, **self.variables}
        self.builds.append(Build(line, script, self.folder, known))

    def _absolute(self, place: str) -> str:
        whole = PurePosixPath(self.folder, place)
        parts: list[str] = []
        for part in whole.parts[1:]:
            parts = parts[:-1] if part == ".." else [*parts, part]
        return "/" + "/".join(parts)

    def _filled(self, text: str) -> str:
        known = {"PATH": self.path, **self.arguments, **self.variables}

        def value(match: re.Match[str]) -> str:
            if match[0] == "\\$":
                return "$"
            return known.get(match[1] or match[2]) or match[3] or ""

        return _VARIABLE.sub(value, text)


def text_of(path: Path) -> str:
    """Returns the text of a task's file. Raises `NotPlain` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise NotPlain(f"{path.name} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise NotPlain(f"{path.name} is not UTF-8") from None


def read_image(context: Path, path: str) -> PlainImage:
    """Returns the image of the Dockerfile in a folder. `path`: PATH of the box. Raises `NotPlain`
    for what a box cannot do."""
    reader = _Reader(context, path)
    for name, rest in instructions(text_of(context / "Dockerfile")):
        line = _line(name, rest)
        try:
            reader.take(name, rest, line)
        except NotPlain:
            raise
        except (OSError, ValueError) as fault:  # such as a pattern that `glob` does not know
            raise NotPlain(f"{line}: {fault}") from None
    if not reader.based:
        raise NotPlain("its Dockerfile has no FROM")
    return PlainImage(reader.python, tuple(reader.builds), reader.folder, reader.variables)


def plain_base(image: str) -> PlainImage:
    """Returns an image without a Dockerfile. Raises `NotPlain`."""
    return PlainImage(_plain(image, f"docker_image {image}"), (), "/", {})


def instructions(text: str) -> list[tuple[str, str]]:
    """Returns the instructions of a Dockerfile, each with its arguments."""
    read: list[tuple[str, str]] = []
    lines = iter(text.replace("\r\n", "\n").split("\n"))
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        whole = line.strip()
        while whole.endswith("\\") and (more := next(lines, None)) is not None:
            if more.strip() and not more.lstrip().startswith("#"):
                whole = f"{whole[:-1]}\n{more.rstrip()}"
        name, _, rest = whole.partition(" ")
        rest = rest.replace("\\\n", "\n") if name.upper() == "RUN" else rest.replace("\n", " ")
        ends = [match[2] for match in _HEREDOC.finditer(rest)] if name.upper() == "RUN" else []
        script = rest.strip().replace("\n", "\\\n")
        for end in ends:
            while (more := next(lines, None)) is not None:
                script += f"\n{more}"
                if more.strip() == end:
                    break
        read.append((name.upper(), _bare_heredoc(script) if ends else script))
    return read


def _bare_heredoc(script: str) -> str:
    """Returns the script that is the document itself: `RUN <<EOF`."""
    first, _, rest = script.partition("\n")
    return rest.rpartition("\n")[0] if _HEREDOC.fullmatch(first.strip()) else script


def _line(name: str, rest: str) -> str:
    said = " ".join(rest.replace("\\\n", " ").split())
    return f"{name} {said if len(said) <= 100 else said[:97] + '...'}"


def _plain(image: str, line: str) -> tuple[int, int] | None:
    """Returns the version of Python that a base has, None for any. Raises `NotPlain`."""
    match = _PLAIN.fullmatch(image)
    if match is None or "alpine" in (match["tag"] or ""):
        raise NotPlain(f"{line}: not Debian, Ubuntu or Python")
    tagged = match["own"] or (match["tag"] or "" if match["name"] == "python" else "")
    version = _VERSION.match(tagged.replace("-", "."))
    return (int(version[1]), int(version[2])) if version else None


def _copied(
    context: Path, name: str, source: str, place: str, into: bool, mode: str, line: str
) -> list[str]:
    if name == "ADD" and re.match(r"\w+://|git@|.*\.(tar|tgz|gz|bz2|xz|zst)$", source):
        raise NotPlain(f"{line}: a box cannot download or unpack")
    source = "/".join(part for part in source.split("/") if part not in ("", "."))
    if ".." in source.split("/") or not (not source or list(context.glob(source))):
        raise NotPlain(f"{line}: its folder has no {source!r:.60}")
    here = f"{CONTEXT}/{re.sub(r'[^][*?/.,=+@%:A-Za-z0-9_-]', _escaped, source)}"
    copy = "cp -dR --preserve=mode,timestamps"
    inside = f"mkdir -p {place} && {copy}" if into else f"mkdir -p $(dirname {place}) && {copy}"
    change = [f"chmod -R {shlex.quote(mode)} {place}"] if mode else []
    return [
        f"for source in {here}; do",
        f'  if [ -d "$source" ]; then mkdir -p {place} && {copy} "$source"/. {place}/',
        f'  else {inside} "$source" {place}{"/" if into else ""}; fi',
        "done",
        *change,
    ]


def _escaped(match: re.Match[str]) -> str:
    return f"\\{match[0]}"


def _words(text: str, line: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError:
        raise NotPlain(f"{line}: its quotes cannot be read") from None


def _listed(text: str) -> list[str]:
    """Returns the words of an instruction in JSON; empty if it is in another form."""
    try:
        words = json.loads(text) if text.lstrip().startswith("[") else []
    except ValueError:
        return []
    return words if all(isinstance(word, str) for word in words) else []
