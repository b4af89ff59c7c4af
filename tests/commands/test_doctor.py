"""`doctor` finds what is wrong with an installation or a run, and says what to do."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import tomllib
from contextlib import closing
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from rich.console import Console

from helpers.command import call
from helpers.guess import FEW, GUESS
from helpers.paths import ROOT
from rlanything import plugins
from rlanything.commands import doctor
from rlanything.commands.doctor import check_installation, check_run
from rlanything.domains.findings import Finding
from rlanything.engines import shipped
from rlanything.engines.hf.cache import RaggedCache
from rlanything.progress import Progress
from rlanything.runs.directory import run_lock
from rlanything.runs.trainer import Trainer


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("doctor") / "run"
    changes = [f"run_dir={run}", "loop.tasks_per_iteration=1", "loop.rollouts_per_task=2"]
    changes += ["evaluation.episodes=0", "loop.max_steps=3"]
    Trainer(GUESS, overrides=[*FEW, *changes], progress=Progress(Console(quiet=True))).train()
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def bad(findings: list[Finding]) -> list[str]:
    return [finding.text for finding in findings if finding.status == "error"]


def test_a_sound_installation_and_run_are_well(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bad(check_run(run)) == []
    assert call(monkeypatch, "doctor", str(run)) == 0
    printed = capsys.readouterr().out
    assert "ok      checkpoint: iter-00002 is intact" in printed
    assert "ok      store: intact, 2 iterations" in printed
    assert call(monkeypatch, "doctor", str(run), "--json") == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {"torch", "accelerator", "store", "disk"} <= {each["name"] for each in findings}
    assert all(finding["status"] != "error" for finding in findings)
    assert len({str(each) for each in findings}) == len(findings)


def test_a_damaged_checkpoint_is_named_and_the_exit_code_is_1(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = run / "checkpoints" / "iter-00002" / "pool.json"
    pool.write_text(pool.read_text()[:-1])
    [optimizer] = (run / "checkpoints" / "iter-00001" / "judge" / "optimizer").iterdir()
    optimizer.unlink()
    assert call(monkeypatch, "doctor", str(run)) == 1
    printed = capsys.readouterr().out
    assert "error   checkpoint: iter-00002: pool.json is not as it was written" in printed
    assert "error   checkpoint: iter-00001: judge/optimizer/" in printed
    assert f"{optimizer.name} is missing" in printed


def test_a_missing_checkpoint_is_named(run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "iter-00002")
    (found,) = bad(check_run(run))
    assert found.startswith("iter-00002, the last in the store, is missing")


def test_a_checkpoint_that_is_not_due_yet_is_not_missing(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    with closing(sqlite3.connect(run / "run.sqlite")) as db, db:
        db.execute("UPDATE iterations SET checkpoint = ''")
    assert not any("the last in the store" in text for text in bad(check_run(run)))


def test_a_damaged_store_is_named(run: Path) -> None:
    with (run / "run.sqlite").open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 4096)
    assert any("restore a copy" in text for text in bad(check_run(run)))


def test_rows_that_refer_to_nothing_are_named(run: Path) -> None:
    db = sqlite3.connect(run / "run.sqlite")
    with db:
        db.execute("DELETE FROM tasks WHERE id IN (SELECT active FROM slots LIMIT 1)")
    db.close()
    assert any("refer to rows of tasks" in text for text in bad(check_run(run)))


def test_a_missing_recipe_or_run_is_named(run: Path, tmp_path: Path) -> None:
    (run / "recipe.yaml").unlink()
    (found,) = bad(check_run(run))
    assert "recipe.yaml: no such recipe" in found
    (found,) = bad(check_run(tmp_path / "nowhere"))
    assert "no such directory" in found


def test_who_is_at_work_and_who_died_there_is_told(run: Path) -> None:
    with run_lock(run):
        (at_work,) = (each for each in check_run(run) if each.name == "lock")
        assert "is working in it" in at_work.text
    assert all(each.name != "lock" for each in check_run(run))
    (run / "lock").write_text("4711\n")
    (killed,) = (each for each in check_run(run) if each.name == "lock")
    assert "process 4711 was killed or crashed" in killed.text


def test_missing_models_and_space_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "NAMES", {"nano-guess": tmp_path})
    monkeypatch.setattr(doctor, "LITTLE_SPACE", 2**60)
    models, space = bad(check_installation())
    assert models.startswith("nano-guess/policy, nano-guess/judge, nano-guess/adapter missing")
    assert "GiB free" in space


def test_what_is_missing_is_named_with_an_extra_that_exists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    findings = check_installation()
    extras = re.findall(r"rlanything\[([\w-]+)\]", " ".join(finding.text for finding in findings))
    assert {"lora", "judge", "planning", "vllm", "openai", "gguf"} <= set(extras)
    assert {"wandb", "figures"} <= set(extras)
    assert set(extras) <= set(project["optional-dependencies"])
    assert bad(findings) == []
    assert {f.status for f in findings if f"rlanything[{f.name}]" in f.text} == {"missing"}


def test_an_engine_that_does_not_fit_the_installed_libraries_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def update(*_: object) -> None:
        raise TypeError("update() got an unexpected keyword argument")

    monkeypatch.setattr(RaggedCache, "update", update)
    [problem] = bad(check_installation())
    assert "unexpected keyword argument" in problem
    assert "pip install 'transformers" in problem


class Worried:
    """A domain with checks of its own."""

    @staticmethod
    def checks() -> list[Finding]:
        return [Finding("kettle", "error", "it is cold; heat it")]


class Faulty:
    """A domain whose checks do not work."""

    @staticmethod
    def checks() -> list[Finding]:
        raise RuntimeError("no idea")


class Quiet:
    """A domain without checks."""


def test_every_registered_domain_is_asked_and_a_missing_one_names_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Distribution:
        name = "toys"

    paths = {
        "worried": f"{__name__}:Worried",
        "faulty": f"{__name__}:Faulty",
        "quiet": f"{__name__}:Quiet",
        "broken": f"{__name__}:Nowhere",
        "wooden": "no_such_toys:Blocks [wood]",
    }
    points = [EntryPoint(name, path, "rlanything.domains") for name, path in paths.items()]
    for point in points:
        vars(point)["dist"] = Distribution()
    monkeypatch.setattr(plugins, "entry_points", lambda group: EntryPoints(points))
    findings = {finding.name: finding for finding in check_installation()}
    assert findings["kettle"].line() == "error   kettle: it is cold; heat it"
    faulty = findings["faulty"]
    assert faulty.line() == "error   faulty: its check failed with RuntimeError: no idea"
    assert findings["quiet"].status == "ok"
    assert findings["broken"].status == "error"
    assert findings["wooden"].status == "missing"
    assert "pip install 'toys[wood]'" in findings["wooden"].text
