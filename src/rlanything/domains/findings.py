"""Results of `rlanything doctor`; its help imports this and nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of `rlanything doctor`."""

    name: str
    status: Literal["ok", "missing", "error"]
    """`missing`: an optional part that is not installed, which is no error; `error`: broken."""
    text: str
    """State found; if something is wrong or missing, also the remedy."""

    def line(self) -> str:
        return f"{self.status:<8}{self.name}: {self.text}"
