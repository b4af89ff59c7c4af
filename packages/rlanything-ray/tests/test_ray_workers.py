"""Environment workers on the machines of a Ray cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import ray  # pyright: ignore[reportMissingImports]

from helpers.ray_runs import train, trainer
from rlanything.rollout.workers import EnvironmentPool
from rlanything_ray.workers import launches_on_ray
from rollout.test_workers import TOY, toy_pool, toy_texts
from runs.test_survival import fingerprint

pytestmark = pytest.mark.timeout(900)


def test_every_machine_has_so_many_workers_which_do_what_local_ones_do(cluster: Any) -> None:
    with toy_pool(2) as pool:
        expected = toy_texts(pool)
    with EnvironmentPool(TOY, {"greeting": "hi"}, launches_on_ray(2), 60.0) as pool:
        assert len(pool.process_ids) == 2 * (1 + len(cluster.worker_nodes))
        assert toy_texts(pool) == expected


def test_a_worker_that_is_killed_is_replaced_and_one_that_hangs_is_ended(cluster: Any) -> None:
    with toy_pool(0) as pool:
        expected = toy_texts(pool)
    with EnvironmentPool(TOY, {"greeting": "hi"}, launches_on_ray(1), 1.0) as pool:
        ids = pool.process_ids
        blows = {1: (ids[0], signal.SIGKILL), 2: (ids[1], signal.SIGSTOP)}

        def strike(turn: int) -> None:
            if turn in blows:
                os.kill(*blows[turn])

        assert toy_texts(pool, before_turn=strike) == expected
        assert pool.restarts == 2
    for number in (*ids, *pool.process_ids):
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_a_machine_that_is_killed_loses_its_workers_to_the_others(cluster: Any) -> None:
    with toy_pool(0) as pool:
        expected = toy_texts(pool)
    lost = cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    with EnvironmentPool(TOY, {"greeting": "hi"}, launches_on_ray(1), 60.0) as pool:
        number = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"]).index(lost.node_id)

        def strike(turn: int) -> None:
            if turn == 1:
                cluster.remove_node(lost, allow_graceful=False)
                os.kill(pool.process_ids[number], signal.SIGKILL)

        assert toy_texts(pool, before_turn=strike) == expected
        assert pool.restarts >= 1


def test_a_run_whose_episodes_are_played_on_ray_is_the_run_on_this_machine(
    cluster: Any, tmp_path: Path
) -> None:
    train(trainer(tmp_path / "here"))
    train(trainer(tmp_path / "there", "cluster.launcher=ray", "environment.per_machine=1"))
    assert fingerprint(tmp_path / "there") == fingerprint(tmp_path / "here")
