"""Plans of several seats: shards, whole copies, turns, and what the recipes of the paper need."""

from __future__ import annotations

import json

import pytest

from helpers.guess import GUESS
from helpers.plans import values
from helpers.tiny import tiny_model
from rlanything.config.cluster import ClusterConfig
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.config.roles import AdapterConfig, LabellerConfig, LoraSettings, PolicyConfig
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import load_model
from rlanything.learning.scorer import MAX_LOGITS
from rlanything_planning.architecture import architecture_of
from rlanything_planning.memory import (
    LOGIT_COPIES,
    activations,
    held,
    in_flight,
    logits,
    whole_copy,
)
from rlanything_planning.plan import make_plan
from rlanything_planning.report import Plan

HOST = ["environment_seconds=0"]


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(GUESS)


@pytest.mark.parametrize("lora", [None, {"rank": 4}], ids=["whole", "lora"])
def test_a_role_that_learns_is_in_shards_and_one_that_does_not_is_whole(recipe, lora):
    data = {"model": "nano-guess", "decoding": "free", "lora": lora}
    recipe = recipe.with_role("policy", PolicyConfig.model_validate(data))
    one, four = (make_plan(recipe, "l4", seats, HOST) for seats in (1, 4))
    alone, shared = values(one, "Memory: policy"), values(four, "Memory: policy")
    for part in ("weights", "gradients", "optimizer"):
        assert shared[part] == alone[part] / 4
    # The engine's own, which computes with the learner's where these are whole.
    assert shared["engine's copy"] == alone["weights"]
    assert "engine's copy" not in alone
    frozen = values(one, "Memory: adapter")["weights"]
    assert values(four, "Memory: adapter")["weights"] == frozen
    assert "engine's copy" not in values(four, "Memory: adapter")


def test_adapters_are_planned_with_the_model_that_they_belong_to(recipe, tmp_path):
    tiny_model(1).save(tmp_path / "base")
    model = load_model(tmp_path / "base", "float32")
    add_adapters(model, LoraSettings(rank=4), seed=1)
    model.save(tmp_path / "adapters")
    role = PolicyConfig.model_validate({"decoding": "free", "model": str(tmp_path / "adapters")})
    planned, _ = architecture_of(role, "policy")
    sizes = {name: w.numel() for name, w in model.network.named_parameters()}
    assert planned.adapters == sum(n for name, n in sizes.items() if ".lora_" in name)
    assert planned.parameters == sum(sizes.values()) - planned.adapters

    # peft may also say by a pattern which layers have some, and by another which have a rank apart.
    file = tmp_path / "adapters" / "adapter_config.json"
    own = json.loads(file.read_text())
    own |= {"target_modules": r".*\.(q|v)_proj", "rank_pattern": {r".*\.v_proj": 8}}
    file.write_text(json.dumps(own))
    sizes = {n: w.shape for n, w in model.network.named_parameters() if "lora_" in n}
    q, v = (sum(sum(s) - 4 for n, s in sizes.items() if f".{p}_proj." in n) for p in "qv")
    assert architecture_of(role, "policy")[0].adapters == 4 * q + 8 * v


def test_a_labeller_has_a_line_of_its_own(recipe, tmp_path):
    tiny_model(1).save(tmp_path / "strong")
    labeller = LabellerConfig.model_validate({"model": str(tmp_path / "strong")})
    evaluation = recipe.evaluation.model_copy(update={"labeller": labeller})
    plan = make_plan(recipe.model_copy(update={"evaluation": evaluation}), "l4", 1, HOST)
    assert values(plan, "Parameters")["labeller"] > 0


def test_each_seat_keeps_the_conversations_that_it_answers(recipe):
    role, cache = "Memory: policy", "KV cache"
    one, four = (values(make_plan(recipe, "l4", n, HOST), role) for n in (1, 4))
    assert four[cache] == pytest.approx(one[cache] / 4, rel=0.01)


def test_roles_take_turns_on_a_device(recipe):
    plan = make_plan(recipe, "l4", 1, HOST)
    roles = {name: values(plan, f"Memory: {name}") for name in ("policy", "judge", "adapter")}
    passes = [roles[name]["activations"] + roles[name]["logits"] for name in ("policy", "judge")]
    everything = sum(role["total"] for role in roles.values())
    assert values(plan, "Memory: each device")["l4 0"] == pytest.approx(everything - min(passes))
    # Not where one's room is of no use to the next.
    here = make_plan(recipe.model_copy(update={"threads": 1}), "cpu", 1, HOST)
    roles = {name: values(here, f"Memory: {name}")["total"] for name in roles}
    assert values(here, "Memory: each device")["cpu 0"] == pytest.approx(sum(roles.values()))


def test_roles_on_devices_of_their_own_are_counted_apart_in_one_process(recipe):
    moved = recipe.judges["judge"].model_copy(update={"device": "cuda:1"})
    recipe = recipe.model_copy(update={"cluster": ClusterConfig()}).with_role("judge", moved)
    plan = make_plan(recipe, "l4", 1, HOST)
    devices = values(plan, "Memory: each device")
    assert devices["l4 1"] == values(plan, "Memory: judge")["total"]
    assert "l4 1" not in values(make_plan(recipe, "l4", 2, HOST), "Memory: each device")


def test_logits_are_never_more_than_those_of_a_chunk():
    model, _ = architecture_of(PolicyConfig(model="Qwen/Qwen2.5-7B-Instruct"), "policy")
    few, many, more = (logits(model, rows).bytes for rows in (100, 1000, 100_000))
    assert few == 100 * model.vocabulary * 4 * LOGIT_COPIES
    assert 0.99 < many / (MAX_LOGITS * 4 * LOGIT_COPIES) <= 1
    assert more == many


def test_seats_share_the_work_but_a_pass_is_not_split(recipe):
    one, four = (make_plan(recipe, "l4", seats, HOST).seconds for seats in (1, 4))
    assert four["rollouts"] == pytest.approx(one["rollouts"] / 4)
    plan = make_plan(recipe, "l4", 10_000, HOST)
    [passes] = [
        int(q.how.split()[1])
        for section in plan.sections
        for q in section.quantities
        if q.name == "policy: computed"
    ]
    updates = recipe.policy.minibatches
    assert plan.seconds["policy update"] == pytest.approx(one["policy update"] * updates / passes)


def test_traffic_between_machines_goes_through_all_their_ports():
    recipe = load_recipe(GUESS, ["judge.train=false"])
    slow = [*HOST, "machine_bandwidth=100", "network_bandwidth=1"]
    name = "policy: hand-over"
    one, two = (make_plan(recipe, "h200", n, slow) for n in (8, 16))

    def line(plan: Plan, unit: str) -> float:
        [traffic] = [s for s in plan.sections if s.title.startswith("Traffic")]
        [value] = [q.value for q in traffic.quantities if (q.name, q.unit) == (name, unit)]
        assert value is not None
        return value

    whole = architecture_of(recipe.policy, "policy")[0].parameters * 4
    assert line(one, "bytes") == whole * 7 / 8
    assert line(one, "s") == pytest.approx(whole * 7 / 8 / 100)
    # Half of the whole comes from the other machine, through eight ports.
    assert line(two, "s") == pytest.approx(whole / 2 / 8)
    assert not [q for q in one.sections[-1].quantities if q.name.startswith("judge")]


def test_nano_models_fit_one_gpu(recipe):
    plan = make_plan(recipe, "h200", 1, HOST)
    assert plan.fits
    assert plan.free == 141e9 - values(plan, "Memory: each device")["h200 0"]


def of_devices(plan: Plan) -> dict[str, str]:
    """The calculations of the devices' lines, by name."""
    [section] = [s for s in plan.sections if s.title == "Memory: each device"]
    return {quantity.name: quantity.how for quantity in section.quantities}


def test_a_plan_that_does_not_fit_says_what_the_largest_card_has_free():
    recipe = load_recipe(GUESS, ["policy.model=Qwen/Qwen2.5-7B-Instruct", "judge.train=false"])
    plan = make_plan(recipe, "l4", 8, HOST)
    needs = values(plan, "Memory: each device")["l4 0"]
    assert plan.free == 24e9 - needs < 0
    lines = of_devices(plan)
    assert lines["l4 0: largest known"].startswith("h200, of 141 GB: fits, ")
    assert "DOES NOT FIT" in lines["l4 0"]
    assert "DOES NOT FIT" in lines["l4 0: at rest"]
    assert "l4 0: largest known" not in of_devices(make_plan(recipe, "h200", 8, HOST))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora", [None, {"rank": 4}], ids=["whole", "lora"])
@pytest.mark.parametrize("recomputes", [False, True])
def test_no_remedy_advises_what_is_so_already(recipe, dtype, lora, recomputes):
    data = {"model": "nano-guess", "decoding": "free", "lora": lora, "dtype": dtype}
    role = PolicyConfig.model_validate(data | {"gradient_checkpointing": recomputes})
    model, _ = architecture_of(role, "policy")
    parts = [
        *held(model, role, learns=True, seats=2),
        whole_copy(model, role, cpu=False),
        in_flight(model, role, cpu=False),
        activations(model, role, 100, 100, tiles=False),
    ]
    advice = {part.name: part.remedy for part in parts}
    assert ("lora" in advice["optimizer"]) == (lora is None)
    assert ("lora" in advice["shards made whole"]) == (lora is None)
    assert ("bfloat16" in advice["engine's copy"]) == (dtype == "float32")
    assert ("gradient_checkpointing" in advice["activations"]) == (not recomputes)
    alone = held(model, AdapterConfig(model="nano-guess", dtype=dtype), learns=False, seats=2)
    assert "more seats" not in alone[0].remedy  # each seat has a whole one
    assert ("bfloat16" in alone[0].remedy) == (dtype == "float32")
