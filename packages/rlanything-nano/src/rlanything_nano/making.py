"""The common parts of all builds: architecture, training, saving and card of a nano model."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, get_args

import torch
from transformers import SeedOssConfig, SeedOssForCausalLM

from rlanything.cluster.models import prepare_torch
from rlanything.config.worlds import domains_by_label
from rlanything.domains.base import DomainError
from rlanything.engines.hf.model import LanguageModel
from rlanything.progress import Progress
from rlanything.records import Direction, Sample
from rlanything_nano.sft import PACK_TOKENS, Renaming, SFTBatch, make_batches, train_epochs

RoleName = Literal["policy", "judge", "adapter", "value"]
NAMES: tuple[RoleName, ...] = get_args(RoleName)
ROLES = NAMES[:3]
"""The roles that a build makes if none is named."""
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


class BuildPlan(Protocol):
    """Fields that every plan has; a plan is a dataclass."""

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
        """Returns the part of a decoder's configuration that all nano models share."""
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
    # Llama's layers with biases on queries, keys and values. Among such architectures,
    # AutoTokenizer opens the tokenizer next to the weights for this one.
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
    pack_tokens: int = PACK_TOKENS,
) -> None:
    """Trains a model on groups of samples, plus the `rehearsed` drills in every update, and logs
    the progress. `name`: what is taught. Raises `DomainError` if there are no samples."""
    batches: list[SFTBatch] = list(make_batches(examples, model, pack_tokens))
    if not batches:
        raise DomainError(f"the {name} has nothing to learn from: plan for more games")
    with progress.phase(f"teach {name}", len(batches) * epochs, "batches") as advance:
        settings = (epochs, learning_rate, seed, renaming, advance, rehearsed)
        loss = train_epochs(model, batches, *settings)
    tokens = sum(len(batch.ids) for batch in batches) * epochs
    progress.log(f"{name}: taught on {tokens / 1e6:.1f}M tokens, final loss {loss:.3f}")


def save_in_bfloat16(model: LanguageModel, folder: Path) -> None:
    """Saves a model in half the size. The model keeps the rounded weights, so that measurements are
    of the shipped model."""
    weights = {name: value.to(torch.bfloat16) for name, value in model.network.state_dict().items()}
    model.network.save_pretrained(folder, state_dict=dict(weights))
    model.tokenizer.save_pretrained(folder)
    if model.vision is not None:
        model.vision.processor.save_pretrained(folder)
    model.network.load_state_dict(weights)
    model.forget_images()


def roles_named(names: Sequence[str], out: Path) -> tuple[RoleName, ...]:
    """Returns the roles to build, in order; all of them if `names` is empty. Raises `DomainError`
    for an unknown role, and if `out` lacks the models that are not built again."""
    named: tuple[RoleName, ...] = tuple([role for role in NAMES if role in (names or ROLES)])
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise DomainError(f"no role is called {unknown[0]!r}: use one of {', '.join(NAMES)}")
    if not set(named) >= set(ROLES) and not (out / "card.json").exists():
        raise DomainError(
            f"{out} holds no models to go with the new ones: build all three, or copy a shipped "
            "set there first"
        )
    return named


@contextmanager
def measurements(plan: BuildPlan, out: Path, roles: Sequence[RoleName]) -> Iterator[dict[str, Any]]:
    """Yields the measurements on the card in `out`, to complete during a build of these roles; they
    are empty if all models are new, or there is no card. Then writes `card.json`: the command that
    makes the models, the plan, and the measurements, with the minutes of the whole build."""
    prepare_torch(0)
    begun = time.perf_counter()
    card = out / "card.json"
    measured: dict[str, Any] = {}
    if not set(roles) >= set(ROLES) and card.exists():
        measured = json.loads(card.read_text(encoding="utf-8"))["measured"]
    yield measured
    measured.setdefault("minutes", (time.perf_counter() - begun) / 60)
    settings = asdict(plan)
    domain = ",".join(domains_by_label(plan.domain, settings.get("options", {})).values())
    command = f"rlanything nano build --domain {domain} --seed {plan.seed}"
    content = {"command": command, "plan": settings, "measured": measured}
    card.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
