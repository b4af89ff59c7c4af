"""Stand-ins for package managers in a box without network.

    python stand_ins.py INSTALLED apt-get install -y curl

An installation succeeds if everything it names is present, and says what is missing otherwise.
`uvx` and `uv run` run a program of the box's own Python. Standalone, like `supervisor`. INSTALLED:
JSON with the names and versions of `debian` and `python` packages, and `programs`, a folder.
"""

from __future__ import annotations

import json
import os
import re
import sys

WITH_VALUE = {"--with", "-w", "--from", "-p", "--python", "-o", "-t", "--target-release"}
WITH_VALUE |= {"--index-url", "-i", "--extra-index-url", "--trusted-host", "--constraint", "-c"}
WITH_VALUE |= {"--retries", "--timeout", "--default-timeout", "--cache-dir", "--progress-bar"}
NAMES_PACKAGE = {"--with", "-w", "--from"}


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        here = json.load(file)
    tool, words = sys.argv[2], sys.argv[3:]
    if tool in ("apt", "apt-get"):
        verbs = [word for word in words if not word.startswith("-")]
        if verbs[:1] == ["install"]:
            check(plain_words(words)[1:], here["debian"], "E: Unable to locate package {}", 100)
        return
    if words[:2] in (["pip", "install"], ["pip", "sync"]):
        check(plain_words(words)[2:], here["python"], "{} is not available without network", 1)
        return
    if tool == "uv":
        if words[:1] not in (["run"], ["tool"]):
            sys.exit(f"uv {' '.join(words[:1])}: not available without network")
        words = words[2:] if words[:2] == ["tool", "run"] else words[1:]
    wanted, command = run_words(words)
    check(wanted, here["python"], "{} is not available without network", 1)
    if not command:
        sys.exit(f"{tool}: name a program")
    own = os.path.join(here["programs"], command[0])
    try:
        os.execvp(own if os.path.exists(own) else command[0], command)
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}", 127)


def plain_words(words: list[str]) -> list[str]:
    """Returns the words that are neither options nor their values."""
    plain: list[str] = []
    skipped = False
    for word in words:
        if skipped:
            skipped = False
        elif word in WITH_VALUE:
            skipped = True
        elif not word.startswith("-"):
            plain.append(word)
    return plain


def run_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Returns the packages that `uvx` was asked for, and the command."""
    packages: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option, separator, value = rest.pop(0).partition("=")
        if option in WITH_VALUE and not separator and rest:
            value = rest.pop(0)
        if option in NAMES_PACKAGE:
            packages += value.split(",")
    return packages, rest


def check(wanted: list[str], here: dict[str, str], complaint: str, status: int) -> None:
    """Ends this process with a complaint if a package is not present in the version asked for."""
    for name in wanted:
        bare, _, version = name.partition("==" if "==" in name else "=")
        bare = re.split(r"[\[<>=!~;: ]", bare.strip(), maxsplit=1)[0]
        known = here.get(bare, here.get(re.sub(r"[-_.]+", "-", bare).lower()))
        if known is None or (version and "=" in name and ">" not in name and known != version):
            fail(complaint.format(name), status)


def fail(complaint: str, status: int) -> None:
    os.write(2, f"{complaint}\n".encode())
    sys.exit(status)


if __name__ == "__main__":
    main()
