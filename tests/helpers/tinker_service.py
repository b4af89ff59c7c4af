"""A service with the Tinker API that computes for real: LoRA adapters of tiny models on the CPU.

It speaks what the public SDK speaks: futures that are retrieved by id, requests of a training
client in the order of their numbers, protobuf for gradients and samples."""

from __future__ import annotations

import asyncio
import copy
import itertools
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tinker.proto import tinker_public_pb2 as wire
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlanything.cluster.models import RoleSource
from rlanything.config.roles import LoraSettings, PolicyConfig
from rlanything.config.trust import Trust
from rlanything.engines.base import Request, Sampling
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.engines.shipped import NAMES
from rlanything_tinker.model import TinkerModel

KEY = "tml-secret"
SEED = 7
CONTEXT = 512


@dataclass
class Training:
    """A training client's adapters, their AdamW, and the requests that wait for their turn."""

    base: str
    rank: int
    seed: int
    model: LanguageModel
    optimizer: torch.optim.AdamW
    turn: int = 1
    waiting: dict[int, tuple[Future[Any], Any]] = field(default_factory=dict)

    @property
    def adapters(self) -> dict[str, Tensor]:
        named = self.model.network.named_parameters()
        return {name: weight for name, weight in named if weight.requires_grad}

    def copied(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self.adapters.items()}


@dataclass
class Sampler:
    """Adapters as they were when they were published."""

    training: Training
    adapters: dict[str, Tensor]


class TinkerService:
    """The service's state. One thread computes, in the order of the requests."""

    def __init__(self, models: Mapping[str, Path]) -> None:
        """`models`: folder of each base model, by the name that clients call it."""
        self.models = models
        self.trainings: dict[str, Training] = {}
        self.samplers: dict[str, Sampler] = {}
        self.states: dict[str, tuple[Training, dict[str, Tensor], Any]] = {}
        self.asked: list[str] = []
        """Paths of all requests that computed something, in order."""
        self.sampled: list[tuple[str, dict[str, Any]]] = []
        """The sampler and the sampling parameters of each sample request."""
        self.reports_norm = True
        self.broken_step: str | None = None
        """Error of every optimizer step; None: they work."""
        self._compute = ThreadPoolExecutor(1)
        self._futures: dict[str, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._to_sample: list[tuple[dict[str, Any], Future[Any]]] = []
        self._engines: dict[int, tuple[LanguageModel, HFEngine]] = {}
        self._lock = threading.Lock()
        post, path = ["POST"], "/api/v1"
        self.app = Starlette(
            routes=[
                Route(f"{path}/get_server_capabilities", self.capabilities),
                Route(f"{path}/get_info", self.info, methods=post),
                Route(f"{path}/create_session", self.session, methods=post),
                Route(f"{path}/create_model", self.create, methods=post),
                Route(f"{path}/load_weights", self.load, methods=post),
                Route(f"{path}/forward_backward", self.forward_backward, methods=post),
                Route(f"{path}/retrieve_future", self.retrieve, methods=post),
                Route(f"{path}/asample", self.sample, methods=post),
                Route(f"{path}/telemetry", self.telemetry, methods=post),
                *(
                    Route(f"{path}/{name}", self.in_turn, methods=post)
                    for name in ("optim_step", "save_weights", "save_weights_for_sampler")
                ),
                *(
                    Route(f"{path}/{name}", self.nothing, methods=post)
                    for name in ("client/config", "client/dynamic_config", "session_heartbeat")
                ),
            ]
        )

    # What computes nothing.

    async def nothing(self, request: HTTPRequest) -> Response:
        if request.headers.get("x-api-key") != KEY:
            return JSONResponse({"detail": "unknown key"}, 401)
        return JSONResponse({})

    async def telemetry(self, request: HTTPRequest) -> Response:
        return JSONResponse({"status": "accepted"})

    async def capabilities(self, request: HTTPRequest) -> Response:
        listed = [{"model_name": name, "max_context_length": CONTEXT} for name in self.models]
        return JSONResponse({"supported_models": listed})

    async def session(self, request: HTTPRequest) -> Response:
        return JSONResponse({"type": "create_session", "session_id": f"s{next(self._numbers)}"})

    async def info(self, request: HTTPRequest) -> Response:
        model_id = (await request.json())["model_id"]
        training = self.trainings[model_id]
        base = training.base
        data = {"model_name": base, "tokenizer_id": str(self.models[base])}
        more = {"model_id": model_id, "model_data": data, "lora_rank": training.rank}
        return JSONResponse({"type": "get_info", **more})

    # Futures.

    def promise(self, future: Future[Any], **more: Any) -> Response:
        name = f"r{next(self._numbers)}"
        self._futures[name] = future
        return JSONResponse({"request_id": name, **more})

    async def retrieve(self, request: HTTPRequest) -> Response:
        name = (await request.json())["request_id"]
        future = self._futures[name]
        try:
            result = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), 20)
        except TimeoutError:
            return JSONResponse({"type": "try_again", "request_id": name, "queue_state": "active"})
        except Exception as error:
            return JSONResponse({"error": str(error), "category": "server"})
        if isinstance(result, bytes):
            return Response(result, media_type="application/x-protobuf")
        return JSONResponse(result)

    def queue(self, model_id: str, number: int, job: Any) -> Future[Any]:
        """Runs a training client's jobs in the order of their numbers, whenever they arrive."""
        future, training = Future[Any](), self.trainings[model_id]
        with self._lock:
            training.waiting[number] = (future, job)
            while training.turn in training.waiting:
                due = training.waiting.pop(training.turn)
                training.turn += 1
                self._compute.submit(_fulfil, *due)
        return future

    # Training.

    async def create(self, request: HTTPRequest) -> Response:
        body = await request.json()
        model_id = f"{body['session_id']}:train:{body['model_seq_id']}"
        lora = body["lora_config"]
        assert not lora["train_unembed"]

        def job() -> Any:
            base, rank, seed = body["base_model"], lora["rank"], lora["seed"]
            self.trainings[model_id] = self.new_training(base, rank, seed)
            return {"type": "create_model", "model_id": model_id}

        return self.promise(self._compute.submit(job))

    def new_training(self, base: str, rank: int, seed: int) -> Training:
        model = load_model(self.models[base], "float32")
        add_adapters(model, LoraSettings(rank=rank), seed)
        learning = [weight for weight in model.network.parameters() if weight.requires_grad]
        return Training(base, rank, seed, model, torch.optim.AdamW(learning))

    async def load(self, request: HTTPRequest) -> Response:
        body = await request.json()
        model_id = f"{body['session_id']}:train:{body['model_seq_id']}"

        def job() -> Any:
            source, adapters, optimizer = self.states[body["path"]]
            training = self.new_training(source.base, source.rank, source.seed)
            _put(training.model, adapters)
            if body["optimizer"]:
                training.optimizer.load_state_dict(copy.deepcopy(optimizer))
            self.trainings[model_id] = training
            return {"type": "load_weights", "path": body["path"], "model_id": model_id}

        return self.promise(self._compute.submit(job))

    async def forward_backward(self, request: HTTPRequest) -> Response:
        message = wire.ForwardBackwardRequest()
        message.ParseFromString(await request.body())
        assert message.loss_fn == "cross_entropy"

        def job() -> bytes:
            self.asked.append("forward" if message.forward_only else "forward_backward")
            return self.cross_entropy(self.trainings[message.model_id], message)

        return self.promise(self.queue(message.model_id, message.seq_id, job))

    def cross_entropy(self, training: Training, message: Any) -> bytes:
        """Adds the gradient of the sum of weight * -log-prob, unless only log-probs are asked."""
        network: Any = training.model.network
        network.eval()
        fields = [datum.loss_fn_inputs for datum in message.data]
        inputs = [
            torch.tensor(np.frombuffer(datum.model_input[0].encoded_text.tokens, np.int32)).long()
            for datum in message.data
        ]
        targets = [torch.tensor(np.frombuffer(f["target_tokens"].dense, np.int64)) for f in fields]
        weights = [torch.tensor(np.frombuffer(f["weights"].dense, np.float32)) for f in fields]
        with torch.set_grad_enabled(not message.forward_only):
            logits = network(input_ids=pad_sequence(inputs, batch_first=True)).logits
            table = logits.log_softmax(-1)
            rows = [
                table[i, : len(ids)].gather(-1, ids[:, None])[:, 0] for i, ids in enumerate(targets)
            ]
            loss = -torch.stack(
                [(row * w).sum() for row, w in zip(rows, weights, strict=True)]
            ).sum()
            if not message.forward_only:
                loss.backward()
        lengths = np.cumsum([0, *(4 * len(row) for row in rows)])
        output = wire.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
        output.metrics["loss:sum"] = loss.item()
        record = output.loss_fn_outputs.add(num_datums=len(rows))
        logprobs = record.fields["logprobs"]
        logprobs.data = torch.cat(rows).detach().numpy().astype(np.float32).tobytes()
        logprobs.offsets = lengths.astype(np.int64).tobytes()
        logprobs.dtype = wire.DTYPE_FLOAT32
        return output.SerializeToString()

    async def in_turn(self, request: HTTPRequest) -> Response:
        body = await request.json()
        training = self.trainings[body["model_id"]]

        def job() -> Any:
            self.asked.append(body["type"])
            return getattr(self, body["type"])(training, body)

        return self.promise(self.queue(body["model_id"], body["seq_id"], job))

    def optim_step(self, training: Training, body: dict[str, Any]) -> Any:
        if self.broken_step is not None:
            raise ValueError(self.broken_step)
        adam = body["adam_params"]
        norm = torch.nn.utils.clip_grad_norm_(training.adapters.values(), adam["grad_clip_norm"])
        training.optimizer.param_groups[0].update(
            lr=adam["learning_rate"],
            betas=(adam["beta1"], adam["beta2"]),
            eps=adam["eps"],
            weight_decay=adam["weight_decay"],
        )
        training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=True)
        return {"metrics": {"fake/grad_norm": float(norm)} if self.reports_norm else {}}

    def save_weights(self, training: Training, body: dict[str, Any]) -> Any:
        path = f"tinker://{body['model_id']}/weights/{body['path']}"
        assert path not in self.states
        optimizer = copy.deepcopy(training.optimizer.state_dict())
        self.states[path] = (training, training.copied(), optimizer)
        return {"type": "save_weights", "path": path}

    def save_weights_for_sampler(self, training: Training, body: dict[str, Any]) -> Any:
        name = f"{body['model_id']}:sample:{body['sampling_session_seq_id']}"
        self.samplers[name] = Sampler(training, training.copied())
        return {"type": "save_weights_for_sampler", "sampling_session_id": name}

    # Sampling.

    async def sample(self, request: HTTPRequest) -> Response:
        body, future = await request.json(), Future[Any]()
        self.sampled.append((body["sampling_session_id"], body["sampling_params"]))
        with self._lock:
            self._to_sample.append((body, future))
        self._compute.submit(self.sample_waiting)
        return self.promise(future, sample_sequence_ids=[f"q{next(self._numbers)}"])

    def sample_waiting(self) -> None:
        """Answers all sample requests that wait, those of alike settings together."""
        with self._lock:
            waiting, self._to_sample = self._to_sample, []
        alike: dict[Any, list[tuple[dict[str, Any], Future[Any]]]] = {}
        for body, future in waiting:
            given = body["sampling_params"]
            key = (body["sampling_session_id"], given["temperature"], given["max_tokens"])
            alike.setdefault((*key, tuple(given["stop"])), []).append((body, future))
        for (name, temperature, most, stop), group in alike.items():
            try:
                answers = self.generate(self.samplers[name], temperature, most, stop, group)
            except Exception as error:
                for _, future in group:
                    future.set_exception(error)
                raise
            for (_, future), answer in zip(group, answers, strict=True):
                future.set_result(answer)

    def generate(
        self, sampler: Sampler, temperature: float, most: int, stop: tuple[int, ...], group: Any
    ) -> list[bytes]:
        training = sampler.training
        if id(training) not in self._engines:
            model = self.new_training(training.base, training.rank, training.seed).model
            self._engines[id(training)] = (model, HFEngine(model))
        model, engine = self._engines[id(training)]
        assert stop == model.stop_ids
        _put(model, sampler.adapters)
        engine.sync_weights()
        requests = [
            Request(
                tuple(body["prompt"]["chunks"][0]["tokens"]), (body["sampling_params"]["seed"],)
            )
            for body, _ in group
        ]
        answers: list[bytes] = []
        for [completion] in engine.generate(requests, Sampling(temperature, most)):
            message = wire.SampleResponse()
            reason = completion.stop_reason.upper()
            message.sequences.add(
                stop_reason=wire.StopReason.Value(f"STOP_REASON_{reason}"),
                tokens=np.array(completion.token_ids, np.int32).tobytes(),
                logprobs=np.array(completion.logprobs, np.float32).tobytes(),
            )
            answers.append(message.SerializeToString())
        return answers


def _fulfil(future: Future[Any], job: Any) -> None:
    try:
        future.set_result(job())
    except Exception as error:
        future.set_exception(error)


@torch.no_grad()
def _put(model: LanguageModel, adapters: Mapping[str, Tensor]) -> None:
    named = dict(model.network.named_parameters())
    for name, weight in adapters.items():
        named[name].copy_(weight)


@contextmanager
def tinker_service(models: Mapping[str, Path]) -> Iterator[tuple[TinkerService, str]]:
    """Yields a running service and its URL."""
    service = TinkerService(models)
    server = uvicorn.Server(uvicorn.Config(service.app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    [socket] = server.servers[0].sockets
    try:
        yield service, f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


# The policy of `examples/guess.py` at that service, and its twin in this process.


def role(url: str, **settings: object) -> PolicyConfig:
    learner = {"name": "tinker", "url": url}
    given = {"learning_rate": 5e-4, "lora": {"rank": 4}, "learner": learner}
    given |= {"model": "tiny/guess-policy", "minibatches": 2}
    return PolicyConfig.model_validate(given | settings, context=Trust(code=True, secrets=True))


def load(url: str, **settings: object) -> TinkerModel:
    config = role(url, **settings)
    assert config.learner is not None
    return config.learner.load(RoleSource("policy", config, seed=SEED))


def own_model() -> LanguageModel:
    """The model whose adapters the service begins with."""
    model = load_model(NAMES["nano-guess"] / "policy", "float32")
    add_adapters(model, LoraSettings(rank=4), SEED)
    return model
