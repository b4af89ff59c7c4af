"""Tests on the real vLLM; `make test-vllm` runs them in an environment of their own."""

from __future__ import annotations

import importlib.util

import pytest

from helpers.starts import engine_of, nano_policy
from rlanything.engines.hf.model import LanguageModel
from rlanything_vllm.engine import VLLMEngine

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_vllm_*.py"]


@pytest.fixture(scope="session")
def frozen() -> LanguageModel:
    """The nano policy, for tests that leave its weights alone."""
    return nano_policy()


@pytest.fixture(scope="module")
def engine(frozen: LanguageModel) -> VLLMEngine:
    """One engine for all tests of a file that leave it alive: it takes seconds to start."""
    return engine_of(frozen)
