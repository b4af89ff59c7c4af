"""Gymnasium's environments, and those of the packages that register theirs there."""
