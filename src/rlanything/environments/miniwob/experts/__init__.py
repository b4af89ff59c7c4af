"""Scripted experts for pages of MiniWoB++, that read the screen as an agent does."""

from rlanything.environments.miniwob.experts import (
    choosing,
    clicking,
    colors,
    dates,
    drawings,
    filling,
    mail,
    ordering,
    posts,
    searching,
    sliders,
)
from rlanything.environments.miniwob.experts.base import Expert

_THEMES = (
    choosing,
    clicking,
    colors,
    dates,
    drawings,
    filling,
    mail,
    ordering,
    posts,
    searching,
    sliders,
)
EXPERTS: dict[str, Expert] = {
    page: expert for theme in _THEMES for page, expert in sorted(theme.EXPERTS.items())
}
"""By page."""

__all__ = ["EXPERTS", "Expert"]
