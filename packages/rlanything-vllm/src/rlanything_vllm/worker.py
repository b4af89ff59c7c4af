"""The worker process of a `VLLMEngine`, which runs vLLM.

It replaces vLLM's own engine core process, so that the run survives any crash in it, even below
Python, and reports it in one line.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

from rlanything.engines.base import Request, Sampling
from rlanything.engines.channel import Channel
from rlanything.engines.hf.vision_spec import VisionSpec
from rlanything_vllm.adapters import Adapters
from rlanything_vllm.handover import Place, take_weights
from rlanything_vllm.prompts import Prompts, register_image_processor, vision_settings


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to a worker: its settings."""

    folder: Path
    """Folder of the model's configuration; its weights follow through shared memory."""
    architecture: str
    """Class name of the network."""
    vision: VisionSpec | None
    """The model's image handling; None: it is shown no images."""
    device: str
    dtype: str
    weight_bytes: int
    """Size of the weights."""
    cache_bytes: int
    """Size of the KV cache."""
    context: int | None
    """Largest number of tokens of a prompt and its response; None: the model's own limit."""
    rank: int | None
    """Rank of the model's adapters; None: it has none."""
    sleep: bool
    """Whether to sleep between phases, if vLLM can on this device."""


@dataclass(frozen=True, slots=True)
class StartStage:
    """Message of a worker that is still being set up."""

    text: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker's answer when it is set up."""

    context: int
    sleeps: bool
    """Whether it can carry out `Sleep`."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Order to load new weights from the shared memory."""

    places: Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Order to free the device's memory. Weights that are then loaded wake the worker up."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Order to generate samples."""

    requests: Sequence[Request]
    sampling: Sampling
    stop_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SamplesDrawn:
    """Message of a worker that is generating: this many more samples are done."""

    samples: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """A sample from vLLM."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool
    reused: int
    """Number of prompt tokens from the prefix cache."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The worker's answer to an order that failed: the reason in one line."""

    reason: str


Order: TypeAlias = Weights | Adapters | Sleep | Draws


class Worker:
    """One vLLM engine, which carries out orders."""

    def __init__(
        self, setup: Setup, memory: int, report: Callable[[StartStage | SamplesDrawn], None]
    ) -> None:
        from vllm import LLM  # pyright: ignore
        from vllm.platforms import current_platform  # pyright: ignore

        from rlanything_vllm.choices import limits

        kind = setup.device.partition(":")[0]
        if current_platform.device_type != kind:
            raise ValueError(
                f"the installed vLLM runs on {current_platform.device_type}, not on {kind}"
            )
        report(StartStage("vLLM builds and compiles its model"))
        self._memory = memory
        self._report = report
        self._vision = setup.vision
        self._asleep = False
        self.sleeps = setup.sleep and current_platform.is_sleep_mode_available()
        if setup.vision is not None:
            register_image_processor(setup.vision, setup.architecture)
        self._llm = LLM(
            model=str(setup.folder),
            skip_tokenizer_init=True,
            trust_remote_code=False,
            # Dummy weights, so that the first comparison with the learner finds any weight that the
            # hand-over missed.
            load_format="dummy",
            generation_config="vllm",
            dtype=setup.dtype,
            max_model_len=setup.context,
            kv_cache_memory_bytes=setup.cache_bytes,
            # Granularity of prefix sharing in tokens; smaller blocks are slow on a CPU.
            block_size=32,
            enable_prefix_caching=True,
            # A chunk of a prompt also samples a token, which is then discarded; but a CPU's random
            # generator does not go back.
            enable_chunked_prefill=kind != "cpu",
            # Compiling never pays off on a CPU.
            enforce_eager=kind == "cpu",
            # After temperature: log-probs of the distribution that tokens are sampled from.
            logprobs_mode="processed_logprobs",
            logits_processors=[limits(() if setup.vision is None else setup.vision.closed)],
            # It would sample the next token before the choices are updated with the last one.
            async_scheduling=False,
            disable_log_stats=True,
            **_device_settings(setup, self.sleeps),
            **_adapter_settings(setup.rank),
            **({} if setup.vision is None else vision_settings()),
        )
        self._adapters: Any = None
        self.context: int = self._llm.llm_engine.model_config.max_model_len

    def carry_out(self, order: Order) -> Any:
        if isinstance(order, Weights):
            return self._load(order)
        if isinstance(order, Adapters):
            return self._load_adapters(order)
        if isinstance(order, Sleep):
            # Level 2 drops the weights: the engine sends them again anyway.
            self._llm.sleep(level=2)
            self._asleep = True
            return None
        return self._draw(order)

    def _load(self, order: Weights) -> None:
        if self._asleep:
            self._llm.wake_up()
            self._asleep = False
        weights = take_weights(self._memory, order.places)
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._llm.reset_prefix_cache()
        if self._vision is not None:
            # The tower may have changed too, and cached images need the cached prefixes.
            self._llm.llm_engine.reset_encoder_cache()

    def _load_adapters(self, order: Adapters) -> None:
        from vllm.lora.request import LoRARequest  # pyright: ignore

        # vLLM never reloads a number, so new adapters get a new one.
        number = 1
        if self._adapters is not None:
            number += self._adapters.lora_int_id
            self._llm.llm_engine.remove_lora(self._adapters.lora_int_id)
        with order.folder() as folder:
            self._adapters = LoRARequest(f"adapters-{number}", number, str(folder))
            self._llm.llm_engine.add_lora(self._adapters)
        self._llm.reset_prefix_cache()

    def _draw(self, order: Draws) -> list[list[Drawn]]:
        from vllm import SamplingParams  # pyright: ignore

        from rlanything_vllm.choices import CHOICES

        prompts, parameters = Prompts(self._vision), []
        given: list[Any] = []
        for request in order.requests:
            # One request per sample, because n samples of one request would share a seed.
            for seed in request.seeds:
                given.append(prompts.prompt(request.prompt_ids))
                parameters.append(
                    SamplingParams(
                        temperature=order.sampling.temperature,
                        max_tokens=order.sampling.max_tokens,
                        seed=seed,
                        logprobs=0,  # of the sampled token only
                        stop_token_ids=list(order.stop_ids),
                        detokenize=False,
                        extra_args={CHOICES: request.choices},
                    )
                )
        self._llm.enqueue(given, parameters, use_tqdm=False, lora_request=self._adapters)
        results = iter(self._finished())
        groups = [[next(results) for _ in request.seeds] for request in order.requests]
        for request, group in zip(order.requests, groups, strict=True):
            for result in group:
                prompts.check(request.prompt_ids, result.prompt_token_ids)
        return [[_drawn(result) for result in group] for group in groups]

    def _finished(self) -> list[Any]:
        """Runs vLLM until all requests are finished, and returns its outputs in their order."""
        finished: list[Any] = []
        while self._llm.llm_engine.has_unfinished_requests():
            ended = [output for output in self._llm.llm_engine.step() if output.finished]
            finished += ended
            if ended:
                self._report(SamplesDrawn(len(ended)))
        # vLLM numbers its requests.
        return sorted(finished, key=lambda output: int(output.request_id))


def _device_settings(setup: Setup, sleeps: bool) -> dict[str, Any]:
    """Returns vLLM's settings for the memory of a GPU.

    vLLM refuses to start unless this share of the whole card is free, also if the size of its
    cache is given. Its default is 0.92, but a seat holds memory there as well."""
    import torch

    if setup.device == "cpu":
        return {}
    _, total = torch.cuda.mem_get_info()
    needed = (setup.weight_bytes + setup.cache_bytes) / total
    return {"gpu_memory_utilization": min(needed, 1.0), "enable_sleep_mode": sleeps}


def _adapter_settings(rank: int | None) -> dict[str, Any]:
    """Returns vLLM's settings for adapters, with its smallest supported rank that fits."""
    if rank is None:
        return {}
    from vllm.config.lora import MaxLoRARanks  # pyright: ignore
    from vllm.lora.layers import BaseLayerWithLoRA  # pyright: ignore

    if not hasattr(BaseLayerWithLoRA, "load_weights"):
        raise ValueError("this vLLM takes no new weights below adapters; install vllm>=0.28")
    ranks = [supported for supported in get_args(MaxLoRARanks) if supported >= rank]
    if not ranks:
        raise ValueError(f"vLLM does not support adapters of rank {rank}; lower lora.rank")
    return {"enable_lora": True, "max_lora_rank": min(ranks)}


def _drawn(result: Any) -> Drawn:
    [output] = result.outputs
    ids = tuple(output.token_ids)
    return Drawn(
        ids,
        tuple(entry[token].logprob for token, entry in zip(ids, output.logprobs, strict=True)),
        output.finish_reason == "stop",
        result.num_cached_tokens or 0,
    )


def serve(channel: Channel, memory: int) -> None:
    """Carries out orders one by one. An error is reported and ends the worker."""
    try:
        worker = Worker(channel.receive(), memory, channel.send)
        channel.send(Ready(worker.context, worker.sleeps))
        while True:
            channel.send(worker.carry_out(channel.receive()))
    except EOFError:  # the engine is gone
        return
    except Exception as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines() or ["no reason given"]
        channel.send(Refusal(f"{type(error).__name__}: {lines[0]}"))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run handles Ctrl-C
    end, memory = map(int, sys.argv[1:])
    serve(Channel(socket.socket(fileno=end)), memory)
    # Exit without waiting for vLLM's threads.
    os._exit(0)
