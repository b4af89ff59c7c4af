"""Ablations: a recipe run many times, each time with something left out or changed."""
