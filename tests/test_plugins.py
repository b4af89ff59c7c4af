"""The six first changes (a loss, a domain, an engine, a metric, a command, a judge), each made by
a package that knows nothing but what it is offered; and an arm of an ablation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from helpers.command import call
from helpers.events import points
from helpers.guess import FEW
from helpers.outside import BROKEN, install_toys, python_path
from rlanything import plugins
from rlanything.plugins import PluginError, load_plugin, plugin_names
from rlanything.runs.metrics import registry
from rlanything.runs.report.facts import Reader
from rlanything.runs.report.payload import build
from rlanything.runs.store.store import Store

Captured = pytest.CaptureFixture[str]

SMALL = (
    *("loop.iterations=1", "loop.tasks=4", "loop.tasks_per_iteration=2", "environment.workers=1"),
    *("loop.rollouts_per_task=4", "evaluation.episodes=0", "feedback.policy_window=[0, 1]"),
)
NAMES = {
    "domain": "coin",
    "engine": "counting",
    "loss": "scaled",
    "advantage": "first_tokens",
    "judge": "admirer",
}
PATHS = {
    "domain": "toys.domain:Coin",
    "engine": "toys.engine:CountingConfig",
    "loss": "toys.loss:scaled",
    "advantage": "toys.advantage:first_tokens",
    "judge": "toys.judge:Admirer",
}


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Whatever a test imports of `toys`, and registers, is gone after it."""
    before = dict(registry.REGISTERED)
    yield
    registry.REGISTERED.clear()
    registry.REGISTERED.update(before)
    registry.find_metric.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "toys"]:
        del sys.modules[name]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: None) -> Path:
    """A folder on the path of this process and of those that it starts."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", python_path(folder))
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def toys(site: Path) -> Counter[str]:
    """The package from outside, installed; what it counts of its calls."""
    install_toys(site)
    return import_module("toys").CALLS


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`rlanything` in a process of its own, which finds plug-ins by itself."""
    words = [sys.executable, "-m", "rlanything", *arguments]
    wide = os.environ | {"COLUMNS": "300"}
    return subprocess.run(words, capture_output=True, text=True, env=wide, timeout=120)


def line_of(capsys: Captured) -> str:
    """The one line that an error is, as a terminal shows it."""
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize("called", [NAMES, PATHS], ids=["names", "paths"])
def test_a_run_is_made_of_parts_from_outside(
    toys: Counter[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    called: dict[str, str],
) -> None:
    run = tmp_path / "run"
    overrides = (
        *(f"domain.name={called['domain']}", "domain.options={bias: 1}"),
        f"policy.engine={{name: '{called['engine']}', loud: true}}",
        f"policy.loss={{name: '{called['loss']}', options: {{factor: 0.5}}}}",
        f"feedback.advantage={{name: '{called['advantage']}', options: {{fading: 0.5}}}}",
        *(f"judge.name={called['judge']}", "judge.options={side: heads}"),
    )
    assert call(monkeypatch, "train", "guess", *FEW, f"run_dir={run}", *SMALL, *overrides) == 0
    capsys.readouterr()
    store = Store(run / "run.sqlite")
    trajectories = [
        store.trajectory(name) for (name,) in store.query("SELECT id FROM trajectories")
    ]
    assert toys["loss"] > 0, "the loss was not asked"
    assert toys["factor"] == 0.5, "the loss's own option did not reach it"
    assert toys["advantage"] == 2, "the advantage was not asked once a task"
    for trajectory in trajectories:
        for step in trajectory.steps:
            tokens = len(step.completion.token_ids)
            faded = sum(0.5**token for token in range(tokens)) / tokens
            assert step.advantage == pytest.approx(trajectory.outcome * faded)
    assert toys["loud"] == 1, "the engine's own setting did not reach it"
    assert toys["judged"] == len(trajectories) == 8
    written = sum(len(step.completion.token_ids) for one in trajectories for step in one.steps)
    assert written > 0
    assert toys["tokens"] == written, "the engine did not write all that the policy said"
    heads = [one.steps[0].action == "heads" for one in trajectories]
    for trajectory, is_heads in zip(trajectories, heads, strict=True):
        assert {judgement.score for judgement in trajectory.steps[0].judgements} == {
            1 if is_heads else -1
        }
    share = sum(heads) / len(heads)
    assert store.metrics(1)["toys/heads"] == share
    assert ("toys/heads", 1, share) in points(run / "tensorboard")
    facts = build([Reader(store, run)]).facts
    store.close()
    assert facts["runs"][0]["metrics"]["toys/heads"] == [share]
    assert facts["meanings"]["toys/heads"] == "episodes in which heads was called (share)"
    assert "toys/heads" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("policy.loss={name: NAME, options: {facter: 2}}", "unknown option facter, did you mean"),
        ("policy.loss={name: NAME, options: {factor: much}}", "factor: input should be a valid"),
        ("feedback.advantage={name: NAME, options: {fade: 1}}", "options are: fading"),
        ("feedback.advantage={name: NAME, options: {fading: no}}", "fading: input should be a v"),
    ],
)
@pytest.mark.parametrize("called", [NAMES, PATHS], ids=["names", "paths"])
@pytest.mark.usefixtures("toys")
def test_an_option_that_a_function_from_outside_refuses_is_one_line(
    override: str,
    said: str,
    called: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    key = override.partition("=")[0]
    named = override.replace("NAME", f"'{called[key.partition('.')[2]]}'")
    assert call(monkeypatch, "train", "guess", f"run_dir={tmp_path / 'run'}", named) == 2
    line = line_of(capsys)
    assert key in line
    assert said in line
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("toys")
def test_a_command_from_outside_runs_and_is_in_the_help() -> None:
    assert command("toss", "--times", "2").stdout.split() == ["heads", "heads"]
    shown = command("--help").stdout
    assert "toss" in shown
    assert "Toss a coin." in shown


@pytest.mark.parametrize(
    ("kind", "override"),
    [
        ("domain", "domain.name=nowhere"),
        ("loss", "policy.loss=nowhere"),
        ("advantage", "feedback.advantage=nowhere"),
        ("reward", "feedback.judge_reward=nowhere"),
        ("engine", "policy.engine.name=nowhere"),
        ("judge", "judge.name=nowhere"),
        ("adapter", "adapter.name=nowhere"),
        ("command", ""),
    ],
)
@pytest.mark.usefixtures("toys")
def test_an_unknown_name_is_one_line_with_the_known_ones(
    kind: str, override: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    words = (
        ["train", "guess", *FEW, f"run_dir={tmp_path / 'run'}", override]
        if override
        else ["nowhere"]
    )
    assert call(monkeypatch, *words) == 2
    line = line_of(capsys)
    assert "nowhere" in line
    assert plugin_names(kind), "nothing of this kind is registered"
    assert [name for name in plugin_names(kind) if name not in line] == []
    assert not (tmp_path / "run").exists()


LOCKED = "RuntimeError: the toy box is locked"


@pytest.mark.parametrize(
    "override",
    [
        *("domain.name=broken", "policy.loss=broken", "policy.engine.name=broken"),
        *("judge.name=broken", "adapter.name=broken"),
        *("feedback.advantage=broken", "feedback.judge_reward=broken"),
        *("domain.name='toys.broken:toy'", "policy.loss='toys.broken:toy'"),
        *("feedback.advantage='toys.broken:toy'", "feedback.judge_reward='toys.broken:toy'"),
        *("policy.engine.name='toys.broken:toy'", "judge.name='toys.broken:toy'"),
    ],
)
def test_a_part_that_cannot_be_imported_is_one_line(
    override: str, site: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    install_toys(site, BROKEN)
    assert call(monkeypatch, "train", "guess", *FEW, f"run_dir={site / 'run'}", override) == 2
    assert LOCKED in line_of(capsys)
    assert not (site / "run").exists()


def test_what_cannot_be_imported_breaks_no_help_and_no_other_run(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    install_toys(site, BROKEN)
    shown = command("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "train" in shown.stdout
    assert LOCKED in shown.stdout, "the help says why `broken` cannot be used"
    refused = command("broken")
    assert refused.returncode == 2
    assert LOCKED in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    run = site / "run"
    words = ["train", "guess", *FEW, f"run_dir={run}", *SMALL, "judge.name=oracle"]
    assert call(monkeypatch, *words) == 0
    assert f"metric broken cannot be imported ({LOCKED}" in capsys.readouterr().out.replace(
        "\n", " "
    )
    assert (run / "report.html").exists()


def test_an_error_of_ones_own_module_is_told_with_its_place(site: Path) -> None:
    (site / "mine_at_fault.py").write_text("first = 1\nsecond = third\n")
    with pytest.raises(PluginError) as caught:
        load_plugin("loss", "mine_at_fault:first")
    assert "name 'third' is not defined" in str(caught.value)
    assert "mine_at_fault.py, line 2" in str(caught.value)


def test_the_extra_of_a_plug_in_may_have_a_hyphen(monkeypatch: pytest.MonkeyPatch) -> None:
    group = "rlanything.domains"
    known = EntryPoints(
        [
            EntryPoint("puzzles", "nowhere.puzzles:Puzzles [word-games, gui]", group),
            EntryPoint("plain", "nowhere.plain:Plain", group),
        ]
    )
    monkeypatch.setattr(plugins, "entry_points", lambda group: known)
    assert plugins.extras_of("domain", "puzzles") == ["word-games", "gui"]
    assert plugins.extras_of("domain", "plain") == plugins.extras_of("domain", "own:Class") == []


def test_an_engine_in_a_package_of_its_own_is_one_line_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: EntryPoints([]))
    with pytest.raises(PluginError, match=r"engine openai .* pip install 'rlanything\[openai\]'"):
        load_plugin("engine", "openai")
