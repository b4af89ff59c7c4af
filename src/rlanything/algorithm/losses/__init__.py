"""Losses: one file each, found by name in `registry.py`; docs/losses.md compares them."""
