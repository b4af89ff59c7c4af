"""TRL's side: its `GRPOTrainer`, whole, with a `rollout_func`; and what was tried to tune it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
from learner_steps.trl_step import clip_range
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
)

from peer_steps.trl_rollouts import EpisodeRow, TRLRollouts, as_output
from rlanything.config.recipe import Recipe

Way = TypeVar("Way")

ROWS = (8, 16, 32, 64)
"""Episodes computed together in an update, of which the fastest counts."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that TRL is tuned by."""

    keeps: bool
    """Whether rollouts keep keys and values from turn to turn."""
    rollout_threads: int
    rows: int
    """Episodes computed together in an update."""
    update_threads: int


@dataclass(frozen=True, slots=True)
class TRLIteration:
    """Seconds and counts of one iteration of TRL."""

    rollout_seconds: float
    update_seconds: float
    """All of the iteration except rollouts: rewards, padding, loss, optimizer, its own loop."""
    again_seconds: float
    """The same episodes once more, with nothing kept from turn to turn; they do not train."""
    rows: Sequence[EpisodeRow]


class TRLAgent:
    """`GRPOTrainer` on episodes: makes iterations, and hands over after each of them."""

    def __init__(
        self,
        network: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        recipe: Recipe,
        rollouts: TRLRollouts,
    ) -> None:
        """`network` is trained, and TRL patches its forward."""
        self._network = network
        self._tokenizer = tokenizer
        self._recipe = recipe
        self._rollouts = rollouts

    def tuned(self, tasks: Sequence[str], cores: int) -> tuple[Settings, dict[str, float]]:
        """Tries settings on the rollouts and the update of these tasks. Returns the fastest, and
        the seconds of each by name."""
        tried: dict[str, float] = {}
        prompts = [task for task in tasks for _ in range(self._recipe.loop.rollouts_per_task)]
        counts = sorted({1, cores})

        def rollouts(keeps: bool, threads: int) -> float:
            self._rollouts.keeps, self._rollouts.threads = keeps, threads
            self._rollouts(prompts, None)
            how = "keys and values kept" if keeps else "whole conversations again"
            tried[f"rollouts, {how}, threads: {threads}"] = self._rollouts.seconds
            return self._rollouts.seconds

        rollouts(True, cores)  # warms the environments up; measured again below
        threads = _fastest(counts, lambda count: rollouts(True, count))
        keeps = _fastest((True, False), lambda kept: rollouts(kept, threads))
        played = self._rollouts.rows

        def update(rows: int, threads: int) -> float:
            seconds: list[float] = []
            settings = Settings(keeps, threads, rows, threads)
            self._train(
                [*tasks, *tasks],
                settings,
                lambda _prompts, _trainer: as_output(played),
                lambda lap, _number: seconds.append(lap),
            )
            tried[f"update, episodes at once: {rows}, threads: {threads}"] = seconds[-1]
            return seconds[-1]

        sizes = [size for size in ROWS if len(prompts) % size == 0]
        rows = _fastest(sizes, lambda size: update(size, cores))
        update_threads = _fastest(counts, lambda count: update(rows, count))
        return Settings(keeps, threads, rows, update_threads), tried

    def iterate(
        self,
        tasks: Sequence[str],
        settings: Settings,
        after: Callable[[TRLIteration, int], None],
    ) -> None:
        """Trains in one run of the trainer's loop, `tasks_per_iteration` tasks at a time, in order.

        After each iteration `after` is called with it and its number from 0; what that takes
        counts nowhere."""
        self._rollouts.keeps = settings.keeps
        self._rollouts.threads = settings.rollout_threads

        def hand_over(seconds: float, number: int) -> None:
            spent, rows = self._rollouts.seconds, self._rollouts.rows
            self._rollouts.keeps = False
            self._rollouts([row.task.id for row in rows], None)
            self._rollouts.keeps = settings.keeps
            after(TRLIteration(spent, seconds - spent, self._rollouts.seconds, rows), number)

        self._train(tasks, settings, self._rollouts, hand_over)

    def _train(
        self,
        tasks: Sequence[str],
        settings: Settings,
        rollouts: Callable[[list[str], Any], dict[str, Any]],
        on_iteration: Callable[[float, int], None],
    ) -> None:
        own = torch.get_num_threads()
        torch.set_num_threads(settings.update_threads)
        with TemporaryDirectory() as folder:
            trainer = self._trainer(folder, tasks, settings.rows, rollouts)
            trainer.remove_callback(PrinterCallback)
            trainer.add_callback(_Laps(on_iteration))
            trainer.train()
        torch.set_num_threads(own)

    def _trainer(
        self,
        folder: str,
        tasks: Sequence[str],
        rows: int,
        rollouts: Callable[[list[str], Any], dict[str, Any]],
    ) -> Any:
        # The extra is not part of the set-up that is checked for types.
        from datasets import Dataset  # pyright: ignore[reportMissingImports]
        from trl.trainer.grpo_config import GRPOConfig  # pyright: ignore[reportMissingImports]
        from trl.trainer.grpo_trainer import GRPOTrainer  # pyright: ignore[reportMissingImports]

        class Silent(GRPOTrainer):
            def _send_telemetry(self) -> None:
                """A benchmark sends nothing."""

        loop, policy = self._recipe.loop, self._recipe.policy
        config = GRPOConfig(
            output_dir=folder,
            report_to="none",
            logging_strategy="no",
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            # TRL's default is True: less memory, and every forward twice.
            activation_checkpointing=False,
            num_generations=loop.rollouts_per_task,
            per_device_train_batch_size=rows,
            # One optimizer step on all that was played: with more TRL computes the log-probs of
            # all rows once again before the first.
            gradient_accumulation_steps=loop.tasks_per_iteration * loop.rollouts_per_task // rows,
            max_steps=len(tasks) // loop.tasks_per_iteration,
            shuffle_dataset=False,
            loss_type="grpo",
            epsilon=clip_range(policy),
            beta=0.0,
            temperature=policy.temperature,
            lr_scheduler_type="constant",
            learning_rate=policy.learning_rate,
            weight_decay=policy.weight_decay,
            max_grad_norm=policy.max_grad_norm,
        )
        return Silent(
            model=self._network,
            args=config,
            processing_class=self._tokenizer,
            reward_funcs=lambda won, **_: won,
            train_dataset=Dataset.from_dict({"prompt": list(tasks)}),
            rollout_func=rollouts,
        )


class _Laps(TrainerCallback):
    """Times the iterations of a trainer's loop, without what is called after them."""

    def __init__(self, after: Callable[[float, int], None]) -> None:
        self._after = after
        self._number = 0
        self._begun = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        seconds = time.perf_counter() - self._begun
        self._after(seconds, self._number)
        self._number += 1
        self._begun = time.perf_counter()


def _fastest(ways: Sequence[Way], seconds: Callable[[Way], float]) -> Way:
    taken = [seconds(way) for way in ways]
    return ways[taken.index(min(taken))]
