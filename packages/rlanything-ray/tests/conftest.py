"""Tests on a Ray cluster; `make test-cluster` runs them in an environment of their own."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

if importlib.util.find_spec("ray") is None:
    collect_ignore_glob = ["test_*.py"]

NODE = {"num_cpus": 2, "object_store_memory": 80 * 2**20}
HEALTH = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Three nodes on this machine: the driver's, and two more."""
    import ray  # pyright: ignore[reportMissingImports]
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = NODE | {"include_dashboard": False, "_system_config": HEALTH}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        patch.setenv("RAY_ADDRESS", cluster.address)
        for _ in range(2):
            cluster.add_node(**NODE)
        yield cluster
        ray.shutdown()
        cluster.shutdown()
