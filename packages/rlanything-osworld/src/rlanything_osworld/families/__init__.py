"""Generated tasks, in families of the same kind; each in OSWorld's own format."""

from collections.abc import Mapping

from rlanything_osworld.families import browser, calc, editor, files, impress, writer
from rlanything_osworld.families.base import DesktopDraft, DesktopFamily, DesktopGoal, Move

_ALL = (
    *editor.FAMILIES,
    *files.FAMILIES,
    *calc.FAMILIES,
    *writer.FAMILIES,
    *impress.FAMILIES,
    *browser.FAMILIES,
)
FAMILIES: Mapping[str, DesktopFamily] = {family.name: family for family in _ALL}
HELD_OUT = frozenset({"impress", "browser"})
"""Applications without a task in the training split."""

__all__ = ["FAMILIES", "HELD_OUT", "DesktopDraft", "DesktopFamily", "DesktopGoal", "Move"]
