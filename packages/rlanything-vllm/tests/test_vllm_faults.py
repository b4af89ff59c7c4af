"""vLLM killed and stopped: the call recovers, or ends in one line, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from helpers.starts import engine_of
from rlanything.engines.base import Request, Sampling
from rlanything.engines.deadline import GenerationTimeout
from rlanything_vllm.engine import EngineLost, VLLMEngine

REQUESTS = [Request((5 + i % 300, 6, 7), (i, i + 1000, i + 2000)) for i in range(120)]
LONG = Sampling(1.5, 120)


def gone(process: int) -> bool:
    return not Path(f"/proc/{process}").exists()


def strike(engine: VLLMEngine, number: signal.Signals, seconds: float) -> None:
    """Sends a signal to the engine's worker, so many seconds from now."""
    threading.Timer(seconds, os.kill, (engine.process_id, number)).start()


def test_a_worker_killed_while_it_generates_is_replaced_and_the_samples_are_the_same(engine):
    engine.generate(REQUESTS, LONG)  # first calls are slow
    begun = time.monotonic()
    undisturbed = engine.generate(REQUESTS, LONG)
    took = time.monotonic() - begun
    for share in (0.2, 0.7):
        worker = engine.process_id
        strike(engine, signal.SIGKILL, share * took)
        again = engine.generate(REQUESTS, LONG)
        assert engine.process_id != worker
        assert gone(worker)
        tokens = [[[each.token_ids for each in g] for g in run] for run in (undisturbed, again)]
        assert tokens[0] == tokens[1]
        engine.generate(REQUESTS, LONG)


def test_a_worker_that_was_killed_between_two_calls_is_replaced(engine):
    before = engine.generate(REQUESTS[:3], Sampling(1.0, 8))
    os.kill(engine.process_id, signal.SIGKILL)
    after = engine.generate(REQUESTS[:3], Sampling(1.0, 8))
    assert [[each.token_ids for each in g] for g in before] == [
        [each.token_ids for each in g] for g in after
    ]


def test_workers_that_keep_dying_stop_the_run_with_one_line(engine, monkeypatch):
    start = VLLMEngine._start

    def doomed(engine):
        process = start(engine)
        os.kill(process.id, signal.SIGKILL)
        return process

    monkeypatch.setattr(VLLMEngine, "_start", doomed)
    os.kill(engine.process_id, signal.SIGKILL)
    with pytest.raises(EngineLost, match=r"policy: vLLM died twice .*exit status -9") as caught:
        engine.generate(REQUESTS, LONG)
    assert len(str(caught.value).splitlines()) == 1
    monkeypatch.undo()
    assert len(engine.generate(REQUESTS[:1], Sampling(1.0, 8))) == 1


@pytest.mark.parametrize("moment", ["hand-over", "generation"])
def test_a_worker_that_hangs_is_given_up_in_time(engine, moment, monkeypatch):
    engine.generate(REQUESTS, LONG)
    monkeypatch.setattr(engine, "_seconds", 3.0)
    worker = engine.process_id
    if moment == "hand-over":
        engine.sync_weights()
        os.kill(worker, signal.SIGSTOP)
    else:
        strike(engine, signal.SIGSTOP, 0.3)
    begun = time.monotonic()
    with pytest.raises(GenerationTimeout, match=r"silent for 3 s; raise policy\.timeout") as caught:
        engine.generate(REQUESTS, LONG)
    assert time.monotonic() - begun < 10
    assert ("taking new weights" in str(caught.value)) == (moment == "hand-over")
    assert gone(worker)
    # Whoever calls once more has an engine again.
    monkeypatch.setattr(engine, "_seconds", 60.0)
    assert len(engine.generate(REQUESTS[:1], Sampling(1.0, 8))) == 1


def test_no_worker_outlives_its_engine(frozen):
    engine = engine_of(frozen)
    worker = engine.process_id
    assert not gone(worker)
    del engine
    assert gone(worker)
