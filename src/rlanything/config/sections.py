"""The recipe's sections beside roles, engines and the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rlanything.algorithm.feedback import AdvantageConfig, FeedbackSettings
from rlanything.algorithm.options import FunctionConfig, is_registered
from rlanything.config.engines import ConfigSection
from rlanything.config.roles import Count, LabellerConfig, Share
from rlanything.config.trust import check_code

File = Annotated[Path, Field(strict=False)]
"""Strict about what is in it, but YAML has only texts to write it with."""


class FeedbackConfig(FeedbackSettings):
    """The feedback of a run, whose recipe may come from a stranger."""

    @field_validator("advantage", "judge_reward")
    @classmethod
    def _code_allowed(cls, function: FunctionConfig, info: ValidationInfo) -> FunctionConfig:
        check_code(function.name, info)
        return function

    @field_validator("advantage")
    @classmethod
    def _inputs_there(cls, advantage: AdvantageConfig) -> AdvantageConfig:
        if is_registered(advantage.name):
            check_inputs(advantage)
        return advantage


def check_inputs(advantage: AdvantageConfig) -> None:
    """Raises ValueError for an advantage that needs what no run gives it."""
    if "values" in advantage.needs:
        raise ValueError(f"{advantage.name} needs values, which no role gives: choose another")


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
