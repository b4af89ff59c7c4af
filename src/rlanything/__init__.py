"""Closed-loop reinforcement learning of a policy, a generative judge and the environment's tasks."""

__version__ = "0.1.0"
