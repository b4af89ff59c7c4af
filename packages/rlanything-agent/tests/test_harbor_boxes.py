"""Harbor tasks played in boxes: what a command can do, and what it cannot change."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from helpers.harbor import CHECK, episode, harbor, say, task_folder
from rlanything.domains.base import EpisodeError
from rlanything.roles.baselines import ExpertAgent
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_agent.harbor.box import BoxImages, _size
from rlanything_agent.harbor.container import ContainerFault
from rlanything_agent.harbor.needed import installed

DOCKERFILE = """FROM debian:12
RUN apt-get update && apt-get install -y bash coreutils && rm -rf /var/lib/apt/lists/* \\
    && ln -s /usr/bin/cat /usr/bin/moggy && echo "#!/bin/sh\\necho tool" > /usr/local/bin/tool \\
    && chmod +x /usr/local/bin/tool
WORKDIR /app
ENV PLACE=/app NAME="two words"
COPY data/*.txt data/sub $PLACE/files/
RUN echo $NAME > name.txt
"""
STARTUP = Path(f"/usr/lib/python3.{sys.version_info[1]}/sitecustomize.py")
"""File that Debian's Python runs first: a link into /etc."""
RUNNER = """#!/bin/bash
python3 -m runner /tests/check.py
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; fi
"""


def test_the_dockerfile_s_files_variables_and_programs_are_there(tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "one", DOCKERFILE)
    (folder / "environment/data/sub").mkdir(parents=True)
    for name in ("a b.txt", "c.txt", "sub/d.md"):
        (folder / "environment/data" / name).write_text(name)
    with episode(folder) as environment:
        seen = say(environment, 'pwd; ls files; cat name.txt; echo "$PLACE"; whoami; tool; moggy x')
        lines = seen.observation.text.splitlines()
    assert lines[:8] == ["/app", "a b.txt", "c.txt", "d.md", "two words", "/app", "root", "tool"]
    assert lines[8:] == ["moggy: x: No such file or directory", "[exit code 1]"]
    assert seen.valid


def test_files_and_processes_stay_between_commands(tmp_path: Path) -> None:
    with episode(task_folder(tmp_path / "one")) as environment:
        say(environment, "echo 42 > answer.txt; cd /; export A=1; sleep 60 &")
        seen = say(environment, 'pwd; cat answer.txt; echo "A=$A"; pgrep -c sleep')
        assert seen.observation.text.splitlines() == ["/app", "42", "A=", "1", "[exit code 0]"]
        ended = say(environment, "exit")
    assert (ended.outcome, ended.reward, ended.action) == (1, 1.0, "exit")
    assert ended.observation.text == "The tests give 1."


def test_a_box_has_no_network_and_keeps_the_system_as_it_is(tmp_path: Path) -> None:
    with episode(task_folder(tmp_path / "one")) as environment:
        seen = say(environment, "touch /usr/lib/x; ls /sys/class/net /proc/net/route; cat /dev/sda")
        assert "Read-only file system" in seen.observation.text
        seen = say(environment, "apt-get install -y no-such-thing; uvx -w no_such_thing thing")
    assert "E: Unable to locate package no-such-thing" in seen.observation.text
    assert "no_such_thing is not available without network" in seen.observation.text
    assert not Path("/usr/lib/x").exists()


def test_long_output_and_long_commands_are_cut_with_a_line_that_says_so(tmp_path: Path) -> None:
    with episode(task_folder(tmp_path / "one"), command_seconds=3.0) as environment:
        seen = say(environment, "echo begin; yes | head -c 1000000; echo end")
        lines = seen.observation.text.splitlines()
        assert (lines[0], lines[-2:]) == ("begin", ["end", "[exit code 0]"])
        assert sum("bytes left out" in line for line in lines) == 1
        assert len(seen.observation.text) < 9000
        begun = time.monotonic()
        seen = say(environment, "echo before; sleep 600")
        assert seen.observation.text == "before\n[ended after 3 s: time limit]"
        assert time.monotonic() - begun < 60
        assert say(environment, "echo alive").observation.text == "alive\n[exit code 0]"


def test_the_tests_decide_when_the_commands_or_the_time_are_used_up(tmp_path: Path) -> None:
    with episode(task_folder(tmp_path / "one"), commands=2) as environment:
        assert environment.step("no command").outcome is None
        last = say(environment, "echo 42 > answer.txt")
    assert (last.outcome, last.reward, last.valid) == (1, 1.0, True)
    settings = "[agent]\ntimeout_sec = 2\n"
    with episode(task_folder(tmp_path / "two", settings=settings)) as environment:
        last = say(environment, "sleep 30")
    assert last.outcome == -1
    assert last.observation.text == "[ended after 2 s: time limit]\nThe tests give 0."


def test_a_response_without_a_command_runs_nothing_and_says_why(tmp_path: Path) -> None:
    with episode(task_folder(tmp_path / "one")) as environment:
        seen = environment.step("I would write it.")
    assert (seen.valid, seen.action, seen.outcome) == (False, None, None)
    assert seen.observation.text.startswith("There is no command in this.")


ATTACKS = {
    "a reward in advance": "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; "
    "echo 1 > /logs/verifier/reward.json",
    "a process that writes one later": "setsid bash -c 'while true; do mkdir -p /logs/verifier; "
    "echo 1 > /logs/verifier/reward.txt; done' >/dev/null 2>&1 &",
    "other tests": "mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh",
    "a function in what tests source": "mkdir -p ~/.local/bin; "
    "echo 'cat() { echo 42; }' > ~/.local/bin/env",
    "another cat": "printf '#!/bin/sh\\necho 42\\n' > /tmp/cat; chmod +x /tmp/cat; "
    "for place in /usr/bin /usr/local/bin; do cp --remove-destination /tmp/cat $place/cat; done",
    "another bash": "mv /bin /elsewhere; mkdir /bin; printf '#!/usr/bin/perl\\n' > /bin/bash; "
    "chmod +x /bin/bash",
    "a startup file": "echo 'cat() { echo 42; }' | tee ~/.bashrc ~/.profile /etc/profile "
    "/etc/bash.bashrc > /dev/null",
    "links in place of folders": "mv /etc /etc2; ln -s /app /etc; mv /root /root2; "
    "ln -s /app /root; rm -rf /logs; ln -s /app /logs",
    "a library for every program": "mv /etc /etc2; mkdir /etc; echo /app/x.so > /etc/ld.so.preload",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_what_the_policy_leaves_behind_does_not_count(attack: str, tmp_path: Path) -> None:
    with episode(task_folder(tmp_path / "one")) as environment:
        say(environment, attack)
        ended = say(environment, "exit")
    assert (ended.outcome, ended.reward) == (-1, 0.0), ended.observation.text


def test_a_module_in_the_working_directory_does_not_replace_the_runner_of_tests(
    tmp_path: Path,
) -> None:
    # `timeit` stands for a runner such as pytest: it is imported by its name.
    check = RUNNER.replace("runner /tests/check.py", "timeit -n 1 'import sys; sys.exit(1)'")
    with episode(task_folder(tmp_path / "one", check=check)) as environment:
        say(environment, "echo > timeit.py; echo 'print(7)' > helper.py")
        seen = say(environment, "python3 -m timeit -n 1 1/0; python3 -m helper")
        assert seen.observation.text.splitlines() == ["7", "[exit code 0]"]
        ended = say(environment, "exit")
    assert (ended.outcome, ended.reward) == (-1, 0.0), ended.observation.text


def test_the_policy_s_own_programs_find_their_modules_in_tests(tmp_path: Path) -> None:
    check = "python3 main.py && python3 -c 'import helper' && echo 1 > /logs/verifier/reward.txt"
    with episode(task_folder(tmp_path / "one", check=check)) as environment:
        say(environment, "echo import helper > main.py; echo > helper.py")
        assert say(environment, "exit").outcome == 1


def test_the_tests_and_the_solution_are_not_in_the_policy_s_box(tmp_path: Path) -> None:
    with episode(task_folder(tmp_path / "one")) as environment:
        seen = say(environment, "ls /tests /solution /logs/verifier; find / -name right.txt 2>&-")
        assert "right.txt" not in seen.observation.text
        assert "test.sh" not in seen.observation.text
        assert say(environment, "ls -A /run/context").observation.text == "[exit code 0]"
        assert "cannot access" in say(environment, f"ls {tmp_path}").observation.text


def test_tests_without_a_reward_and_tests_that_hang_are_lost_with_the_reason(
    tmp_path: Path,
) -> None:
    with episode(task_folder(tmp_path / "one", check="echo oops; exit 3")) as environment:
        ended = say(environment, "exit")
    assert (ended.outcome, ended.reward) == (-1, 0.0)
    assert ended.observation.text == (
        "The tests give 0. They wrote no reward and ended with 3: oops"
    )
    check = "echo 1 > /logs/verifier/reward.txt; sleep 600"
    settings = "[verifier]\ntimeout_sec = 2\n"
    with episode(task_folder(tmp_path / "two", check=check, settings=settings)) as environment:
        ended = say(environment, "exit")
    assert (ended.outcome, ended.reward) == (-1, 0.0)
    assert ended.observation.text == "The tests give 0. They took more than 2 s."


def test_several_rewards_need_a_name(tmp_path: Path) -> None:
    check = """echo '{"speed": 0.5, "right": 1}' > /logs/verifier/reward.json"""
    folder = task_folder(tmp_path / "one", check=check)
    with (
        episode(folder) as environment,
        pytest.raises(EpisodeError, match=r"speed, right: name one in domain\.options\.reward"),
    ):
        say(environment, "exit")
    with episode(folder, reward="speed", win_at=0.5) as environment:
        ended = say(environment, "exit")
    assert (ended.outcome, ended.reward) == (1, 0.5)


@pytest.mark.parametrize("settings", ["pytest.toml", ".pytest.toml", "etc/python3.11/x"])
def test_configuration_of_programs_of_tests_is_as_in_the_image(
    settings: str, tmp_path: Path
) -> None:
    check = f"[ -e /{settings} ] && echo 1 > /logs/verifier/reward.txt"
    with episode(task_folder(tmp_path / "one", check=check)) as environment:
        say(environment, f"mkdir -p /etc/python3.11; echo > /{settings}; chmod 555 /etc/python3.11")
        assert say(environment, "exit").outcome == -1


@pytest.mark.skipif(not STARTUP.is_symlink(), reason="the system's Python has no startup file")
def test_the_policy_cannot_write_the_startup_file_of_the_system_s_python(tmp_path: Path) -> None:
    place = STARTUP.parent / STARTUP.readlink()
    check = "/usr/bin/python3 -c 'raise SystemExit(1)' && echo 1 > /logs/verifier/reward.txt"
    with episode(task_folder(tmp_path / "one", check=check)) as environment:
        attack = f"mkdir -p {place.parent}; echo 'import os; os._exit(0)' > {place}"
        say(environment, f"{attack}; chmod 555 {place.parent}")
        assert say(environment, "/usr/bin/python3 -c 1/0").observation.text == "[exit code 0]"
        assert say(environment, "exit").outcome == -1


def test_folders_deeper_than_python_follows_change_nothing(tmp_path: Path) -> None:
    with episode(task_folder(tmp_path / "one")) as environment:
        say(environment, "mkdir -p /app/$(printf 'a/%.0s' $(seq 1200)); echo 42 > answer.txt")
        assert say(environment, "exit").outcome == 1


def test_files_below_the_longest_path_fill_the_disk_too(tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "one", settings="[environment]\nstorage_mb = 8\n")
    name = "a" * 200
    with (
        episode(folder) as environment,
        pytest.raises(EpisodeError, match="it wrote more than 8 MiB"),
    ):
        say(
            environment,
            f"for i in $(seq 22); do mkdir {name}; cd {name}; done; head -c 20000000 /dev/zero > x",
        )


def test_a_command_cannot_take_the_channel_of_its_supervisor(tmp_path: Path) -> None:
    take = "ctypes.CDLL(None).syscall(438, os.pidfd_open(1), n, 0)"  # pidfd_getfd
    program = f"import ctypes, os; print({{{take} for n in range(20)}})"
    with episode(task_folder(tmp_path / "one")) as environment:
        assert say(environment, f"python3 -c '{program}'").observation.text.startswith("{-1}")
        seen = say(environment, "cat /proc/1/environ; echo > /proc/1/mem")
        assert seen.observation.text.count("Permission denied") == 2


def test_a_policy_that_fills_the_disk_loses(tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "one", settings="[environment]\nstorage_mb = 8\n")
    with (
        episode(folder) as environment,
        pytest.raises(EpisodeError, match="it wrote more than 8 MiB") as fault,
    ):
        say(environment, "for i in $(seq 9); do head -c 4000000 /dev/zero > $i; done")
    assert fault.value.lost


def test_a_command_cannot_end_its_box(tmp_path: Path) -> None:
    with episode(task_folder(tmp_path / "one")) as environment:
        say(environment, "kill -9 1; kill -9 -1")
        assert say(environment, "echo alive").observation.text == "alive\n[exit code 0]"


def test_an_instruction_that_fails_is_named_and_blames_nobody(tmp_path: Path) -> None:
    folder = task_folder(tmp_path / "one", "FROM debian\nRUN curl -s https://x.org | sh\n")
    said = r"RUN curl -s https://x\.org \| sh: "
    with pytest.raises(EpisodeError, match=said) as fault, episode(folder):
        pass
    assert not fault.value.lost


def test_images_of_episodes_that_go_on_are_kept_however_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoxImages, "MOST", 1)
    for name in ("one", "two", "three"):
        task_folder(tmp_path / name, check=CHECK)
    domain = harbor(tmp_path)
    outcomes: list[object] = []
    with ExitStack() as stack:
        environments = []
        for task in domain.tasks("train", 3, 0):
            environments.append(stack.enter_context(closing(domain.environment())))
            environments[-1].reset(task)
        for environment in environments:
            say(environment, "echo 42 > answer.txt")
            outcomes.append(say(environment, "exit").outcome)
    assert outcomes == [1, 1, 1]


def test_the_reference_solution_wins_by_the_policy_s_own_way(tmp_path: Path) -> None:
    for name in ("one", "two"):
        task_folder(tmp_path / name, check=CHECK)
    domain = harbor(tmp_path)
    requests = [RolloutRequest(task.id, task, 0) for task in domain.tasks("train", 2, 0)]
    with EnvironmentPool(domain, {}, 1, 300.0) as pool:
        rollouts = rollout(ExpertAgent(domain), pool, requests, 4, 8)
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [1, 1]
    assert [len(trajectory.steps) for trajectory in rollouts.trajectories] == [2, 2]


def test_a_copy_that_fails_leaves_nothing_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    images = BoxImages(installed(Path(sys.executable)))
    before = sorted(images.own.parent.iterdir())
    with pytest.raises(
        ContainerFault, match=r"cannot be copied \(.*No such file.*\); free space in"
    ):
        images.copied(tmp_path / "no-such-image")
    assert sorted(images.own.parent.iterdir()) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_files_in_a_folder_that_cannot_be_listed_have_a_size(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "large").write_bytes(b"x" * 2**20)
    hidden.chmod(0o300)
    assert _size(tmp_path) > 2**20
