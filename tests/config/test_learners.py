"""Learners elsewhere, as an installed package or a module of one's own brings them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlanything.cluster.models import RoleSource
from rlanything.cluster.open import InProcessModels
from rlanything.config.learners import LearnerConfig
from rlanything.config.recipe import RecipeError, TrustError, load_recipe
from rlanything.runs.refusals import check_models

OWN = {"name": f"{__name__}:OwnLearner", "place": "cellar"}
DATA = {"name": "r", "domain": {"name": "text", "options": {"path": "rows.jsonl"}}}


class OwnLearner(LearnerConfig):
    """A learner that refuses epochs."""

    name: str = f"{__name__}:OwnLearner"
    place: str = "attic"

    def check(self, role: Any) -> None:
        if role.epochs > 1:
            raise ValueError("epochs: one at a time")

    def load(self, source: RoleSource) -> Any:
        return SimpleNamespace(place=self.place, role=source.name)


def test_a_learner_of_one_s_own_has_the_role_s_model_whether_it_learns_or_not() -> None:
    recipe = load_recipe({**DATA, "policy": {"learner": OWN}}, allow_code=True)
    models, source = InProcessModels(threads=1), RoleSource("policy", recipe.policy)
    expected = SimpleNamespace(place="cellar", role="policy")
    assert models.trained(source) == expected
    assert models.served(source) == expected
    assert load_recipe(recipe.model_dump(), allow_code=True) == recipe
    assert OWN["name"] in recipe.code


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"epochs": 2}, "epochs: one at a time"),
        ({"learner": {"name": f"{__name__}:DATA"}}, "is not a learner: name a class that derives"),
        ({"learner": {"name": "nobody"}}, "learner: unknown learner 'nobody'"),
        ({"learner": {"place": "cellar"}}, "learner: missing its name"),
    ],
)
def test_what_a_learner_cannot_honour_is_one_line(policy: dict[str, Any], said: str) -> None:
    data = {**DATA, "policy": {"learner": OWN, **policy}}
    with pytest.raises(RecipeError) as refused:
        load_recipe(data, allow_code=True)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_stranger_s_learner_is_not_imported() -> None:
    with pytest.raises(TrustError, match="OwnLearner is code, which would be run"):
        load_recipe({**DATA, "policy": {"learner": OWN}})


def test_a_learner_elsewhere_has_no_seats() -> None:
    data = {**DATA, "policy": {"learner": OWN}, "cluster": {"seats": 2}}
    with pytest.raises(RecipeError, match=r"policy.learner: it trains elsewhere"):
        check_models(load_recipe(data, allow_code=True))
