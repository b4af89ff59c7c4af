"""Environments of other ecosystems for rlanything: Gymnasium, OpenEnv, Reasoning Gym, TextArena."""
