"""No key goes to an endpoint that a stranger's recipe names, unless the user says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.command import call
from helpers.fake_endpoint import FakeEndpoint
from helpers.strangers import Captured, recipe, recorded, refusal
from rlanything.config.problems import TrustError
from rlanything.config.recipe import load_recipe

SECRET = "do-not-tell-4711"
REMOTE = {"model": "m", "train": False}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the recipe, in which every command works."""
    monkeypatch.chdir(tmp_path)


def judge_at(url: str, **settings: object) -> dict[str, object]:
    return {**REMOTE, "engine": {"name": "openai", "url": url, **settings}}


@pytest.mark.parametrize("settings", [{"key_variable": "MY_SECRET"}, {}], ids=["named", "default"])
@pytest.mark.parametrize("command", ["train", "resume", "eval", "judge-eval"])
def test_no_command_sends_a_secret_that_a_recipe_names(
    command: str,
    settings: dict[str, object],
    fake: FakeEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    variable = settings.get("key_variable", "OPENAI_API_KEY")
    monkeypatch.setenv(str(variable), SECRET)
    judge = judge_at(fake.url, **settings)
    of_run = command in ("resume", "eval", "judge-eval")
    path = recorded(judge=judge) if of_run else recipe(judge=judge)
    assert call(monkeypatch, command, str(path)) == 2
    line = refusal(capsys)
    assert f"judge.engine.key_variable: the environment variable {variable} would be sent" in line
    assert "to 127.0.0.1" in line
    assert SECRET not in line
    assert not fake.requests


@pytest.mark.parametrize(
    ("keys", "allowed"),
    [
        ("", False),
        ("OTHER,  MY_SECRET", True),
        ("MY_SECRET@127.0.0.1", True),
        ("MY_SECRET@example.org", False),
        ("MY_SECRET@example.org,MY_SECRET@127.0.0.1", True),
        ("MY_SECRET_TOO", False),
    ],
)
def test_the_environment_says_which_keys_go_where(
    keys: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLANYTHING_KEYS", keys)
    path = recipe(judge=judge_at("http://127.0.0.1:1/v1", key_variable="MY_SECRET"))
    if allowed:
        load_recipe(path)
    else:
        with pytest.raises(TrustError, match="RLANYTHING_KEYS=MY_SECRET@127"):
            load_recipe(path)


def test_a_key_that_the_user_names_may_be_sent() -> None:
    url = "http://127.0.0.1:1/v1"
    named = recipe(judge=judge_at(url, key_variable="MY_SECRET"))
    key = "judge.engine.key_variable"
    load_recipe(named, [f"{key}=MY_SECRET"])
    load_recipe(named, {key: "MY_SECRET"})
    load_recipe(named, [f"{key}=null"])
    for other in (f"{key}=OTHER", "adapter.options={key: MY_SECRET}"):
        words = [other, "adapter.name=llm", "name=MY_SECRET"]
        if other.startswith(key):
            load_recipe(named, words)
        else:
            with pytest.raises(TrustError):
                load_recipe(named, words)
    with pytest.raises(TrustError):
        load_recipe(named, [f"judge.engine.url={url}"])


def test_openais_key_goes_to_openai_and_where_the_user_says() -> None:
    load_recipe(recipe(judge=judge_at("https://api.openai.com/v1")))
    for url in ("http://api.openai.com/v1", "https://api.openai.com.evil.org/v1"):
        with pytest.raises(TrustError, match="OPENAI_API_KEY would be sent"):
            load_recipe(recipe(judge=judge_at(url)))
        load_recipe(recipe(judge=judge_at("https://x.org/v1")), [f"judge.engine.url={url}"])
