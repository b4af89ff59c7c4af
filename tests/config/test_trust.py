"""A recipe, or a run directory, of a stranger runs nothing and sends no secret unless its user says
so; what the user does allow must be what it was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import rlanything as rl
from helpers.command import call
from helpers.neighbours import JUDGE_EVAL, needs_plugin
from helpers.paths import SOURCE
from helpers.strangers import Captured, recipe, recorded, refusal
from rlanything.config.problems import TrustError
from rlanything.config.recipe import load_recipe

TOUCH = {"name": "subprocess:run", "options": {"args": ["touch", "PWNED"]}}
EVIL = "from pathlib import Path\nPath('PWNED').touch()\n"
OWN = """
from pathlib import Path
from rlanything.domains.text import TextRollouts
Path('PWNED').touch()
class Mine(TextRollouts): ...
def unannotated(args=()): Path('CALLED').touch()
def annotated() -> TextRollouts: return Mine()
def liar() -> TextRollouts: return 3
numbers = [1, 2]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder of the recipe, in which every command works; PWNED appears there if it runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in ("own", "evil"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("words", ["train", "eval"])
def test_no_command_runs_what_a_recipe_names(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    command, *options = words.split()
    assert call(monkeypatch, command, str(recipe(domain=TOUCH)), *options) == 2
    line = refusal(capsys)
    assert "recipe.yaml: domain.name: subprocess:run is code" in line
    assert "--allow-code" in line
    assert not Path("PWNED").exists()


@pytest.mark.parametrize("command", ["resume", "eval", JUDGE_EVAL])
def test_no_command_runs_what_a_run_directory_names(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, command, str(recorded(domain=TOUCH))) == 2
    assert "recipe.yaml: domain.name: subprocess:run is code" in refusal(capsys)
    assert not Path("PWNED").exists()


@pytest.mark.parametrize("words", ["tasks", "report", "export --out tables"])
def test_what_only_reads_a_run_runs_nothing_of_it(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, *options = words.split()
    assert call(monkeypatch, command, str(recorded(domain=TOUCH)), *options) == 0
    assert not Path("PWNED").exists()


def test_doctor_says_of_a_run_that_it_names_code_and_runs_none(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    call(monkeypatch, "doctor", str(recorded(domain=TOUCH)))
    shown = capsys.readouterr().out
    assert "subprocess:run is code" in shown
    assert not Path("PWNED").exists()


PARTS = {
    "domain": {"name": "evil:Part"},
    "judge": {"name": "evil:part"},
    "adapter": {"name": "evil:Part"},
    "policy": {"loss": "evil:part", "engine": {"name": "evil:Part"}},
    "feedback": {
        "advantage": {"name": "evil:part", "options": {"limit": 5}},
        "judge_reward": "evil:part",
    },
    "evaluation": {
        "labeller": {"model": "strong", "engine": {"name": "evil:Part"}},
        "episodes": 2,
        "judged_episodes": 2,
    },
}


@pytest.mark.parametrize("section", PARTS)
def test_no_part_is_imported_unless_that_is_allowed(
    section: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    Path("evil.py").write_text(EVIL)
    assert call(monkeypatch, "train", str(recipe(**{section: PARTS[section]}))) == 2
    assert f"recipe.yaml: {section}." in (line := refusal(capsys))
    assert "is code" in line
    assert not Path("PWNED").exists()


def test_a_module_beside_a_recipe_is_imported_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    Path("evil.py").write_text(EVIL)
    path = recipe(domain=PARTS["domain"]).resolve()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert call(monkeypatch, "train", str(path), "domain.name=evil:Part") == 2
    assert "there is no module evil" in refusal(capsys), "what is typed is not looked for there"
    assert call(monkeypatch, "train", str(path), "--allow-code") == 2
    assert "has no attribute 'Part'" in refusal(capsys)
    assert Path("PWNED").exists()


def test_all_that_would_be_imported_is_named_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    path = recipe(domain={"name": "a:A"}, judge={"name": "b:b", "engine": {"name": "c:C"}})
    assert call(monkeypatch, "train", str(path)) == 2
    assert "domain.name: a:A, judge.engine.name: c:C, judge.name: b:b is code" in refusal(capsys)


def test_what_the_user_names_is_imported_and_nothing_beside_it() -> None:
    Path("own.py").write_text(OWN)
    Path("evil.py").write_text(EVIL.replace("PWNED", "EVIL"))
    path = recipe(domain={"name": "own:Mine"}, judge={"name": "evil:part"})
    said = ["domain.name=own:Mine", "judge.options={x: 'evil:part'}"]
    with pytest.raises(TrustError, match=r"judge\.name: evil:part is code"):
        load_recipe(path, said)
    with pytest.raises(TrustError, match=r"domain\.name: own:Mine is code"):
        load_recipe(path, ["judge.name=evil:part"])
    own = load_recipe(path, [*said, "judge={name: llm}"])
    assert own.code == ["own:Mine"]
    assert load_recipe(own, ["seed=2"]).code == ["own:Mine"], "an object has been allowed already"
    assert load_recipe(path, {"domain.name": "own:Mine", "judge.name": "llm"}).code == own.code
    assert not Path("EVIL").exists()


@pytest.mark.parametrize("source", ["recipe", "data"])
def test_python_allows_code_by_an_argument_or_the_environment(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recipe(domain={"name": "own:Mine"})
    given = path if source == "recipe" else yaml.safe_load(path.read_text())
    with pytest.raises(TrustError, match="allow_code=True"):
        rl.Trainer(given)
    with pytest.raises(ValueError, match="own:Mine"):
        rl.Recipe.model_validate(yaml.safe_load(path.read_text()))
    assert load_recipe(given, allow_code=True).code == ["own:Mine"]
    monkeypatch.setenv("RLANYTHING_ALLOW_CODE", "0")
    with pytest.raises(TrustError):
        load_recipe(given)
    monkeypatch.setenv("RLANYTHING_ALLOW_CODE", "1")
    assert load_recipe(given).code == ["own:Mine"]


def test_a_run_that_was_allowed_code_asks_again(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    Path("own.py").write_text(OWN)
    run = recorded(domain={"name": "own:annotated"})
    assert call(monkeypatch, "resume", str(run)) == 2
    assert "domain.name: own:annotated is code" in refusal(capsys)
    assert not Path("PWNED").exists()
    resumed = rl.Trainer.resume(run, allow_code=True)
    assert resumed.recipe.domain.name == "own:annotated"


@pytest.mark.parametrize("name", ["subprocess:run", "os:system", "own:subprocess.run"])
def test_what_is_pythons_own_is_refused_before_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    Path("own.py").write_text("import subprocess\n")
    path = str(recipe(domain={**TOUCH, "name": name}))
    for command in ("train", "eval"):
        assert call(monkeypatch, command, path, "--allow-code") == 2
        line = refusal(capsys)
        assert f"domain {name} is no domain but of Python's own module" in line
    assert not Path("PWNED").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own:unannotated", "is no domain: name a class with the methods of"),
        ("own:numbers", "is no domain: name a class with the methods of"),
        ("own:Path", "is no domain but of Python's own module pathlib"),
        ("own:liar", "gives no domain: it lacks action_marker"),
        ("yaml:SafeLoader", "is no domain: it lacks adapter_prompt"),
        ("yaml:safe_load", "is no domain: name a class with the methods of"),
    ],
)
def test_what_is_no_domain_is_one_line(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    Path("own.py").write_text(OWN)
    assert call(monkeypatch, "eval", "random", "--domain", name) == 2
    assert f"domain {name} {said}" in refusal(capsys)
    assert not Path("CALLED").exists()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("judge.name='own:numbers'", "judge.name: own:numbers is no judge: name a function"),
        ("judge.name='own:Mine'", "judge own:Mine is no judge: it lacks counts, judge"),
        (
            "judge={name: own:unannotated, options: {limit: 5}}",
            "judge.options: own:unannotated is no class, and takes none",
        ),
        ("adapter.name='own:Mine'", "adapter own:Mine is no adapter: it lacks propose"),
        ("adapter.name='own:unannotated'", "adapter own:unannotated is no adapter: name a class"),
        ("policy.loss='own:numbers'", "policy.loss: loss own:numbers is no function"),
        (
            "feedback.advantage='own:numbers'",
            "feedback.advantage: advantage own:numbers is no function",
        ),
        ("policy.engine.name='own:Mine'", "own:Mine is not an engine"),
    ],
)
def test_what_is_no_such_part_is_one_line(
    override: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    Path("own.py").write_text(OWN)
    words = ["train", "guess", "run_dir=run", "evaluation.episodes=0"]
    assert call(monkeypatch, *words, override) == 2
    assert said in refusal(capsys)
    assert not Path("run").exists()


def test_a_file_beside_a_recipe_hides_nothing_that_is_installed() -> None:
    for name in ("colorsys", "typer"):
        Path(f"{name}.py").write_text(EVIL)
    Path("own.py").write_text(OWN)
    load_recipe(recipe(domain={"name": "own:Mine"}), allow_code=True)
    code = (
        "import sys; from rlanything.domains.registry import load_domain;"
        "from rlanything.config.recipe import load_recipe;"
        "load_domain(load_recipe('recipe.yaml', allow_code=True).domain.name, {});"
        "import colorsys, typer; print(typer.__file__)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert str(Path.cwd()) not in shown.stdout


def test_environment_workers_look_into_no_folder_of_their_own_accord() -> None:
    Path("colorsys.py").write_text(EVIL)
    Path("json.py").write_text(EVIL)
    code = (
        "from rlanything.rollout.workers import EnvironmentPool;"
        "from rlanything.records import Task;"
        "pool = EnvironmentPool('text', {}, 1, 60); pool.reset([]); pool.close()"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-P", "-c", code], env=environment, check=True)
    assert not Path("PWNED").exists()


NEEDS_AGENTS = needs_plugin("domain", "agent")
AGENT = {"name": "agent", "options": {"tasks": "tasks.jsonl"}}


@NEEDS_AGENTS
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"solve": "own:solve"}, "own:solve"),
        ({"command": ["sh", "-c", "touch PWNED"]}, "sh -c touch PWNED"),
        ({"command": "touch PWNED"}, "touch PWNED"),
    ],
)
def test_an_agents_program_is_code_that_a_recipe_cannot_allow_itself(
    options: dict[str, object], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recipe(domain={"name": "agent", "options": {**AGENT["options"], **options}})  # type: ignore[dict-item]
    with pytest.raises(TrustError, match=f"{named} is code.* --allow-code"):
        load_recipe(path)
    allowed = load_recipe(path, allow_code=True)
    assert allowed.code == [named]
    monkeypatch.setenv("RLANYTHING_ALLOW_CODE", "1")
    assert load_recipe(path).domain.options == allowed.domain.options


@NEEDS_AGENTS
def test_an_agents_program_that_the_user_types_is_allowed() -> None:
    path = recipe(domain=AGENT)
    load_recipe(path, ["domain.options.solve=own:solve"])
    load_recipe(path, ["domain.options.command=[python, agent.py]"])
    named = recipe(domain={"name": "agent", "options": {"command": ["python", "agent.py"]}})
    load_recipe(named, ["domain.options.command=[python, agent.py]"])
    with pytest.raises(TrustError):
        load_recipe(named, ["name=python agent.py"])


def test_a_helpers_key_is_sent_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = {"url": "http://127.0.0.1:1/v1", "key_variable": "MY_SECRET"}
    path = recipe(domain={"name": "agent", "options": {"helpers": {"big": helper}}})
    with pytest.raises(TrustError, match=r"helpers\.big\.key_variable=MY_SECRET yourself"):
        load_recipe(path, allow_code=True)
    load_recipe(path, ["domain.options.helpers.big.key_variable=MY_SECRET"])
    monkeypatch.setenv("RLANYTHING_KEYS", "MY_SECRET@127.0.0.1")
    load_recipe(path)


@NEEDS_AGENTS
def test_an_agents_files_are_found_beside_its_recipe(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "tasks.jsonl").write_text("")
    (folder / "own_agent.py").write_text("")
    options = {"tasks": "tasks.jsonl", "solve": "own_agent:solve"}
    Path("recipe.yaml").unlink(missing_ok=True)
    moved = recipe(domain={"name": "agent", "options": options}).rename(folder / "recipe.yaml")
    loaded = load_recipe(moved, allow_code=True)
    assert loaded.domain.options["tasks"] == str(folder / "tasks.jsonl")
    assert loaded.domain.module_folder == folder
    assert str(folder) in sys.path
