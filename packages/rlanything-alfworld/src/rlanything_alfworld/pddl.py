"""AlfWorld's problems in PDDL: written from a scene, and read back from any game."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from rlanything_alfworld import assets
from rlanything_alfworld.scene import Scene

# `alfred.pddl` names these types itself, so every problem must declare them, even if unused.
NAMED_BY_DOMAIN = {
    "rtype": ("SinkBasinType", "MicrowaveType", "FridgeType"),
    "otype": ("KnifeType", "ButterKnifeType"),
}
_AFFORDANCES = ("Cleanable", "Heatable", "Coolable", "Toggleable", "Sliceable")
_ESCAPES = {"|": "_bar_", "-": "_minus_", "+": "_plus_", ".": "_dot_", ",": "_comma_"}


def mangle(identity: str) -> str:
    """Returns an identity (`Mug|+00.10|...`) in PDDL spelling."""
    for character, escape in _ESCAPES.items():
        identity = identity.replace(character, escape)
    return identity


@lru_cache(maxsize=4096)
def write_scene(scene: Scene) -> str:
    """Returns the problem text up to its goal. The goal's text, which closes the problem, comes
    after it."""
    openable = set(assets.constants().OPENABLE_CLASS_SET)
    movable = assets.constants().MOVABLE_RECEPTACLES_SET
    receptacle_types = sorted({receptacle.type for receptacle in scene.receptacles})
    object_types = sorted({thing.type for thing in scene.objects})
    places = sorted({receptacle.location for receptacle in scene.receptacles} | {scene.start})
    objects = ["agent1 - agent"]
    for sort, types in (("rtype", receptacle_types), ("otype", object_types)):
        names = {f"{kind}Type" for kind in types}.union(NAMED_BY_DOMAIN[sort])
        objects += [f"{name} - {sort}" for name in sorted(names)]
    objects += [f"{mangle(receptacle.id)} - receptacle" for receptacle in scene.receptacles]
    objects += [f"{mangle(thing.id)} - object" for thing in scene.objects]
    objects += [f"{mangle(place)} - location" for place in places]

    facts = ["(= (total-cost) 0)", f"(atLocation agent1 {mangle(scene.start)})"]
    for receptacle in scene.receptacles:
        name = mangle(receptacle.id)
        facts.append(f"(receptacleType {name} {receptacle.type}Type)")
        facts.append(f"(receptacleAtLocation {name} {mangle(receptacle.location)})")
        if receptacle.type in openable:
            facts.append(f"(openable {name})")
    for thing in scene.objects:
        name = mangle(thing.id)
        home = thing.receptacle
        facts.append(f"(objectType {name} {thing.type}Type)")
        facts.append(f"(inReceptacle {name} {mangle(home.id)})")
        facts.append(f"(objectAtLocation {name} {mangle(home.location)})")
        if thing.type in assets.pickable_types():
            facts.append(f"(pickupable {name})")
        if thing.type in movable:
            facts.append(f"(isReceptacleObject {name})")
        facts += [
            f"({affordance.lower()} {name})"
            for affordance in _AFFORDANCES
            if thing.type in assets.affording(affordance)
        ]
    for kind in receptacle_types:
        for held in sorted(assets.can_hold(kind).intersection(object_types)):
            facts.append(f"(canContain {kind}Type {held}Type)")
    title = f"{scene.plan.room}_{scene.plan.seed}".lower()
    head = (f"(define (problem {title})", "(:domain alfred)")
    return "\n".join((*head, "(:objects", *objects, ")", "(:init", *facts, ")", ""))


def split_problem(problem: str) -> tuple[str, str]:
    """Returns a problem's text before its goal, and the goal's text (which closes the problem)."""
    start = problem.find("(:goal")
    if start < 0:
        raise ValueError("the problem has no (:goal ...)")
    return problem[:start], problem[start:]


_COMMENT_OR_NEGATION = re.compile(r";[^\n]*|\(\s*not\s*\([^()]*\)\s*\)")
_FACT = re.compile(r"\(\s*([A-Za-z_][\w-]*)((?:\s+[\w-]+)*)\s*\)")


def read_facts(scene_pddl: str) -> Iterator[tuple[str, ...]]:
    """Yields the facts of the initial state, in lower case: (predicate, argument, ...)."""
    start = scene_pddl.find("(:init")
    if start < 0:
        raise ValueError("the problem has no (:init ...)")
    facts = _COMMENT_OR_NEGATION.sub("", scene_pddl[start + len("(:init") :])
    for match in _FACT.finditer(facts):
        yield (match[1].lower(), *match[2].lower().split())


def player_names(identities: Iterable[str]) -> dict[str, str]:
    """Returns the player's name of each mangled entity: `mug 1`.

    Numbers run against the sorted order of identities, like those of AlfWorld's demangler without
    shuffling."""
    ordered = sorted(set(identities))
    groups: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for identity in ordered:
        kind, bar, _ = identity.partition("_bar_")
        if not bar:
            names[identity] = f"{identity} "
            continue
        groups.setdefault(kind + "basin" if "basin" in identity else kind, []).append(identity)
    for kind, members in groups.items():
        for number, identity in enumerate(reversed(members), start=1):
            names[identity] = f"{kind} {number}"
    return names
