"""The shipped nano models, and the command that makes them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlanything import nano
from rlanything.nano.episodes import Builder, Plan
from rlanything.targets import EvalRequest, run_eval
from rlanything.view import View

ROLES = ("policy", "judge", "adapter")
QUIET = View(Console(quiet=True))


def card() -> dict:
    return json.loads((nano.MODELS / "card.json").read_text())


def test_the_three_models_take_at_most_twelve_megabytes() -> None:
    files = [path for path in nano.MODELS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 12 * 2**20


@pytest.mark.parametrize("role", ROLES)
def test_a_nano_model_opens_with_from_pretrained(role: str) -> None:
    network = AutoModelForCausalLM.from_pretrained(nano.resolve("nano", role))
    tokenizer = AutoTokenizer.from_pretrained(nano.resolve("nano", role))
    assert 0.5e6 < network.num_parameters() < 3e6
    assert tokenizer.chat_template
    assert tokenizer.decode(tokenizer.encode("go to shelf 1")) == "go to shelf 1"


def test_the_card_names_command_seed_and_what_was_measured() -> None:
    found = card()
    assert found["command"].startswith("rlanything nano build")
    assert found["command"].endswith(f"--seed {found['plan']['seed']}")
    measured = found["measured"]
    assert measured["policy"]["tune success at temperature 1.0"]["estimate"] >= 0.3
    assert measured["judge"]["balanced_process_accuracy"] >= 0.6
    # Of single answers; several are sampled for every proposal.
    assert measured["adapter"]["valid answers at temperature 0.7"]["estimate"] > 0.4
    assert measured["minutes"] <= 60


@pytest.mark.slow
def test_the_shipped_policy_reaches_the_starting_gate_on_in_domain_games() -> None:
    steps = card()["plan"]["max_steps"]
    request = EvalRequest("nano", "in_domain", 480, None, steps, 1.0, 1, 2)
    success = run_eval(request, QUIET).evaluation.success
    assert success is not None
    assert 0.3 <= success.estimate <= 0.55


def weights(folder: Path) -> dict[str, str]:
    return {
        role: hashlib.sha256((folder / role / "model.safetensors").read_bytes()).hexdigest()
        for role in ROLES
    }


def build(folder: Path, seed: int) -> dict[str, str]:
    plan = Plan(
        seed=seed,
        games=6,
        demonstrations_per_game=1,
        judged_games=3,
        adapter_games=3,
        policy_epochs=1,
        judge_epochs=1,
        adapter_epochs=1,
        hidden=32,
        layers=1,
        episodes=2,
    )
    measured = Builder(plan, folder, 0, QUIET).build()
    assert measured.keys() == {"policy", "judge", "adapter", "minutes"}
    return weights(folder)


def test_a_build_is_decided_by_its_seed(tmp_path: Path) -> None:
    first = build(tmp_path / "one", 0)
    assert build(tmp_path / "two", 0) == first
    other = build(tmp_path / "three", 1)
    assert all(other[role] != first[role] for role in ROLES)
