"""Harbor's task folders: what is read, and what is refused with which words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers.harbor import harbor, task_folder
from rlanything.domains.base import DomainError, MissingData
from rlanything_agent.harbor.container import read_rewards
from rlanything_agent.harbor.dockerfile import instructions, read_image
from rlanything_agent.harbor.environment import command_in
from rlanything_agent.harbor.folder import read_task
from rlanything_agent.harbor.needed import installed


def refused(folder: Path) -> str:
    return next(iter(harbor(folder).refusals().values()), "")


@pytest.mark.parametrize(
    ("dockerfile", "reason"),
    [
        ("FROM alpine:3\n", "FROM alpine:3: not Debian, Ubuntu or Python"),
        ("FROM python:3.12-alpine\n", "FROM python:3.12-alpine: not Debian, Ubuntu or Python"),
        ("FROM python:2.7-slim\n", "FROM has Python 2.7, and the box "),
        ("FROM debian\nFROM debian\n", "FROM debian: an image of several stages"),
        ("FROM debian\nUSER agent\n", "USER agent: a box cannot do this"),
        ('FROM debian\nENTRYPOINT ["/x"]\n', 'ENTRYPOINT ["/x"]: a box cannot do this'),
        ("FROM debian\nADD https://x.org/a /a\n", "ADD https://x.org/a /a: a box cannot download"),
        ("FROM debian\nCOPY nothing /a\n", "COPY nothing /a: its folder has no 'nothing'"),
        ("FROM debian\nCOPY ../tests /a\n", "COPY ../tests /a: its folder has no '../tests'"),
        ("FROM debian\nCOPY a**b /a\n", "COPY a**b /a: Invalid pattern"),
        ("FROM debian\nWORKDIR /a b\n", "WORKDIR /a b: more than one folder"),
        ("FROM debian\n# caf\udce9\n", "Dockerfile is not UTF-8"),
        ("FROM debian\nCOPY --from=a b /c\n", "COPY --from=a b /c: a box cannot do --from=a"),
        (
            "FROM debian\nRUN apt-get update && \\\n apt-get install -y bash \\\n no-such-thing\n",
            "RUN apt-get update && apt-get install -y bash no-such-thing: apt-get install "
            "no-such-thing is not installed here",
        ),
        (
            "FROM debian\nRUN pip3 install --retries 3 'pytest>=1' pytest==0.1\n",
            "pip install pytest==0.1 is not installed here",
        ),
    ],
)
def test_an_image_that_a_box_cannot_stand_in_for_is_refused_in_one_line(
    dockerfile: str, reason: str, tmp_path: Path
) -> None:
    said = refused(task_folder(tmp_path / "one", dockerfile))
    assert reason in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("[[steps]]\nname = 'a'\n", "task.toml: steps is not supported"),
        ("[environment]\nos = 'windows'\n", "task.toml: environment.os is not supported"),
        ("[environment]\ngpus = 1\n", "task.toml: environment.gpus is not supported"),
        ("[verifier]\nuser = 'judge'\n", "task.toml: verifier.user is not supported"),
        ("[verifier]\nenvironment_mode = 'separate'\n", "verifier.environment_mode is not"),
        ("[verifier]\nenv = {KEY = '${KEY}'}\n", "${KEY} is not passed on from this machine"),
        ("[agent]\ntimeout_sec = -1\n", "task.toml: agent.timeout_sec: "),
        ("[agent\n", "task.toml is no TOML"),
    ],
)
def test_a_setting_that_is_not_honoured_is_refused(
    settings: str, reason: str, tmp_path: Path
) -> None:
    assert reason in refused(task_folder(tmp_path / "one", settings=settings))


def test_tests_whose_packages_are_missing_are_refused(tmp_path: Path) -> None:
    check = (
        "#!/bin/bash\nuvx \\\n  -p 3.13 \\\n  -w pytest==0.1 \\\n  pytest /tests/test_a.py -rA\n"
    )
    said = refused(task_folder(tmp_path / "one", check=check))
    assert said == "tests/test.sh: uvx --with pytest==0.1 is not installed here"


def test_an_incomplete_folder_is_refused(tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "one")
    (folder / "tests" / "test.sh").unlink()
    assert refused(folder) == "it has no tests/test.sh"
    (folder / "instruction.md").unlink()
    (folder / "tests" / "test.sh").write_text("")
    assert refused(folder) == "instruction.md cannot be read (No such file or directory)"


def test_one_refused_task_stops_all_unless_they_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task_folder(tmp_path / "good")
    task_folder(tmp_path / "bad", "FROM alpine\n")
    with pytest.raises(DomainError, match=r"task bad: FROM alpine: .*skip_refused=true"):
        harbor(tmp_path).tasks("train", 9, 0)
    [task] = harbor(tmp_path, skip_refused=True).tasks("train", 9, 0)
    assert (task.id, task.instruction) == ("good", "Write 42 into answer.txt.")
    assert "left out: task bad: FROM alpine" in capsys.readouterr().out


def test_a_folder_without_tasks_is_named(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match=r"has no .*task\.toml"):
        harbor(tmp_path).tasks("train", 9, 0)
    with pytest.raises(MissingData, match="is no folder"):
        harbor(tmp_path / "nothing").tasks("train", 9, 0)


def test_the_splits_share_the_tasks(tmp_path: Path) -> None:
    for name in "abcde":
        task_folder(tmp_path / name)
    domain = harbor(tmp_path, splits={"train": 0.6, "in_domain": 0.4})
    train, held_out = domain.tasks("train", 9, 0), domain.tasks("in_domain", 9, 0)
    assert (len(train), len(held_out)) == (3, 2)
    assert {task.id for task in (*train, *held_out)} == set("abcde")


def test_settings_of_the_present_format_and_of_older_ones_are_read(tmp_path: Path) -> None:
    settings = "[environment]\nmemory = '3G'\nstorage = '5G'\nenv = {A = '${A:-b}'}\n"
    task = read_task(task_folder(tmp_path / "old", settings=settings))
    assert (task.memory_mb, task.variables) == (3072, {"A": "b"})
    assert (task.agent_seconds, task.tests_seconds, task.network) == (600.0, 600.0, True)
    settings = "schema_version = '1.4'\n[environment]\nnetwork_mode = 'no-network'\n"
    task = read_task(task_folder(tmp_path / "new", settings=f"{settings}memory_mb = 512\n"))
    assert (task.memory_mb, task.network) == (512, False)


def test_a_dockerfile_is_read_as_docker_reads_it(tmp_path: Path) -> None:
    text = (
        "# a comment\nARG V=12\nFROM debian:$V AS base\nENV A=1 B='two words'\nENV OLD the value\n"
        "WORKDIR /srv\nWORKDIR data/../app\nRUN echo a && \\\n# in between\n    echo b\n"
        'RUN <<EOF\necho $A\nEOF\nSHELL ["/bin/bash", "-c"]\n'
        "RUN cat > x <<'END'\nline\nEND\nENV PATH=/opt/bin:$PATH\nCMD x\n"
    )
    assert [name for name, _ in instructions(text)].count("RUN") == 3
    (tmp_path / "Dockerfile").write_text(text)
    image = read_image(tmp_path, "/bin")
    assert image.folder == "/srv/app"
    known = {"A": "1", "B": "two words", "OLD": "the value", "PATH": "/opt/bin:/bin"}
    assert image.variables == known
    scripts = [build.script for build in image.builds]
    assert any("echo a && \\\n    echo b" in script for script in scripts)
    # As `echo` of /bin/sh, until SHELL says otherwise; a failure in a pipe is one.
    assert "shopt -s xpg_echo\nset -eo pipefail\necho $A" in scripts
    assert "set -eo pipefail\ncat > x <<'END'\nline\nEND" in scripts


def test_what_scripts_install_is_found_in_them() -> None:
    here = installed(Path(sys.executable))
    assert (
        here.lacks("apt-get install -y bash >/dev/null 2>&1 || true\n# apt-get install x") is None
    )
    assert here.lacks("python3 -m pip install --no-cache-dir pytest -q") is None
    assert here.lacks("A=1 sudo apt install 'no-such=1.0'") == "apt-get install no-such=1.0"
    assert here.lacks("cd x; uv pip install --system no_such_thing") == "pip install no_such_thing"


def test_a_python_that_does_not_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match=r"does not run .*domain\.options\.python"):
        harbor(task_folder(tmp_path / "one"), python=str(tmp_path)).tasks("train", 1, 0)


@pytest.mark.parametrize(
    ("response", "command"),
    [
        ("First look.\n```bash\nls -la\n```", "ls -la"),
        ("```sh\ncat <<E\n```json\n{}\n```\nE\n```\nDone.", "cat <<E\n```json\n{}\n```\nE"),
        ("```bash\ncat <<E\n```\ncode\n```\nE\n```", "cat <<E\n```\ncode\n```\nE"),
        ("ls", None),
        ("```bash\nls\n```\nand\n```bash\npwd\n```", None),
        ("```bash\nls", None),
        ("```bash\n\n```", None),
        ("```python\nprint()\n```", None),
    ],
)
def test_a_response_holds_one_command(response: str, command: str | None) -> None:
    assert command_in(response)[0] == command


@pytest.mark.parametrize(
    ("name", "text", "rewards"),
    [
        ("reward.txt", "1\n", {"reward": 1.0}),
        ("reward.txt", "nan", None),
        ("reward.txt", "", None),
        ("reward.json", '{"a": 0.5, "b": 1}', {"a": 0.5, "b": 1.0}),
        ("reward.json", "0.25", {"reward": 0.25}),
        ("reward.json", '{"a": 1e999}', None),
        ("reward.json", '{"a": "x"}', None),
        ("reward.json", "[" * 5000, None),
    ],
)
def test_rewards_are_finite_numbers(
    name: str, text: str, rewards: dict[str, float] | None, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert read_rewards(tmp_path) == rewards


def test_a_reward_is_not_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("1")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "reward.txt").symlink_to(tmp_path / "elsewhere")
    assert read_rewards(logs) is None


def test_the_policy_is_told_the_rules_and_sees_neither_tests_nor_solution(tmp_path: Path) -> None:
    domain = harbor(task_folder(tmp_path / "one"))
    [task] = domain.tasks("train", 1, 0)
    [message] = domain.policy_prompt(task, (), "You are in /app.")
    assert "Write 42 into answer.txt." in message.content
    assert "```bash" in message.content
    hidden = f"{message.content}{task}"
    assert "right.txt" not in hidden
    assert "reward.txt" not in hidden
