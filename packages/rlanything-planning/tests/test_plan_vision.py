"""Plans of models that see: their tower is counted to the byte, apart from the text model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from helpers.guess import FEW, GUESS
from helpers.vision import vision_model
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.config.roles import LoraSettings, PolicyConfig
from rlanything.domains.base import Capabilities, Image, Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.engines.hf.model import load_model
from rlanything.engines.images import noise_png
from rlanything.records import Task
from rlanything_planning.architecture import Architecture, architecture_of
from rlanything_planning.memory import held
from rlanything_planning.plan import make_plan
from rlanything_planning.screenshots import tokens_of


@pytest.fixture(scope="module", params=["qwen3_vl", "smolvlm"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / request.param
    vision_model(request.param)[0].save(folder)
    return folder


def planned(role: PolicyConfig) -> tuple[Architecture, dict[str, float]]:
    made, _ = architecture_of(role, "policy")
    return made, {part.name: part.bytes for part in held(made, role, learns=True)}


def test_the_papers_model_that_sees_has_its_published_size() -> None:
    made, how = architecture_of(PolicyConfig(model="Qwen/Qwen3-VL-8B-Thinking"), "policy")
    assert made.parameters + made.tower == 8_767_123_696
    assert "576,388,336 more in the tower that reads images" in how


@pytest.mark.parametrize("trains", [False, True], ids=["frozen", "trained"])
def test_text_and_tower_are_counted_to_the_byte(folder: Path, trains: bool) -> None:
    made, parts = planned(PolicyConfig(model=str(folder), train_vision=trains))
    weights = list(load_model(folder, "float32", train_vision=trains).network.parameters())
    learned = sum(w.nbytes for w in weights if w.requires_grad)
    # Beside a weight that learns there are its gradient and two moments.
    assert sum(parts.values()) == sum(w.nbytes for w in weights) + 3 * learned
    assert parts["weights"] == parts["gradients"] == 4 * made.parameters
    assert parts["tower"] == 4 * made.tower * (4 if trains else 1)


def test_adapters_leave_the_tower_alone(folder: Path) -> None:
    made, parts = planned(PolicyConfig(model=str(folder), lora=LoraSettings(rank=4)))
    whole, _ = planned(PolicyConfig(model=str(folder)))
    assert (made.parameters, made.tower) == (whole.parameters, whole.tower)
    assert parts["gradients"] == 4 * made.adapters > 0


def test_every_seat_has_the_whole_tower(folder: Path) -> None:
    role = PolicyConfig(model=str(folder), reference_kl_weight=0.1)
    made, one = planned(role)
    four = {part.name: part.bytes for part in held(made, role, learns=True, seats=4)}
    assert one["tower"] == four["tower"]
    assert four["weights"] == one["weights"] / 4
    tower = 4 * made.tower
    assert four["reference model"] - tower == (one["reference model"] - tower) / 4


@pytest.mark.parametrize("size", [(16, 24), (40, 30), (64, 96)])
def test_a_screenshot_has_the_tokens_that_the_model_makes_of_it(
    folder: Path, size: tuple[int, int]
) -> None:
    spec = load_model(folder, "float32").vision
    assert spec is not None
    height, width = size
    picture = spec.image_tokens(spec.book.add(noise_png(0, height, width)))
    assert tokens_of(str(folder), width, height) == picture.tokens


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "smolvlm", "llava"])
def test_operations_of_a_tower_are_those_that_torch_counts(kind: str) -> None:
    model, _ = vision_model(kind)
    assert model.vision is not None
    name = model.vision.book.add(noise_png(0, 32, 40))
    eyes: Any = model._vision_tower
    model.network.set_attn_implementation("eager")  # the counter knows products of matrices
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        eyes.features(name)
    shape = Architecture(model.network).vision
    assert shape is not None
    share = counter.get_total_flops() / shape.flops(model.vision.image_tokens(name).tokens)
    # Qwen2.5's layers see windows of the image, all but one.
    least = 0.8 if kind == "qwen2_5_vl" else 0.95
    assert least < share < 1.05


class Pages(TextDomain):
    """Shows screens of 320 x 420 pixels, or tells what is on them."""

    def __init__(self, observe: str) -> None:
        self._shows_images = observe == "image"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(shows_images=self._shows_images, screen_size=(320, 420))

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        return [Task(f"{split}-{i}", "Press the button.") for i in range(count)]

    def environment(self) -> Pages:
        return self

    def reset(self, task: Task) -> Observation:
        return self._seen()

    def step(self, response: str) -> StepResult:
        return StepResult(self._seen(), response, True, None)

    def _seen(self) -> Observation:
        image = Image(noise_png(0, 420, 320)) if self._shows_images else None
        return Observation("A page.", ("click 1", "click 2"), image=image)


def recipe_of(folder: Path, *changes: str, observe: str = "image") -> Recipe:
    return load_recipe(
        GUESS,
        [
            *FEW,
            f"domain={{name: '{__name__}:Pages', options: {{observe: {observe}}}}}",
            *(f"policy.model={folder}", f"judge.model={folder}", "policy.decoding=free"),
            *("policy.screenshots=2", "loop.max_steps=4", *changes),
        ],
    )


ROLES = ("policy", "judge")
GIVEN = [
    *(
        f"{role}_{name}_tokens=10"
        for role in ("policy", "judge")
        for name in ("opening", "question")
    ),
    *("policy_turn_tokens=0", "judge_turn_tokens=0", "adapter_prompt_tokens=10", "episode_steps=3"),
    *("policy_quoted=0", "policy_answer_tokens=5", "judge_answer_tokens=5"),
]


def lines_of(recipe: Recipe) -> dict[str, float | None]:
    plan = make_plan(recipe, "h100", 1, GIVEN)
    return {line.name: line.value for part in plan.sections for line in part.quantities}


def test_a_plan_counts_screenshots_by_itself(folder: Path) -> None:
    seen, read = (lines_of(recipe_of(folder, observe=how)) for how in ("image", "text"))
    each = tokens_of(str(folder), 320, 420)
    assert seen["policy_image_tokens"] == seen["judge_image_tokens"] == each
    assert "policy_image_tokens" not in read
    episodes, prompts = seen["episodes"], seen["policy: prompts"]
    assert episodes is not None
    assert prompts is not None
    # One at the first step, two at the second and the third, of which nothing is shared.
    assert seen["policy: screenshots"] == 5 * episodes
    assert prompts - (read["policy: prompts"] or 0.0) == pytest.approx(5 * episodes * each)
    assert seen["judge: screenshots"] == 6 * episodes
    for phase in ("rollouts", "judgements", "policy update", "judge update"):
        assert (seen[f"{phase}: screenshots"] or 0.0) > 0
        assert f"{phase}: screenshots" not in read


def test_a_tower_that_trains_is_computed_three_times_as_often(folder: Path) -> None:
    frozen = lines_of(recipe_of(folder))
    trained = lines_of(recipe_of(folder, "policy.train_vision=true"))
    for phase, times in (("policy update", 3), ("judge update", 1), ("rollouts", 1)):
        name = f"{phase}: screenshots"
        assert trained[name] == pytest.approx(times * (frozen[name] or 0.0))
