"""Reasons why one of OSWorld's own tasks cannot be played here, with what a user can do."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlanything_osworld.packages import OPTIONAL, missing

Kind = Literal["unreadable", "Google Drive", "application", "system", "internet", "files"]
KINDS: dict[Kind, str] = {
    "unreadable": "have a file that cannot be read",
    "Google Drive": "need Google Drive",
    "application": "need an application that is not installed",
    "system": "need a part of Ubuntu that a desktop in namespaces lacks",
    "internet": "need the internet",
    "files": "need files from outside",
}
"""Kinds of obstacles, each with words for a number of tasks. A task has the first that applies."""
_VS_CODE = ("VS Code", {"code": "usr/bin/code"}, "Debian has no package of it")
_APPLICATIONS = {
    "gimp": ("GIMP", {"gimp": OPTIONAL["gimp"]}, "apt-get install gimp"),
    "vlc": ("VLC", {"vlc": OPTIONAL["vlc"]}, "apt-get install vlc"),
    "thunderbird": (
        "Thunderbird",
        {"thunderbird": "usr/bin/thunderbird"},
        "apt-get install thunderbird",
    ),
    "vs_code": _VS_CODE,
    "vscode": _VS_CODE,
}
"""Applications that `make osworld` does not install, by OSWorld's names: file, and remedy."""
_SYSTEM = {
    "timedatectl": "systemd",
    "org.gnome.shell": "GNOME Shell",
    "pactl": "a sound card",
}
"""Words of a command that only a whole Ubuntu answers, and the part that it asks."""
_OUTSIDE = re.compile(r"https?://(?!localhost\b|127\.0\.0\.1\b)")


@dataclass(frozen=True, slots=True)
class OutsideFile:
    """A file that a task downloads and that is not in the cache."""

    url: str
    name: str
    """Name in the task's folder of the cache, the same as in desktop_env's own."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The first reason why a task cannot be played."""

    kind: Kind
    reason: str
    """One line, with the remedy if there is one."""
    files: tuple[OutsideFile, ...] = ()
    """All missing files of the task, whatever the reason."""


def obstacle(
    example: Mapping[str, Any], application: str, cache: Path, online: bool = False
) -> Obstacle | None:
    """Returns the obstacle to a task, or None.

    `cache`: the task's folder of files. `online`: it is played on machines of a provider, which
    have internet access and OSWorld's applications; only files that the host would fetch count."""
    goals = example.get("evaluator_list")
    asked = [example["config"], example["evaluator"], goals]
    text = json.dumps(asked)
    needed = list(_outside(asked, cache))
    files = tuple(dict.fromkeys(each for each in needed if isinstance(each, OutsideFile)))
    pages = [each for each in needed if isinstance(each, str)]
    if "googledrive" in text:
        return Obstacle("Google Drive", "needs Google Drive, which is not supported", files)
    if not online:
        for name in (application, *_related(example)):
            title, program, remedy = _APPLICATIONS.get(name, ("", {}, ""))
            if missing(program):
                reason = f"needs {title}, which is not installed: {remedy}"
                return Obstacle("application", reason, files)
        for word, part in _SYSTEM.items():
            if word in text:
                reason = f"needs {part}, which a desktop in namespaces lacks: use a provider"
                return Obstacle("system", reason, files)
        if example.get("proxy"):
            reason = "needs the internet through a proxy: use a provider"
            return Obstacle("internet", reason, files)
        if pages:
            reason = f"needs the internet ({pages[0]:.80}): use a provider"
            return Obstacle("internet", reason, files)
    if files:
        first = f"put {files[0].url} at {cache / files[0].name}"
        more = f", and {len(files) - 1} more" if len(files) > 1 else ""
        many = "a file" if len(files) == 1 else "files"
        return Obstacle("files", f"needs {many} from outside: {first}{more}", files)
    return None


def _related(example: Mapping[str, Any]) -> list[str]:
    names = example.get("related_apps")
    return [str(name) for name in names] if isinstance(names, list) else []


def _outside(value: Any, cache: Path) -> Iterator[OutsideFile | str]:
    """Yields everything from outside that a part of a task names and that the cache lacks: files to
    download, and addresses of the internet."""
    if isinstance(value, str):
        if _OUTSIDE.search(value):
            yield value
    elif isinstance(value, list):
        for part in value:
            yield from _outside(part, cache)
    elif isinstance(value, dict):
        if isinstance(value.get("url"), str) and isinstance(value.get("path"), str):
            name = f"{uuid.uuid5(uuid.NAMESPACE_URL, value['url'])}_{Path(value['path']).name}"
            files = [OutsideFile(value["url"], name)]
        elif value.get("type") == "cloud_file":
            pairs = zip(_listed(value.get("path")), _listed(value.get("dest")), strict=False)
            files = [OutsideFile(url, name) for url, name in pairs]
        else:
            for part in value.values():
                yield from _outside(part, cache)
            return
        for file in files:
            if _OUTSIDE.search(file.url) and not os.path.isfile(cache / file.name):
                yield file


def _listed(value: Any) -> list[str]:
    return [str(each) for each in (value if isinstance(value, list) else [value])]
