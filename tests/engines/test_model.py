"""Language models: loaded, checked, saved; unusable ones are named in one line."""

from __future__ import annotations

import json
import socket

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import RwkvConfig, RwkvForCausalLM

from helpers.tiny import plain_logits, tiny_model, tiny_tokenizer
from rlanything.engines.base import ModelError
from rlanything.engines.hf import loading
from rlanything.engines.hf.model import LanguageModel, load_model

TOKENIZER = tiny_tokenizer()


@pytest.fixture
def folder(tmp_path):
    tiny_model(1).save(tmp_path / "model")
    return tmp_path / "model"


def assert_one_line_that_names(error: pytest.ExceptionInfo, *words: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_saved_model_loads_with_the_same_logits_and_tokens(folder):
    model, original = load_model(folder, "float32"), tiny_model(1)
    ids = original.encode("Look around > take the cup")
    assert model.encode("Look around > take the cup") == ids
    torch.testing.assert_close(plain_logits(model, ids), plain_logits(original, ids))
    assert model.stop_ids == original.stop_ids
    assert model.tokenizer.chat_template == original.tokenizer.chat_template
    assert all(weight.requires_grad for weight in model.network.parameters())


def test_weights_lie_where_the_allocator_puts_them_whatever_file_they_come_from(folder):
    state = load_file(folder / "model.safetensors")
    for padding in range(8):
        # The header's length moves the tensors behind it; a file is mapped, not read.
        save_file(state, folder / "model.safetensors", {"format": "pt", "x": "x" * padding})
        network = load_model(folder, "float32").network
        assert {weight.data_ptr() % 64 for weight in network.parameters()} == {0}


def test_hidden_states_then_logits_is_the_models_forward(frozen_model):
    ids = [20, 30, 40, 50, 60]
    hidden = frozen_model.hidden_states(torch.tensor([ids]), torch.arange(5)[None], None)
    torch.testing.assert_close(frozen_model.logits(hidden[0]), plain_logits(frozen_model, ids))


def test_bfloat16_computes_in_bfloat16_and_keeps_float32_weights_and_logits(folder):
    model = load_model(folder, "bfloat16")
    assert {weight.dtype for weight in model.network.parameters()} == {torch.float32}
    hidden = model.hidden_states(torch.tensor([[5, 6, 7]]), torch.arange(3)[None], None)
    logits = model.logits(hidden[0])
    exact = plain_logits(load_model(folder, "float32"), [5, 6, 7])
    assert logits.dtype == torch.float32
    assert (logits - exact).norm() < 0.1 * exact.norm()
    assert not torch.equal(logits, exact)


def test_a_missing_folder_is_named_and_taken_for_no_id_of_a_hub(tmp_path):
    for name in (tmp_path / "missing", "./models/missing", "models/missing/policy"):
        with pytest.raises(ModelError) as error:
            load_model(name, "float32")
        assert_one_line_that_names(error, "missing", "there is no such folder; check the path")


def test_an_id_of_a_hub_that_cannot_be_reached_is_one_line_at_once(monkeypatch):
    tries = []

    def unknown(*address):
        tries.append(address)
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(loading, "getproxies", dict)
    monkeypatch.setattr(loading.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ModelError) as error:
        load_model("nobody/nothing-here", "float32")
    assert_one_line_that_names(error, "nobody/nothing-here", "it is not in the cache", "reached")
    assert len(tries) == 1


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ModelError) as error:
        load_model(tmp_path, "float32")
    assert_one_line_that_names(error, str(tmp_path), "config.json")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_damaged_file_is_one_clear_line(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 3])
    with pytest.raises(ModelError) as error:
        load_model(folder, "float32")
    assert_one_line_that_names(error, str(folder))


def test_a_model_without_chat_template_is_refused(folder):
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelError) as error:
        load_model(folder, "float32")
    assert_one_line_that_names(error, str(folder), "chat template")


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_named(folder, device):
    with pytest.raises(ModelError) as error:
        load_model(folder, "float32", device)
    assert_one_line_that_names(error, device, "cpu")


def test_a_model_that_changes_its_logits_after_the_head_is_refused(tmp_path):
    from transformers import GraniteConfig, GraniteForCausalLM

    tokenizer = tiny_tokenizer()
    config = GraniteConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        logits_scaling=4.0,
        initializer_range=0.5,
    )
    LanguageModel(GraniteForCausalLM(config), tokenizer).save(tmp_path)
    with pytest.raises(ModelError) as error:
        load_model(tmp_path, "float32")
    assert_one_line_that_names(error, str(tmp_path), "not supported")


def test_a_saved_folder_is_in_hugging_face_format(folder):
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen2"


@given(st.text())
def test_any_text_survives_the_tokenizer(text):
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


def test_the_tokenizer_is_the_same_for_the_same_texts_and_has_the_size_asked_for():
    other = tiny_tokenizer()
    assert other.get_vocab() == TOKENIZER.get_vocab()
    assert len(TOKENIZER) == 320
    assert tiny_tokenizer(300).get_vocab() != TOKENIZER.get_vocab()


def test_turns_are_single_special_tokens_and_the_last_one_asks_the_assistant():
    text = TOKENIZER.apply_chat_template(
        [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert text == "<|system|>be<|end|><|user|>hi<|end|><|assistant|>"
    vocabulary = TOKENIZER.get_vocab()
    ids = TOKENIZER.encode(str(text), add_special_tokens=False)
    assert [i for i in ids if i < 5] == [
        vocabulary[token]
        for token in ("<|system|>", "<|end|>", "<|user|>", "<|end|>", "<|assistant|>")
    ]
    assert TOKENIZER.eos_token == "<|end|>"


def test_a_length_of_training_does_not_bound_a_recurrent_model(tmp_path):
    tokenizer = tiny_tokenizer()
    config = RwkvConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, context_length=64
    )
    assert LanguageModel(RwkvForCausalLM(config), tokenizer).context is None
    assert tiny_model(1).context == 512
