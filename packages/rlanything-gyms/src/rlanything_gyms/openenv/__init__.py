"""Environments behind an OpenEnv server."""
