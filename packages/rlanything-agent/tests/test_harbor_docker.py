"""Harbor tasks in docker, by a stand-in for its client: which calls are made, in which order."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.harbor import episode, harbor, say, task_folder
from rlanything.domains.base import EpisodeError
from rlanything_agent.harbor.container import SHOWN_BYTES
from rlanything_agent.harbor.docker import container_program

# Its container is a folder; `exec` runs on this machine, in that folder.
CLIENT = f"""#!{sys.executable}
import json, os, shutil, subprocess, sys
root = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[1:]
with open(f"{{root}}/calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
if words[0] == "info":
    sys.exit(os.path.exists(f"{{root}}/down"))
if words[0] == "build" and "broken" in open(f"{{words[-1]}}/Dockerfile").read():
    sys.exit("step 2 failed\\nexit code 127")
if words[0] == "run":
    print("box1")
if words[0] == "cp" and words[1].startswith("box1:"):
    shutil.copytree(f"{{root}}/verifier", words[2])
if words[:2] == ["exec", "box1"] and words[2] == "pwd":
    print("/app")
if words[:2] == ["exec", "-i"]:
    command = sys.stdin.read()
    if "test.sh" in command:
        os.makedirs(f"{{root}}/verifier", exist_ok=True)
        with open(f"{{root}}/verifier/reward.txt", "w") as file:
            file.write("1" if os.path.exists(f"{{root}}/answer.txt") else "0")
    else:
        sys.exit(subprocess.run(command, shell=True, cwd=root).returncode)
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a docker client that is the only one on PATH."""
    folder = tmp_path / "client"
    folder.mkdir()
    (folder / "docker").write_text(CLIENT)
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    container_program.cache_clear()
    yield folder
    container_program.cache_clear()


def calls(client: Path) -> list[list[str]]:
    return [json.loads(line) for line in (client / "calls").read_text().splitlines()]


def test_an_episode_in_docker_restarts_its_container_before_the_tests(
    client: Path, tmp_path: Path
) -> None:
    settings = (
        "[environment]\nmemory_mb = 512\ncpus = 2\nallow_internet = false\nenv = {A = 'b'}\n"
        "[verifier]\ntimeout_sec = 30\nenv = {C = 'd'}\n"
    )
    folder = task_folder(tmp_path / "one", "FROM alpine\n", settings=settings)
    with episode(folder, container=None) as environment:
        seen = say(environment, "echo 42 > answer.txt; echo written; exit 3")
        ended = say(environment, "exit")
    assert seen.observation.text == "written\n[exit code 3]"
    assert (ended.outcome, ended.reward) == (1, 1.0)
    made = calls(client)
    assert [words[0] for words in made] == [
        *("info", "build", "run", "exec", "exec"),
        *("restart", "exec", "exec", "cp", "exec", "cp", "rm"),
    ]
    run = " ".join(made[2])
    assert "--label rlanything-harbor --memory 512m --pids-limit 1024 --cpus 2" in run
    assert "--network none -e A=b" in run
    assert made[5] == ["restart", "-t", "0", "box1"]
    assert made[6] == ["exec", "box1", "rm", "-rf", "/tests", "/logs/verifier"]
    assert made[8] == ["cp", str(folder / "tests"), "box1:/tests"]
    assert made[9][:8] == ["exec", "-i", "-e", "C=d", "box1", "timeout", "-s", "KILL"]
    assert made[11] == ["rm", "-f", "box1"]


def test_the_middle_of_a_long_output_is_never_kept(client: Path, tmp_path: Path) -> None:
    with episode(task_folder(tmp_path / "one", "FROM alpine\n"), container=None) as environment:
        seen = say(environment, "echo begins; head -c 30000000 /dev/zero; echo ends")
    text = seen.observation.text
    assert text.startswith("begins\n")
    assert text.endswith("ends\n[exit code 0]")
    assert len(text) < 2 * SHOWN_BYTES
    assert "bytes left out ...]" in text


def test_an_image_that_is_already_there_is_not_built(client: Path, tmp_path: Path) -> None:
    settings = "[environment]\ndocker_image = 'someone/something:1'\n"
    folder = task_folder(tmp_path / "one", settings=settings)
    with episode(folder, container="docker") as environment:
        assert say(environment, "exit").outcome == -1
    assert "build" not in [words[0] for words in calls(client)]
    assert calls(client)[0][-4:] == ["someone/something:1", "sh", "-c", "sleep infinity"]


def test_an_image_that_cannot_be_built_blames_nobody(client: Path, tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "one", "FROM alpine\nRUN broken\n")
    said = "docker build: exit code 127"
    with pytest.raises(EpisodeError, match=said) as fault, episode(folder, container="docker"):
        pass
    assert not fault.value.lost
    assert client.is_dir()


def test_without_a_daemon_a_box_is_used(client: Path, tmp_path: Path) -> None:
    (client / "down").touch()
    domain = harbor(task_folder(tmp_path / "one", "FROM alpine\n"), container=None)
    assert domain.refusals() == {"one": "FROM alpine: not Debian, Ubuntu or Python"}
