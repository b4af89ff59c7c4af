"""Rollouts of other frameworks, as lines of files."""
