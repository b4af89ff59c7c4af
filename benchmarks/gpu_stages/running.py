"""Stages that run what a user runs: engines, and the loop."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import torch
from rich.console import Console

from gpu_stages.checks import Bench, Check, Missing, at_most
from gpu_stages.made_up import random_model
from rlanything.config.engines import EngineSetting
from rlanything.config.shipped import shipped_files
from rlanything.domains.base import DomainError
from rlanything.engines.base import Engine, Request, Sampling
from rlanything.engines.hf.engine import embedded_engine
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.packing import pack
from rlanything.learning.scorer import TokenScorer
from rlanything.learning.trained_tokens import trained_tokens
from rlanything.progress import Progress
from rlanything.records import Completion, Sample
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything_vllm.config import VLLMEngineConfig

WAKES = 5


def calls(bench: Bench) -> list[list[Request]]:
    """Returns prompts [steps][conversations], each of which goes on from the step before."""
    steps, conversations, seen = (2, 3, 8) if bench.dry else (4, 64, 200)
    # Words that the tokenizer of the nano models can write.
    tokens = np.random.default_rng(0).integers(0, 400, (conversations, steps * seen)).tolist()
    return [
        [Request(tuple(own[: seen * step]), (i,), None, str(i)) for i, own in enumerate(tokens)]
        for step in range(1, steps + 1)
    ]


def generation(bench: Bench) -> list[Check]:
    """The embedded engine: its speed, and its log-probs against the learner's."""
    dtype = torch.bfloat16 if bench.gpu else None
    model = random_model(bench, "0.5B", dtype)
    engine, sampling = embedded_engine(model), Sampling(1.0, 8 if bench.dry else 256)
    rate = sampled_a_second(engine, bench, sampling)
    answers = [group[0] for group in engine.generate(calls(bench)[-1], sampling)]
    bound = 5e-2 if bench.gpu else 1e-4
    return [
        Check("0.5B, sampled", f"{rate:,.0f} tokens a second", rate > 0),
        at_most("mean difference of log-probs", mismatch(model, answers), bound),
    ]


def mismatch(model: LanguageModel, answers: list[Completion]) -> float:
    """Returns the mean absolute difference of answers' log-probs and the learner's."""
    [batch] = pack([Sample("answer", answer, 1.0) for answer in answers], 1 << 40)
    tokens = trained_tokens(batch, 1, model.device)
    with torch.no_grad():
        ours, _ = TokenScorer(model, 1.0)(batch, tokens)
    return float((ours - tokens.old_logprobs.to(ours)).abs().mean())


def vllm(bench: Bench) -> list[Check]:
    """vLLM with the learner's weights: hand-over, sleep, and the same tokens after it."""
    if importlib.util.find_spec("vllm") is None:
        raise Missing("vLLM is not installed: pip install 'rlanything[vllm]'")
    from rlanything_vllm.engine import VLLMEngine

    model = random_model(bench, "0.5B", torch.bfloat16)
    config = VLLMEngineConfig(name="vllm", memory_gib=4.0, max_context=4096, sleep=True)
    setting = EngineSetting("policy", "0.5B", "bfloat16", bench.device, 1, 300.0)
    engine = VLLMEngine(model, config, setting)
    greedy = Sampling(0.0, 8 if bench.dry else 256)
    # It compares some log-probs with the learner's after each hand-over, and raises EngineLost.
    rate = sampled_a_second(engine, bench, greedy)
    checks = [Check("0.5B, sampled", f"{rate:,.0f} tokens a second", rate > 0)]
    first, free = tokens_of(engine, bench, greedy), list[float]()
    stale = bench.seconds(lambda: (engine.sync_weights(), tokens_of(engine, bench, greedy)), 1, 3)
    known = bench.seconds(lambda: tokens_of(engine, bench, greedy), 1, 3)
    checks.append(Check("hand-over with comparison", f"{max(0.0, stale - known):.3g} s"))
    same = True
    for _ in range(WAKES):
        engine.release_cache()
        free.append(float(torch.cuda.mem_get_info()[0]) if bench.gpu else math.nan)
        same = same and tokens_of(engine, bench, greedy) == first
    checks.append(Check(f"the same tokens after {WAKES} sleeps", str(same), same))
    lost = (free[0] - free[-1]) / 1e9
    grown = bench.speed(lost < 0.1)
    return [*checks, Check("memory not given back in sleep", f"{lost:.2f} GB", grown)]


def sampled_a_second(engine: Engine, bench: Bench, sampling: Sampling) -> float:
    """Returns the speed with weights that have moved, as at the beginning of an iteration."""
    sampled = 0

    def answer() -> None:
        nonlocal sampled
        engine.sync_weights()
        groups = [engine.generate(call, sampling) for call in calls(bench)]
        sampled = sum(len(each.token_ids) for call in groups for group in call for each in group)

    seconds = bench.seconds(answer, 1, 2)
    return sampled / seconds


def tokens_of(engine: Engine, bench: Bench, sampling: Sampling) -> list[tuple[int, ...]]:
    return [group[0].token_ids for group in engine.generate(calls(bench)[0], sampling)]


def quickstart(bench: Bench) -> list[Check]:
    """An iteration of the quickstart, every role on the device; tiny where dry."""
    given: list[str] = [f"run_dir={bench.folder}/run", "loop.iterations=1", "cluster.seats=1"]
    given += [f"{role}.device={bench.device}" for role in ("policy", "judge", "adapter")]
    given += ["tracker.tensorboard=false"]
    if bench.dry:
        given += ["evaluation.episodes=0", "environment.workers=0"]
    recipe = shipped_files()["tiny" if bench.dry else "quickstart"]
    try:
        trainer = Trainer(recipe, overrides=given, progress=Progress(Console(quiet=True)))
    except DomainError as error:
        raise Missing(str(error)) from error
    trainer.train()
    store = Store(bench.folder / "run" / "run.sqlite")
    metrics = dict(store.query("SELECT name, value FROM metrics WHERE iteration = 1"))
    store.close()
    seconds = [f"{n.split('/')[1]} {v:.3g} s" for n, v in metrics.items() if n[:8] == "seconds/"]
    trained = [metrics[f"{role}/samples"] > 0 for role in ("policy", "judge")]
    names = "policy/mismatch_mean", "judge/mismatch_mean"
    return [
        Check("an iteration", ", ".join(seconds), all(trained)),
        *(at_most(name, metrics.get(name, math.nan), 1e-3) for name in names),
    ]
