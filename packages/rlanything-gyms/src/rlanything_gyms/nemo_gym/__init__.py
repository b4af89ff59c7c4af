"""Environments behind a resources server of NeMo Gym."""
