"""A plan's arithmetic against what it is about: real parameters, tensors, packs and operations."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, MixtralConfig
from typer.testing import CliRunner

import rlanything_planning
from helpers.benchmark_module import load_part
from helpers.guess import GUESS
from helpers.tiny import tiny_tokenizer
from helpers.torch_memory import peak_of
from rlanything.cli import app
from rlanything.cluster.models import load_role
from rlanything.config.engines import EngineConfig
from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.config.roles import (
    AdapterConfig,
    JudgeConfig,
    LoraSettings,
    PolicyConfig,
)
from rlanything.domains.base import Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.engines.hf import config as embedded_config
from rlanything.engines.hf.attention import TILE
from rlanything.engines.hf.cache import KEPT_ROWS, RaggedCache
from rlanything.engines.hf.engine import BATCH_ROWS, PREFILL_TOKENS
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.learner import Learner
from rlanything.learning.packing import Pack, pack
from rlanything.learning.padding import pad
from rlanything.learning.recomputing import recomputable_layers, recomputed
from rlanything.learning.shares import Pass
from rlanything.learning.statistics import Totals
from rlanything.records import Completion, Message, Messages, Sample, Step, Task
from rlanything_planning.architecture import KNOWN, Architecture, architecture_of
from rlanything_planning.assumptions import assume, growth
from rlanything_planning.memory import activations, cache_bytes_per_token, held, logits
from rlanything_planning.plan import make_plan
from rlanything_planning.report import Plan, PlanError, Quantity, amount
from rlanything_planning.seconds import rate_of
from rlanything_planning.workload import TrainingWorkload, task_count, workloads

made_up: Any = load_part("learner_steps.experience")
OBSERVATION, OPENING, RESPONSE = made_up.OBSERVATION, made_up.OPENING, made_up.RESPONSE


MODEL = "nano-guess"
SIZES = ["loop.max_steps=16", "cluster.seats=2"]
LARGE = ["loop.max_steps=40", "policy.decoding=free", "policy.max_tokens=2000"]
LARGE += ["judge.max_tokens=4000", "adapter.max_tokens=4000", "adapter.model=Qwen/Qwen3-4B"]
LARGE += ["policy.model=Qwen/Qwen2.5-7B-Instruct", "judge.model=Qwen/Qwen2.5-14B-Instruct"]


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(GUESS, SIZES)


@pytest.fixture(scope="module")
def large() -> Recipe:
    return load_recipe(GUESS, LARGE)


def architecture(model: str) -> Architecture:
    return architecture_of(PolicyConfig(model=model), "policy")[0]


def test_the_papers_models_have_their_published_sizes():
    published = {
        "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
        "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
        "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
        "Qwen/Qwen2.5-14B-Instruct": 14_770_033_664,
        "Qwen/Qwen3-4B": 4_022_468_096,
        "Qwen/Qwen3-VL-8B-Thinking": 8_190_735_360,
    }
    assert {name: architecture(name).parameters for name in KNOWN} == published


def test_a_model_with_other_matrices_is_refused(tmp_path):
    MixtralConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, vocab_size=50
    ).save_pretrained(tmp_path)
    with pytest.raises(PlanError, match="use a dense Qwen- or Llama-type model"):
        architecture(str(tmp_path))


NANO = architecture(MODEL)
JUDGE = ("judge_opening_tokens=20", "judge_turn_tokens=4", "judge_question_tokens=5")
JUDGE += ("adapter_prompt_tokens=50",)
PHASES = ("rollouts", "judgements", "proposals", "policy update", "judge update")


LORA = LoraSettings(rank=4)
SETTINGS = pytest.mark.parametrize("lora", [None, LORA], ids=["whole", "lora"])


def prepared(role: PolicyConfig) -> tuple[LanguageModel, Architecture]:
    """As a run has it, and as a plan sees it."""
    model = load_role(role)
    if role.lora is not None:
        add_adapters(model, role.lora, seed=0)
    return model, architecture_of(role, "policy")[0]


@SETTINGS
def test_operations_are_those_that_torch_counts(lora):
    model, planned = prepared(PolicyConfig(model=MODEL, lora=lora))
    # Torch cannot see into the fused attention of a CPU.
    model.network.set_attn_implementation("eager")
    tokens = 24
    with FlopCounterMode(display=False) as forward:
        out = model.network(input_ids=torch.arange(tokens)[None], use_cache=False)
    with FlopCounterMode(display=False) as backward:
        out.logits.sum().backward()
    # Torch counts every key for every query, those behind it too.
    assert forward.get_total_flops() == planned.flops(tokens, tokens, tokens)
    both = forward.get_total_flops() + backward.get_total_flops()
    # Nobody wants the gradient of what enters the first layer: a few products fewer where
    # weights are frozen.
    assert both == pytest.approx(
        planned.flops(tokens, tokens, tokens, learns=True), rel=0.06 if lora else 1e-9
    )


def tagged(steps: int):
    samples = made_up.episodes(steps, 4, 400, seed=0)
    return [("task", sample) for sample in samples], samples


@SETTINGS
def test_weights_gradients_and_optimizer_are_counted_to_the_byte(lora):
    role = PolicyConfig(model=MODEL, learning_rate=1e-6, lora=lora)
    model, planned = prepared(role)
    learner = Learner(model, role)
    learner.update(tagged(3)[0], seed=0)
    weights = list(model.network.parameters())
    states = learner._optimizer.state.values()
    # Beside them AdamW counts its steps, a number a tensor.
    moments = [tensor for state in states for tensor in state.values() if tensor.dim()]
    assert {part.name: part.bytes for part in held(planned, role, learns=True)} == {
        "weights": sum(w.nbytes for w in weights),
        "gradients": sum(w.grad.nbytes for w in weights if w.grad is not None),
        "optimizer": sum(moment.nbytes for moment in moments),
    }


def held_for_backward(model: LanguageModel, role: PolicyConfig, batch: Pack) -> int:
    """Bytes that autograd keeps of a batch, weights apart."""
    held: dict[int, torch.UntypedStorage] = {}

    def hold(tensor: torch.Tensor) -> torch.Tensor:
        # Kept alive, or another tensor could take the same address.
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage
        return tensor

    own = {weights.untyped_storage().data_ptr() for weights in model.network.parameters()}
    layers = recomputable_layers(model) if role.gradient_checkpointing else []
    with recomputed(layers), torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
        Learner(model, role)._accumulate(Pass(batch, len(batch.samples)), None, Totals())
    return sum(storage.nbytes() for place, storage in held.items() if place not in own)


@SETTINGS
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("steps", [5, 20, 40])
def test_activations_are_within_a_quarter_of_what_autograd_holds(steps, dtype, lora):
    role = PolicyConfig(model=MODEL, dtype=dtype, lora=lora)
    again = role.model_copy(update={"gradient_checkpointing": True})
    model, planned_model = prepared(role)
    largest = max(pack(tagged(steps)[1], 4096), key=lambda each: each.computed_tokens)
    tokens, keys = largest.computed_tokens, float((largest.positions + 1).mean()) + TILE
    real = held_for_backward(model, role, largest)
    planned = activations(planned_model, role, tokens, keys, tiles=True).bytes
    assert planned == pytest.approx(real, rel=0.25)
    # The layer that is computed again at a time is seen by no hook of ours.
    layer = planned / planned_model.layers
    kept = activations(planned_model, again, tokens, keys, tiles=True).bytes - layer
    saved = real - held_for_backward(model, again, largest)
    assert planned - kept == pytest.approx(saved, rel=0.25)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("allowed", [(), (1, 2, 3)], ids=["free", "choices"])
@pytest.mark.parametrize("chunks", [1, 4])
def test_logits_take_what_an_update_holds_of_them_at_its_peak(
    dtype, allowed, chunks, tmp_path, monkeypatch
):
    # Of a layer of 8 numbers beside 20,000 words, logits are all that counts.
    words, rows = 20_000, 256 * chunks
    for module in ("rlanything.learning.scorer", "rlanything_planning.memory"):
        monkeypatch.setattr(f"{module}.MAX_LOGITS", 256 * words)
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": True}
    config = AutoConfig.for_model("qwen2", vocab_size=words, **shape, **heads)
    tokenizer: Any = tiny_tokenizer()
    autocast = torch.bfloat16 if dtype == "bfloat16" else None
    model = LanguageModel(AutoModelForCausalLM.from_config(config), tokenizer, autocast)
    learner = Learner(model, PolicyConfig(model=MODEL, dtype=dtype))
    answer = Completion((5, 6), (1,) * rows, (-1.0,) * rows, (allowed,) * rows, "stop", "")
    [batch] = pack([Sample("t", answer, 1.0)], 4096)
    learner._accumulate(Pass(batch, 1), None, Totals())  # gradients are there from now on
    peak = peak_of(lambda: learner._accumulate(Pass(batch, 1), None, Totals()), tmp_path / "trace")
    mask = 0 if allowed else words * 256  # it is planned for, and there only where it is needed
    planned = logits(Architecture(model.network), rows).bytes
    # Of a longer pack the masks of attention count a little too.
    assert planned - mask == pytest.approx(peak, rel=0.03 if chunks == 1 else 0.08)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_cache_holds_as_many_bytes_a_token_as_planned(dtype):
    role = PolicyConfig(model=MODEL, dtype=dtype)
    model = load_role(role)
    cache = RaggedCache()
    rows = cache.assign(["a", "b"], [[1] * 5, [2] * 5])
    positions, mask = cache.begin(rows, 5)
    with torch.inference_mode():
        model.hidden_states(torch.ones(2, 5, dtype=torch.long), positions, mask, cache)
    stored = [tensor for pair in cache._layers.values() for tensor in pair]
    room = stored[0].shape[0] * stored[0].shape[2]
    per_token = cache_bytes_per_token(NANO, role)
    assert per_token * room == sum(tensor.nbytes for tensor in stored)


def planned_training(
    recipe: Recipe, role: PolicyConfig, steps: int, given: list[str]
) -> TrainingWorkload:
    """Of one task of four episodes with so many steps."""
    sizes = {"max_steps": steps, "rollouts_per_task": 4, "tasks_per_iteration": 1}
    loop = recipe.loop.model_copy(update=sizes)
    recipe = recipe.model_copy(update={"loop": loop}).with_role("policy", role)
    given = [*given, f"episode_steps={steps}", "candidates=0", "policy_trained=1"]
    learned = workloads(recipe, assume(recipe, given))[0].learned
    assert learned is not None
    return learned


@pytest.mark.parametrize("steps", [8, 48])
@pytest.mark.parametrize("packing", ["shared", "padded"])
def test_made_up_episodes_make_the_batches_that_the_learner_makes(recipe, packing, steps):
    lost = [f"policy_opening_tokens={OPENING}", f"policy_turn_tokens={OBSERVATION}"]
    role = PolicyConfig(model=MODEL, packing=packing, max_pack_tokens=2048)
    given = [*lost, f"policy_answer_tokens={RESPONSE}", *JUDGE]
    planned = planned_training(recipe, role, steps, given)
    samples = tagged(steps)[1]
    real = (pack if packing == "shared" else pad)(samples, 2048)
    assert planned.samples == len(samples)
    assert planned.sample_tokens == sum(len(each.completion.tokens) for each in samples)
    assert planned.computed_tokens == sum(each.computed_tokens for each in real)
    assert planned.passes == len(real)
    assert planned.largest == max(each.computed_tokens for each in real)


def test_epochs_are_planned_and_old_log_probs_computed_once(recipe):
    settings = {"old_logprobs": "recomputed", "reference_kl_weight": 0.1}

    def parts(epochs: int) -> dict[str, float | None]:
        role = recipe.policy.model_copy(update={**settings, "epochs": epochs})
        plan = make_plan(recipe.with_role("policy", role), "l4", 1, [])
        lines = [line for section in plan.sections for line in section.quantities]
        return {line.name: line.value for line in lines}

    one, three = parts(1), parts(3)
    times = {"passes": 3, "reference model": 3, "old log-probs": 1}
    for part, factor in times.items():
        name = f"policy update: {part}"
        assert three[name] == pytest.approx(factor * (one[name] or 0))


def test_workers_share_the_steps_of_environments(recipe):
    def seconds(workers: int, at_once: int) -> float:
        played = {"workers": workers, "parallel_episodes": at_once}
        environment = recipe.environment.model_copy(update=played)
        changed = recipe.model_copy(update={"environment": environment})
        plan = make_plan(changed, "l4", 1, ["environment_seconds=2"])
        lines = {q.name: q.value for section in plan.sections for q in section.quantities}
        return lines["rollouts: environment"] or 0

    alone = seconds(0, 128)
    assert alone == seconds(1, 128) == seconds(8, 1)
    assert seconds(8, 128) == pytest.approx(alone / 8)


def screen(episode: int, step: int) -> Sample:
    """As where a screen takes the place of the last: 10 tokens that all share, 7 for each step
    before, 20 of the screen, and 7 of the answer, in ids of their own. The first is the task's."""
    own = 1000 * (episode + 1)
    prompt = [*range(10), *range(own, own + 7 * step)]
    prompt += range(own + 500 + 30 * step, own + 520 + 30 * step) if step else range(500, 520)
    answer = tuple(range(own + 800, own + 807))
    zeros, drawn = (0.0,) * len(answer), ((),) * len(answer)
    return Sample(str(episode), Completion(tuple(prompt), answer, zeros, drawn, "stop", ""), 1.0)


def test_screens_share_with_one_another_what_lies_before_them(recipe):
    given = [
        "policy_opening_tokens=10",
        "policy_turn_tokens=0",
        "policy_question_tokens=20",
        "policy_answer_tokens=7",
    ]
    role = PolicyConfig(model=MODEL, max_pack_tokens=4096)
    planned = planned_training(recipe, role, 5, [*given, *JUDGE])
    real = pack([screen(episode, step) for episode in range(4) for step in range(5)], 4096)
    assert planned.samples == 20
    assert planned.computed_tokens == sum(each.computed_tokens for each in real)
    # The screen, and of what was before it the last step.
    loop = recipe.loop.model_copy(update={"max_steps": 5, "rollouts_per_task": 4})
    recipe = recipe.model_copy(update={"loop": loop})
    assumed = assume(recipe, [*given, *JUDGE, "episode_steps=5"])
    prefilled = workloads(recipe, assumed)[0].prefilled_tokens
    assert prefilled == task_count(recipe, assumed) * (10 + 20 + 4 * 4 * (7 + 20))


def test_what_prompts_share_is_told_from_what_is_new_in_each():
    ids = [[1, 2, 3, 90, 91], [1, 2, 3, 4, 5, 80, 81], [1, 2, 3, 4, 5, 6, 7, 70]]
    chats = [(Message("user", str(i)),) for i in range(3)]
    # Its opening, turns and questions.
    assert growth(chats, lambda chat: ids[int(chat[0].content)]) == ([3], [2, 1], [2, 2])


def test_generation_counts_every_step_and_every_judgement(recipe):
    assumed = assume(recipe, ["episode_steps=10", *JUDGE])
    policy, judge, _ = workloads(recipe, assumed)
    assert policy.answers == pytest.approx(17 * 8 * assumed.episode_steps)
    assert judge.answers == pytest.approx(3 * policy.answers)
    assert judge.prefilled_tokens < judge.prompt_tokens / 10


def test_prompts_that_grow_are_summed_over_the_steps(recipe):
    given = [
        "policy_opening_tokens=10",
        "policy_turn_tokens=4",
        "policy_question_tokens=0",
        "policy_answer_tokens=6",
    ]
    assumed = assume(recipe, [*given, *JUDGE, "episode_steps=3", "candidates=0"])
    policy, judge, _ = workloads(recipe, assumed)
    episodes = recipe.loop.tasks_per_iteration * recipe.loop.rollouts_per_task
    assert policy.prompt_tokens == episodes * (10 + 20 + 30)
    assert judge.prompt_tokens == episodes * 3 * (35 + 45 + 55)
    # The opening once a task, then what each step adds; of a response only its last token is new.
    assert policy.prefilled_tokens == episodes / 8 * (10 + 8 * 2 * 5)
    assert judge.prefilled_tokens == episodes / 8 * (20 + 8 * (15 + 2 * 15))


def test_the_command_prints_one_object_whose_parts_add_up():
    printed = CliRunner().invoke(
        app, ["plan", "guess", *SIZES, "--device", "h100", "--count", "2", "--json"]
    )
    assert printed.exit_code == 0, printed.output
    found = json.loads(printed.stdout)
    keys = {"recipe", "device", "count", "fits", "free", "sections", "seconds", "pauses", "caveat"}
    assert set(found) == keys
    assert found["fits"] is True
    assert tuple(found["seconds"]) == PHASES
    figures = {f["name"]: f for s in found["sections"] for f in s["quantities"]}
    assert figures["one iteration"]["value"] == pytest.approx(sum(found["seconds"].values()))
    for section in found["sections"]:
        if section["title"] in ("Memory: policy", "Memory: judge", "Memory: adapter"):
            *parts, total = section["quantities"]
            assert total["name"] == "total"
            assert total["value"] == sum(part["value"] for part in parts)


def test_the_page_shows_the_arithmetic_of_every_line():
    one = ["--device", "h200", "--count", "1"]
    printed = CliRunner().invoke(app, ["plan", "guess", *LARGE, *one], env={"COLUMNS": "300"})
    assert printed.exit_code == 0, printed.output
    assert "7,615,616,512 parameters x 4 B (float32)" in printed.output
    assert "DOES NOT FIT" in printed.output
    assert "NOT every role fits" in printed.output
    assert "the largest part is KV cache: try a lower max_tokens" in printed.output


def test_everything_fits_where_there_is_room_for_it(large):
    short = ["policy_answer_tokens=40", "judge_answer_tokens=60"]
    loop = large.loop.model_copy(update={"max_steps": 2, "tasks_per_iteration": 1})
    roles = {
        name: role.model_copy(update={"model": "Qwen/Qwen2.5-0.5B-Instruct"})
        for name, role in large.roles.items()
    }
    small = large.model_copy(update={"loop": loop, "roles": roles})
    assert make_plan(small, "h200", 1, short).fits
    assert not make_plan(large, "h200", 1, short).fits


def test_a_gpu_at_half_its_speed_takes_twice_as_long(recipe):
    host = "environment_seconds=0"
    full = make_plan(recipe, "l4", 1, [host]).seconds
    slow = [host, "utilisation=0.15", "decoding_utilisation=0.025"]
    half = make_plan(recipe, "l4", 1, slow).seconds
    assert {p: half[p] / full[p] for p in PHASES} == pytest.approx(dict.fromkeys(PHASES, 2.0))
    assumed = assume(recipe, ["utilisation=1", "decoding_utilisation=0.5"])
    assert rate_of("l4", NANO, "float32", assumed, 1).decoding == 30.3e12 / 2


def test_an_oracle_judges_for_nothing(recipe):
    oracle = recipe.judges["judge"].model_copy(update={"name": "oracle"})
    seconds = make_plan(recipe.with_role("judge", oracle), "l4", 1).seconds
    assert set(PHASES) - set(seconds) == {"judgements", "judge update"}


def test_a_judge_that_nothing_depends_on_is_not_asked(recipe):
    alone = load_recipe(
        recipe,
        ["feedback.policy_reward=outcome", "judge.train=false", "curriculum.adapt_tasks=false"],
    )
    assumed = assume(alone, [])
    by_name = {work.name: work for work in workloads(alone, assumed)}
    assert by_name["judge"].sampled_tokens == by_name["adapter"].sampled_tokens == 0
    assert by_name["policy"].sampled_tokens > 0
    assert task_count(alone, assumed) == alone.loop.tasks_per_iteration
    plan = make_plan(alone, "l4", 1)
    assert plan.seconds["judgements"] == 0
    [line] = [line for line in plan.sections[0].quantities if line.name == "adapter"]
    assert (line.value, line.how) == (None, "none: curriculum.adapt_tasks is false")


def test_a_frozen_judge_is_compared_with_no_reference(recipe):
    model, _ = architecture_of(recipe.judges["judge"], "judge")
    judge = recipe.judges["judge"].model_copy(update={"reference_kl_weight": 0.1})
    names = [{part.name for part in held(model, judge, learns)} for learns in (True, False)]
    assert [("reference model" in each) for each in names] == [True, False]


def test_every_judge_has_rows_of_its_own(recipe):
    plan = make_plan(
        recipe.with_role("critic", JudgeConfig(samples_per_step=2)),
        "l4",
        1,
        ["critic_answer_tokens=20", "judge_answer_tokens=10"],
    )
    lines = {
        line.name: line.value or 0.0 for section in plan.sections for line in section.quantities
    }
    assert lines["critic: sampled"] == 20 * lines["critic: answers"]
    assert lines["critic: answers"] * 3 == lines["judge: answers"] * 2
    assert {"critic", "critic_opening_tokens", "critic update"} <= lines.keys()
    parts = [lines[f"judgements: {judge}, prefill"] for judge in ("judge", "critic")]
    assert 0 < sum(parts) < plan.seconds["judgements"]


def test_this_machine_is_measured(recipe):
    rate = rate_of("cpu", NANO, "float32", assume(recipe, []), 1)
    assert 1e7 < rate.passes == rate.decoding < 1e15
    assert "1 thread(s), in float32" in rate.source
    # Models of one shape have one rate, however busy the machine is.
    judge = architecture_of(JudgeConfig(model=MODEL), "judge")[0]
    assert rate_of("cpu", judge, "float32", assume(recipe, []), 1) == rate


def figures(plan: Plan) -> dict[str, Quantity]:
    """Those of memory under their section's title."""
    return {
        f"{section.title}/{f.name}" if section.title.startswith("Memory") else f.name: f
        for section in plan.sections
        for f in section.quantities
    }


def test_what_an_endpoint_answers_is_counted_in_tokens_alone(recipe):
    engine = {"name": "openai", "url": "http://127.0.0.1:1/v1", "key_variable": None}
    there = {"model": "some/model", "engine": engine}
    judge = JudgeConfig.model_validate({**there, "train": False})
    adapter = AdapterConfig.model_validate(there)
    plan = make_plan(recipe.with_role("judge", judge).with_role("adapter", adapter), "l4", 1)
    found = figures(plan)
    assert set(plan.seconds) == {"rollouts", "policy update"}
    assert found["judgements"].value is None
    assert "an endpoint" in found["judgements"].how
    assert "Memory: judge/total" not in found
    assert "judge: sample tokens" not in found
    assert found["judge: answers"].value == 3 * (found["policy: answers"].value or 0)
    assert found["judge: sampled"].value
    assert "judge: prefilled" not in found


def test_a_learner_elsewhere_holds_its_model_and_needs_no_memory_here(recipe):
    there = {"model": "org/large", "learner": "tinker", "lora": {}, "decoding": "free"}
    policy = PolicyConfig.model_validate({**there, "temperature": 1.0})
    apart = recipe.model_copy(update={"cluster": recipe.cluster.model_copy(update={"seats": 1})})
    plan = make_plan(apart.with_role("policy", policy), "l4", 1, ["environment_seconds=0"])
    found = figures(plan)
    assert found["policy"].how == "org/large at the learner tinker, which holds it: no memory here"
    assert "Memory: policy/total" not in found
    assert "policy: checkpoint" not in found
    for phase in ("rollouts", "policy update"):
        assert found[phase].value is None
        assert found[phase].how == "at the learner tinker, whose speed is not known"
    assert found["policy: sample tokens"].value
    assert "policy" not in found["Memory: each device/l4 0"].how
    shared = AdapterConfig(model="policy", max_tokens=recipe.adapter.max_tokens)
    both = make_plan(apart.with_role("policy", policy).with_role("adapter", shared), "l4", 1)
    assert figures(both)["proposals"].value is None


def test_a_checkpoint_is_in_the_memory_of_a_cpu_until_it_is_written(recipe):
    one = recipe.model_copy(update={"cluster": recipe.cluster.model_copy(update={"seats": 1})})
    given = ["environment_seconds=0"]
    here, there = make_plan(one, "cpu", 1, given), make_plan(one, "l4", 1, given)
    for role in ("policy", "judge"):
        kept = figures(here)[f"Memory: {role}/snapshot"].value
        assert kept == figures(here)[f"{role}: checkpoint"].value == 3 * 4 * NANO.parameters
        assert f"Memory: {role}/snapshot" not in figures(there)


def test_a_policy_at_an_endpoint_is_refused_as_train_refuses_it(recipe):
    there = {
        "model": "some/model",
        "engine": {"name": "openai", "url": "http://127.0.0.1:1/v1", "key_variable": None},
    }
    remote = recipe.with_role("policy", PolicyConfig.model_validate(there))
    with pytest.raises(RecipeError, match="gives no tokens or log-probs to train on"):
        make_plan(remote, "l4", 1)


def test_a_frozen_adapter_has_weights_and_a_cache_and_nothing_that_learns(recipe):
    found = figures(make_plan(recipe, "l4", 1))
    title = "Memory: adapter/"
    names = {name.removeprefix(title) for name in found if name.startswith(title)}
    assert names == {"weights", "KV cache", "generating", "total"}


def test_an_adapter_in_bfloat16_keeps_its_weights_in_it():
    role = AdapterConfig(model=MODEL, dtype="bfloat16")
    model = load_role(role)
    planned = architecture_of(role, "adapter")[0]
    [weights] = held(planned, role, learns=False)
    real = sum(weights.nbytes for weights in model.network.parameters())
    assert weights.bytes == real == 2 * planned.parameters


def test_a_shared_model_is_held_once(recipe):
    host = ["environment_seconds=0"]
    alone = make_plan(recipe, "l4", 1, host)
    adapter = AdapterConfig(model="policy", max_tokens=recipe.adapter.max_tokens)
    shared = make_plan(recipe.with_role("adapter", adapter), "l4", 1, host)
    assert "Memory: adapter/total" not in figures(shared)
    assert "the policy's model and engine" in figures(shared)["adapter"].how
    assert shared.seconds == pytest.approx(alone.seconds)
    oracle = recipe.judges["judge"].model_copy(update={"name": "oracle"})
    adapter = AdapterConfig(model="judge")
    with pytest.raises(RecipeError, match="no judge's model is here to share"):
        make_plan(recipe.with_role("judge", oracle).with_role("adapter", adapter), "l4", 1)


def test_old_log_probs_cost_a_forward_pass(recipe):
    again = recipe.policy.model_copy(update={"old_logprobs": "recomputed"})
    plain = make_plan(recipe, "l4", 1).seconds["policy update"]
    more = make_plan(recipe.with_role("policy", again), "l4", 1).seconds["policy update"]
    assert 1.2 < more / plain < 1.34


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["policy.model=no/such/folder"], "policy.model: no configuration of 'no/such/folder'"),
        (["--device", "gtx-1080"], "device 'gtx-1080' is not known: use cpu"),
        (["domain.options={rooms: 3}"], "domain: "),
        (["--assume", "luck=1", "--device", "l4"], "assumption 'luck=1': unknown; known are"),
        (
            ["--assume", "candidates", "--device", "l4"],
            "assumption 'candidates': write name=number",
        ),
        (["--assume", "policy_trained=2", "--device", "l4"], "policy_trained=2: give a share"),
        (["--assume", "policy_turn_tokens=nan", "--device", "l4"], "policy_turn_tokens=nan: give"),
    ],
)
def test_what_is_not_known_is_one_line(arguments, said):
    printed = CliRunner().invoke(app, ["plan", "guess", *arguments])
    assert isinstance(printed.exception, PlanError)
    assert said in str(printed.exception)
    assert "\n" not in str(printed.exception)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "no configuration of"),
        ("[]", "no configuration of"),
        ('{"model_type": "t5"}', "no t5 can be made of it"),
        ('{"model_type": "gpt2", "n_embd": 12}', "gpt2' is more than an embedding and linear"),
        ('{"model_type": "mpt", "d_model": 64}', "mpt' is without intermediate_size in its conf"),
        ('{"model_type": "qwen2", "num_hidden_layers": 0}', "qwen2' is without num_hidden_lay"),
    ],
)
def test_a_config_that_says_too_little_is_one_line(content, said, tmp_path: Path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(PlanError) as raised:
        architecture(str(tmp_path))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_amounts_read_as_people_write_them():
    assert amount(12.3e9, "bytes") == "12.3 GB"
    assert amount(0.00123, "s") == "0.00123 s"
    assert amount(1234.5, "tokens") == "1,234 tokens"
    assert amount(3, "") == "3"


class Plugged(EngineConfig):
    """An engine that says nothing of its memory."""

    name: str = "plugged"


def test_an_engine_that_does_not_say_its_memory_is_not_taken_for_another(recipe):
    policy = recipe.policy.model_copy(update={"engine": Plugged()})
    plan = make_plan(recipe.with_role("policy", policy), "l4", 1)
    found = figures(plan)
    assert found["Memory: policy/engine"].value is None
    assert "Memory: policy/KV cache" not in found
    assert found["Memory: policy/total"].how == "without the engine, whose memory is not known"


def test_the_embedded_engines_memory_has_the_engines_own_limits():
    assert embedded_config.KEPT_ROWS == KEPT_ROWS
    assert (embedded_config.BATCH_ROWS, embedded_config.PREFILL_TOKENS) == (
        BATCH_ROWS,
        PREFILL_TOKENS,
    )


@pytest.mark.parametrize("file", sorted(Path(rlanything_planning.__path__[0]).glob("*.py")))
def test_planning_names_no_engine(file):
    assert not re.search(r"(Embedded|VLLM|OpenAI)EngineConfig", file.read_text())


def test_a_domain_that_cannot_rewrite_has_no_adapter_in_its_plan() -> None:
    recipe = load_recipe(GUESS, [f"domain={{name: '{__name__}:Screens'}}"])
    plan = make_plan(recipe, "l4", 1)
    planned = figures(plan)
    assert planned["adapter"].how == "none: this domain cannot rewrite its tasks"
    assert not [name for name in planned if "adapter" in name and "/total" in name]
    assert "adapter: answers" not in planned
    assert planned["episodes"].value == (
        recipe.loop.tasks_per_iteration * recipe.loop.rollouts_per_task
    )
    assert "adapter: answers" in figures(make_plan(load_recipe(GUESS), "l4", 1))


class Screens(TextDomain):
    """Shows the latest screen alone, and responses nowhere but to the judge of each."""

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        return [Task(f"{split}-{i}", "Win.") for i in range(count)]

    def environment(self) -> Screens:
        return self

    def reset(self, task: Task) -> Observation:
        return Observation("A screen with ten buttons.")

    def step(self, response: str) -> StepResult:
        return StepResult(self.reset(Task("", "")), response, True, None)

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        done = "".join(f" Step {i + 1} was taken." for i in range(len(steps)))
        return (Message("user", f"{task.instruction}{done} {observation}"),)

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        done = "".join(f" Step {i + 1} was taken." for i in range(len(steps)))
        said = f" {steps[-1].response} Was it right?" if steps else ""
        return (Message("user", f"{task.instruction}{done}{said}"),)


def test_responses_are_counted_in_the_prompts_that_repeat_them_and_in_no_others(recipe):
    screens_only = load_recipe(recipe, [f"domain={{name: '{__name__}:Screens'}}"])
    chat, screens = assume(recipe, []), assume(screens_only, [])
    for assumed, repeated in ((chat, 1), (screens, 0)):
        assert [assumed.roles[role].quoted for role in ("policy", "judge")] == [repeated] * 2
