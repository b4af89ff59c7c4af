"""The savings and costs of gradient checkpointing: an optimizer step with it and without.

python benchmarks/checkpointing.py MODEL [--lora] [--tokens 4096] [--repeats 3]

MODEL is what a recipe takes. Every step is in a process of its own; memory is its peak beyond what
there was before it (Linux), seconds are those of one thread on a processor, so that other work on
the machine counts little.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from statistics import median

import numpy as np
from learner_steps import memory

from rlanything.cluster.models import prepare_torch
from rlanything.config.roles import LoraSettings, TrainedRoleConfig
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import load_model
from rlanything.learning.learner import Learner
from rlanything.records import Completion, Sample

BRANCHES = 8


def samples(tokens: int) -> list[tuple[str, Sample]]:
    """One pack: half of it a prompt in common, the rest a response a branch."""
    rng = np.random.default_rng(0)
    prompt = tuple(rng.integers(5, 300, tokens // 2).tolist())
    length = tokens // 2 // BRANCHES
    samples: list[tuple[str, Sample]] = []
    for i in range(BRANCHES):
        response = tuple(rng.integers(5, 300, length).tolist())
        logprobs, allowed = (-5.0,) * length, ((),) * length
        completion = Completion(prompt, response, logprobs, allowed, "stop", "")
        samples.append(("t", Sample(f"{i}/0", completion, (-1.0) ** i)))
    return samples


def step(model: str, lora: bool, tokens: int, checkpointing: bool) -> None:
    prepare_torch(1)
    loaded = load_model(model, "float32")
    if lora:
        add_adapters(loaded, LoraSettings(), 0)
    settings = TrainedRoleConfig(gradient_checkpointing=checkpointing, max_pack_tokens=tokens)
    learner = Learner(loaded, settings)
    given = samples(tokens)
    learner.update(samples(tokens // 16), 0)  # the optimizer has its moments, kernels are warm
    seconds: list[float] = []

    def work() -> None:
        begun = time.process_time()
        learner.update(given, 0)
        seconds.append(time.process_time() - begun)

    megabytes = memory.peak_megabytes(work)
    print(json.dumps([megabytes, *seconds]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--step", choices=["with", "without"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        step(given.model, given.lora, given.tokens, given.step == "with")
        return
    measured: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
    for _ in range(given.repeats):
        for name, steps in measured.items():
            command = [sys.executable, __file__, *sys.argv[1:], "--step", name]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            megabytes, seconds = json.loads(output.splitlines()[-1])
            steps.append((megabytes, seconds))
    for name, steps in measured.items():
        megabytes, seconds = (median(column) for column in zip(*steps, strict=True))
        spread = ", ".join(f"{seconds:.1f}" for _, seconds in steps)
        print(f"{name}: {megabytes:.0f} MB, {seconds:.1f} s ({spread})")


if __name__ == "__main__":
    main()
