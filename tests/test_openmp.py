"""Threads that wait for one another do not burn the cores that others want."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from helpers.paths import SOURCE
from rlanything.openmp import cores

GENERATION = """
import os, subprocess, sys, time
os.sched_setaffinity(0, range(os.cpu_count()))
from rlanything.engines import shipped
from rlanything.engines.base import Request, Sampling
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.model import load_model
import torch

engine = HFEngine(load_model(shipped.resolve("nano-guess", "policy"), "float32"))
requests = [Request(tuple(range(5 + i, 65 + i)), (i,)) for i in range(64)]

def cpu_seconds(threads):
    torch.set_num_threads(threads)
    engine.release_cache()
    engine.generate(requests[:4], Sampling(1.0, 4))
    begun = time.process_time()
    engine.generate(requests, Sampling(1.0, 24))
    return time.process_time() - begun

alone = cpu_seconds(1)
busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
try:
    print(cpu_seconds(2) / alone)
finally:
    busy.kill()
"""

LATE = """
import torch, warnings
from rlanything.engines import shipped
from rlanything.openmp import warn_of_spinning
warnings.simplefilter("always")
warn_of_spinning(1)
warn_of_spinning(2)
warn_of_spinning(2)
"""


def output(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    own = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {key: value for key, value in os.environ.items() if key not in own} | variables
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two threads want two cores")
def test_a_generation_beside_a_busy_process_costs_what_it_computes():
    assert float(output(GENERATION).stdout) < 2  # about 1.2; threads that spin: 3 to 12


def test_what_the_user_says_of_threads_stays():
    show = "import os, rlanything; print(os.environ['OMP_WAIT_POLICY'], len(os.environ))"
    policy, variables = output(show, OMP_WAIT_POLICY="active").stdout.split()
    assert policy == "active"
    assert int(variables) == int(output(show).stdout.split()[1]) - 1
    assert output(show).stdout.startswith("passive ")


def test_a_program_that_imports_torch_first_is_told_once():
    assert output(LATE).stderr.count("RuntimeWarning: torch was imported before rlanything") == 1


def test_cores_are_those_of_this_process_and_all_of_them_without_affinity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert cores() == os.cpu_count()
