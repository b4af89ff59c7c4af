"""Damaged models: one line that names the folder, and no code of theirs runs."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split
from transformers import AutoTokenizer

from helpers.command import call
from helpers.damaged import DAMAGES, LOOP, Change, text
from helpers.guess import FEW, GUESS
from helpers.tiny import tiny_model
from rlanything.alarm import raising_after
from rlanything.engines.base import ModelError
from rlanything.engines.hf import damage
from rlanything.engines.hf.damage import SlowTemplate, reading, rendering
from rlanything.engines.hf.model import load_model
from rlanything.engines.hf.text import end_of_turn
from rlanything.records import Message
from rlanything.roles.chat_template import Chat


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model(1).save(tmp_path / "model")
    return tmp_path / "model"


LATER = "{% if messages | length > 6 %}" + LOOP + "{% endif %}Hello."
LONG = (Message("user", "a"), Message("assistant", "b")) * 4
"""A template, and a chat for which it loops: those that it is tried with are shorter."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "TEMPLATE_SECONDS", 0.2)


def one_line(error: BaseException, folder: Path) -> None:
    assert str(error).isprintable()
    assert str(folder) in str(error)
    assert len(str(error)) < 700
    assert not (folder / "trace").exists()


@pytest.mark.parametrize("change", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.usefixtures("hasty")
def test_a_damaged_model_is_one_line_that_names_its_folder(folder: Path, change: Change) -> None:
    change(folder)
    with pytest.raises(ModelError) as caught:
        Chat(load_model(folder, "float32"))
    one_line(caught.value, folder)


def test_a_tokenizer_that_panics_is_one_line(folder: Path) -> None:
    model = load_model(folder, "float32")
    chat = Chat(model)
    tokenizer: Any = model.tokenizer
    tokenizer.backend_tokenizer.pre_tokenizer = Split(Regex("(a|aa)+$"), "isolated")
    with pytest.raises(ModelError, match="with its tokenizer: PanicException: Onig") as caught:
        chat.prompt((Message("user", f"{'a' * 60}!"),))
    one_line(caught.value, folder)


@pytest.mark.usefixtures("hasty")
def test_a_template_that_loops_later_is_one_line(folder: Path) -> None:
    text("chat_template.jinja", LATER)(folder)
    chat = Chat(load_model(folder, "float32"))
    with pytest.raises(ModelError, match=r"with its template: it takes more than 0\.2 s"):
        chat.prompt(LONG)


def test_what_asks_a_run_to_stop_is_no_damage() -> None:
    for stop in (KeyboardInterrupt, SystemExit):
        with pytest.raises(stop), reading("it", "Mend it."):
            raise stop


def test_a_template_that_loops_costs_its_limit_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "TEMPLATE_SECONDS", 2.0)
    DAMAGES["loops"](folder)
    begun = time.process_time()
    with pytest.raises(SlowTemplate):
        end_of_turn(AutoTokenizer.from_pretrained(folder, trust_remote_code=False), [0])
    assert time.process_time() - begun < 4


@pytest.mark.usefixtures("hasty")
def test_a_template_has_its_limit_in_other_threads_too(folder: Path) -> None:
    text("chat_template.jinja", LATER)(folder)
    chat = Chat(load_model(folder, "float32"))
    with ThreadPoolExecutor(1) as thread:
        for _ in range(2):
            with pytest.raises(ModelError, match=r"it takes more than 0\.2 s"):
                thread.submit(chat.prompt, LONG).result()
            assert thread.submit(chat.prompt, LONG[:1]).result().text == "Hello."


def test_what_ends_in_time_is_not_ended_later() -> None:
    def work() -> int:
        with pytest.raises(ZeroDivisionError), rendering_within(0.01):
            raise ZeroDivisionError
        for _ in range(200):
            with rendering_within(1e-4):
                pass
        begun, done = time.monotonic(), 0
        while time.monotonic() < begun + 0.2:
            done += 1
        return done

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(work).result() > 0
    assert sum(other.name == "watch" for other in threading.enumerate()) <= 1


@contextmanager
def rendering_within(seconds: float) -> Iterator[None]:
    with suppress(TimeoutError), raising_after(seconds, TimeoutError(), signal.ITIMER_REAL):
        yield


def test_rendering_needs_no_main_thread_and_leaves_no_alarm() -> None:
    done: list[int] = []

    def render() -> None:
        with rendering("it"):
            done.append(1)

    thread = threading.Thread(target=render)
    thread.start()
    thread.join()
    render()
    assert done == [1, 1]


COMMANDS = {
    "eval": ["--domain", "guess:Guess", "--episodes", "1", "--workers", "0"],
    "train": [],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["unsafe", "loops", "tokenizer is a list", "no heads"])
@pytest.mark.usefixtures("hasty")
def test_commands_say_one_line_and_write_nothing(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    command: str,
    name: str,
) -> None:
    DAMAGES[name](folder)
    run = folder.parent / "run"
    target = [str(folder)] if command == "eval" else [str(GUESS), *FEW, f"policy.model={folder}"]
    changes = [] if command == "eval" else [f"run_dir={run}"]
    capfd.readouterr()
    assert call(monkeypatch, command, *target, *changes, *COMMANDS[command]) == 2
    [line] = capfd.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert str(folder) in line or "policy.model" in line
    assert not run.exists()
