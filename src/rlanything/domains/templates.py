"""Prompt templates: text files with $placeholders, which users may replace by their own."""

from __future__ import annotations

import string
import textwrap
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from rlanything.domains.base import DomainError
from rlanything.records import JudgedTrajectory

CRITIC_STEP = frozenset({"mark", "response", "action", "observation", "reasoning"})
"""Placeholders of `critic_step`: one step and, if it was rejected, the reasons."""
REASON_CHARACTERS = 300
"""Length limit of each judgement that a critic's prompt quotes, in characters."""


QUOTE = "| "
"""Prefix of every line of a quoted response."""


def quoted_lines(text: str) -> str:
    """Returns a text with `QUOTE` before every line, so that no line of a policy's text can pass
    for a heading, a result or a verdict of the surrounding prompt."""
    return "\n".join(f"{QUOTE}{line}".rstrip() for line in text.splitlines() or [""])


def rejecters(failed: JudgedTrajectory, rejected: Sequence[int]) -> str:
    """Returns in words who scored the rejected steps -1, according to `adapter.rejected_by`."""
    scores = dict(enumerate(failed.scores))  # empty without judgements
    by_all = all(score == -1 for i in rejected for score in scores.get(i, ()))
    return "every judge" if by_all else "at least one judge"


def reasons(judged: JudgedTrajectory, index: int) -> str:
    """Returns the texts of the judgements that scored a step -1, each shortened to
    `REASON_CHARACTERS`, without duplicates; "" if there are none."""
    judgements = judged.judgements[index] if index < len(judged.judgements) else ()
    answers = [each.completion.answer for each in judgements if each.score == -1]
    texts = [textwrap.shorten(text, REASON_CHARACTERS, placeholder=" ...") for text in answers]
    return " / ".join(filter(None, dict.fromkeys(texts)))


class Templates:
    """The prompt templates of a domain; `render(name, **values)` fills `<name>.txt`.

    Files missing from the user's folder come from the package. Raises `DomainError` for a missing
    folder, an invalid template, or an unknown placeholder."""

    def __init__(
        self,
        package: str,
        placeholders: Mapping[str, frozenset[str]],
        folder: str | Path | None,
        style: str = "",
    ) -> None:
        """Reads the templates of a domain's package, which has a folder `prompts`. `placeholders`:
        names of templates with their allowed placeholders; `folder`: the user's own templates, None
        without; `style`: the folder inside `prompts` whose templates come first, "" without."""
        self._texts: dict[str, string.Template] = {}
        shipped = resources.files(package) / "prompts"
        if folder is not None and not Path(folder).is_dir():
            raise DomainError(
                f"prompts folder '{folder}' does not exist; leave `prompts` out to use the shipped"
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

    def critic_steps(self, failed: JudgedTrajectory, rejected: Sequence[int]) -> str:
        """Returns every step in a `critic_step`, the rejected ones with a mark and the reasons."""
        return "".join(
            self.render(
                "critic_step",
                mark="(bad) " if i in rejected else "",
                response=step.response,
                action=step.action or "none",
                observation=step.next_observation,
                reasoning=reasons(failed, i) if i in rejected else "",
            )
            for i, step in enumerate(failed.trajectory.steps)
        )
