"""The page `docs/recipes.md`: every key of a recipe, generated from the sections.

`python -m rlanything_lab.recipes_page > docs/recipes.md` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel

from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.algorithm.options import FunctionConfig
from rlanything.config.cluster import ClusterConfig
from rlanything.config.engines import EngineConfig
from rlanything.config.recipe import Recipe
from rlanything.config.roles import (
    AdapterConfig,
    JudgeConfig,
    LabellerConfig,
    LoraSettings,
    PolicyConfig,
    RoleConfig,
    TrainedRoleConfig,
)
from rlanything.config.sections import (
    CheckpointsConfig,
    CurriculumConfig,
    EnvironmentConfig,
    EvaluationConfig,
    LoopConfig,
    StoreConfig,
    TrackerConfig,
    WandbConfig,
)
from rlanything.config.worlds import DomainConfig, PlayedDomain, WorldConfig
from rlanything.terminal import write

HEAD = """# Recipes

This page lists every key of a recipe, the YAML file that describes a run, except those of engines
in other packages ([vLLM](models-and-engines.md#vllm)). `name` and `domain` are required; other keys
have the defaults below. You can also set a key on the command line, after the recipe, as
`section.key=value`, and in Python as `overrides={"section.key": value}`. An unknown key or a value
of the wrong kind is an error that names the place and the known keys. A run keeps its
resolved recipe as `recipe.yaml`.

```yaml
name: mine
domain: {name: alfworld}
policy: {model: nano, decoding: choices}
loop: {iterations: 5, tasks: 24}
```

## Several worlds

`domains` in place of `domain` lists several worlds for one policy, one judge and one adapter:

```yaml
domains:
  - {name: "guess:Guess"}
  - {name: alfworld, weight: 2.0, alpha_low: 0.1, policy_window: [0.05, 0.95]}
```

Tasks are mixed by `weight`, in the pool and in every iteration. A task's id begins with the label
of its world (`alfworld/train-3`), and so does a split: `evaluation.splits: [in_domain]` evaluates
`evaluation.episodes` tasks of `guess/in_domain` and as many of `alfworld/in_domain`, which are the
tasks of a run in that world alone. Metrics (`rollouts/success/guess`), the closing lines and the
report are by world. A world of weight 0 is evaluated and not trained on.
`rlanything eval RUN --split guess/ood` plays one world, `--split ood` plays all of them and shows a
row for each. Set one key of a world as `domains.1.weight=0.5`. A run's `recipe.yaml` has the list
as the options of the domain `several`.

All worlds share the remaining settings, such as `loop.max_steps`. Worlds are refused when they are
loaded if their judges give different kinds of answers (scores of steps, or tests of programs), or
if their actions follow different markers. `rlanything nano build --domain guess:Guess,alfworld`
builds tiny models for such a run. The recipe `two-worlds` has models that ship, for guessing and
physics.

## Roles

`policy`, `judge` and `adapter` at the top level are short for `roles.policy`, `roles.judge` and
`roles.adapter`: write each in one place. `roles` may name more, and then says what each one does:
it `acts`, `scores` or `rewrites`. At most one role rewrites, any number score, and as many act as
the world has [players](#several-players). Where no role acts, scores or rewrites, the paper's role
does so at its defaults. A judge named `value` values states in place of scoring steps: see
[Advantages, rewards and losses](losses.md).

```yaml
judge: {model: nano}
roles:
  critic: {does: scores, model: ./other-judge, train: false, weight: 0.5}
```

Several judges score the same steps. The mean score of a step is
`sum_k w_k mean_j S^k_ij / sum_k w_k` with each judge's `weight`, over the judges with a readable
score. Each judge learns from its own scores alone (Eq. 2). Checkpoints, metrics, rows of the store
and the report go by the name of the role: `critic/mu`, `checkpoints/iter-00001/judge`. Commands
that ask one judge choose it with `--role critic`. In Python, objects for several judges are given
by name: `judge={"critic": MyJudge()}`.

### Several players

In a world with players, a second role acts in the same episodes, with its own model and learner:

```yaml
domain: {name: textarena, options: {id: TicTacToe-v0, opponent: {role: rival}, actions: listed}}
policy: {decoding: choices, max_tokens: 24, thought_tokens: 4}
roles:
  rival: {does: acts, decoding: choices, max_tokens: 24, thought_tokens: 4}
```

Each player is shown, judged and compared by its own steps, its own outcome and its own share of won
rollouts. Both learn in every iteration, from the same rollouts; with `train: false` the second role
plays as it is, also at an endpoint. Checkpoints, metrics and rows go by the role: `rival/success`,
`checkpoints/iter-00001/rival`.

What exists once per run goes by the first role that acts: the curriculum adapts tasks by its
accuracy, `rollouts/success`, evaluations and the report count its wins, and an evaluation has it
play against the other's present weights. So a success that stands still may mean that both improve.
To measure one player, evaluate it against another that is fixed:

<!-- run first: rlanything train examples/race.yaml --allow-code;
cp -r runs/race/checkpoints/iter-00002 runs/race/checkpoints/iter-00010 -->
```
rlanything eval examples/race.yaml --allow-code --split in_domain --episodes 256 --seed 5 \\
  policy.model=runs/race/checkpoints/iter-00010/rival
```

Against the rival before training, the policy before training wins 42% of these races [36, 48].
After `rlanything train examples/race.yaml --allow-code curriculum.adapt_tasks=false`, with seeds 0
to 2, both players win more:

| in the policy's seat | seed 0 | seed 1 | seed 2 |
|---|---|---|---|
| the trained policy | 61% [55, 67] | 66% [60, 72] | 65% [59, 71] |
| the trained rival | 64% [58, 70] | 57% [51, 63] | 65% [59, 71] |

`loop.max_steps` counts the steps of all players. An episode that it cuts off is lost for all, as is
one whose environment failed at a response. A recipe is refused if the roles that act besides the
first are not the players of its world. The store keeps the outcome of the first role alone, and
`rlanything plan` counts every step for every player. In Python, see
[a world with several players](domains.md#several-players).

This page is generated by `python -m rlanything_lab.recipes_page`.
"""
SECTIONS: Mapping[str, type[BaseModel]] = {
    "The run": Recipe,
    "A world: `domain`, or each of `domains`": PlayedDomain,
    "`domain`": DomainConfig,
    "Each of `domains`": WorldConfig,
    "Roles and `evaluation.labeller`: the model": RoleConfig,
    "Roles that act or score: how they learn": TrainedRoleConfig,
    "`policy.lora` and `judge.lora`": LoraSettings,
    "A role that acts: `policy`": PolicyConfig,
    "A role that scores: `judge`": JudgeConfig,
    "A role that rewrites: `adapter`": AdapterConfig,
    "`feedback`": FeedbackSettings,
    "`curriculum`": CurriculumConfig,
    "`loop`": LoopConfig,
    "`environment`": EnvironmentConfig,
    "`evaluation`": EvaluationConfig,
    "`evaluation.labeller`": LabellerConfig,
    "`cluster`": ClusterConfig,
    "`store`": StoreConfig,
    "`checkpoints`": CheckpointsConfig,
    "`tracker`": TrackerConfig,
    "`tracker.wandb`": WandbConfig,
}
"""Class that documents the keys under each heading; inherited keys have an earlier section."""
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
_KINDS = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true, false"}


def write_page() -> str:
    """Returns the page, including the settings of the embedded engine and of endpoints."""
    parts = [HEAD]
    parts += [_section(title, section) for title, section in SECTIONS.items()]
    parts += [_section(f"`engine: {{name: {n}}}`", engine) for n, engine in _engines()]
    return "\n".join(parts)


def _engines() -> Iterator[tuple[str, type[EngineConfig]]]:
    """Yields the engines to document by name, without importing their libraries."""
    for entry in sorted(entry_points(group="rlanything.engines"), key=lambda entry: entry.name):
        if entry.value.startswith(("rlanything.", "rlanything_openai.")):
            yield entry.name, entry.load()


def _section(title: str, section: type[BaseModel]) -> str:
    rows = "".join(_rows(section))
    head = f"## {title}\n\n"
    if not rows:
        return f"{head}No keys of its own.\n"
    return f"{head}| key | kind | default | meaning |\n|---|---|---|---|\n{rows}"


def _rows(section: type[BaseModel]) -> Iterator[str]:
    schema = section.model_json_schema()
    named = schema.get("$defs", {})
    inherited = {key for base in section.__bases__ for key in getattr(base, "model_fields", {})}
    for key, field in section.model_fields.items():
        if key in inherited and key not in section.__annotations__:
            continue
        if not field.description:  # a section with its own table
            continue
        default = (
            "" if field.is_required() else _default(field.get_default(call_default_factory=True))
        )
        meaning = " ".join(field.description.split()).replace("|", "\\|")
        kind = _kind(schema["properties"][key], named).replace("|", "\\|")
        yield f"| `{key}` | {kind} | {default} | {meaning} |\n"


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        named = getattr(value, "name", None)
        return (
            f"`{{name: {named}}}`"
            if isinstance(value, EngineConfig | FunctionConfig)
            else "its defaults"
        )
    return f"`{json.dumps(value, default=str)}`"


def _kind(schema: Mapping[str, Any], named: Mapping[str, Any]) -> str:
    """Returns a description of a value's type, from its JSON schema."""
    if "$ref" in schema:
        known = named[schema["$ref"].rpartition("/")[2]]
        return "section" if known.get("type") == "object" else _kind(known, named)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(option, named) for option in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type")
    if kind == "null":
        return "`null`"
    if kind == "array":
        parts = schema.get("prefixItems", [schema.get("items", {})])
        return f"list of {' and '.join(dict.fromkeys(_kind(part, named) for part in parts))}"
    if kind == "object" or kind is None:
        return "mapping" if kind else "section"
    bounds = [f"{words} {schema[key]:g}" for key, words in _BOUNDS.items() if key in schema]
    return " ".join([_KINDS[kind], *([", ".join(bounds)] if bounds else [])])


if __name__ == "__main__":
    write(write_page())
