"""Recipes: good ones load, bad ones are one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from helpers.neighbours import needs_plugin
from helpers.sections import sections_in
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.config.shipped import shipped_files
from rlanything.plugins import load_plugin, plugin_names

RECIPES = list(shipped_files().values())
MINIMAL = "name: mine\ndomain: {name: text}\n"


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "recipe.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def complaint(path: Path, *overrides: str) -> str:
    with pytest.raises(RecipeError) as error:
        load_recipe(path, overrides)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_every_shipped_recipe_loads(path):
    loaded = load_recipe(path)
    assert loaded.name == path.stem


def test_a_recipe_needs_a_name_and_a_domain_only(recipe):
    loaded = load_recipe(recipe(MINIMAL))
    assert loaded.directory == Path("runs/mine")
    assert loaded.policy.loss.name == "clipped"
    assert loaded.policy.kl_weight == 0.01
    assert (loaded.curriculum.alpha_low, loaded.curriculum.alpha_high) == (0.2, 0.8)
    assert loaded.feedback.model_dump() == FeedbackSettings().model_dump()


def test_a_run_directory_of_ones_own_is_used(recipe):
    assert load_recipe(recipe(MINIMAL + "run_dir: /elsewhere")).directory == Path("/elsewhere")


@pytest.mark.parametrize("more", [[], ["adapter.model=policy"], ["judge.name=oracle"]])
def test_a_resolved_recipe_loads_again_as_it_was(recipe, more):
    loaded = load_recipe(recipe(MINIMAL), ["policy.learning_rate=1e-5", "loop.tasks=99", *more])
    written = yaml.safe_dump(loaded.model_dump(mode="json"))
    assert load_recipe(recipe(written)) == loaded


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("policy.learning_rate=1e-5", "policy", "learning_rate", 1e-5),
        ("policy.learning_rate=0", "policy", "learning_rate", 0.0),
        ("judge.samples_per_step=5", "judge", "samples_per_step", 5),
        ("policy.model=org/model", "policy", "model", "org/model"),
        ("curriculum.adapt_tasks=false", "curriculum", "adapt_tasks", False),
        ("feedback.policy_window=[0.25, 0.75]", "feedback", "policy_window", (0.25, 0.75)),
        ("evaluation.splits=[ood]", "evaluation", "splits", ("ood",)),
        ("evaluation.max_steps=null", "evaluation", "max_steps", None),
        ("domain.options.receptacles=[4, 7]", "domain", "options", {"receptacles": [4, 7]}),
        ("domain.options.path=a=b", "domain", "options", {"path": "a=b"}),
    ],
)
def test_an_override_sets_one_key(recipe, override, section, key, value):
    path = recipe(MINIMAL)
    before, after = load_recipe(path).model_dump(), load_recipe(path, [override]).model_dump()
    for data in (before, after):
        data |= data.pop("roles")
    assert after[section].pop(key) == value
    before[section].pop(key)
    assert after == before


def test_later_overrides_win_over_earlier_ones_and_over_the_file(recipe):
    path = recipe(MINIMAL + "seed: 1")
    assert load_recipe(path, ["seed=2", "seed=3"]).seed == 3


def test_a_name_in_the_place_of_a_section_is_told_its_braces(recipe):
    said = complaint(recipe("name: mine\ndomain: guess\n"))
    assert said.endswith("domain: write it in braces, as {name: guess} (got 'guess')")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("policy: {learning_rat: 1}", ["policy.learning_rat", "unknown key", "learning_rate"]),
        ("polici: {}", ["polici", "unknown key", "policy"]),
        ("policy: {learning_rate: fast}", ["policy.learning_rate", "number", "'fast'"]),
        ("policy: {learning_rate: -1}", ["policy.learning_rate", "greater than or equal to 0"]),
        ("policy: {dtype: float16}", ["policy.dtype", "'float32' or 'bfloat16'", "'float16'"]),
        ("policy: 3", ["policy: write it in braces, as {key: value}", "3"]),
        ("policy:", ["policy: write it in braces", "None"]),
        (
            "policy: {loss: {options: {clip_range: 1}}}",
            ["policy.loss", "clip_range", "less than 1"],
        ),
        ("policy: {temperature: 0}", ["policy.temperature", "greater than 0"]),
        ("judge: {samples_per_step: 2.5}", ["judge.samples_per_step", "integer", "2.5"]),
        ("seed: [1]", ["seed", "integer"]),
        ("loop: {tasks: 4, tasks_per_iteration: 5}", ["loop", "tasks_per_iteration (5)", "(4)"]),
        (
            "policy: {decoding: choices, max_tokens: 8, thought_tokens: 8}",
            ["policy", "max_tokens must exceed thought_tokens"],
        ),
        ("feedback: {policy_window: [0.9, 0.1]}", ["feedback", "policy_window", "low <= high"]),
        ("feedback: {policy_window: [0.9]}", ["feedback.policy_window.1", "missing"]),
        ("feedback: {policy_lambda: .inf}", ["feedback", "lambda", "finite"]),
        ("curriculum: {alpha_low: 0.8, alpha_high: 0.2}", ["curriculum", "alpha_low (0.8)"]),
        ("seed: x\nthreads: y", ["seed", "and 1 more"]),
        ("1: one", ["1: unknown key", "policy"]),
    ],
)
def test_a_bad_entry_is_one_line_that_names_file_key_and_remedy(recipe, text, expected):
    path = recipe(MINIMAL + text)
    message = complaint(path)
    assert message.startswith(f"{path}: ")
    for part in expected:
        assert part in message


@pytest.mark.parametrize(("text", "key"), [("name: mine", "domain"), ("domain: {name: x}", "name")])
def test_a_missing_key_is_named(recipe, text, key):
    assert f": {key}: missing; add it" in complaint(recipe(text))


def test_a_missing_key_of_a_section_is_named(recipe):
    assert ": domain.name: missing" in complaint(recipe("name: mine\ndomain: {}"))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("policy.learning_rate", ["write section.key=value"]),
        ("=3", ["write section.key=value"]),
        ("", ["write section.key=value"]),
        ("name.first=x", ["'name' is a value, not a section"]),
        ("policy.learning_rate=[1", ["not valid YAML"]),
        ("policy.model=@org", ["not valid YAML", "quote"]),
        ("policy.learning_rat=1", ["policy.learning_rat", "unknown key"]),
        ("learning_rate=1", ["learning_rate", "unknown key", "policy"]),
        ("policy.learning_rate=fast", ["policy.learning_rate", "'fast'"]),
        ("policy.learning_rate.x=1", ["policy.learning_rate", "number"]),
        (".=1", ["unknown key"]),
        ("policy.engine=vllm", ["policy.engine"]),
        ("policy.engine={}", ["policy.engine", "name: missing"]),
        ("policy.engine.name=llama", ["policy.engine", "use one of embedded"]),
        ("policy.engine.memory_gib=2", ["policy.engine", "missing its name"]),
        ("policy.engine={name: embedded, memory_gib: 2}", ["policy.engine.memory_gib", ": name"]),
        pytest.param(
            "judge.engine={name: vllm, memory: 2}",
            ["judge.engine.memory: unknown", "memory_gib"],
            marks=needs_plugin("engine", "vllm"),
        ),
        pytest.param(
            "judge.engine={name: vllm, memory_gib: 0}",
            ["judge.engine.memory_gib: "],
            marks=needs_plugin("engine", "vllm"),
        ),
        ("adapter={model: judge, dtype: bfloat16}", ["adapter: ", "judge's own dtype", "leave"]),
        (
            "adapter={model: judge, chat_template_kwargs: {a: 1}}",
            ["adapter: ", "judge's own chat_template_kwargs", "leave"],
        ),
    ],
)
def test_a_bad_override_is_one_line_that_names_it(recipe, override, expected):
    message = complaint(recipe(MINIMAL), override)
    for part in expected:
        assert part in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: [mine", "line"),
        ("name: mine\n\tdomain: x", "line 2"),
        ("a: b: c", "line 1"),
        ("- a\n- b", "YAML mapping"),
        ("", "YAML mapping"),
        ("just text", "YAML mapping"),
        ("name: mine\x00", "YAML"),
        (MINIMAL + "evaluation: {splits: ood}", "evaluation.splits: write a list, as [ood]"),
        (MINIMAL + "seed: 2026-99-99", "seed: input should be a valid integer"),
        ("name: !!python/object:os.system {}", "line 1"),
    ],
)
def test_text_that_is_no_recipe_is_one_line_that_names_the_file(recipe, text, expected):
    path = recipe(text)
    message = complaint(path)
    assert message.startswith(str(path))
    assert expected in message


def test_a_missing_file_is_named_with_the_remedy(tmp_path):
    assert "no such recipe; the installed ones are" in complaint(tmp_path / "missing.yaml")


def test_a_folder_or_bytes_instead_of_a_recipe_are_named(tmp_path):
    assert "cannot be read" in complaint(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00name")
    assert "bytes.yaml" in complaint(tmp_path / "bytes.yaml")


yaml_text = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(yaml_text, st.text("ab:-[]{}&*!|>'\"%@,?# \n12", max_size=30)))
def test_no_text_crashes_the_reader(tmp_path, text):
    path = tmp_path / "any.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeError):
        load_recipe(path)


def inner_sections(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    return {
        f"{name} {number}": kind
        for name, field in model.model_fields.items()
        for number, kind in enumerate(sections_in(field.annotation))
    }


def test_every_field_of_the_schema_says_what_it_is():
    engines = [load_plugin("engine", name) for name in plugin_names("engine")]
    assert engines
    for section in (Recipe, *inner_sections(Recipe).values(), *engines):
        for name, field in section.model_fields.items():
            assert field.description or f"{name} 0" in inner_sections(section), f"{section}: {name}"


def test_recipes_cannot_be_changed_after_loading(recipe):
    loaded = load_recipe(recipe(MINIMAL))
    with pytest.raises(ValueError, match="frozen"):
        loaded.seed = 3


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"offload": True}, "offload belongs to several seats"),
        ({"launcher": "ray", "per_machine": 4}, "per_machine belongs to several seats"),
        ({"launcher": "ray", "ports": [29500, 29510]}, "ports belongs to several seats"),
        ({"launcher": "ray"}, r"cluster\.launcher: ray has nothing to place"),
    ],
)
def test_what_belongs_to_seats_is_refused_without_them(
    cluster: dict[str, object], said: str
) -> None:
    with pytest.raises(RecipeError, match=said):
        load_recipe({"name": "r", "domain": {"name": "text"}, "cluster": cluster})


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("polcy.learning_rate=1", "override polcy.learning_rate: polcy: unknown key, did you mean"),
        ("policy.learnin_rate=1", "policy.learnin_rate: unknown key, did you mean learning_rate?"),
        ("policy={learnig_rate: 1}", "override policy: policy.learnig_rate: unknown key, did you"),
        ("loop.nope=1", "override loop.nope: unknown key; known here: iterations"),
    ],
)
def test_a_typo_in_an_override_names_the_override_and_what_was_meant(
    override: str, said: str
) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe("guess", [override])
    assert said in str(error.value)
    key, _, value = override.partition("=")
    with pytest.raises(RecipeError, match="unknown key"):
        load_recipe("guess", {key: yaml.safe_load(value)})


@pytest.mark.parametrize(
    ("recipe", "override", "said"),
    [
        ({}, "policy.lora=16", "override policy.lora: write it in braces, as {key: value}"),
        ({}, "loop={iterations: abc}", "override loop: loop.iterations: input should be a valid"),
        ({"seed": "abc"}, "loop.iterations=5", "recipe: seed: input should be a valid integer"),
        ({"loop": {"tasks": -1}}, "loop.iterations=5", "recipe: loop.tasks: input should be"),
    ],
)
def test_a_wrong_value_is_blamed_on_the_override_that_holds_it(
    recipe: dict[str, object], override: str, said: str
) -> None:
    with pytest.raises(RecipeError) as error:
        load_recipe({"name": "r", "domain": {"name": "text"}, **recipe}, [override])
    assert str(error.value).startswith(said)
