"""Prompt templates: text files with $placeholders, which users may replace by their own."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from rlanything.domains.base import DomainError
from rlanything.records import Step


class Templates:
    """The prompt templates of a domain; `render(name, **values)` fills `<name>.txt`.

    Files missing from the user's folder come from the package. Raises `DomainError` for a folder
    that is not there, a file that is no template, or an unknown placeholder."""

    def __init__(
        self,
        package: str,
        placeholders: Mapping[str, frozenset[str]],
        folder: str | None,
        style: str = "",
    ) -> None:
        """Reads the templates of a domain's package, which has a folder `prompts`. `placeholders`:
        names of templates with their allowed placeholders; `folder`: the user's own templates, None
        without; `style`: the folder inside `prompts` whose templates come first, "" without."""
        self._texts: dict[str, string.Template] = {}
        shipped = resources.files(package) / "prompts"
        if folder is not None and not Path(folder).is_dir():
            raise DomainError(
                f"prompts folder {folder!r} does not exist; leave `prompts` out to use the shipped"
            )
        if folder is not None:
            known = {f"{name}.txt" for name in placeholders}
            for path in sorted(Path(folder).glob("*.txt")):
                if path.name not in known:
                    raise DomainError(
                        f"{path}: no such prompt; known are {', '.join(sorted(known))}"
                    )
        for name, allowed in placeholders.items():
            own = Path(folder, f"{name}.txt") if folder is not None else None
            styled = shipped / style / f"{name}.txt"
            source = styled if styled.is_file() else shipped / f"{name}.txt"
            source = own if own is not None and own.is_file() else source
            template = string.Template(source.read_text(encoding="utf-8"))
            if not template.is_valid():
                raise DomainError(f"{source}: write a literal dollar sign as $$")
            unknown = sorted(set(template.get_identifiers()) - allowed)
            if unknown:
                raise DomainError(
                    f"{source}: unknown placeholder ${unknown[0]}; "
                    f"allowed are {', '.join('$' + key for key in sorted(allowed)) or 'none'}"
                )
            self._texts[name] = template

    def render(self, name: str, **values: str) -> str:
        """Returns a template with its placeholders filled."""
        return self._texts[name].substitute(values)

    def critic_steps(self, steps: Sequence[Step], rejected: Sequence[int]) -> str:
        """Returns every response in a `critic_step`, with the rejected ones marked."""
        return "".join(
            self.render("critic_step", mark="(bad) " if i in rejected else "", response=s.response)
            for i, s in enumerate(steps)
        )
