"""`rlanything sandbox` and what `doctor` says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.command import call
from rlanything.commands.doctor import check_installation

DOUBLE = "print(int(input()) * 2)"


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "program.py").write_text(DOUBLE)
    (tmp_path / "in").write_text("21\n")
    (tmp_path / "out").write_text("42")
    return str(tmp_path / "program.py")


def test_it_says_the_verdict_and_the_exit_code_is_0_whatever_it_is(
    program: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = ["--input", str(tmp_path / "in"), "--expect", str(tmp_path / "out")]
    assert call(monkeypatch, "sandbox", program, *files, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["verdict"], said["stdout"]) == ("ok", "42\n")
    assert said["seconds"] > 0
    assert said["peak_memory_mb"] > 1
    assert call(monkeypatch, "sandbox", program, *files) == 0
    captured = capsys.readouterr()
    assert captured.out == "42\n"
    assert captured.err.startswith("ok: ")
    (tmp_path / "out").write_text("43")
    assert call(monkeypatch, "sandbox", program, *files, "--json") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "wrong"
    Path(program).write_text("while True: pass")
    limits = ["--cpu-seconds", "0.2", "--memory-mb", "100"]
    assert call(monkeypatch, "sandbox", program, *limits) == 0
    assert capsys.readouterr().err.startswith("timeout (more than 0.2 s of CPU): ")


def test_what_a_program_prints_does_not_steer_the_terminal(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "\x1b]0;title\x07\x1b[2J[/q]\u202e\r"
    Path(program).write_text(f"print({said!r})\nprint('two')")
    assert call(monkeypatch, "sandbox", program) == 0
    assert capsys.readouterr().out == "\\x1b]0;title\\x07\\x1b[2J[/q]\\u202e\\r\ntwo\n"
    assert call(monkeypatch, "sandbox", program, "--json") == 0
    assert json.loads(capsys.readouterr().out)["stdout"] == f"{said}\ntwo\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["missing.py"], "missing.py: No such file or directory; the program must be a file"),
        (["program.py", "--input", "missing"], "missing: No such file or directory; --input must"),
        (["program.py", "--expect", "."], "Is a directory; --expect must be a file"),
        (["bytes.py"], "bytes.py: not UTF-8 at byte 0; the program must be"),
        (["program.py", "--memory-mb", "0"], "--memory-mb"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(
    program: str,
    tmp_path: Path,
    arguments: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bytes.py").write_bytes(b"\xff")
    assert call(monkeypatch, "sandbox", *arguments) == 2
    assert line in capsys.readouterr().err


def test_without_bubblewrap_the_command_refuses_and_doctor_names_the_remedy(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox = next(each for each in check_installation() if each.name == "sandbox")
    assert sandbox.status == "ok"
    assert sandbox.text == "runs model-written programs in bubblewrap"
    monkeypatch.setattr("rlanything_sandbox.bubblewrap.shutil.which", lambda name: None)
    assert call(monkeypatch, "sandbox", program) == 2
    assert "apt-get install bubblewrap" in capsys.readouterr().err
    sandbox = next(each for each in check_installation() if each.name == "sandbox")
    assert "apt-get install bubblewrap" in sandbox.text
