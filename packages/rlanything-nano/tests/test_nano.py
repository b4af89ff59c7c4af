"""The shipped nano models, and the command that makes them."""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer

from rlanything.domains.base import DomainError
from rlanything.domains.text import TextRollouts
from rlanything.engines import shipped
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.engines.images import noise_png
from rlanything.plugins import PluginError
from rlanything.progress import Progress
from rlanything.records import Sample, Task
from rlanything.runs.eval_target import EvalArgs, run_eval
from rlanything_alfworld.teacher import AlfWorldTeacher
from rlanything_nano import step_domains
from rlanything_nano.making import ROLES, RoleName, roles_named, teach
from rlanything_nano.plans import build as build_models
from rlanything_nano.plans import teacher_of
from rlanything_nano.rehearsing import Drill
from rlanything_nano.sft import Renaming, SFTBatch
from rlanything_nano.step_domains import BLANK, StepDomainBuilder
from rlanything_nano.teaching import Exercise, StepPlan, StepTeacher

QUIET = Progress(Console(quiet=True))


def card(name: str = "nano") -> dict:
    return json.loads((shipped.NAMES[name] / "card.json").read_text())


@pytest.mark.parametrize("name", shipped.NAMES)
def test_the_three_models_take_at_most_twelve_megabytes(name: str) -> None:
    files = [p for role in ROLES for p in (shipped.NAMES[name] / role).rglob("*") if p.is_file()]
    assert sum(path.stat().st_size for path in files) <= 12 * 2**20


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nano", "go to shelf 1"),
        ("nano-coding", "xs = [x * 4 for x in xs]"),
        ("nano-miniwob", 'text "Ashlea" [3] > type [3] Ashlea'),
        ("nano-osworld", "menus: Save (ctrl+s) [12] > click [12]"),
        ("nano-miniwob-vision", "the red box > click 110 165"),
    ],
)
def test_a_nano_model_opens_with_from_pretrained(name: str, text: str, role: str) -> None:
    sees = name.endswith("-vision")
    opened = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    network = opened.from_pretrained(shipped.resolve(name, role))
    tokenizer = AutoTokenizer.from_pretrained(shipped.resolve(name, role))
    assert 0.5e6 < network.num_parameters() < 3e6
    assert tokenizer.chat_template
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_card_names_command_seed_and_what_was_measured() -> None:
    found = card()
    assert found["command"].startswith("rlanything nano build")
    assert found["command"].endswith(f"--seed {found['plan']['seed']}")
    measured = found["measured"]
    assert measured["policy"]["tune success at temperature 1.0"]["estimate"] >= 0.3
    assert measured["judge"]["balanced_process_accuracy"] >= 0.6
    # Of single answers; several are sampled for every proposal.
    assert measured["adapter"]["valid answers at temperature 0.7"]["estimate"] > 0.25
    assert measured["minutes"] <= 60


def test_the_models_for_coding_start_useful_and_imperfect() -> None:
    found = card("nano-coding")
    assert (
        found["command"] == f"rlanything nano build --domain coding --seed {found['plan']['seed']}"
    )
    measured = found["measured"]
    for split in ("tune", "ood"):
        assert 0.3 <= measured["policy"][f"{split} success at temperature 1.0"]["estimate"] <= 0.6
        right = measured["judge"][f"{split} right tests at temperature 0.8"]
        assert 0.25 <= right["estimate"] <= 0.6
    assert measured["adapter"]["valid answers at temperature 0.7"]["estimate"] > 0.4


def test_the_models_for_web_tasks_start_useful_and_imperfect() -> None:
    found = card("nano-miniwob")
    assert (
        found["command"] == f"rlanything nano build --domain miniwob --seed {found['plan']['seed']}"
    )
    measured = found["measured"]
    assert 0.4 <= measured["policy"]["tune success at temperature 1.0"]["estimate"] <= 0.7
    assert measured["judge"]["balanced_process_accuracy"] >= 0.6
    assert measured["adapter"]["valid answers at temperature 0.7"]["estimate"] > 0.4


def test_the_models_for_published_games_start_imperfect_and_useful_to_the_loop() -> None:
    found = card("nano-published")
    assert found["command"] == "rlanything nano build --domain alfworld-published --seed 0"
    measured = found["measured"]
    assert 0.25 <= measured["policy"]["tune success at temperature 1.0"]["estimate"] <= 0.5
    assert measured["judge"]["balanced_process_accuracy"] >= 0.75
    assert measured["adapter"]["valid answers at temperature 0.7"]["estimate"] > 0.25


def test_the_models_for_desktops_start_imperfect_and_useful_to_the_loop() -> None:
    found = card("nano-osworld")
    assert (
        found["command"] == f"rlanything nano build --domain osworld --seed {found['plan']['seed']}"
    )
    measured = found["measured"]
    assert 0.3 <= measured["policy"]["tune success at temperature 1.0"]["estimate"] <= 0.6
    assert measured["judge"]["balanced_process_accuracy"] >= 0.6
    assert measured["judge"]["unparsable_rate"] < 0.1
    assert measured["adapter"]["valid answers at temperature 0.7"]["estimate"] > 0.25


def test_the_models_that_see_start_above_the_gate_and_win_little_without_looking() -> None:
    found = card("nano-miniwob-vision")
    assert found["command"] == "rlanything nano build --domain miniwob-vision --seed 0"
    policy, judge = found["measured"]["policy"], found["measured"]["judge"]
    success = "tune success at temperature 1.0"
    assert policy[success]["estimate"] >= 0.3
    assert policy[success]["estimate"] >= 2 * policy[BLANK][success]["estimate"]
    assert judge["balanced_process_accuracy"] >= 0.6
    assert judge["unparsable_rate"] < 0.1


@pytest.mark.slow
def test_the_shipped_policy_reaches_the_starting_gate_on_in_domain_games() -> None:
    steps = card()["plan"]["max_steps"]
    request = EvalArgs("nano", "in_domain", 480, None, steps, 1.0, 1, 2)
    success = run_eval(request, QUIET).evaluation.success
    assert success is not None
    assert 0.3 <= success.estimate <= 0.55


@pytest.mark.parametrize(
    ("domain", "name"),
    [
        ("alfworld", "nano"),
        ("alfworld-published", "nano-published"),
        ("coding", "nano-coding"),
        ("miniwob", "nano-miniwob"),
        ("osworld", "nano-osworld"),
        ("miniwob-vision", "nano-miniwob-vision"),
    ],
)
def test_the_plan_of_a_teacher_is_that_of_the_shipped_models(domain: str, name: str) -> None:
    plan = replace(teacher_of(domain).plan, seed=0, domain=domain)
    written = json.loads(json.dumps(asdict(plan)))
    # A card that is older than a setting leaves it out.
    looking = {"sight": False, "scenes": 0, "reading_updates": 0, "tower_updates": 0}
    valuing = {"valued_games": 250, "valued_states": 5, "continuations": 4, "value_epochs": 4}
    of_steps = {**looking, **valuing, "pack_tokens": 1024, "judged_slip": 0.0}
    newer = {"together": 4} if domain == "coding" else of_steps
    assert written == newer | card(name)["plan"]
    assert list(written)[:2] == ["seed", "domain"]


class Mistaught(TextRollouts):
    @staticmethod
    def nano_teacher() -> object:
        return "me"


def test_a_teacher_that_is_none_is_refused_with_what_to_implement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rooms", sys.modules[__name__])
    with pytest.raises(DomainError, match="returns a str, which lacks something of StepTeacher"):
        build_models("rooms:Mistaught", 0, tmp_path, 0, QUIET)
    with pytest.raises(PluginError, match="unknown domain 'nowhere': use one of"):
        build_models("nowhere", 0, tmp_path, 0, QUIET)


def weights(folder: Path) -> dict[str, str]:
    return {
        role: hashlib.sha256((folder / role / "model.safetensors").read_bytes()).hexdigest()
        for role in ROLES
    }


def small(seed: int) -> StepPlan:
    teacher = teacher_of("alfworld")
    assert isinstance(teacher, StepTeacher)
    return replace(
        teacher.plan,
        domain="alfworld",
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


def build(folder: Path, seed: int, roles: Sequence[RoleName] = ROLES) -> dict[str, str]:
    teacher = teacher_of("alfworld")
    assert isinstance(teacher, StepTeacher)
    measured = StepDomainBuilder(small(seed), teacher, folder, 0, QUIET).build(roles)
    assert measured.keys() == {"policy", "judge", "adapter", "minutes"}
    return weights(folder)


def test_models_that_see_are_built_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = "rlanything_miniwob.vision:MiniWobVision"
    teacher = teacher_of(domain)
    assert isinstance(teacher, StepTeacher)
    plan = replace(
        teacher.plan,
        domain=domain,
        games=14,
        judged_games=7,
        criticised_games=4,
        adapter_games=3,
        policy_epochs=1,
        judge_epochs=1,
        adapter_epochs=1,
        slip=0.5,
        scenes=14,
        reading_updates=2,
        tower_updates=2,
        hidden=32,
        layers=1,
        episodes=2,
    )
    builder = StepDomainBuilder(plan, teacher, tmp_path, 0, QUIET)
    # A policy that knows nothing yet never does what is right, and nothing could be balanced.
    monkeypatch.setattr(
        builder,
        "_policy_rollouts",
        lambda policy, games: builder._play(teacher.demonstrator(0.5), games, 1, "rollouts"),
    )
    measured = builder.build()
    assert measured.keys() == {"policy", "judge", "adapter", "minutes"}
    for role in ("policy", "judge"):
        seen = {name for name in measured[role] if name != BLANK}
        assert seen == measured[role][BLANK].keys()
    for role in ROLES:
        model = load_model(tmp_path / role, "float32")
        assert model.vision is not None
        picture = model.vision.image_tokens(model.vision.book.add(noise_png(0, 210, 160)))
        assert picture.tokens == 13 * 10


def test_a_build_is_decided_by_its_seed(tmp_path: Path) -> None:
    first = build(tmp_path / "one", 0)
    assert build(tmp_path / "two", 0) == first
    other = build(tmp_path / "three", 1)
    assert all(other[role] != first[role] for role in ROLES)


class Drilling(AlfWorldTeacher):
    def exercises(self, tasks: Sequence[Task], rng: random.Random) -> list[Exercise]:
        return [Exercise(task, (), f"a thought > {rng.randint(1, 9)}") for task in tasks]


def test_exercises_are_taught_first_and_rehearsed_by_who_reads_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught: dict[str, tuple[Sequence[Sequence[Sample]], int]] = {}

    def noted(model: LanguageModel, groups: Any, name: str, **settings: Any) -> None:
        rehearsed = settings.get("rehearsed")
        taught[name] = groups, len(rehearsed()) if rehearsed else 0
        teach(model, groups, name, **settings)

    monkeypatch.setattr(step_domains, "teach", noted)
    plan = replace(small(0), exercises=20, exercise_epochs=1)
    StepDomainBuilder(plan, Drilling(), tmp_path, 0, QUIET).build()
    assert [(name, count) for name, (_, count) in taught.items()] == [
        ("exercises", 0),
        ("policy", 1),
        ("judge", 1),
        ("adapter", 0),
    ]
    groups, _ = taught["exercises"]
    assert [len(group) for group in groups] == [16, 4]
    assert re.fullmatch(r"a thought > \d", groups[0][0].completion.text)


def test_a_drill_uses_other_words_each_time_and_is_decided_by_its_seed() -> None:
    ids, nothing = np.array([5, 6, 7, 5]), np.zeros(4, dtype=np.int32)
    exercise = SFTBatch(ids, nothing, nothing, np.array([2]), np.array([5]))
    drills = [Drill([exercise], Renaming([[5, 6]], 10), seed) for seed in (1, 1, 2)]
    drawn = [[drill.draw()[0] for _ in range(12)] for drill in drills]
    said = [["".join(map(str, batch.ids)) for batch in batches] for batches in drawn]
    assert said[0] == said[1] != said[2]
    assert {*said[0]} == {"5675", "6576"}
    assert all(batch.tokens[0] == batch.ids[0] == batch.ids[3] for batch in drawn[0])
    assert exercise.ids is ids


def test_one_role_made_anew_is_what_the_whole_build_makes(tmp_path: Path) -> None:
    whole = build(tmp_path, 0)
    minutes = json.loads((tmp_path / "card.json").read_text())["measured"]["minutes"]
    for role in ("adapter", "judge"):
        (tmp_path / role / "model.safetensors").unlink()
        assert build(tmp_path, 0, (role,)) == whole
    assert json.loads((tmp_path / "card.json").read_text())["measured"]["minutes"] == minutes


def test_a_role_without_lessons_is_refused(frozen_model: LanguageModel) -> None:
    with pytest.raises(DomainError, match="the judge has nothing to learn from: plan for more"):
        teach(
            frozen_model,
            [[]],
            "judge",
            epochs=1,
            learning_rate=1e-3,
            seed=0,
            renaming=Renaming([], len(frozen_model.tokenizer)),
            progress=QUIET,
        )


def test_roles_are_refused_by_name_and_without_models_to_go_with(tmp_path: Path) -> None:
    assert roles_named((), tmp_path) == ROLES
    with pytest.raises(DomainError, match="no role is called 'critic': use one of policy, judge"):
        roles_named(("critic",), tmp_path)
    with pytest.raises(DomainError, match="holds no models to go with the new ones"):
        roles_named(("adapter",), tmp_path)
    (tmp_path / "card.json").touch()
    assert roles_named(("adapter", "policy"), tmp_path) == ("policy", "adapter")
