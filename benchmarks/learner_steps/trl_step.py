"""TRL's GRPO step on the samples that the learner gets.

`GRPOTrainer` computes the loss, its gradient, the clipping and AdamW; only its data is given to it.
What else its training loop does (generation, data loading, logging, checkpoints) does not run.

On samples whose tokens were chosen among the whole vocabulary its objective is ours without the KL
term. TRL has no restricted choices: where there were any, it takes as long but learns another loss.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlanything.algorithm.losses import ClipOptions
from rlanything.config.roles import TrainedRoleConfig
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Sample


def available() -> bool:
    """Returns whether TRL is installed. It is not imported: that takes seconds."""
    return importlib.util.find_spec("trl") is not None


def clip_range(settings: TrainedRoleConfig) -> float:
    """Returns eps of the clipped loss: a role's own, else the default."""
    return settings.loss.options.get("clip_range", ClipOptions().clip_range)


class TRLStep:
    """GRPO's optimizer step as TRL makes it, on samples that are given.

    It trains a copy of the model, `network`, for TRL patches the forward of what it trains and
    edits its configuration. Making it seeds the global random generators.
    Raises `ImportError` where TRL is not installed."""

    def __init__(self, model: LanguageModel, settings: TrainedRoleConfig) -> None:
        if not available():
            raise ImportError("TRL is not installed: pip install 'rlanything[bench]'")
        self.network: PreTrainedModel = copy.deepcopy(model.network)
        tokenizer = copy.deepcopy(model.tokenizer)
        self._trainer = _trainer(self.network, tokenizer, settings, model.autocast)
        self._pad_id: int = self._trainer.processing_class.pad_token_id
        self._trainer.create_optimizer()
        self._wrapped, self._optimizer = self._trainer.accelerator.prepare(
            self.network, self._trainer.optimizer
        )

    def update(self, rows: Sequence[Sequence[Sample]]) -> float:
        """Makes one optimizer step on the mean over all samples, which come in micro-batches.

        Returns that mean, the loss. The clipped gradient stays in `network` until the next one."""
        count = sum(len(row) for row in rows)
        losses: list[Tensor] = []
        self._wrapped.zero_grad()
        for row in rows:
            # TRL divides the mean of a micro-batch by this number. In its own loop that is how many
            # there are, which is right if all have one size. This is right for any sizes, and the
            # same where they are equal: every sample weighs 1 / count.
            self._trainer.current_gradient_accumulation_steps = count / len(row)
            losses.append(self._trainer.training_step(self._wrapped, self._inputs(row), None))
        self._trainer._clip_grad_norm(self._wrapped)
        self._optimizer.step()
        return float(torch.stack(losses).sum())

    def _inputs(self, row: Sequence[Sample]) -> dict[str, Tensor]:
        """Returns a micro-batch as TRL's own generation would have left it."""
        completions = [sample.completion for sample in row]
        prompt_ids, prompt_mask = self._padded([c.prompt_ids for c in completions], "left")
        completion_ids, completion_mask = self._padded([c.token_ids for c in completions], "right")
        logprobs = [torch.tensor(completion.logprobs) for completion in completions]
        return {
            "prompt_ids": prompt_ids,
            "prompt_mask": prompt_mask,
            "completion_ids": completion_ids,
            "completion_mask": completion_mask,
            "old_per_token_logps": pad_sequence(logprobs, batch_first=True),
            "advantages": torch.tensor([sample.advantage for sample in row]),
        }

    def _padded(
        self, sequences: Sequence[tuple[int, ...]], side: Literal["left", "right"]
    ) -> tuple[Tensor, Tensor]:
        """Returns ids [samples, longest], and a mask that is 1 on them and 0 on padding."""
        ids = [torch.tensor(sequence) for sequence in sequences]
        masks = [torch.ones_like(sequence) for sequence in ids]
        return (
            pad_sequence(ids, batch_first=True, padding_value=self._pad_id, padding_side=side),
            pad_sequence(masks, batch_first=True, padding_side=side),
        )


def _trainer(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    settings: TrainedRoleConfig,
    autocast: torch.dtype | None,
) -> Any:
    """Returns TRL's trainer with the role's settings, without its data and telemetry."""
    # The extra is not part of the set-up that is checked for types.
    from datasets import Dataset  # pyright: ignore[reportMissingImports]
    from trl.trainer.grpo_config import GRPOConfig  # pyright: ignore[reportMissingImports]
    from trl.trainer.grpo_trainer import GRPOTrainer  # pyright: ignore[reportMissingImports]

    class StepOnly(GRPOTrainer):
        def _send_telemetry(self) -> None:
            """A benchmark sends nothing."""

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            """Moves them to the device; TRL would generate completions here."""
            return self._prepare_input(generation_batch)

    # The trainer makes this folder and writes there only when it logs or saves.
    with TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            report_to="none",
            logging_strategy="no",
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=network.device.type == "cpu",
            bf16=autocast is torch.bfloat16,
            # TRL's default is True: less memory, and every forward twice.
            activation_checkpointing=False,
            loss_type="grpo",
            epsilon=clip_range(settings),
            # TRL's KL is to a reference model and takes a forward of that; ours is to the sampler,
            # whose log-probs are at hand. Without the KL TRL has less to do than we.
            beta=0.0,
            temperature=settings.temperature,
            learning_rate=settings.learning_rate,
            # TRL exempts biases and norms; the learner does not.
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm,
        )
        return StepOnly(
            model=network,
            args=config,
            processing_class=tokenizer,
            # Both are demanded and neither is used.
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            train_dataset=Dataset.from_dict({"prompt": [""]}),
        )
