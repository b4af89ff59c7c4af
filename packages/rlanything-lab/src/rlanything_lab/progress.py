"""Progress advantage: how much more likely training has made a response, as a judge of steps.

With a KL-regularized reward, beta log(pi(a|s) / pi_0(a|s)) of the trained policy pi over the one
before training is the advantage of a response (arXiv 2606.26080), and so a judge that costs one
forward pass. Any trained judge must beat it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlanything.engines import shipped
from rlanything.engines.hf.model import load_model
from rlanything.learning.packing import pack
from rlanything.learning.scorer import TokenScorer
from rlanything.learning.trained_tokens import trained_tokens
from rlanything.records import Completion, JudgedTrajectory, Judgement, Sample, Trajectory
from rlanything.roles.judges.base import OnJudgements, StepJudge

PACK_TOKENS = 8192
EQUAL = 1e-3
"""Log-ratios, in nats a response, that float32 cannot tell from 0."""


class ProgressJudge(StepJudge):
    """Scores a step by the sign of log(pi / pi_0), summed over the tokens of its response; 0 where
    training has not changed it yet."""

    def __init__(self, before: str, temperature: float = 1.0) -> None:
        """`before`: the policy's model before training, as `policy.model` names it; `temperature`:
        the policy's. Raises `ModelError` if the model cannot be loaded."""
        model = load_model(shipped.resolve(before, "policy"), "float32", trains=False)
        self._scorer = TokenScorer(model, temperature)

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        seed: int,
        on_judgements: OnJudgements | None = None,
    ) -> list[JudgedTrajectory]:
        """Returns the trajectories with one judgement of each step, [trajectories][steps][1]."""
        del seed
        ratios = self.log_ratios([step.completion for t in trajectories for step in t.steps])
        left = iter(ratios)
        judged: list[JudgedTrajectory] = []
        for trajectory in trajectories:
            steps = tuple((_judgement(next(left)),) for _ in trajectory.steps)
            judged.append(JudgedTrajectory(trajectory, steps))
            if on_judgements is not None:
                on_judgements(len(steps))
        return judged

    def log_ratios(self, responses: Sequence[Completion]) -> list[float]:
        """Returns log(pi / pi_0) of each response, in nats, [responses]; pi is the policy that
        sampled it."""
        ratios = [0.0] * len(responses)
        samples = [Sample(str(i), response, 0.0) for i, response in enumerate(responses)]
        for packed in pack([one for one in samples if one.completion.token_ids], PACK_TOKENS):
            tokens = trained_tokens(packed, 1, self._scorer.model.device)
            with torch.no_grad():
                before, _ = self._scorer(packed, tokens)
            gained = (tokens.old_logprobs - before.double()).tolist()
            for number, gain in zip(tokens.samples.tolist(), gained, strict=True):
                ratios[int(packed.samples[number].source)] += gain
        return ratios


def _judgement(ratio: float) -> Judgement:
    score = 0 if abs(ratio) < EQUAL else 1 if ratio > 0 else -1
    return Judgement(Completion.unsampled(f"log ratio {ratio:+.3f}"), score)
