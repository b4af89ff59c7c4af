"""Seats as processes of this machine: updates that several of them do together, by gloo."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed

from helpers.tiny import sample_of, tiny_model, tiny_recurrent_model
from rlanything.algorithm.losses import ClipOptions, LossInputs, LossOutputs, clipped
from rlanything.config.roles import LoraSettings, TrainedRoleConfig
from rlanything.engines.base import DivergedError, ModelError
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, full_tensor
from rlanything.learning import scorer
from rlanything.learning.learner import Learner
from rlanything.learning.reference import ReferenceModel
from rlanything.learning.sharding import SINGLE, SeatGroup, seats_of_world
from rlanything.records import Sample

GROUP_SECONDS, WORLD_SECONDS = 180.0, 500.0
POISON = 0.123
Report = dict[str, Any]


def samples(count: int = 14, length: int = 24) -> list[tuple[str, Sample]]:
    """Of two prompts and very different lengths, some tokens restricted."""
    rng = np.random.default_rng(1)
    stems = [rng.integers(5, 320, size).tolist() for size in (30, 9)]
    made: list[tuple[str, Sample]] = []
    for i in range(count):
        prompt = stems[i % 3 // 2] + rng.integers(5, 320, rng.integers(0, 12)).tolist()
        response = rng.integers(5, 320, rng.integers(2, length)).tolist()
        allowed = [(t,) if i % 4 == 1 else () if t % 3 else (3, t) for t in response]
        logprobs = [-float(np.log(320)) + float(rng.normal(0, 0.3)) for _ in response]
        advantage = float(rng.choice((-1, 1)) * rng.uniform(0.2, 2))
        sample = sample_of(prompt, response, advantage, logprobs, allowed, f"{i}/0")
        made.append((f"task {i % 5}", sample))
    return made


def poisoned(inputs: LossInputs) -> LossOutputs:
    """A loss that is no number for samples of one advantage."""
    outputs = clipped(inputs, ClipOptions())
    bad = torch.isclose(inputs.advantages, torch.tensor(POISON).to(inputs.advantages))
    return replace(outputs, loss=outputs.loss.masked_fill(bad, float("nan")))


def adapted(model: LanguageModel) -> LanguageModel:
    """With adapters that are not at their start, where half of them has no gradient."""
    add_adapters(model, LoraSettings(rank=2), seed=1)
    torch.manual_seed(2)
    for name, weights in model.network.named_parameters():
        if ".lora_" in name:
            torch.nn.init.normal_(weights, std=0.1)
    return model


@dataclass(frozen=True)
class Case:
    """An update that any number of seats does alike."""

    model: Callable[[], LanguageModel]
    settings: dict[str, Any] = field(default_factory=dict)
    reference: Callable[[LanguageModel], ReferenceModel] | None = None
    samples: int = 14
    logits: int = scorer.MAX_LOGITS
    poison: bool = False


def tied() -> LanguageModel:
    return tiny_model(0, "qwen2", scale=0.1)


def untied() -> LanguageModel:
    return tiny_model(0, "llama", scale=0.1)


def other_model(_: LanguageModel) -> ReferenceModel:
    other = tiny_model(1, "llama", scale=0.1)
    other.network.requires_grad_(False)
    return ReferenceModel(other)


def without_adapters(model: LanguageModel) -> ReferenceModel:
    return ReferenceModel(model, adapters_off=True)


AGAIN = {"gradient_checkpointing": True}
HELD = {"reference_kl_weight": 0.3}
RECOMPUTED = {"old_logprobs": "recomputed", "importance_cap": 1.1}
CASES = {
    "uneven packs": Case(untied),
    "tied embeddings": Case(tied),
    "fewer packs than seats": Case(tied, samples=1),
    "adapters": Case(lambda: adapted(tied())),
    "layers computed again": Case(untied, AGAIN),
    "adapters, layers computed again": Case(lambda: adapted(untied()), AGAIN),
    "reference model": Case(untied, HELD, other_model),
    "adapters off": Case(lambda: adapted(tied()), HELD, without_adapters),
    "recomputed log-probs": Case(tied, RECOMPUTED),
    "padded rows": Case(tied, {"packing": "padded"}),
    "recurrent": Case(tiny_recurrent_model, {"packing": "padded"}),
    "logits in chunks": Case(tied, logits=320 * 5),
    "all at once": Case(
        lambda: adapted(tied()), AGAIN | HELD | RECOMPUTED, without_adapters, logits=320 * 7
    ),
    "three minibatches": Case(untied, {"learning_rate": 1e-3, "minibatches": 3}),
    "a NaN at one seat": Case(untied, {"learning_rate": 1e-3, "minibatches": 3}, poison=True),
}


def learner_of(
    case: Case, group: SeatGroup, model: LanguageModel | None = None, **settings: Any
) -> tuple[LanguageModel, Learner]:
    model = model or case.model()
    chosen = {"learning_rate": 0.0, "max_grad_norm": 1e9, "temperature": 1.0}
    chosen |= {"max_pack_tokens": 90} | case.settings | settings
    chosen |= {"loss": poisoned} if case.poison else {}
    role = TrainedRoleConfig.model_validate(chosen)
    reference = case.reference and case.reference(model)
    return model, Learner(model, role, reference, group)


def given(case: Case) -> list[tuple[str, Sample]]:
    pairs = samples(case.samples)
    if case.poison:
        [(task, sample), *others] = pairs
        pairs = [(task, replace(sample, advantage=POISON)), *others]
    return pairs


def update(case: Case, group: SeatGroup, model: LanguageModel | None = None) -> Report:
    """One update: its statistics, gradients, weights, and how many samples this seat told of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scorer, "MAX_LOGITS", case.logits)
        model, learner = learner_of(case, group, model)
        told: list[int] = []
        statistics = learner.update(given(case), 3, told.append)
    named = list(model.network.named_parameters())
    return {
        "statistics": statistics,
        "gradients": {n: full_tensor(w.grad) for n, w in named if w.grad is not None},
        "weights": weights_of(model),
        "told": sum(told),
    }


def weights_of(model: LanguageModel) -> dict[str, Tensor]:
    return {n: full_tensor(w.detach()).clone() for n, w in model.network.named_parameters()}


def remembered(learner: Learner) -> dict[str, Tensor]:
    """What an optimizer has in its state, in full."""
    return {
        f"{name}.{key}": full_tensor(value).clone()
        for name, weights in learner._weights.items()
        for key, value in learner._optimizer.state.get(weights, {}).items()
    }


LEARNS = Case(untied, {"learning_rate": 1e-3})
SAVED = {"saved": Case(tied), "saved adapters": Case(lambda: adapted(tied()))}


def save_and_go_on(group: SeatGroup, folder: Path) -> Report:
    """Two updates at a stretch, and two with everything saved and loaded in between."""
    straight, learner = learner_of(LEARNS, group)
    learner.update(samples(), 0)
    state = remembered(learner)
    learner.snapshot(folder / f"optimizer of {group.size}")()
    group.total(0.0)  # a barrier: all have written
    middle = untied()
    full = weights_of(straight)
    with torch.no_grad():
        for name, weights in middle.network.named_parameters():
            weights.copy_(full[name])
    learner.offload()
    learner.onload()
    learner.update(samples(), 1)
    resumed, second = learner_of(LEARNS, group, middle)
    second.load(folder / f"optimizer of {group.size}")
    second.update(samples(), 1)
    return {"state": state, "straight": weights_of(straight), "resumed": weights_of(resumed)}


def state_saved_by(seats: int, group: SeatGroup, folder: Path) -> Report:
    """What a learner remembers that reads what so many seats wrote, and writes it again."""
    _, learner = learner_of(LEARNS, group)
    learner.load(folder / f"optimizer of {seats}")
    learner.snapshot(folder / f"optimizer of {seats} by {group.size}")()
    group.total(0.0)
    return remembered(learner)


def work(group: SeatGroup, folder: Path) -> Report:
    """All that is asked of seats, at this one."""
    found: Report = {name: update(case, group) for name, case in CASES.items()}
    found["again"] = update(CASES["three minibatches"], group)
    found["resumed"] = save_and_go_on(group, folder)
    for name, case in SAVED.items():
        model, _ = learner_of(case, group)
        weights = model.snapshot(group.rank == 0)
        if weights:
            model.save(folder / f"{name} by {group.size}", weights)
    return found


def work_of_several(group: SeatGroup, folder: Path) -> Report:
    found = work(group, folder)
    for name in ("tied embeddings", "adapters"):
        full = CASES[name].model()
        sent = pickle.loads(pickle.dumps(full.outline()))
        found[f"{name}, sent"] = update(CASES[name], group, full if group.rank == 0 else sent)
        buffers = dict((full if group.rank == 0 else sent).network.named_buffers())
        found[f"{name}, buffers"] = copy.deepcopy(buffers)
    found["diverged"] = diverged(group)
    found["read from two"] = state_saved_by(2, group, folder)
    if group.size == 3:
        found["read from one"] = state_saved_by(1, group, folder)
    (folder / "damaged").mkdir(exist_ok=True)
    distributed.barrier()
    (folder / "damaged" / f"{group.rank}.safetensors").write_bytes(b"cut")
    distributed.barrier()
    with pytest.raises(ModelError) as caught:
        learner_of(LEARNS, group)[1].load(folder / "damaged")
    found["damage"] = str(caught.value)
    return found


def diverged(group: SeatGroup) -> str:
    _, learner = learner_of(CASES["a NaN at one seat"], group, max_skipped_updates=1)
    with pytest.raises(DivergedError) as caught:
        learner.update(given(CASES["a NaN at one seat"]), 3)
    return str(caught.value)


def seat(rank: int, size: int, folder: Path) -> None:
    """A process of a world; leaves its report as a file."""
    torch.set_num_threads(1)
    place = f"file://{folder / f'store of {size}'}"
    limit = timedelta(seconds=GROUP_SECONDS)
    distributed.init_process_group(
        "gloo", init_method=place, rank=rank, world_size=size, timeout=limit
    )
    try:
        found = work_of_several(seats_of_world("cpu"), folder)
    finally:
        distributed.destroy_process_group()
    torch.save(found, folder / f"report of {size}, {rank}")


def world(size: int, folder: Path) -> list[Report]:
    """Runs a world of so many seats; what each of them reports."""
    if size == 1:
        return [work(SINGLE, folder)]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["helpers.seats"])
    processes = [context.Process(target=seat, args=(rank, size, folder)) for rank in range(size)]
    for process in processes:
        process.start()
    deadline = time.monotonic() + WORLD_SECONDS
    try:
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        assert [process.exitcode for process in processes] == [0] * size
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [torch.load(folder / f"report of {size}, {rank}") for rank in range(size)]
