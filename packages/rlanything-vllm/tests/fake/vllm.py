"""A stand-in for vLLM on a GPU of a given size: its memory check, its sleep mode, and samples of
a plain forward pass. Workers that are awake are counted on the card.

The card is the folder in FAKE_CARD: `card.json` (bytes in all, bytes held by others, whether vLLM
can sleep), a file per process with the bytes that it holds, and a log of what workers did."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

CARD = Path(os.environ["FAKE_CARD"])
DEFAULT_SHARE = 0.92
"""vLLM's default `gpu_memory_utilization`."""


def card() -> dict[str, Any]:
    return json.loads((CARD / "card.json").read_text())


def memory_info(device: Any = None) -> tuple[int, int]:
    """As torch.cuda.mem_get_info: free bytes, bytes in all."""
    del device
    held = card()["held"]
    for file in CARD.glob("*.bytes"):
        if Path(f"/proc/{file.stem}").exists():
            held += int(file.read_text())
    return card()["total"] - held, card()["total"]


def take(count: int) -> None:
    """Holds this many bytes of the card in this process."""
    (CARD / f"{os.getpid()}.bytes").write_text("0")
    free, _ = memory_info()
    if count > free:
        raise RuntimeError(f"CUDA out of memory: {count} bytes wanted, {free} are free")
    (CARD / f"{os.getpid()}.bytes").write_text(str(count))


def note(what: str) -> None:
    """Logs what this worker did, and how many workers are awake after it."""
    live = [f for f in CARD.glob("*.bytes") if Path(f"/proc/{f.stem}").exists()]
    awake = sum(int(file.read_text()) > 0 for file in live)
    with (CARD / "log").open("a") as log:
        print(json.dumps({"what": what, "awake": awake, "worker": os.getpid()}), file=log)


class SamplingParams(SimpleNamespace):
    pass


class LLM:
    def __init__(self, model: str, dtype: str, max_model_len: int | None, **settings: Any) -> None:
        if settings.get("enable_sleep_mode") and not card()["sleeps"]:
            raise ValueError("Sleep mode is not supported on current platform.")
        share = settings.get("gpu_memory_utilization", DEFAULT_SHARE)
        free, total = memory_info()
        if free < math.ceil(total * share):
            raise ValueError(f"Free memory on device ({free}/{total}) is less than desired {share}")
        self._network = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model)).eval()
        self._weights = sum(weights.numel() for weights in self._network.parameters())
        self._weights *= {"float32": 4, "bfloat16": 2}[dtype]
        self._cache = settings["kv_cache_memory_bytes"]
        take(self._weights + self._cache)
        config = SimpleNamespace(max_model_len=max_model_len or 4096)
        self._queue: list[Any] = []
        self.llm_engine = SimpleNamespace(
            model_config=config,
            has_unfinished_requests=lambda: bool(self._queue),
            step=self._step,
        )
        note("start")

    def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> None:
        assert method == "reload_weights"
        assert int((CARD / f"{os.getpid()}.bytes").read_text()), "its weights are not on the card"
        self._network.load_state_dict(dict(kwargs["weights_iterator"]), strict=False)
        note("weights")

    def reset_prefix_cache(self) -> None:
        pass

    def sleep(self, level: int = 1) -> None:
        assert level == 2
        if (CARD / "sleepless").exists():
            raise AssertionError("Memory usage increased after sleeping.")
        for weights in self._network.parameters():
            weights.data.fill_(float("nan"))
        take(0)
        note("sleep")

    def wake_up(self) -> None:
        take(self._weights + self._cache)
        note("wake")

    def enqueue(self, prompts: Any, parameters: Any, use_tqdm: bool, lora_request: Any) -> None:
        self._queue = [*zip(range(len(prompts)), prompts, parameters, strict=True)]

    @torch.no_grad()
    def _step(self) -> list[Any]:
        """Finishes the last request of the queue, in `step_seconds` of the card."""
        time.sleep(card().get("step_seconds", 0.0))
        number, *request = self._queue.pop()
        return [
            SimpleNamespace(finished=True, request_id=str(number), **vars(self._drawn(*request)))
        ]

    def _drawn(self, prompt: Any, wanted: Any) -> Any:
        ids, drawn, logprobs = list(prompt["prompt_token_ids"]), list[int](), list[Any]()
        chance = torch.Generator().manual_seed(wanted.seed % 2**63)
        reason = "length"
        while len(drawn) < wanted.max_tokens:
            logits = self._network(torch.tensor([ids + drawn])).logits[0, -1].float()
            spread = (logits / (wanted.temperature or 1.0)).log_softmax(-1)
            token = int(spread.argmax())
            if wanted.temperature:
                token = int(spread.exp().multinomial(1, generator=chance))
            drawn.append(token)
            logprobs.append({token: SimpleNamespace(logprob=float(spread[token]))})
            if token in wanted.stop_token_ids:
                reason = "stop"
                break
        output = SimpleNamespace(token_ids=drawn, logprobs=logprobs, finish_reason=reason)
        return SimpleNamespace(outputs=[output], prompt_token_ids=ids, num_cached_tokens=0)


def _module(name: str, **contents: Any) -> None:
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(contents)


_module(
    "vllm.platforms",
    current_platform=SimpleNamespace(
        device_type="cuda", is_sleep_mode_available=lambda: card()["sleeps"]
    ),
)
_module("vllm.v1")
_module("vllm.v1.sample")
_module("vllm.v1.sample.logits_processor", LogitsProcessor=object)
_module("vllm.v1.sample.logits_processor.builtin", process_dict_updates=None)
torch.cuda.mem_get_info = memory_info
