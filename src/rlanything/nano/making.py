"""What every nano model is made of, and how it is taught and saved."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, get_args

import torch
from transformers import SeedOssConfig, SeedOssForCausalLM

from rlanything.domains.base import DomainError
from rlanything.engines.hf.model import LanguageModel
from rlanything.nano.pretrain import Lesson, Renaming, lessons_of, pretrain
from rlanything.progress import Progress
from rlanything.records import Direction, Sample

RoleName = Literal["policy", "judge", "adapter"]
ROLES: tuple[RoleName, ...] = get_args(RoleName)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


class Planned(Protocol):
    """A dataclass: what every plan names."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def seed(self) -> int: ...

    @property
    def domain(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a decoder."""

    hidden: int
    layers: int
    heads: int


def new_model(shape: Shape, tokenizer: Any, seed: int) -> LanguageModel:
    """A model that knows nothing yet."""
    torch.manual_seed(seed)
    # Llama's layers with biases on queries, keys and values. Of the architectures like it, this
    # is one for which AutoTokenizer opens the tokenizer that lies beside the weights.
    config = SeedOssConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=3 * shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads // 2,
        head_dim=shape.hidden // shape.heads,
        attention_bias=True,
        attention_out_bias=False,
        attention_dropout=0.0,
        residual_dropout=0.0,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return LanguageModel(SeedOssForCausalLM(config), tokenizer)


def pupil_of(policy: LanguageModel) -> LanguageModel:
    """A model that begins with what the policy has learned already: reading a task and a
    transcript, and names off a list."""
    return LanguageModel(copy.deepcopy(policy.network), policy.tokenizer)


def joined(lessons: Sequence[Sequence[Sample]], together: int) -> list[list[Sample]]:
    """So many groups of samples in one."""
    return [
        [sample for group in lessons[at : at + together] for sample in group]
        for at in range(0, len(lessons), together)
    ]


def teach(
    model: LanguageModel,
    examples: Sequence[Sequence[Sample]],
    role: RoleName,
    *,
    epochs: int,
    learning_rate: float,
    seed: int,
    renaming: Renaming,
    progress: Progress,
) -> None:
    """Supervised learning on groups of examples; says how it went. Raises `DomainError` where there
    are none."""
    lessons: list[Lesson] = list(lessons_of(examples))
    if not lessons:
        raise DomainError(f"the {role} has nothing to learn from: plan for more games")
    with progress.phase(f"teach {role}", len(lessons) * epochs, "lessons") as advance:
        loss = pretrain(model, lessons, epochs, learning_rate, seed, renaming, advance)
    tokens = sum(len(lesson.ids) for lesson in lessons) * epochs
    progress.log(f"{role}: taught on {tokens / 1e6:.1f}M tokens, final loss {loss:.3f}")


def save_in_bfloat16(model: LanguageModel, folder: Path) -> None:
    """Half the size. The model keeps the rounded weights: what is measured is what ships."""
    weights = {name: value.to(torch.bfloat16) for name, value in model.network.state_dict().items()}
    model.network.save_pretrained(folder, state_dict=dict(weights))
    model.tokenizer.save_pretrained(folder)
    model.network.load_state_dict(weights)


def roles_named(names: Sequence[str], out: Path) -> tuple[RoleName, ...]:
    """All of them if none is named. Raises `DomainError` for an unknown one, and where the models
    that are not to be made are missing."""
    named: tuple[RoleName, ...] = tuple([role for role in ROLES if not names or role in names])
    unknown = sorted(set(names) - set(ROLES))
    if unknown:
        raise DomainError(f"no role is called {unknown[0]!r}: use one of {', '.join(ROLES)}")
    if named != ROLES and not (out / "card.json").exists():
        raise DomainError(f"{out} holds no models to go with the new ones: make all three")
    return named


def measured_before(out: Path, roles: Sequence[RoleName]) -> dict[str, Any]:
    """What the card in a folder says, if only some of its models are made anew. Its minutes are
    those of the whole build."""
    if set(roles) >= set(ROLES):
        return {}
    return json.loads((out / "card.json").read_text(encoding="utf-8"))["measured"]


def write_card(out: Path, plan: Planned, measured: dict[str, Any]) -> None:
    """The command that makes the models, what they depend on, what they can do."""
    command = f"rlanything nano build --domain {plan.domain} --seed {plan.seed}"
    card = {"command": command, "plan": asdict(plan), "measured": measured}
    (out / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
