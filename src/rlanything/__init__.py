"""Closed-loop reinforcement learning of a policy, a generative judge and their tasks."""

__version__ = "0.1.0"
