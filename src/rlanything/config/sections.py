"""The recipe's sections beside roles, engines and the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rlanything.algorithm.feedback import (
    Balance,
    Comparison,
    FeedbackSettings,
    Normalization,
    PolicyReward,
)
from rlanything.config.engines import ConfigSection
from rlanything.config.roles import Count, LabellerConfig, Share

Window = Annotated[tuple[Share, Share], Field(strict=False)]
File = Annotated[Path, Field(strict=False)]
"""Strict about what is in them, but YAML has only lists and texts to write them with."""


_DEFAULT = FeedbackSettings()


class FeedbackConfig(ConfigSection):
    policy_lambda: Annotated[float, Field(ge=0)] = _DEFAULT.policy_lambda
    """lambda of the policy's integrated feedback (Eq. 1)."""
    judge_lambda: Annotated[float, Field(ge=0)] = _DEFAULT.judge_lambda
    """lambda inside the judge's consistency feedback (Eq. 2). Where judgements are compared
    over their step, only the sign of the feedback counts: the outcome's for every lambda up to 1
    (of three judgements that can all be read: below 3), above it that of most judgements."""
    policy_reward: PolicyReward = _DEFAULT.policy_reward
    """What the policy's advantage compares: `integrated` feedback (Eq. 1); what the episode itself
    earned: its `outcome`, or what the environment measures beyond it (for coding the share of
    ground-truth tests passed); or what the `judge` said of each step and nothing else."""
    policy_comparison: Comparison = _DEFAULT.policy_comparison
    """What the policy's advantage compares a step with: those at the same index of the task's other
    rollouts (`step`, the paper), all steps of all of them (`trajectory`), or those at which the
    same was observed (`state`)."""
    policy_window: Window = _DEFAULT.policy_window
    """The policy trains on tasks whose accuracy lies here."""
    judge_window: Window = _DEFAULT.judge_window
    """The judge trains on tasks whose accuracy lies here."""
    judge_normalization: Normalization = _DEFAULT.judge_normalization
    """What the judge's advantage is compared over."""
    judge_balance: Balance = "outcome"
    """`outcome` gives the steps of won and of lost episodes of a task equal total weight in what
    the judge learns, and so teaches nothing on a task that was always won or always lost; it keeps
    a weak policy's judge from learning to say -1 (measured in benchmarks/remedies.md). `none`
    counts every step alike, as the paper does."""

    @model_validator(mode="after")
    def _meaningful(self) -> FeedbackConfig:
        self.settings()
        return self

    def settings(self) -> FeedbackSettings:
        return FeedbackSettings(**self.model_dump())


class CurriculumConfig(ConfigSection):
    adapt_tasks: bool = True
    """Whether tasks outside the window are rewritten."""
    alpha_low: Share = 0.2
    """Tasks of a lower accuracy are made easier."""
    alpha_high: Share = 0.8
    """Tasks of a higher accuracy are made harder."""

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> CurriculumConfig:
        if self.alpha_low >= self.alpha_high:
            raise ValueError(
                f"alpha_low ({self.alpha_low}) must be below alpha_high ({self.alpha_high})"
            )
        return self


class LoopConfig(ConfigSection):
    iterations: Annotated[int, Field(ge=0)] = 20
    """Turns of the loop."""
    tasks: Count = 64
    """Original tasks in the pool: one slot each."""
    tasks_per_iteration: Count = 16
    """Active tasks sampled in each iteration; pending candidates come on top."""
    rollouts_per_task: Count = 8
    """G, the size of a rollout group."""
    max_steps: Count = 40
    """An episode that is not won by then has failed."""
    shuffle_advantages: bool = False
    """A control: advantages are dealt out at random among an iteration's samples, so that nothing
    can be learned and nothing should improve."""

    @model_validator(mode="after")
    def _enough_tasks(self) -> LoopConfig:
        if self.tasks_per_iteration > self.tasks:
            raise ValueError(
                f"tasks_per_iteration ({self.tasks_per_iteration}) exceeds tasks ({self.tasks})"
            )
        return self


class EnvironmentConfig(ConfigSection):
    workers: Annotated[int, Field(ge=0)] = 2
    """Processes that hold environments, many each; 0 keeps them in this process. One acts in one
    environment at a time: for those that wait more than they compute, give more than cores."""
    per_machine: Count | None = None
    """With `cluster.launcher: ray`, so many of them on every machine of the Ray cluster, in the
    place of `workers` on this one."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 60.0
    """A worker that is silent for so long is replaced and its episodes replayed."""
    parallel_episodes: Count = 128
    """Episodes played at the same time."""
    lockstep: bool = True
    """The policy is asked for all of them at once, when all environments have answered: the same
    seed gives the same bits. `false` lets none wait for a slow environment: the policy is asked for
    those that have answered, and the next episode begins when one has ended. Which ones share a
    batch then depends on time, and so does the rounding; seeds and order do not."""


class CheckpointsConfig(ConfigSection):
    """Which checkpoints stay; one is written every iteration."""

    keep: Count = 2
    """The newest so many."""
    every: Annotated[int, Field(ge=0)] = 0
    """Those of every so many iterations as well; 0: no others."""


class StoreConfig(ConfigSection):
    """The contents of a run's `run.sqlite`, which always keeps outcomes, actions, scores, labels,
    advantages and metrics."""

    keep_iterations: Annotated[int, Field(ge=0)] = 0
    """Texts, tokens, log-probs and screenshots of so many latest iterations are kept; 0: of all."""


class WandbConfig(ConfigSection):
    """A run's metrics at Weights & Biases; needs `pip install 'rlanything[wandb]'`."""

    project: str = "rlanything"
    """Which of your projects there."""
    mode: Literal["online", "offline"] | None = None
    """`offline` leaves them in the run directory, for `wandb sync` to bring up. None: what the
    environment variable WANDB_MODE says, or else `online`."""


class TrackerConfig(ConfigSection):
    """Where metrics go beside the store, under the same names (docs/metrics.md)."""

    tensorboard: bool = True
    """Keeps `RUN/tensorboard`, for `tensorboard --logdir RUN`."""
    wandb: WandbConfig | None = None
    """`wandb: {}` sends them; left out, nothing leaves this machine."""


class EvaluationConfig(ConfigSection):
    episodes: Annotated[int, Field(ge=0)] = 240
    """Held-out episodes per split, the same ones each time; 0 turns evaluation off."""
    rollouts_per_task: Count = 1
    """How often each is played. More than once, `episodes` counts tasks; to evaluate a judge that
    writes tests, several programs of a task are needed."""
    seed: int = 0
    """Chooses the held-out tasks: runs that share it are compared on the same ones."""
    every: Annotated[int, Field(ge=0)] = 0
    """Evaluate after every so many iterations; 0: only before the first and after the last."""
    splits: Annotated[tuple[str, ...], Field(strict=False)] = ("in_domain", "ood")
    """Which splits."""
    max_steps: Count | None = None
    """Step limit of evaluation; as in training if left out."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    """The policy's in evaluation; 0 takes the most likely token."""
    judged_episodes: Annotated[int, Field(ge=0)] = 64
    """How many of those episodes the judge scores, to measure its Process Acc and Outcome Acc."""
    labeller: LabellerConfig | None = None
    """The model whose majority says which steps of those episodes are good, once, before training:
    for domains without an oracle, or in its place. None: the oracle, where there is one."""
    baseline: File | None = None
    """A run that began alike: its evaluation before training is taken over, not made again."""

    @model_validator(mode="after")
    def _something_to_label(self) -> EvaluationConfig:
        if self.labeller is not None and not (self.episodes and self.judged_episodes):
            raise ValueError(
                "labeller: nothing is judged that it could label; set episodes and judged_episodes"
            )
        return self
