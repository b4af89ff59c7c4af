"""vLLM's log-probs are compared with the learner's on what was sampled, not on what was forced."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.tiny import completion_of, plain_logprobs
from rlanything.engines.base import Sampling
from rlanything_vllm.engine import TOLERANCE, EngineLost, VLLMEngine


def test_forced_tokens_do_not_dilute_the_difference(frozen_model):
    tokens = [20, *range(30, 60)]
    # One token was chosen; the others had no alternative.
    allowed = [(20, 21), *((token,) for token in tokens[1:])]
    exact = completion_of([5, 6, 7], tokens, allowed=allowed)
    exact = replace(exact, logprobs=tuple(plain_logprobs(frozen_model, exact).tolist()))
    off = replace(exact, logprobs=(exact.logprobs[0] - 5 * TOLERANCE["float32"],))
    off = replace(off, logprobs=off.logprobs + exact.logprobs[1:])
    engine: Any = SimpleNamespace(_lm=frozen_model, _tolerance=TOLERANCE["float32"], _name="policy")
    VLLMEngine._compare(engine, [exact], Sampling(1.0, 40))
    with pytest.raises(EngineLost, match="differ"):
        VLLMEngine._compare(engine, [off], Sampling(1.0, 40))
