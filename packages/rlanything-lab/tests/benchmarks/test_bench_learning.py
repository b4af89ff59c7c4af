"""Titles of the pages that benchmarks/learning.py writes."""

from helpers.benchmark_module import load_benchmark
from helpers.paths import ROOT
from rlanything.config.recipe import load_recipe

LEARNING = load_benchmark("learning")


def test_a_title_names_the_tasks_of_a_recipe():
    assert LEARNING.title(load_recipe("quickstart")) == (
        "# What quickstart learns: small generated rooms"
    )
    assert LEARNING.title(load_recipe("guess")) == "# What guess learns"


def test_a_title_does_not_call_data_of_the_users_generated(tmp_path):
    recipe = load_recipe("quickstart", [f"domain.options.data={tmp_path}"])
    assert LEARNING.title(recipe) == "# What quickstart learns"


def test_evidence_calls_the_tasks_of_every_domain_the_same():
    evidence = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert [name for name in LEARNING.GROUND.values() if name not in evidence] == []
