"""Environments behind a server of the Open Reward Standard."""
