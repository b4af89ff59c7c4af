"""Which settings a recipe may give a role at a service, and which are refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.guess import GUESS
from helpers.tinker_service import TinkerService, load
from rlanything.config.recipe import RecipeError, TrustError, load_recipe
from rlanything.engines.base import ModelError
from rlanything.runs.refusals import check_models
from rlanything_tinker.config import URL
from rlanything_tinker.service import ServiceError

RECIPE = ("policy.learner=tinker", "policy.model=org/model", "policy.lora={rank: 8}")
RECIPE += ("policy.decoding=free",)


def test_a_name_alone_is_thinking_machines_service_with_its_key() -> None:
    recipe = load_recipe(GUESS, RECIPE)
    assert recipe.policy.learner is not None
    assert recipe.policy.learner.model_dump() == {
        "name": "tinker",
        "url": URL,
        "key_variable": "TINKER_API_KEY",
    }
    # As a run's directory holds it: every key is there.
    assert load_recipe(recipe.model_dump(mode="json")) == recipe


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("policy.decoding=choices", "policy.decoding: with learner tinker, the API samples"),
        ("policy.lora=null", "policy.lora: with learner tinker, the API trains adapters only"),
        ("policy.lora={rank: 4, alpha: 8}", "policy.lora: with learner tinker, the API takes a"),
        ("policy.lora={targets: [q_proj]}", "policy.lora: with learner tinker, the API takes a"),
        ("policy.temperature=0.7", "policy.temperature: with learner tinker, the API trains"),
        ("policy.reference_kl_weight=0.1", "policy.reference_kl_weight: with learner tinker, this"),
        ("policy.engine={name: vllm}", "policy.engine: the learner tinker generates too"),
        ("policy.device=cuda", "policy.device: with learner tinker, the service decides this"),
        ("policy.packing=padded", "policy.packing: with learner tinker, the service decides this"),
        ("policy.max_pack_tokens=64", "policy.max_pack_tokens: with learner tinker, the service"),
        ("policy.model=nano", "policy.model: with learner tinker, say here what the service"),
        ("policy.learner=tinke", "policy.learner: unknown learner 'tinke': use one of tinker"),
        ("policy.learner={url: x}", "policy.learner: missing its name"),
        ("policy.learner=mine:Learner", "policy.learner: write it in braces, as {name: mine:Le"),
        ("policy.learner={name: tinker, url: ftp://host}", "policy.learner.url: "),
        ("policy.learner={name: tinker, uri: x}", "policy.learner.uri: unknown key, did you mean"),
    ],
)
def test_what_the_service_cannot_honour_is_refused_with_its_key(override: str, said: str) -> None:
    with pytest.raises(RecipeError) as refused:
        load_recipe(GUESS, [*RECIPE, override])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_seats_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"policy.learner: it trains elsewhere.* cluster.seats=1"):
        check_models(load_recipe(GUESS, [*RECIPE, "cluster.seats=2"]))


def test_a_recipe_alone_sends_the_key_to_no_other_address(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    learner = "{name: tinker, url: 'https://stranger.example/api'}"
    path.write_text(
        "name: r\ndomain: {name: text, options: {path: x}}\n"
        f"policy: {{model: org/model, lora: {{rank: 8}}, learner: {learner}}}\n"
    )
    with pytest.raises(TrustError, match=r"TINKER_API_KEY would be sent to stranger.example"):
        load_recipe(path)
    load_recipe(path, ["policy.learner.key_variable=TINKER_API_KEY"])


def test_a_model_that_the_service_lacks_is_named_with_those_it_has(
    serving: tuple[TinkerService, str],
) -> None:
    with pytest.raises(
        ModelError, match=r"policy.model: the service has no 'org/other'; choose one of"
    ):
        load(serving[1], model="org/other")


@pytest.mark.parametrize("key", [None, "", "tml-\u00fcber", "tml- two"])
def test_a_key_that_cannot_be_sent_is_refused_at_once(
    serving: tuple[TinkerService, str], monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    if key is None:
        monkeypatch.delenv("TINKER_API_KEY")
    else:
        monkeypatch.setenv("TINKER_API_KEY", key)
    with pytest.raises(ModelError, match=r"policy.learner: .* TINKER_API_KEY holds no") as refused:
        load(serving[1])
    assert "tml" not in str(refused.value)


def test_a_key_may_end_a_line(
    serving: tuple[TinkerService, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", os.environ["TINKER_API_KEY"] + "\n")
    load(serving[1])


@pytest.mark.parametrize("key", ["tml-wrong", "wrong"])
def test_a_key_that_is_refused_is_one_line(
    serving: tuple[TinkerService, str], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", key)
    with pytest.raises(ServiceError, match=r"policy.learner: opening a session at ") as refused:
        load(serving[1])
    assert key not in str(refused.value).replace("'tml-' prefix", "")
    assert "\n" not in str(refused.value)


def test_a_service_that_is_not_there_is_said_at_once(serving: tuple[TinkerService, str]) -> None:
    with pytest.raises(ServiceError, match=r"policy.learner.url: .* cannot be reached"):
        load("http://127.0.0.1:1")
