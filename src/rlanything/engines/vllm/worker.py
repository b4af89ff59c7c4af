"""vLLM in a process of its own: what a `VLLMEngine` starts and talks to.

A process of ours rather than vLLM's own engine core: whatever happens in it, also below Python, the
run outlives it, and one line says what happened.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

from rlanything.engines.base import Request, Sampling
from rlanything.engines.channel import Channel
from rlanything.engines.hf.lora import Adapters
from rlanything.engines.hf.vision_spec import VisionSpec
from rlanything.engines.vllm.handover import Place, take_weights
from rlanything.engines.vllm.prompts import VISION_SETTINGS, Prompts, register_image_processor


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to a worker: how to set itself up."""

    folder: Path
    """The folder of the model's configuration; its weights come later, through memory."""
    architecture: str
    """The name of the network's class."""
    vision: VisionSpec | None
    """How the model takes in images; None: it is shown none."""
    device: str
    dtype: str
    cache_bytes: int
    """For keys and values."""
    context: int | None
    """Longest prompt with its response, in tokens; None: the model's own limit."""
    rank: int | None
    """The rank of the adapters that come beside the weights; None: none come."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker's answer when it is set up."""

    context: int


@dataclass(frozen=True, slots=True)
class Weights:
    """New weights lie in the memory that both processes share."""

    places: Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Draws:
    """Samples that are wanted."""

    requests: Sequence[Request]
    sampling: Sampling
    stop_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A sample as vLLM gave it."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool
    reused: int
    """Tokens of the prompt whose keys and values were there already."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The worker's answer to what cannot be done: why, in one line."""

    reason: str


Order: TypeAlias = Weights | Adapters | Draws


class Worker:
    """One vLLM engine and what it is asked to do."""

    def __init__(self, setup: Setup, memory: int) -> None:
        from vllm import LLM  # pyright: ignore
        from vllm.platforms import current_platform  # pyright: ignore

        from rlanything.engines.vllm.choices import limits

        kind = setup.device.partition(":")[0]
        if current_platform.device_type != kind:
            raise ValueError(
                f"the vLLM installed here computes on {current_platform.device_type}, not on {kind}"
            )
        self._memory, self._vision = memory, setup.vision
        if setup.vision is not None:
            register_image_processor(setup.vision, setup.architecture)
        self._llm = LLM(
            model=str(setup.folder),
            skip_tokenizer_init=True,
            trust_remote_code=False,
            # Weights that are nobody's: one that a hand-over forgets is then far off, and found out
            # by the first comparison with the learner.
            load_format="dummy",
            generation_config="vllm",
            dtype=setup.dtype,
            max_model_len=setup.context,
            kv_cache_memory_bytes=setup.cache_bytes,
            # The size of what prompts can share, in tokens; smaller ones are slow on a CPU.
            block_size=32,
            enable_prefix_caching=True,
            # Where only a part of a prompt is computed, a token is drawn all the same, and the draw
            # taken back; a CPU's random numbers do not go back.
            enable_chunked_prefill=kind != "cpu",
            # Compiling takes longer than a CPU ever gains from it.
            enforce_eager=kind == "cpu",
            # After temperature: of the distribution that tokens are drawn from.
            logprobs_mode="processed_logprobs",
            logits_processors=[limits(() if setup.vision is None else setup.vision.closed)],
            # It would choose the next token before choices have seen the last one.
            async_scheduling=False,
            disable_log_stats=True,
            **_beside_weights(setup.rank),
            **({} if setup.vision is None else VISION_SETTINGS),
        )
        self._adapters: Any = None
        self.context: int = self._llm.llm_engine.model_config.max_model_len

    def carry_out(self, order: Order) -> Any:
        if isinstance(order, Weights):
            return self._load(order)
        if isinstance(order, Adapters):
            return self._load_adapters(order)
        return self._draw(order)

    def _load(self, order: Weights) -> None:
        weights = take_weights(self._memory, order.places)
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._llm.reset_prefix_cache()
        if self._vision is not None:
            # The tower may have moved too; and without the prefixes vLLM looks for images in vain.
            self._llm.llm_engine.reset_encoder_cache()

    def _load_adapters(self, order: Adapters) -> None:
        from vllm.lora.request import LoRARequest  # pyright: ignore

        # vLLM reads no number twice: new adapters get a new one.
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

        from rlanything.engines.vllm.choices import CHOICES

        prompts, parameters = Prompts(self._vision), []
        given: list[Any] = []
        for request in order.requests:
            # One request a sample: those of a request with n samples would derive from one seed.
            for seed in request.seeds:
                given.append(prompts.prompt(request.prompt_ids))
                parameters.append(
                    SamplingParams(
                        temperature=order.sampling.temperature,
                        max_tokens=order.sampling.max_tokens,
                        seed=seed,
                        logprobs=0,  # of the sampled token, and no others
                        stop_token_ids=list(order.stop_ids),
                        detokenize=False,
                        extra_args={CHOICES: request.choices},
                    )
                )
        results = iter(
            self._llm.generate(given, parameters, use_tqdm=False, lora_request=self._adapters)
        )
        groups = [[next(results) for _ in request.seeds] for request in order.requests]
        for request, group in zip(order.requests, groups, strict=True):
            for result in group:
                prompts.check(request.prompt_ids, result.prompt_token_ids)
        return [[_drawn(result) for result in group] for group in groups]


def _beside_weights(rank: int | None) -> dict[str, Any]:
    """Returns vLLM's settings for adapters: the smallest rank it knows that is no less than
    theirs."""
    if rank is None:
        return {}
    from vllm.config.lora import MaxLoRARanks  # pyright: ignore

    ranks = [each for each in get_args(MaxLoRARanks) if each >= rank]
    if not ranks:
        raise ValueError(f"adapters of rank {rank} are more than vLLM takes; lower lora.rank")
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
    """Carries out one order after the other. An error ends the worker, which says it first."""
    try:
        worker = Worker(channel.receive(), memory)
        channel.send(Ready(worker.context))
        while True:
            channel.send(worker.carry_out(channel.receive()))
    except EOFError:  # the engine is gone, and with it the reason to go on
        return
    except Exception as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines() or ["no reason given"]
        channel.send(Refusal(f"{type(error).__name__}: {lines[0]}"))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's to handle
    end, memory = (int(each) for each in sys.argv[1:])
    serve(Channel(socket.socket(fileno=end)), memory)
    # vLLM leaves threads behind that would be waited for.
    os._exit(0)
