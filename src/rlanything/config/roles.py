"""The roles of a recipe: what each does, its model and engine, its sampling, and how it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rlanything.algorithm.losses import LossConfig
from rlanything.config.engines import AnyEngineConfig, ConfigSection, EngineSetting, default_engine
from rlanything.config.trust import PluginName, check_code

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


SHORT_FORM = {"policy": "acts", "judge": "scores", "adapter": "rewrites"}
"""The paper's roles, which a recipe may write at its top level, and what they do. A recipe in which
no role does one of these has the paper's role, at its defaults."""


def role_key(name: str) -> str:
    """Returns the key of a role in a recipe, for messages and overrides."""
    return name if name in SHORT_FORM else f"roles.{name}"


ENDPOINT_TOKENS = 512
"""Default of `max_tokens` for a role that an endpoint answers for."""


class RoleConfig(ConfigSection):
    """A language model in a role."""

    shipped_role: ClassVar[str] = ""
    """Name of the shipped models for what it does; none ships for other roles."""

    model: str = "nano"
    """`nano` for the model shipped for this role (`nano-coding`, `nano-miniwob`, ... for those of
    other domains), a folder, a Hugging Face id, or a GGUF file: `PATH.gguf`, or `package:FILE.gguf`
    for one that an installed package brings. A role that rewrites may name another role, such as
    `policy` or `judge`: it then has that role's model, as it is at the time."""
    engine: AnyEngineConfig = Field(default_factory=default_engine)
    """What generates: `{name: embedded}`, `{name: vllm}`, or `{name: openai, url: ...}` for a role
    that does not train; or a class of your own, `{name: module:Class}`."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What the model computes in. Policy and judge keep weights in float32, of which training needs
    every bit; the adapter, which never trains, keeps them in this type too: half the memory."""
    device: str = "cpu"
    """A torch device: `cpu`, `cuda`, `cuda:1`."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 1.0
    """The sampling temperature; training compares log-probs at the same temperature."""
    max_tokens: Count = 48
    """Longest response, in tokens: reasoning and answer; by default 512 with `{name: openai}`.
    What a `<think>` block holds is sampled, trained on and stored, but no one else reads it; a
    block that is cut off leaves no answer. A judgement, a test, a critic or a candidate that is cut
    off counts for nothing: half of it may read as another one."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Variables of the model's chat template, such as `{enable_thinking: false}` for Qwen3. One
    that the template does not read is an error."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 600.0
    """A single batch of generation that takes longer stops the run."""

    @model_validator(mode="before")
    @classmethod
    def _room_at_an_endpoint(cls, section: Any) -> Any:
        """Gives answers of hosted models, which say more, the room that they need."""
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
        """Returns what the engine of this role must know, beside its own settings."""
        return EngineSetting(
            role, self.model, self.dtype, self.device, threads, self.timeout_seconds, images
        )

    @property
    def remote(self) -> bool:
        """Whether an endpoint answers: with text, without tokens or log-probs."""
        return self.engine.remote


class LoraSettings(ConfigSection):
    """Adapters that train beside frozen weights (arXiv 2106.09685)."""

    rank: Count = 16
    """The rank of each adapter's two matrices."""
    alpha: Count = 32
    """What an adapter adds is scaled by alpha / rank."""
    targets: Literal["all-linear"] | list[str] = "all-linear"
    """Names of the layers that get one; `all-linear`: all but the output layer."""


class TrainedRoleConfig(RoleConfig):
    """A role that learns."""

    lora: LoraSettings | None = None
    """If given, only adapters train, and checkpoints hold only them; otherwise every weight."""
    train_vision: bool = False
    """Whether what reads images (the tower, and what joins it to text) learns too. Frozen, each
    image is computed once; trained, once in every pack. One seat alone can train it."""
    learning_rate: Annotated[float, Field(ge=0)] = 1e-6
    """AdamW's. 0 leaves the weights as they are."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's."""
    minibatches: Count = 1
    """Into how many parts an iteration's samples are divided; each is an optimizer step. A task's
    samples stay together, so there are never more than tasks."""
    epochs: Count = 1
    """How often an iteration's samples are trained on. Later epochs' ratios are further from 1,
    where the clip of the loss holds them."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients are scaled down to this norm."""
    max_skipped_updates: Count = 3
    """So many updates in a row whose loss or gradient is not finite stop the run."""
    loss: LossConfig = Field(default_factory=LossConfig.default)
    """The loss that an update minimises, by name or as `{name: ..., options: {...}}`: `clipped`,
    `clip_higher`, `gspo` or `reinforce`, one that an installed package registers, or
    `module:function` (docs/losses.md)."""
    kl_weight: Annotated[float, Field(ge=0)] = 0.01
    """beta: weight of the k3 estimate of the KL divergence from the policy that sampled the tokens.
    For the divergence from the model before training see `reference_kl_weight`."""
    reference_kl_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of a second k3 estimate, of the KL divergence from the model that the run began with,
    on the tokens that train. Above 0 that model stays in memory as well, without gradients (not
    where adapters train: without them their model is what it was), and reads every sample once."""
    old_logprobs: Literal["sampled", "recomputed"] = "sampled"
    """What an update's ratios compare with: the sampler's log-probs, or those that the learner
    computes before the update, at the price of a forward pass."""
    importance_cap: Annotated[float, Field(ge=1)] | None = None
    """With `recomputed`, a token weighs min(p_learner / p_sampler, cap) as well: truncated
    importance sampling, for samplers that compute otherwise than the learner. None: 1."""
    packing: Literal["shared", "padded"] = "shared"
    """`shared` computes what samples have in common once; `padded` computes each sample alone, for
    models that cannot share (sliding windows, recurrent layers)."""
    max_pack_tokens: Count = 4096
    """Tokens computed together; memory grows with them."""
    gradient_checkpointing: bool = False
    """Computes each layer's activations again in the backward pass instead of keeping them: less
    memory, a fifth to a third more time, the same update."""

    @property
    def trains(self) -> bool:
        """Whether this run moves and keeps its weights."""
        return True

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
    """`choices` lets the policy choose, token by token, only among the actions the environment
    admits (and renormalises log-probs over them); `free` lets it write anything."""
    thought_tokens: Annotated[int, Field(ge=0)] = 16
    """With `decoding: choices`, the longest thought before the action, in tokens."""
    screenshots: Count = 3
    """How many of the latest it sees, where the domain shows any."""

    @model_validator(mode="after")
    def _room_for_an_action(self) -> PolicyConfig:
        # The shortest action has a token; beside it stand the marker and the end of the turn.
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
    """Weight of its mean score of a step among those of several judges."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.8
    """The sampling temperature; training compares log-probs at the same temperature."""
    samples_per_step: Count = 3
    """m, the judgements of each step."""
    score_first: bool = False
    """Whether its answers begin with their score, as its prompt may ask: one that `max_tokens` cuts
    off after `\\boxed{1}` then has that score. Otherwise a judgement that is cut off has none."""
    train: bool = True
    """Whether it learns. If not it has no optimizer and no checkpoints; it scores and is evaluated
    as it is."""
    name: PluginName = "llm"
    """`llm`: the language model of this section, which scores steps, or writes unit tests where the
    domain has its judge do so. `oracle`: the domain's own step labels, each wrong with probability
    `noise` (options: {noise: 0.28}), a diagnostic. `module:name`: a function that scores step i of
    a trajectory, or a judge class of your own."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to a judge that is not `llm`, which checks them."""

    @model_validator(mode="after")
    def _options_of_another(self) -> JudgeConfig:
        if self.name == "llm" and self.options:
            raise ValueError("options belong to a judge with another name; leave them out")
        return self

    @model_validator(mode="after")
    def _something_to_hold(self) -> JudgeConfig:
        if self.reference_kl_weight and not self.trains:
            raise ValueError("reference_kl_weight holds a judge that learns, and this one does not")
        return self

    @property
    def here(self) -> bool:
        """Whether there is a model in this process."""
        return self.name == "llm" and not self.remote

    @property
    def trains(self) -> bool:
        """Whether there is a model here whose weights this run moves and keeps."""
        return self.here and self.train


class ValueConfig(TrainedRoleConfig):
    """A role that values states. `model` must be given."""

    does: Literal["values"] = "values"
    """`values`: it says how likely an episode is to be won from a state."""

    @model_validator(mode="after")
    def _none_ships(self) -> ValueConfig:
        if self.model == "nano":
            raise ValueError("model: name one; none ships that values states")
        return self


class LabellerConfig(RoleConfig):
    """A model stronger than the judge, which never trains. `model` must be given."""

    temperature: Annotated[float, Field(gt=0, le=2)] = 0.8
    """The sampling temperature of its judgements."""
    max_tokens: Count = 512
    """Longest judgement, in tokens: reasoning and score."""
    samples_per_step: Count = 8
    """Votes for each label; a step whose votes are even has none."""

    @model_validator(mode="after")
    def _stronger(self) -> LabellerConfig:
        if self.model == "nano":
            raise ValueError("model: name one that is stronger than the judge; none ships")
        return self


class AdapterConfig(RoleConfig):
    """A role that rewrites tasks. `model: policy` or `model: judge` shares that role's model and
    engine, as it is at the time: nothing more to hold in memory, and the adapter changes as that
    role learns."""

    shipped_role: ClassVar[str] = "adapter"

    does: Literal["rewrites"] = "rewrites"
    """`rewrites`: it makes tasks harder or easier."""
    name: PluginName = "llm"
    """`llm`: the language model of this section. `module:Class`: an adapter of your own."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to an adapter that is not `llm`, which checks them."""
    tries: Count = 8
    """Answers sampled per proposal; the first valid one becomes the candidate."""
    critics_per_task: Annotated[int, Field(ge=0)] | Literal["all"] = 2
    """Failed rollouts summarised for one proposal; the paper: `all`."""
    rejected_by: Literal["all", "some"] = "all"
    """Steps that a critic is told are bad: those that every judgement scored -1, or at least one
    (the paper's GUI setting)."""
    critic_stages: Literal[1, 2] = 1
    """2: a summary of each bad step of a failed rollout, then a critic made of these (the paper's
    GUI setting; for domains that can): one answer more for each such step."""

    @property
    def most_critics(self) -> int | None:
        """`critics_per_task` as a number; None: all."""
        return None if self.critics_per_task == "all" else self.critics_per_task

    @property
    def unshared(self) -> list[str]:
        """The keys it sets that a role whose model it shares decides."""
        # Not `model_fields_set`: a run's own recipe writes every key, and must load again.
        keys = ("chat_template_kwargs", "device", "dtype", "engine", "timeout_seconds")
        fields = type(self).model_fields
        return [
            key
            for key in keys
            if getattr(self, key) != fields[key].get_default(call_default_factory=True)
        ]


AnyRoleConfig: TypeAlias = Annotated[
    PolicyConfig | JudgeConfig | ValueConfig | AdapterConfig, Field(discriminator="does")
]
"""A role, by what it does."""
