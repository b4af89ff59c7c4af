"""The wording of commands, which differs between AlfWorld's releases, read from a game's grammar.

Games of AlfWorld 0.3 and earlier use `put mug 1 in/on shelf 1` and have no `help`; games of 0.4 use
`move mug 1 to shelf 1`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TEMPLATE = re.compile(r'\baction\s+(\w+)\s*\{\s*template\s*::\s*"([^"]*)"')
_FIXED = {
    "OpenObject": "open {r}",
    "CloseObject": "close {r}",
    "PickupObject": "take {o} from {r}",
    "HeatObject": "heat {o} with {r}",
    "CleanObject": "clean {o} with {r}",
    "CoolObject": "cool {o} with {r}",
    "ToggleObject": "use {o}",
    "SliceObject": "slice {co} with {ko}",
}
"""Templates that are the same in all releases."""
_PUT = re.compile(r"([a-z]+) \{o\} ([a-z/]+) \{r\}")


@dataclass(frozen=True, slots=True)
class Wording:
    """The commands of a game, as far as they differ. The default is AlfWorld 0.4's."""

    put_verb: str = "move"
    put_where: str = "to"
    help: bool = True
    """Whether `help` is a command."""

    def put(self, thing: str, receptacle: str) -> str:
        """Returns the command that puts a held thing into or onto a receptacle."""
        return f"{self.put_verb} {thing} {self.put_where} {receptacle}"

    def put_in(self, command: str) -> tuple[str, str] | None:
        """Returns thing and receptacle of a command that puts something down; None for another
        command."""
        verb, _, rest = command.partition(" ")
        thing, where, receptacle = rest.partition(f" {self.put_where} ")
        return (thing, receptacle) if verb == self.put_verb and where else None


CURRENT = Wording()


def read_wording(grammar: str) -> Wording:
    """Returns the wording of a game's grammar.

    Raises `ValueError` if a command has a form that no known release uses."""
    templates = dict(_TEMPLATE.findall(grammar))
    for action, form in _FIXED.items():
        if templates.get(action, form) != form:
            raise _unknown(action, templates[action])
    given = templates.get("PutObject", "move {o} to {r}")
    put = _PUT.fullmatch(given)
    if put is None or put[1] in {form.partition(" ")[0] for form in _FIXED.values()}:
        raise _unknown("PutObject", given)
    return Wording(put[1], put[2], "help" in templates)


def _unknown(action: str, template: str) -> ValueError:
    return ValueError(
        f"its grammar words {action} as {template!r}, which no known release of AlfWorld does; use"
        " the games that alfworld-download of alfworld 0.4 gives"
    )
