"""The roles of a recipe: task, model, engine, sampling and learning of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from rlanything.algorithm.losses import LossConfig
from rlanything.config.engines import AnyEngineConfig, ConfigSection, EngineSetting, default_engine
from rlanything.config.learners import AnyLearnerConfig
from rlanything.config.trust import CodeName, check_code
from rlanything.plugins import shipped_models

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


SHORT_FORM = {"policy": "acts", "judge": "scores", "adapter": "rewrites"}
"""The paper's roles, which a recipe may write at its top level, with their tasks. A recipe without
any role for one of these tasks gets the paper's role with its defaults."""


def role_key(name: str) -> str:
    """Returns the key of a role in a recipe, for messages and overrides; a name with a dot is the
    key of a model that is no role (`evaluation.labeller`)."""
    return name if name in SHORT_FORM or "." in name else f"roles.{name}"


ENDPOINT_TOKENS = 512
"""Default of `max_tokens` for a role that uses an endpoint."""


class RoleConfig(ConfigSection):
    """A language model in a role."""

    shipped_role: ClassVar[str] = ""
    """Name of the shipped models for this task; empty if none ships."""

    model: str = "nano"
    """`nano` for the model shipped for this role (`nano-coding`, `nano-miniwob`, ... for other
    domains), a folder, a Hugging Face id, or a GGUF file: `PATH.gguf`, or `package:FILE.gguf` for
    one from an installed package. A role that rewrites may name another role, such as `policy` or
    `judge`, and then uses that role's current model."""
    engine: AnyEngineConfig = Field(default_factory=default_engine)
    """Engine that generates: `{name: embedded}`, `{name: vllm}`, or `{name: openai, url: ...}` for
    a role that does not train; or your own class, `{name: module:Class}`."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type the model computes in. Policy and judge keep their weights in float32, because training
    needs every bit; the adapter never trains and keeps its weights in this type, at half the
    memory."""
    device: str = "cpu"
    """A torch device: `cpu`, `cuda`, `cuda:1`."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 1.0
    """The sampling temperature; training compares log-probs at the same temperature."""
    max_tokens: Count = 48
    """Longest response in tokens, reasoning and answer; 512 by default with `{name: openai}`. The
    content of a `<think>` block is sampled, trained on and stored, but not passed on; a truncated
    block leaves no answer. A truncated judgement, test, critic or candidate is discarded, because
    half of it may read as a different one."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Variables of the model's chat template, such as `{enable_thinking: false}` for Qwen3. A
    variable that the template does not read is an error."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Time limit for one batch of generation; with an engine that schedules requests itself
    (`vllm`, `openai`), for the next answer. Exceeding it stops the run."""

    @model_validator(mode="before")
    @classmethod
    def _room_at_an_endpoint(cls, section: Any) -> Any:
        """Gives hosted models, which write longer answers, a higher default of `max_tokens`."""
        if not isinstance(section, dict) or "max_tokens" in section:
            return section
        engine = section.get("engine")
        name = engine.get("name") if isinstance(engine, dict) else getattr(engine, "name", None)
        return {**section, "max_tokens": ENDPOINT_TOKENS} if name == "openai" else section

    @model_validator(mode="after")
    def _endpoint_decides(self) -> RoleConfig:
        if not self.engine.remote:
            return self
        if self.model == "nano":
            raise ValueError("model: say here what the endpoint calls its model")
        if (self.dtype, self.device) != ("float32", "cpu"):
            raise ValueError("dtype and device are the endpoint's own affair: leave them out")
        if self.chat_template_kwargs:
            raise ValueError(
                "chat_template_kwargs: an endpoint is sent them in engine.extra_body, as "
                "{chat_template_kwargs: {...}}; move them there"
            )
        return self

    def engine_setting(
        self, role: str, threads: int, images: tuple[Path, ...] = ()
    ) -> EngineSetting:
        """Returns what the engine of this role must know besides its own settings."""
        key, seconds = role_key(role), self.timeout_seconds
        return EngineSetting(key, self.model, self.dtype, self.device, threads, seconds, images)

    @property
    def continuous_batching(self) -> bool:
        """Whether what generates schedules the requests of a call itself."""
        return self.engine.continuous_batching

    @property
    def remote(self) -> bool:
        """Whether an endpoint answers: text only, no tokens or log-probs."""
        return self.engine.remote


class LoraSettings(ConfigSection):
    """Adapters that train next to frozen weights (arXiv 2106.09685)."""

    rank: Count = 16
    """The rank of each adapter's two matrices."""
    alpha: Count = 32
    """The output of an adapter is scaled by alpha / rank."""
    targets: Literal["all-linear"] | list[str] = "all-linear"
    """Names of the layers that get an adapter; `all-linear`: all but the output layer."""


class TrainedRoleConfig(RoleConfig):
    """A role that learns."""

    train: bool = True
    """Whether it learns. If not, it has no optimizer and no checkpoints. The first role that acts
    always learns."""
    learner: AnyLearnerConfig | None = None
    """Learner elsewhere, which also generates: `tinker`, `{name: tinker, url: ...}`
    (packages/rlanything-tinker), or your own class, `{name: module:Class}`. None: the role's model
    is here, learns here, and its `engine` generates."""
    lora: LoraSettings | None = None
    """If given, only adapters train, and checkpoints hold only adapters; otherwise all weights
    do."""
    train_vision: bool = False
    """Whether the vision tower and its projector train too. If frozen, each image is computed once;
    if trained, once per pack. Only a single worker can train it."""
    learning_rate: Annotated[float, Field(ge=0)] = 1e-6
    """AdamW's learning rate. 0 leaves the weights unchanged."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's weight decay."""
    minibatches: Count = 1
    """Number of minibatches per iteration, each one optimizer step. A task's samples stay together,
    so there are never more than tasks."""
    epochs: Count = 1
    """Number of passes over an iteration's samples. In later epochs ratios are further from 1,
    where the loss clips them."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients are clipped to this norm."""
    max_skipped_updates: Count = 3
    """Stop after this many consecutive updates with a loss or gradient that is not finite."""
    loss: LossConfig = Field(default_factory=LossConfig.default)
    """The loss that updates minimise, by name or as `{name: ..., options: {...}}`: `clipped`,
    `clip_higher`, `gspo` or `reinforce`, one that an installed package registers, or
    `module:function` (docs/losses.md)."""
    kl_weight: Annotated[float, Field(ge=0)] = 0.01
    """beta: weight of the k3 estimate of the KL divergence from the policy that sampled the tokens.
    For the divergence from the model before training see `reference_kl_weight`."""
    reference_kl_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of a second k3 estimate: the KL divergence from the model at the start of the run, on
    trained tokens. Above 0 a frozen copy of that model stays in memory and reads every sample once
    (with adapters, the model without them serves as the copy)."""
    old_logprobs: Literal["sampled", "recomputed"] = "sampled"
    """Log-probs that an update's ratios compare with: the sampler's, or those the learner
    recomputes before the update, at the cost of a forward pass."""
    importance_cap: Annotated[float, Field(ge=1)] | None = None
    """With `recomputed`, also weigh each token by min(p_learner / p_sampler, cap): truncated
    importance sampling, for samplers whose numerics differ from the learner's. None: weight 1."""
    packing: Literal["shared", "padded"] = "shared"
    """`shared` computes common prefixes of samples once; `padded` computes each sample alone, for
    models that cannot share prefixes (sliding windows, recurrent layers)."""
    max_pack_tokens: Count = 4096
    """Tokens computed together; memory grows with it."""
    gradient_checkpointing: bool = False
    """Recomputes each layer's activations in the backward pass instead of keeping them: less
    memory, 20 to 33% more time, the same update."""

    @property
    def trains(self) -> bool:
        """Whether this run changes and keeps its weights."""
        return self.train

    @property
    def continuous_batching(self) -> bool:
        """Whether what generates schedules the requests of a call itself."""
        return (self.learner or self.engine).continuous_batching

    @model_validator(mode="after")
    def _something_to_hold(self) -> TrainedRoleConfig:
        if self.reference_kl_weight and not self.trains:
            raise ValueError("reference_kl_weight holds a role that learns, and this one does not")
        return self

    @model_validator(mode="after")
    def _learner_honours_it(self) -> TrainedRoleConfig:
        if self.learner is not None:
            if self.engine != default_engine():
                raise PydanticCustomError(
                    "learner",
                    "the learner {name} generates too: leave this out",
                    {"key": "engine", "name": self.learner.name},
                )
            self.learner.check(self)
        return self

    @model_validator(mode="after")
    def _all_or_adapters(self) -> TrainedRoleConfig:
        if self.train_vision and self.lora is not None:
            raise ValueError("train_vision trains weights that adapters leave alone: drop one")
        return self

    @field_validator("loss")
    @classmethod
    def _code_allowed(cls, loss: LossConfig, info: ValidationInfo) -> LossConfig:
        check_code(loss.name, info)
        return loss

    @model_validator(mode="after")
    def _something_to_correct(self) -> TrainedRoleConfig:
        if self.importance_cap is not None and self.old_logprobs == "sampled":
            raise ValueError(
                "importance_cap needs old_logprobs: recomputed; with `sampled` the "
                "ratios hold the sampler's disagreement already"
            )
        return self


class PolicyConfig(TrainedRoleConfig):
    """A role that acts."""

    shipped_role: ClassVar[str] = "policy"

    does: Literal["acts"] = "acts"
    """`acts`: its answers are actions in the environment."""
    decoding: Literal["choices", "free"] = "free"
    """`choices` makes the policy choose, token by token, among the actions the environment admits
    (log-probs are renormalised over them); `free` lets it write anything."""
    thought_tokens: Annotated[int, Field(ge=0)] = 16
    """With `decoding: choices`, the longest thought before the action in tokens."""
    screenshots: Count = 3
    """Number of latest screenshots it sees, if the domain shows any."""

    @model_validator(mode="after")
    def _room_for_an_action(self) -> PolicyConfig:
        # The shortest action is one token; the marker and the end of the turn come on top.
        if self.decoding == "choices" and self.max_tokens < self.thought_tokens + 3:
            raise ValueError(
                "max_tokens must exceed thought_tokens by 3 at the least, or no action fits: raise "
                "it, or lower thought_tokens"
            )
        return self


class JudgeConfig(TrainedRoleConfig):
    """A role that scores."""

    shipped_role: ClassVar[str] = "judge"

    does: Literal["scores"] = "scores"
    """`scores`: it judges the steps of every episode."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Weight of its mean score of a step relative to other judges."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.8
    """The sampling temperature; training compares log-probs at the same temperature."""
    samples_per_step: Count = 3
    """m, the judgements of each step."""
    score_first: bool = False
    """Whether its answers begin with the score, as its prompt may ask: an answer truncated by
    `max_tokens` after `\\boxed{1}` then still has that score. Otherwise a truncated judgement has
    none."""
    name: CodeName = "llm"
    """`llm`: the language model of this section, which scores steps, or writes unit tests if the
    domain asks for tests. `value`: that model, which says after each step how likely the episode is
    still to be won (docs/losses.md). `oracle`: the domain's own step labels, each wrong with
    probability `noise` (options: {noise: 0.28}), a diagnostic. `module:name`: a function that
    scores step i of a trajectory, or your own judge class."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of a judge other than `llm`, which checks them."""

    @model_validator(mode="after")
    def _options_of_another(self) -> JudgeConfig:
        if self.by_model and self.options:
            raise ValueError("options belong to a judge with another name; leave them out")
        return self

    @model_validator(mode="after")
    def _none_ships(self) -> JudgeConfig:
        if self.values and self.model == "nano":
            raise ValueError("model: name one; none ships that values states")
        return self

    @property
    def values(self) -> bool:
        """Whether it values states instead of scoring steps."""
        return self.name == "value"

    @property
    def by_model(self) -> bool:
        """Whether the language model of this section judges."""
        return self.name in ("llm", "value")

    @property
    def here(self) -> bool:
        """Whether its model runs in this process."""
        return self.by_model and not self.remote

    @property
    def trains(self) -> bool:
        """Whether its model runs here and this run changes and keeps its weights."""
        return self.here and self.train


class LabellerConfig(RoleConfig):
    """A model stronger than the judge, which never trains. `model` must be given."""

    temperature: Annotated[float, Field(gt=0, le=2)] = 0.8
    """The sampling temperature of its judgements."""
    max_tokens: Count = 512
    """Longest judgement, in tokens: reasoning and score."""
    samples_per_step: Count = 8
    """Votes for each label; a tie gives no label."""

    @model_validator(mode="after")
    def _stronger(self) -> LabellerConfig:
        if self.model in shipped_models():
            raise ValueError("model: name one that is stronger than the judge; none ships")
        return self


class AdapterConfig(RoleConfig):
    """A role that rewrites tasks. `model: policy` or `model: judge` shares that role's current
    model and engine: no extra memory, and the adapter changes as that role learns."""

    shipped_role: ClassVar[str] = "adapter"

    does: Literal["rewrites"] = "rewrites"
    """`rewrites`: it makes tasks harder or easier."""
    name: CodeName = "llm"
    """`llm`: the language model of this section. `module:Class`: your own adapter."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of an adapter other than `llm`, which checks them."""
    tries: Count = 8
    """Answers sampled per proposal; the first valid one becomes the candidate."""
    critics_per_task: Annotated[int, Field(ge=0)] | Literal["all"] = 2
    """Failed rollouts summarised per proposal; the paper: `all`."""
    rejected_by: Literal["all", "some"] = "all"
    """Steps that a critic is given as bad: those that every judgement scored -1, or at least one
    (the paper's GUI setting)."""
    critic_stages: Literal[1, 2] = 1
    """2: summarise each bad step of a failed rollout, then write a critic from the summaries (the
    paper's GUI setting, if the domain supports it): one more answer per bad step."""

    memory: Annotated[int, Field(ge=0)] = 0
    """Number of a slot's latest candidates that may not be proposed again; 0: repeats are allowed,
    as in the paper."""

    @property
    def most_critics(self) -> int | None:
        """`critics_per_task` as a number; None: all."""
        return None if self.critics_per_task == "all" else self.critics_per_task

    @property
    def unshared(self) -> list[str]:
        """Keys that it sets although the role whose model it shares decides them."""
        # Not `model_fields_set`: a run's stored recipe writes every key and must load again.
        keys = ("chat_template_kwargs", "device", "dtype", "engine", "timeout_seconds")
        fields = type(self).model_fields
        return [
            key
            for key in keys
            if getattr(self, key) != fields[key].get_default(call_default_factory=True)
        ]


AnyRoleConfig: TypeAlias = Annotated[
    PolicyConfig | JudgeConfig | AdapterConfig, Field(discriminator="does")
]
"""A role, by its task."""
