"""A model opens if its files hold all of it: random numbers in its place are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from helpers.tiny import plain_logits, tiny_model, tiny_tokenizer
from rlanything.engines.base import ModelError
from rlanything.engines.hf.loading import tokenizer_place
from rlanything.engines.hf.model import has_adapters, load_model

Weights = dict[str, torch.Tensor]
IDS = [20, 30, 40, 50, 60]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model(1).save(tmp_path / "model")
    return tmp_path / "model"


def weights(folder: Path, change: Callable[[Weights], Weights], name: str = "model") -> None:
    file = folder / f"{name}.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def configured(folder: Path, name: str = "config.json", **settings: Any) -> None:
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def refusal(folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(ModelError) as error:
        load_model(folder, "float32")
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)
    assert "LOAD REPORT" not in "".join(capfd.readouterr())
    return str(error.value)


CHANGES: dict[str, Callable[[Weights], Weights]] = {
    "one": lambda w: {k: v for k, v in w.items() if k != "model.layers.1.mlp.up_proj.weight"},
    "bias": lambda w: {k: v for k, v in w.items() if not k.endswith("0.self_attn.q_proj.bias")},
    "compiled": lambda w: {f"_orig_mod.{k}": v for k, v in w.items()},
    "wrapped": lambda w: {f"actor.module.{k}": v for k, v in w.items()},
    "embeddings": lambda w: {k: v for k, v in w.items() if "embed_tokens" not in k},
    "nothing": lambda w: {"other": torch.zeros(1)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_are_not_in_the_file_are_refused(
    folder: Path, change: str, capfd: pytest.CaptureFixture[str]
) -> None:
    weights(folder, CHANGES[change])
    assert "which would be random numbers" in refusal(folder, capfd)


def test_an_output_layer_of_its_own_must_be_in_the_file(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    configured(folder, tie_word_embeddings=False)
    assert "(lm_head.weight)" in refusal(folder, capfd)


def test_a_vocabulary_that_was_resized_in_one_place_only_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = len(tiny_tokenizer())
    configured(folder, vocab_size=rows + 8)
    said = refusal(folder, capfd)
    assert f"has shape [{rows}, 32] in its files and [{rows + 8}, 32] by its config" in said


def test_layers_that_the_configuration_leaves_out_are_refused(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    configured(folder, num_hidden_layers=1, layer_types=["full_attention"])
    assert "would be ignored" in refusal(folder, capfd)


def test_biases_that_the_architecture_has_not_are_refused(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    weights(folder, lambda w: w | {"model.layers.0.mlp.up_proj.bias": torch.zeros(64)})
    assert "(model.layers.0.mlp.up_proj.bias)" in refusal(folder, capfd)


@pytest.mark.parametrize(
    "name", ["v_head.weight", "score.weight", "mtp.layers.0.x.weight", "model.visual.blocks.0.w"]
)
def test_heads_and_towers_of_other_purposes_may_stand_in_the_file(folder: Path, name: str) -> None:
    before = plain_logits(load_model(folder, "float32"), IDS)
    weights(folder, lambda w: w | {name: torch.zeros(4, 32)})
    torch.testing.assert_close(
        plain_logits(load_model(folder, "float32"), IDS), before, rtol=0, atol=0
    )


@pytest.mark.parametrize("change", ["shards", "bfloat16", "both ends of a tie"])
def test_whole_models_open_however_they_were_saved(folder: Path, change: str) -> None:
    network: Any = AutoModelForCausalLM.from_pretrained(folder)
    if change == "shards":
        network.save_pretrained(folder, max_shard_size="20KB")
        (folder / "model.safetensors").unlink()
        assert len(list(folder.glob("*.safetensors"))) > 1
    elif change == "bfloat16":
        network.bfloat16().save_pretrained(folder)
    else:
        weights(folder, lambda w: w | {"lm_head.weight": w["model.embed_tokens.weight"].clone()})
    opened = load_model(folder, "float32")
    whole: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        theirs = whole(torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(plain_logits(opened, IDS), theirs, rtol=1e-5, atol=1e-5)


def test_a_missing_shard_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    network: Any = AutoModelForCausalLM.from_pretrained(folder)
    network.save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink()
    sorted(folder.glob("*.safetensors"))[-1].unlink()
    refusal(folder, capfd)


def test_words_beyond_the_embeddings_are_refused(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<answer>", "</answer>"])
    tokenizer.save_pretrained(folder)
    assert "2 words beyond them (</answer>, <answer>)" in refusal(folder, capfd)


def test_a_special_token_that_no_chat_uses_needs_no_embedding(folder: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image_soft_token>"]})
    tokenizer.save_pretrained(folder)
    load_model(folder, "float32")


@pytest.fixture
def adapters(folder: Path, tmp_path: Path) -> Path:
    """A folder as peft itself writes it: without a tokenizer."""
    network: Any = AutoModelForCausalLM.from_pretrained(folder)
    config = LoraConfig(
        r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False
    )
    get_peft_model(network, config).save_pretrained(str(tmp_path / "adapters"))
    return tmp_path / "adapters"


def test_adapters_without_a_tokenizer_take_that_of_their_model(
    adapters: Path, folder: Path
) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    model = load_model(adapters, "float32")
    assert has_adapters(model.network)
    assert model.encode("the cup") == load_model(folder, "float32").encode("the cup")
    assert model.tokenizer.chat_template == "{{ messages[0].content }}!"
    assert tokenizer_place(str(adapters)) == str(folder)
    with torch.no_grad():
        theirs = AutoModelForCausalLM.from_pretrained(adapters)(torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(plain_logits(model, IDS), theirs, rtol=1e-4, atol=1e-4)


def test_a_tokenizer_without_a_template_takes_that_of_the_model(
    adapters: Path, folder: Path
) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(adapters)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}?")
    assert load_model(adapters, "float32").tokenizer.chat_template == "{{ messages[0].content }}?"


def test_a_template_of_the_adapters_own_is_theirs(adapters: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ messages[0].content }}."
    tokenizer.save_pretrained(adapters)
    assert load_model(adapters, "float32").tokenizer.chat_template == "{{ messages[0].content }}."


def test_weights_of_adapters_that_are_missing_are_refused(
    adapters: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    weights(
        adapters,
        lambda w: {k: v for k, v in w.items() if "layers.1.mlp.up_proj" not in k},
        "adapter_model",
    )
    assert "lack 2 of the weights" in refusal(adapters, capfd)


def test_adapters_of_another_rank_than_they_say_are_refused(
    adapters: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    configured(adapters, "adapter_config.json", r=8)
    assert "do not have the shapes" in refusal(adapters, capfd)


def test_a_model_whose_own_weights_are_missing_is_refused_with_its_adapters(
    adapters: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    weights(folder, CHANGES["one"])
    assert "which would be random numbers" in refusal(adapters, capfd)


def test_adapters_that_bring_resized_embeddings_are_refused(
    adapters: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    more = {"base_model.model.model.embed_tokens.weight": torch.zeros(400, 32)}
    weights(adapters, lambda w: w | more, "adapter_model")
    assert "merge them into the model" in refusal(adapters, capfd)


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (None, "do not name their base model"),
        ("/nowhere/at/all", "there is no such folder"),
        ("ADAPTERS", "which are adapters too"),
    ],
)
def test_adapters_need_a_model_that_is_there(
    adapters: Path,
    tmp_path: Path,
    base: str | None,
    said: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if base == "ADAPTERS":
        base = str(tmp_path / "others")
        shutil.copytree(adapters, base)
    configured(adapters, "adapter_config.json", base_model_name_or_path=base)
    assert said in refusal(adapters, capfd)


def test_a_folder_that_is_a_model_and_adapters_is_refused(
    adapters: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder, adapters, dirs_exist_ok=True)
    assert "holds both a full model and adapters" in refusal(adapters, capfd)
