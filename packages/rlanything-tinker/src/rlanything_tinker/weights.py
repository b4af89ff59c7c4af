"""The weights that a service trains for a role, and their version."""

from __future__ import annotations

from dataclasses import dataclass

import tinker

SEED_BITS = 2**31 - 1
"""Mask of the seed bits that are sent: services store seeds in 32 bits."""


@dataclass(slots=True)
class ServedWeights:
    """A role's weights at a service."""

    role: str
    """The role's key in the recipe, for messages."""
    client: tinker.TrainingClient
    updates: int = 0
    """Version: the number of optimizer steps so far."""
