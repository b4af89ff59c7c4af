"""Iterations of this library and of TRL's agent trainer, on the same games: for peers.py."""
