"""A role's model at a service: its text side, its learner, its engine, and its saved states."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tinker
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from rlanything.cluster.models import RoleSource
from rlanything.config.roles import TrainedRoleConfig, role_key
from rlanything.engines.base import ModelError
from rlanything.engines.hf.damage import reading
from rlanything.engines.hf.text import ModelText, end_of_turn
from rlanything.strict_json import read_json
from rlanything_tinker.engine import TinkerEngine
from rlanything_tinker.learner import TinkerLearner
from rlanything_tinker.service import (
    MOST_SECONDS,
    OpenService,
    asking,
    check_model,
    open_service,
)
from rlanything_tinker.weights import SEED_BITS, ServedWeights

STATE = "tinker.json"
"""File in a checkpoint that names the state the service keeps."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """A saved state of weights and optimizer, which the service keeps."""

    path: str
    """Its `tinker://` address."""
    updates: int
    """Version of the weights: number of optimizer steps before it was saved."""
    skipped_in_a_row: int
    """Consecutive skipped updates before it was saved."""

    @classmethod
    def read(cls, folder: Path) -> SavedState:
        """Reads the file in a checkpoint's folder. Raises `ModelError`."""
        with reading(f"cannot go on from {folder}", "Take the folder from a copy of the run."):
            members = read_json((folder / STATE).read_text(encoding="utf-8"))
            state = cls(members["path"], members["updates"], members["skipped_in_a_row"])
            counts = (state.updates, state.skipped_in_a_row)
            if not (
                str(state.path).startswith("tinker://") and all(type(n) is int for n in counts)
            ):
                raise ValueError(f"{STATE} names no state of a service")
        return state


@dataclass(slots=True)
class TinkerModel:
    """A model that a service trains and generates with."""

    model: ModelText
    engine: TinkerEngine
    learner: TinkerLearner
    weights: ServedWeights
    saved: int = 0
    """Number of states saved by this process, for their names."""

    def snapshot(self, folder: Path) -> Callable[[], None]:
        """Has the service begin to save weights and optimizer, before any later request, and
        returns a function that writes into a folder where they are. Both raise `ServiceError`."""
        self.saved += 1
        with asking(self.weights.role, "saving the state"):
            saving = self.weights.client.save_state(f"state-{self.saved:06d}")
        state = {
            "updates": self.weights.updates,
            "skipped_in_a_row": self.learner.skipped_in_a_row,
            "base_model": self.model.name,
        }

        def write() -> None:
            with asking(self.weights.role, "saving the state"):
                path = saving.result(MOST_SECONDS).path
            text = json.dumps({"path": path} | state, indent=1)
            (folder / STATE).write_text(text, encoding="utf-8")

        return write

    def load_state(self, folder: Path) -> None:
        """Reads the counts of a saved state; `load_model` loaded its weights and optimizer. Raises
        `ModelError`."""
        state = SavedState.read(folder)
        self.weights.updates = state.updates
        self.learner.skipped_in_a_row = state.skipped_in_a_row


def load_model(url: str, key_variable: str, source: RoleSource) -> TinkerModel:
    """Returns a role's model at a service: its base model with new adapters, the weights of a
    checkpoint's folder, or the source's own checkpoint with its optimizer. `key_variable`:
    environment variable with the key. Raises `ModelError` or `ServiceError`."""
    role, name = source.role, role_key(source.name)
    assert isinstance(role, TrainedRoleConfig)
    service = open_service(url, key_variable, name)
    client = _training_client(service, source, role, name)
    with asking(name, "describing the model"):
        told = client.get_info()
    info, rank = told.model_data, told.lora_rank
    if role.lora is not None and rank not in (None, role.lora.rank):
        raise ModelError(
            f"{name}.lora.rank: {role.lora.rank}, but the adapters of {role.model} have rank "
            f"{rank}; set it to that"
        )
    base = str(info.model_name or role.model)
    text = _text(base, info.tokenizer_id or base, service.contexts.get(base))
    weights = ServedWeights(name, client)
    engine = TinkerEngine(weights, text, role.timeout_seconds)
    return TinkerModel(text, engine, TinkerLearner(weights, role), weights)


def _training_client(
    service: OpenService, source: RoleSource, role: TrainedRoleConfig, name: str
) -> tinker.TrainingClient:
    client = service.client
    if source.checkpoint is not None:
        state = SavedState.read(source.checkpoint)
        with asking(name, f"loading {state.path}"):
            loading = client.create_training_client_from_state_with_optimizer(state.path)
            return loading.result(MOST_SECONDS)
    if (Path(role.model) / STATE).is_file():
        state = SavedState.read(Path(role.model))
        with asking(name, f"loading {state.path}"):
            return client.create_training_client_from_state(state.path).result(MOST_SECONDS)
    check_model(service, role.model, name)
    assert role.lora is not None  # TinkerConfig.check ensures this
    with asking(name, f"creating adapters for {role.model}"):
        # The output layer stays as it is, as with `targets: all-linear` elsewhere.
        return client.create_lora_training_client(
            role.model, rank=role.lora.rank, seed=source.seed & SEED_BITS, train_unembed=False
        ).result(MOST_SECONDS)


def _text(name: str, tokenizer_place: str, context: int | None) -> ModelText:
    """Returns the text side of a base model. Raises `ModelError` without a usable tokenizer."""
    with reading(
        f"cannot load the tokenizer {tokenizer_place!r} of model {name!r}",
        "Make it available on this machine, as with `hf download`.",
    ):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            tokenizer_place, trust_remote_code=False
        )
    if tokenizer.chat_template is None:
        raise ModelError(f"model {name!r} has no chat template; choose an instruction-tuned model")
    own: Any = tokenizer.eos_token_id
    stops = {own} if isinstance(own, int) else set[int]()
    end = end_of_turn(tokenizer, stops)
    stops |= set() if end is None else {end}
    reason = "this learner only sends text to the service"
    return ModelText(name, tokenizer, end, tuple(sorted(stops)), None, reason, context)
