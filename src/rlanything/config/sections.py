"""The recipe's sections other than roles, engines and the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.algorithm.options import FunctionConfig
from rlanything.config.engines import ConfigSection
from rlanything.config.roles import Count, LabellerConfig, Share
from rlanything.config.trust import check_code

File = Annotated[Path, Field(strict=False)]
"""A path; strict about its type, but given as a text in YAML."""


class FeedbackConfig(FeedbackSettings):
    """The feedback of a run, whose recipe may come from a stranger."""

    @field_validator("advantage", "judge_reward")
    @classmethod
    def _code_allowed(cls, function: FunctionConfig, info: ValidationInfo) -> FunctionConfig:
        check_code(function.name, info)
        return function


class CurriculumConfig(ConfigSection):
    adapt_tasks: bool = True
    """Whether tasks outside the accuracy window are rewritten."""
    alpha_low: Share = 0.2
    """Tasks with a lower accuracy are made easier."""
    alpha_high: Share = 0.8
    """Tasks with a higher accuracy are made harder."""

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> CurriculumConfig:
        if self.alpha_low >= self.alpha_high:
            raise ValueError(
                f"alpha_low ({self.alpha_low}) must be below alpha_high ({self.alpha_high})"
            )
        return self


class LoopConfig(ConfigSection):
    iterations: Annotated[int, Field(ge=0)] = 20
    """Number of iterations of the loop."""
    tasks: Count = 64
    """Original tasks in the pool: one slot each."""
    tasks_per_iteration: Count = 16
    """Active tasks sampled per iteration; pending candidates come on top."""
    rollouts_per_task: Count = 8
    """G, the size of a rollout group."""
    max_steps: Count = 40
    """Step limit of an episode; an episode that is not won by then is lost."""
    max_staleness: Annotated[int, Field(ge=0)] = 0
    """Number of updates that may pass between the beginning of a rollout group and its training. 0:
    every iteration waits for all its episodes. Above 0 it trains as soon as `tasks_per_iteration`
    groups have ended, while up to `max_staleness` times as many more are under way; ratios compare
    with the weights that sampled each token."""
    shuffle_advantages: bool = False
    """A control: shuffles the advantages among an iteration's samples, so that nothing can be
    learned and nothing should improve."""

    @model_validator(mode="after")
    def _enough_tasks(self) -> LoopConfig:
        if self.tasks_per_iteration > self.tasks:
            raise ValueError(
                f"tasks_per_iteration ({self.tasks_per_iteration}) exceeds tasks ({self.tasks})"
            )
        if (under_way := (1 + self.max_staleness) * self.tasks_per_iteration) > self.tasks:
            raise ValueError(
                f"with max_staleness {self.max_staleness}, {under_way} tasks are under way at once "
                f"and there are {self.tasks}: use more tasks, or fewer tasks_per_iteration"
            )
        return self


class EnvironmentConfig(ConfigSection):
    workers: Annotated[int, Field(ge=0)] = 2
    """Worker processes, each with many environments; 0 keeps environments in this process. A worker
    steps one environment at a time: for environments that mostly wait, use more workers than
    cores."""
    per_machine: Count | None = None
    """Number of workers on every machine of the Ray cluster, with `cluster.launcher: ray`; replaces
    `workers`."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 60.0
    """A worker that is silent for this many seconds is replaced and its episodes are replayed."""
    parallel_episodes: Count = 128
    """Episodes played at the same time."""
    lockstep: bool = True
    """Whether the policy answers all environments together once all have responded: the same seed
    then gives the same bits. `false` does not wait for slow environments: the policy answers those
    that have responded, and a new episode begins when one ends. Batches, and so rounding, then
    depend on timing; seeds and order do not."""


class CheckpointsConfig(ConfigSection):
    """Checkpoints to write and to keep."""

    write_every: Count = 1
    """Write a checkpoint every Nth iteration, and after the last. A run that was stopped goes back
    to its last checkpoint, and repeats at most N - 1 complete iterations, with the same results."""
    keep: Count = 2
    """Number of latest checkpoints to keep."""
    every: Annotated[int, Field(ge=0)] = 0
    """Also keep those of every Nth iteration; 0 disables."""


class StoreConfig(ConfigSection):
    """The contents of a run's `run.sqlite`, which always keeps outcomes, actions, scores, labels,
    advantages and metrics."""

    keep_iterations: Annotated[int, Field(ge=0)] = 0
    """Number of latest iterations whose texts, tokens, log-probs and screenshots are kept; 0 keeps
    all."""


class WandbConfig(ConfigSection):
    """A run's metrics at Weights & Biases; needs `pip install 'rlanything[wandb]'`."""

    project: str = "rlanything"
    """Name of your project at Weights & Biases."""
    mode: Literal["online", "offline"] | None = None
    """`offline` leaves the data in the run directory for `wandb sync`. None: the environment
    variable WANDB_MODE, or else `online`."""


class TrackerConfig(ConfigSection):
    """Trackers that receive metrics besides the store, under the same names (docs/metrics.md)."""

    tensorboard: bool = True
    """Whether to write `RUN/tensorboard`, for `tensorboard --logdir RUN`."""
    wandb: WandbConfig | None = None
    """`wandb: {}` sends metrics to Weights & Biases; without it nothing leaves this machine."""


class EvaluationConfig(ConfigSection):
    episodes: Annotated[int, Field(ge=0)] = 240
    """Held-out episodes per split, the same ones each time; 0 disables evaluation."""
    rollouts_per_task: Count = 1
    """Attempts at each held-out task. Above 1, `episodes` counts tasks; evaluating a judge that
    writes tests needs several programs per task."""
    seed: int = 0
    """Seed that selects the held-out tasks; runs with the same seed are evaluated on the same
    tasks."""
    every: Annotated[int, Field(ge=0)] = 0
    """Evaluate every Nth iteration; 0: only before the first and after the last."""
    splits: Annotated[tuple[str, ...], Field(strict=False)] = ("in_domain", "ood")
    """Splits to evaluate on."""
    max_steps: Count | None = None
    """Step limit of evaluation; defaults to the training limit."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    """The policy's temperature in evaluation; 0 is greedy."""
    judged_episodes: Annotated[int, Field(ge=0)] = 64
    """Number of held-out episodes that the judge scores, to measure its Process Acc and Outcome
    Acc."""
    labeller: LabellerConfig | None = None
    """A stronger model whose majority vote labels the steps of those episodes once before training,
    for domains without an oracle, or in place of it. None: the oracle, if the domain has one."""
    baseline: File | None = None
    """A run that began with the same settings; its evaluation before training is copied instead of
    repeated."""

    @model_validator(mode="after")
    def _something_to_label(self) -> EvaluationConfig:
        if self.labeller is not None and not (self.episodes and self.judged_episodes):
            raise ValueError(
                "labeller: nothing is judged that it could label; set episodes and judged_episodes"
            )
        return self
