"""The parts common to all builds: a nano model's architecture, training, saving and card."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, get_args

import torch
from transformers import SeedOssConfig, SeedOssForCausalLM

from rlanything.domains.base import DomainError
from rlanything.engines.hf.model import LanguageModel
from rlanything.nano.sft import Renaming, SFTBatch, make_batches, train_epochs
from rlanything.progress import Progress
from rlanything.records import Direction, Sample

RoleName = Literal["policy", "judge", "adapter"]
ROLES: tuple[RoleName, ...] = get_args(RoleName)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


class BuildPlan(Protocol):
    """The fields that every plan has; a plan is a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def seed(self) -> int: ...

    @property
    def domain(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a decoder."""

    hidden: int
    layers: int
    heads: int

    def settings(self, tokenizer: Any) -> dict[str, Any]:
        """Returns the part of a decoder's configuration that is the same in all nano models."""
        return {
            "vocab_size": len(tokenizer),
            "hidden_size": self.hidden,
            "intermediate_size": 3 * self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads // 2,
            "head_dim": self.hidden // self.heads,
            "max_position_embeddings": 4096,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
        }


def new_model(shape: Shape, tokenizer: Any, seed: int) -> LanguageModel:
    """Returns an untrained model."""
    torch.manual_seed(seed)
    # Llama's layers with biases on queries, keys and values. Of the architectures like it, this
    # is one for which AutoTokenizer opens the tokenizer that lies beside the weights.
    config = SeedOssConfig(
        **shape.settings(tokenizer),
        attention_bias=True,
        attention_out_bias=False,
        attention_dropout=0.0,
        residual_dropout=0.0,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
    )
    return LanguageModel(SeedOssForCausalLM(config), tokenizer)


def student(policy: LanguageModel) -> LanguageModel:
    """Returns a copy of the policy for another role: it starts with the policy's skill in reading
    tasks and transcripts."""
    return LanguageModel(copy.deepcopy(policy.network), policy.tokenizer, vision=policy.vision)


def merge_groups(groups: Sequence[Sequence[Sample]], together: int) -> list[list[Sample]]:
    """Returns the samples of every `together` consecutive groups as one group."""
    return [
        [sample for group in groups[at : at + together] for sample in group]
        for at in range(0, len(groups), together)
    ]


def teach(
    model: LanguageModel,
    examples: Sequence[Sequence[Sample]],
    name: str,
    *,
    epochs: int,
    learning_rate: float,
    seed: int,
    renaming: Renaming,
    progress: Progress,
    rehearsed: Callable[[], Sequence[SFTBatch]] | None = None,
) -> None:
    """Trains a model on groups of samples, and in every update on what is `rehearsed`, and logs how
    it went; `name` says what is taught. Raises `DomainError` where there are no samples."""
    batches: list[SFTBatch] = list(make_batches(examples, model))
    if not batches:
        raise DomainError(f"the {name} has nothing to learn from: plan for more games")
    with progress.phase(f"teach {name}", len(batches) * epochs, "batches") as advance:
        settings = (epochs, learning_rate, seed, renaming, advance, rehearsed)
        loss = train_epochs(model, batches, *settings)
    tokens = sum(len(batch.ids) for batch in batches) * epochs
    progress.log(f"{name}: taught on {tokens / 1e6:.1f}M tokens, final loss {loss:.3f}")


def save_in_bfloat16(model: LanguageModel, folder: Path) -> None:
    """Saves a model in half the size. It keeps the rounded weights: the shipped model is
    measured."""
    weights = {name: value.to(torch.bfloat16) for name, value in model.network.state_dict().items()}
    model.network.save_pretrained(folder, state_dict=dict(weights))
    model.tokenizer.save_pretrained(folder)
    if model.vision is not None:
        model.vision.processor.save_pretrained(folder)
    model.network.load_state_dict(weights)
    model.forget_images()


def roles_named(names: Sequence[str], out: Path) -> tuple[RoleName, ...]:
    """Returns the roles to build, in order; all of them where `names` is empty. Raises
    `DomainError` for an unknown role, and where `out` lacks the models that are not built anew."""
    named: tuple[RoleName, ...] = tuple([role for role in ROLES if not names or role in names])
    unknown = sorted(set(names) - set(ROLES))
    if unknown:
        raise DomainError(f"no role is called {unknown[0]!r}: use one of {', '.join(ROLES)}")
    if named != ROLES and not (out / "card.json").exists():
        raise DomainError(f"{out} holds no models to go with the new ones: make all three")
    return named


def earlier_measurements(out: Path, roles: Sequence[RoleName]) -> dict[str, Any]:
    """Returns the measurements on the card in `out`; empty if all models are made anew, or none are
    there. Its minutes are those of the whole build."""
    if set(roles) >= set(ROLES) or not (out / "card.json").exists():
        return {}
    return json.loads((out / "card.json").read_text(encoding="utf-8"))["measured"]


def write_card(out: Path, plan: BuildPlan, measured: dict[str, Any]) -> None:
    """Writes `card.json`: the command that makes the models, the plan, and the measurements."""
    command = f"rlanything nano build --domain {plan.domain} --seed {plan.seed}"
    card = {"command": command, "plan": asdict(plan), "measured": measured}
    (out / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
