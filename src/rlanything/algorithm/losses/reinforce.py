"""REINFORCE (Williams 1992, doi.org/10.1007/BF00992696): the plain policy gradient.

    loss = -A logp_new + KL terms

No ratio and no clip: it ignores how far the weights have moved from those that sampled. That is
right where an iteration is one update (`minibatches: 1` and `epochs: 1`, the defaults); with
several, lower the learning rate or hold the policy by `kl_weight`.
"""

from __future__ import annotations

from rlanything.algorithm.losses.base import LossInputs, LossOutputs, with_kl


def reinforce(inputs: LossInputs) -> LossOutputs:
    """The advantage times the log-prob of each token; statistics show the tokens' own ratios."""
    return with_kl(inputs, -inputs.importance * inputs.advantages * inputs.new_logprobs)
