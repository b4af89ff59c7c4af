"""A plan's arithmetic against what it is about: real parameters, tensors, packs and operations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    SeedOssConfig,
)
from typer.testing import CliRunner

from rlanything.assembly import load_role
from rlanything.bench.experience import OBSERVATION, OPENING, RESPONSE, episodes
from rlanything.cli import app
from rlanything.config import Recipe, load_recipe
from rlanything.engines.attention import TILE
from rlanything.engines.cache import RaggedCache
from rlanything.learning.learner import Learner
from rlanything.learning.packing import pack
from rlanything.learning.padding import pad
from rlanything.learning.statistics import Totals
from rlanything.plan.architecture import KNOWN, Architecture, architecture_of, read_config
from rlanything.plan.assumptions import assume
from rlanything.plan.calibration import measure
from rlanything.plan.devices import sheet_rates
from rlanything.plan.episodes import batches, episode_lengths, policy_leaves
from rlanything.plan.figures import PlanError, amount
from rlanything.plan.generation import judge_generation, policy_generation
from rlanything.plan.memory import (
    activation_bytes,
    cache_bytes_per_token,
    gradient_bytes,
    optimizer_bytes,
    weight_bytes,
)
from rlanything.plan.plan import PHASES, make_plan
from rlanything.role_settings import PolicyConfig

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


@pytest.fixture(scope="module")
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return load_recipe(request.config.rootpath / "recipes" / "quickstart.yaml")


@pytest.fixture(scope="module")
def paper(request: pytest.FixtureRequest) -> Recipe:
    return load_recipe(request.config.rootpath / "recipes" / "alfworld-qwen2.5-7b.yaml")


def shapes(config) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)
    return {name: tuple(weights.shape) for name, weights in network.named_parameters()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 24},
        {"attention_out_bias": True},
    ],
    ids=["plain", "biases", "output bias"],
)
@pytest.mark.parametrize(
    "config_class", [Qwen2Config, Qwen3Config, LlamaConfig, MistralConfig, SeedOssConfig]
)
def test_parameters_are_those_of_transformers_name_by_name(config_class, options, tmp_path):
    config = config_class(**SIZES, **options)
    config.save_pretrained(tmp_path)
    assert read_config(tmp_path / "config.json").tensors() == shapes(config)


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_of_known_models_are_those_of_transformers(name):
    known = KNOWN[name]
    config = AutoConfig.for_model(
        known.kind,
        num_hidden_layers=known.layers,
        hidden_size=known.hidden,
        intermediate_size=known.intermediate,
        num_attention_heads=known.heads,
        num_key_value_heads=known.key_value_heads,
        head_dim=known.head_dim,
        vocab_size=known.vocabulary,
        tie_word_embeddings=known.tied,
    )
    assert known.tensors() == shapes(config)


def test_the_papers_models_have_their_published_sizes():
    sizes = {name: KNOWN[name].parameters for name in KNOWN}
    assert sizes["Qwen/Qwen2.5-7B-Instruct"] == 7_615_616_512
    assert sizes["Qwen/Qwen2.5-14B-Instruct"] == 14_770_033_664
    assert sizes["Qwen/Qwen3-4B"] == 4_022_468_096


NANO = architecture_of("nano", "policy")[0]


def test_operations_are_those_that_torch_counts():
    model = load_role(PolicyConfig(), "policy")
    # Torch cannot see into the fused attention of a CPU.
    model.network.set_attn_implementation("eager")
    tokens = 24
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model.network(input_ids=torch.arange(tokens)[None], use_cache=False)
    # Torch counts every key for every query, those behind it too.
    assert counter.get_total_flops() == NANO.forward_flops(tokens, tokens, tokens)


def tagged(steps: int):
    samples = episodes(steps, 4, 800, seed=0)
    return [("task", sample) for sample in samples], samples


def test_weights_gradients_and_optimizer_are_counted_to_the_byte():
    model = load_role(PolicyConfig(), "policy")
    learner = Learner(model, PolicyConfig(learning_rate=1e-6))
    learner.update(tagged(3)[0], seed=0)
    weights = list(model.network.parameters())
    moments = learner.state()["optimizer"]["state"].values()
    assert weight_bytes(NANO) == sum(w.nbytes for w in weights)
    assert gradient_bytes(NANO) == sum(w.grad.nbytes for w in weights if w.grad is not None)
    assert optimizer_bytes(NANO) == sum(t.nbytes for one in moments for t in one.values())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("steps", [5, 20, 40])
def test_activations_are_within_a_quarter_of_what_autograd_holds(steps, dtype):
    role = PolicyConfig(dtype=dtype)
    model = load_role(role, "policy")
    largest = max(pack(tagged(steps)[1], 4096), key=lambda each: each.computed_tokens)
    held: dict[int, torch.UntypedStorage] = {}

    def hold(tensor: torch.Tensor) -> torch.Tensor:
        # Kept alive, or another tensor could take the same address.
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage
        return tensor

    own = {weights.untyped_storage().data_ptr() for weights in model.network.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
        Learner(model, role)._accumulate(largest, len(largest.samples), None, Totals())
    real = sum(storage.nbytes() for place, storage in held.items() if place not in own)
    keys = float((largest.positions + 1).mean()) + TILE
    planned = activation_bytes(NANO, role, largest.computed_tokens, keys)
    assert planned == pytest.approx(real, rel=0.25)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_cache_holds_as_many_bytes_a_token_as_planned(dtype):
    role = PolicyConfig(dtype=dtype)
    model = load_role(role, "policy")
    cache = RaggedCache()
    rows = cache.assign(["a", "b"], [[1] * 5, [2] * 5])
    positions, mask = cache.begin(rows, 5)
    with torch.inference_mode():
        model.hidden_states(torch.ones(2, 5, dtype=torch.long), positions, mask, cache)
    stored = [tensor for pair in cache._layers.values() for tensor in pair]
    room = stored[0].shape[0] * stored[0].shape[2]
    per_token = cache_bytes_per_token(NANO, role)
    assert per_token * room == sum(tensor.nbytes for tensor in stored)


@pytest.mark.parametrize("steps", [8, 40, 90])
@pytest.mark.parametrize("packing", ["shared", "padded"])
def test_made_up_episodes_make_the_batches_that_the_learner_makes(recipe, packing, steps):
    lost = [
        f"opening_tokens={OPENING}",
        f"turn_tokens={OBSERVATION}",
        f"response_tokens={RESPONSE}",
        "success=0",
        "policy_steps=1",
    ]
    loop = recipe.loop.model_copy(update={"max_steps": steps, "rollouts_per_task": 4})
    recipe = recipe.model_copy(update={"loop": loop})
    role = PolicyConfig(packing=packing, max_pack_tokens=2048)
    planned = batches(policy_leaves(recipe, assume(recipe, lost).values), 1, role)
    samples = tagged(steps)[1]
    real = (pack if packing == "shared" else pad)(samples, 2048)
    assert planned.samples == len(samples)
    assert planned.sample_tokens == sum(len(each.completion.tokens) for each in samples)
    assert planned.computed_tokens == sum(each.computed_tokens for each in real)
    assert planned.passes == len(real)
    assert planned.largest == max(each.computed_tokens for each in real)
    assert planned.distinct_tokens == sum(each.computed_tokens for each in pack(samples, 1 << 40))


def test_a_group_has_its_share_of_won_episodes_and_their_mean_length(recipe):
    assumed = assume(recipe, ["success=0.5", "won_length=0.5"]).values
    lengths = episode_lengths(recipe, assumed)
    won = [each for each in lengths if each < recipe.loop.max_steps]
    assert len(lengths) == recipe.loop.rollouts_per_task
    assert len(won) == 4
    assert sum(won) / 4 == pytest.approx(8)


def test_generation_counts_every_step_and_every_judgement(recipe):
    assumed = assume(recipe, []).values
    episodes_a_group = sum(episode_lengths(recipe, assumed))
    steps = policy_generation(recipe, assumed).answers
    assert steps == 17 * episodes_a_group
    judged = judge_generation(recipe, assumed)
    assert judged.answers == 3 * steps
    assert judged.prefilled < judged.prompt_tokens / 10


def test_the_command_prints_one_object_whose_parts_add_up(pytestconfig):
    path = pytestconfig.rootpath / "recipes" / "quickstart.yaml"
    printed = CliRunner().invoke(
        app, ["plan", str(path), "--device", "h100", "--count", "2", "--json"]
    )
    assert printed.exit_code == 0, printed.output
    found = json.loads(printed.stdout)
    assert set(found) == {"recipe", "device", "count", "fits", "sections", "seconds"}
    assert found["fits"] is True
    assert tuple(found["seconds"]) == PHASES
    figures = {f["name"]: f for s in found["sections"] for f in s["figures"] if "name" in f}
    assert figures["one iteration"]["value"] == pytest.approx(sum(found["seconds"].values()))
    assert figures["one iteration, divided"]["value"] == figures["one iteration"]["value"] / 2
    for section in found["sections"]:
        if section["title"] in ("Memory: policy", "Memory: judge", "Memory: adapter"):
            *parts, total = section["figures"]
            assert total["name"] == "total"
            assert total["value"] == sum(part["value"] for part in parts)
    assert figures["policy: a layer's overhead"]["value"] is None


def test_the_page_shows_the_arithmetic_of_every_line(pytestconfig):
    path = pytestconfig.rootpath / "recipes" / "alfworld-qwen2.5-7b.yaml"
    printed = CliRunner().invoke(
        app, ["plan", str(path), "--device", "h200"], env={"COLUMNS": "300"}
    )
    assert printed.exit_code == 0, printed.output
    assert "7,615,616,512 parameters x 4 B (float32)" in printed.output
    assert "DOES NOT FIT" in printed.output
    assert "NOT every role fits" in printed.output


def test_everything_fits_where_there_is_room_for_it(paper):
    short = ["response_tokens=40", "judgement_tokens=60", "longest_response_tokens=40"]
    loop = paper.loop.model_copy(update={"max_steps": 2, "tasks_per_iteration": 1})
    small = {
        role: getattr(paper, role).model_copy(update={"model": "Qwen/Qwen2.5-0.5B-Instruct"})
        for role in ("policy", "judge", "adapter")
    }
    assert make_plan(paper.model_copy(update={"loop": loop, **small}), "h200", 3, short).fits
    assert not make_plan(paper, "h200", 3, short).fits


def test_a_gpu_at_half_its_speed_takes_twice_as_long(recipe):
    host = "environment_seconds=0"
    full = make_plan(recipe, "l4", 1, [host]).seconds
    half = make_plan(recipe, "l4", 1, [host, "efficiency=0.5"]).seconds
    assert {p: half[p] / full[p] for p in PHASES} == pytest.approx(dict.fromkeys(PHASES, 2.0))
    assert sheet_rates("l4", recipe.policy, 1.0).forward == 30.3e12


def test_an_oracle_judges_for_nothing(recipe):
    oracle = recipe.judge.model_copy(update={"oracle_noise": 0.2})
    seconds = make_plan(recipe.model_copy(update={"judge": oracle}), "l4", 1).seconds
    assert set(PHASES) - set(seconds) == {"judgements", "judge update"}


def test_this_machine_is_measured(recipe):
    small = Architecture("llama", 1, 32, 64, 2, 1, 16, 300, True, False, False, False)
    rates = measure(small, recipe.policy, 1, listed=True)
    numbers = (rates.forward, rates.decode, rates.training, rates.bandwidth)
    assert all(1e6 < number < 1e15 for number in numbers)
    assert 0 < rates.draw_seconds < 0.1
    assert 0 < rates.pass_seconds < 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["policy.model=some/model"], "policy.model: nothing is known of 'some/model'"),
        (["--device", "gtx-1080"], "device 'gtx-1080' is not known: use cpu"),
        (["--count", "2"], "--count: this machine's CPU is one device"),
        (["--assume", "luck=1", "--device", "l4"], "assumption 'luck=1': unknown; known are"),
        (["--assume", "success", "--device", "l4"], "assumption 'success': write name=number"),
        (["--assume", "success=2", "--device", "l4"], "success=2: give a share from 0 to 1"),
        (["--assume", "turn_tokens=nan", "--device", "l4"], "turn_tokens=nan: give"),
    ],
)
def test_what_is_not_known_is_one_line(arguments, said, pytestconfig):
    path = pytestconfig.rootpath / "recipes" / "quickstart.yaml"
    printed = CliRunner().invoke(app, ["plan", str(path), *arguments])
    assert isinstance(printed.exception, PlanError)
    assert said in str(printed.exception)
    assert "\n" not in str(printed.exception)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"model_type": "gpt2"}', "model_type 'gpt2' is not one whose parameters are known"),
        ('{"model_type": "llama"}', "lacks 'num_attention_heads'"),
    ],
)
def test_a_config_that_says_too_little_is_one_line(content, said, tmp_path: Path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(PlanError) as raised:
        architecture_of(str(tmp_path), "policy")
    assert said in str(raised.value)
    assert str(tmp_path) in str(raised.value)


def test_the_papers_recipe_has_the_papers_settings(paper):
    for role in (paper.policy, paper.judge):
        assert (role.clip_range, role.kl_weight, role.learning_rate) == (0.2, 0.01, 1e-6)
        assert role.temperature == 0.8
    assert paper.judge.samples_per_step == 3
    assert (paper.loop.tasks_per_iteration, paper.loop.rollouts_per_task) == (16, 8)
    assert (paper.loop.max_steps, paper.evaluation.max_steps) == (40, 60)
    assert paper.loop.iterations == 200
    assert (paper.curriculum.alpha_low, paper.curriculum.alpha_high) == (0.2, 0.8)
    assert (paper.feedback.weight, paper.feedback.judge_weight) == (1, 1)


def test_amounts_read_as_people_write_them():
    assert amount(12.3e9, "bytes") == "12.3 GB"
    assert amount(0.00123, "s") == "0.00123 s"
    assert amount(1234.5, "tokens") == "1,234 tokens"
    assert amount(3, "") == "3"
