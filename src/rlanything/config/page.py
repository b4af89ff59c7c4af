"""The page `docs/recipes.md`: every key of a recipe, written from the sections themselves."""

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
from rlanything.config.recipe import DomainConfig, Recipe
from rlanything.config.roles import (
    AdapterConfig,
    JudgeConfig,
    LabellerConfig,
    LoraSettings,
    PolicyConfig,
    RoleConfig,
    TrainedRoleConfig,
    ValueConfig,
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

HEAD = """# Recipes

A recipe is a YAML file that describes a run completely: every key below, with what is left out at
its default. `name` and `domain` must be there. Each key can be given on the command line too, after
the recipe, as `section.key=value`, and in Python as `overrides={"section.key": value}`. A key that
does not exist, and a value of another kind, are refused with the place and what there is. A run
keeps its recipe, resolved, as `recipe.yaml`.

```yaml
name: mine
domain: {name: alfworld}
policy: {model: nano, decoding: choices}
loop: {iterations: 5, tasks: 24}
```

## Roles

`policy`, `judge` and `adapter` at the top level are short for `roles.policy`, `roles.judge` and
`roles.adapter`: write each in one place. `roles` may name more, and then says what each one does:
it `acts`, `scores`, `values` or `rewrites`. One role acts, at most one rewrites, any number score.
Where no role acts, scores or rewrites, the paper's role does so at its defaults. Nothing reads
values yet, so a role that values is refused.

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

This page is written by `python -m rlanything.config`.
"""
SECTIONS: Mapping[str, type[BaseModel]] = {
    "The run": Recipe,
    "`domain`": DomainConfig,
    "Roles and `evaluation.labeller`: the model": RoleConfig,
    "Roles that act, score or value: how they learn": TrainedRoleConfig,
    "`policy.lora` and `judge.lora`": LoraSettings,
    "A role that acts: `policy`": PolicyConfig,
    "A role that scores: `judge`": JudgeConfig,
    "A role that values": ValueConfig,
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
"""By the heading: the class that documents its keys. What a class inherits has a section before."""
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
_KINDS = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true, false"}


def write_page() -> str:
    """Returns the page, engines of this package included."""
    parts = [HEAD]
    parts += [_section(title, section) for title, section in SECTIONS.items()]
    parts += [_section(f"`engine: {{name: {n}}}`", engine) for n, engine in _engines()]
    return "\n".join(parts)


def _engines() -> Iterator[tuple[str, type[EngineConfig]]]:
    """Yields this package's engines by name; their own libraries are not imported."""
    for entry in sorted(entry_points(group="rlanything.engines"), key=lambda entry: entry.name):
        if entry.value.startswith("rlanything."):
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
        if not field.description:  # a section, which has its own table
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
    """Returns what a value may be, from its JSON schema."""
    if "$ref" in schema:
        known = named[schema["$ref"].rpartition("/")[2]]
        return "section" if known.get("type") == "object" else _kind(known, named)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each, named) for each in schema["anyOf"]))
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
