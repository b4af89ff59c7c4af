"""Iterations of this library and of TRL's agent trainer, on the same games: for peers.py."""

import os

# Before rlanything, which would have OpenMP's threads sleep while they wait: those of TRL's users
# spin, and on a quiet machine they are faster.
import torch  # noqa: F401

SPINNING = not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
"""Whether the threads of this process do spin."""
