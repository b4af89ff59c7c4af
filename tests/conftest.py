"""What all tests share."""

from __future__ import annotations

import pytest
import torch

# Tiny models are slower on many threads than on one.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def frozen_model():
    """One tiny model for all tests that leave its weights alone."""
    from tiny import tiny_model

    return tiny_model()
