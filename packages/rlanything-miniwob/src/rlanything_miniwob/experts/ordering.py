"""A restaurant menu: dishes to order."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlanything_miniwob.experts.base import (
    Done,
    Expert,
    Screen,
    clicks,
    part,
    submit,
)
from rlanything_miniwob.screen import Element


@dataclass(slots=True)
class Dish:
    name: str
    kinds: list[str] = field(default_factory=list)
    buttons: dict[str, Element] = field(default_factory=dict)
    ordered: int = 0


def order(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Orders one of each named dish, or a total number of dishes of one kind."""
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
    """Returns the dishes: a name, its kinds as pictures, and the ordered number, if any, between
    two buttons."""
    dishes: list[Dish] = []
    for element in screen:
        if element.role == "image":
            dishes[-1].kinds.append(element.text)
        elif element.text in ("-", "+"):
            dishes[-1].buttons[element.text] = element
        elif element.text.isdigit():
            dishes[-1].ordered = int(element.text)
        elif element.role == "text":
            dishes.append(Dish(element.text))
    return dishes


EXPERTS: dict[str, Expert] = {"order-food": order}
