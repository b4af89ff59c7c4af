"""The menu of a restaurant."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlanything.domains.miniwob.experts.base import (
    Done,
    Expert,
    Screen,
    clicks,
    part,
    submit,
)
from rlanything.domains.miniwob.screen import Element


@dataclass(slots=True)
class Dish:
    name: str
    kinds: list[str] = field(default_factory=list)
    buttons: dict[str, Element] = field(default_factory=dict)
    ordered: int = 0


def order(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Either one each of some dishes, or so many of a kind in all."""
    dishes = _dishes(screen)
    names = part(r"each item: (.*)", utterance).split(", ")
    count, kind = part(r"Order (\d+) items", utterance), part(r"that are (\S+)", utterance)
    if count:
        right = [dish for dish in dishes if kind in dish.kinds]
        missing = int(count) - sum(dish.ordered for dish in right)
        more = right if missing > 0 else []
        less = [dish for dish in right if dish.ordered and missing < 0]
    else:
        right = [dish for dish in dishes if dish.name in names]
        more = [dish for dish in right if dish.ordered < 1]
        less = [dish for dish in right if dish.ordered > 1]
    less += [dish for dish in dishes if dish.ordered and dish not in right]
    todo = [*(dish.buttons["-"] for dish in less), *(dish.buttons["+"] for dish in more)]
    return clicks(todo) or submit(screen, "Order!")


def _dishes(screen: Screen) -> list[Dish]:
    """A name, its kinds as pictures, and between two buttons how many are ordered, if any are."""
    dishes: list[Dish] = []
    for each in screen:
        if each.role == "image":
            dishes[-1].kinds.append(each.text)
        elif each.text in ("-", "+"):
            dishes[-1].buttons[each.text] = each
        elif each.text.isdigit():
            dishes[-1].ordered = int(each.text)
        elif each.role == "text":
            dishes.append(Dish(each.text))
    return dishes


EXPERTS: dict[str, Expert] = {"order-food": order}
