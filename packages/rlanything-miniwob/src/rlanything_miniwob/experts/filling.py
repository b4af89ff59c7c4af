"""Pages with fields to fill in."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from rlanything_miniwob.experts.base import (
    Done,
    Expert,
    Screen,
    clicks,
    fields,
    fill,
    of_role,
    part,
    position,
    quoted,
    saying,
    submit,
)

LABELS = {"genre": "genre", "director": "director", "year": "year", "released": "year"}
"""First word of a movie search field's label -> the value that belongs in it."""
GUESSES = 10


def one_text(answer: Callable[[str, Screen], str]) -> Expert:
    """Types one answer into every field."""

    def expert(utterance: str, screen: Screen, done: Done) -> list[str]:
        text = answer(utterance, screen)
        return fill((field, text) for field in fields(screen)) or submit(screen)

    return expert


def _quoted_text(utterance: str, screen: Screen) -> str:
    return quoted(utterance)[0]


def _cased(utterance: str, screen: Screen) -> str:
    text = quoted(utterance)[0]
    return text.upper() if "upper case" in utterance else text.lower()


def _letters(utterance: str, screen: Screen) -> str:
    return "".join(each.text for each in of_role(screen, "text"))


def _word(utterance: str, screen: Screen) -> str:
    word = screen[0].text.split()[position(utterance) - 1]
    return re.sub(r"[^a-zA-Z]", "", word)


def _sum(utterance: str, screen: Screen) -> str:
    left, sign, right = screen[0].text.split()[:3]
    one, other = int(left), int(right)
    return str({"+": one + other, "-": one - other, "x": one * other}[sign])


def _unknown(utterance: str, screen: Screen) -> str:
    left, sign, right, _, result = screen[0].text.split()
    if sign == "+":
        return str(int(result) - int(right if left == "x" else left))
    return str(int(result) + int(right) if left == "x" else int(left) - int(result))


def _cell(utterance: str, screen: Screen) -> str:
    return _table(screen)[part(r"value of (.*?) into", utterance)]


def _table(screen: Screen) -> dict[str, str]:
    """Returns values by name; names and values alternate up to the first field's label."""
    texts = [each.text for each in of_role(screen, "text") if not each.text.endswith(":")]
    return dict(zip(texts[::2], texts[1::2], strict=False))


def login(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Fills in the form; a message that asks whether to leave may appear in between."""
    if asked := saying(screen, "Cancel"):
        return clicks(asked)
    return fill(zip(fields(screen), quoted(utterance), strict=False)) or submit(
        screen, "Login", "OK"
    )


def table_form(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Fills in fields, which follow their labels."""
    table = _table(screen)
    wanted = [(field, table[screen[field.number - 2].text.rstrip(":")]) for field in fields(screen)]
    return fill(wanted) or submit(screen)


def movie_search(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Fills in fields whose labels are before or after them."""
    wanted = {
        "genre": part(r"for (\w+) movies", utterance),
        "director": part(r"by (\S+) from", utterance),
        "year": part(r"year (\d+)", utterance),
    }
    boxes = fields(screen)
    label = -2 if any(_asks(screen, each.number - 2) for each in boxes[:1]) else 0
    return fill((box, wanted[_asks(screen, box.number + label)]) for box in boxes) or clicks(
        screen[-1:]
    )


def _asks(screen: Screen, place: int) -> str:
    """Returns the text for the field with the label at this place."""
    words = re.findall(r"[a-z]+", screen[place].text.lower()) if place >= 0 else []
    return next((LABELS[word] for word in words if word in LABELS), "")


def copy(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Copies by keyboard, since texts may end in spaces, which cannot be typed; otherwise types."""
    source = of_role(screen, "textarea")[(position(utterance) or 1) - 1]
    target = of_role(screen, "textbox")[0]
    text = source.value or ""
    if target.value == text:
        return submit(screen)
    copied = _copied(source.number, done)
    holder = target if copied else source
    if "focused" not in holder.state:
        todo = clicks([holder])
    elif done[-1:] == ["press Control+a"]:
        todo = ["press Control+v" if copied else "press Control+c"]
    else:
        todo = ["press Control+a"]
        if copied and not target.value:
            todo.insert(0, "press Control+v")
    typed = [f"type [{target.number}] {text}"] if text == text.strip() and "'" not in text else []
    return todo + typed


def _copied(source: int, done: Done) -> bool:
    """Returns whether the source had the focus when everything was last copied."""
    focus = copied = 0
    for before, action in zip(["", *done], done, strict=False):
        focus = int(part(r"\[(\d+)\]", action) or focus)
        if (before, action) == ("press Control+a", "press Control+c"):
            copied = focus
    return copied == source


def guess(utterance: str, screen: Screen, done: Done) -> list[str]:
    field = fields(screen)[0]
    guesses = [int(text) for each in done if (text := part(r"^type \[\d+\] (\d)$", each))]
    said = " ".join(each.text for each in screen)
    low, high = _bounds(said, guesses)
    left = sorted(range(low, high + 1), key=lambda number: abs(2 * number - low - high))
    if field.value in [str(number) for number in left]:
        return submit(screen)
    return [f"type [{field.number}] {number}" for number in left]


def _bounds(said: str, guesses: list[int]) -> tuple[int, int]:
    """Returns the bounds of the number. The screen shows only the last answer; earlier answers
    follow from the later guesses."""
    answer = re.search(r"is (higher|lower) than (\d)", said)
    if answer is None:
        return 0, GUESSES - 1
    last, higher = int(answer[2]), answer[1] == "higher"
    low, high = (last + 1, GUESSES - 1) if higher else (0, last - 1)
    if last not in guesses:
        return low, high
    path = guesses[: len(guesses) - guesses[::-1].index(last)]
    lowest = max([low, *(one + 1 for one, after in pairwise(path) if after > one)])
    highest = min([high, *(one - 1 for one, after in pairwise(path) if after < one)])
    if lowest > highest:  # a guess contradicted the answers
        return low, high
    return lowest, highest


def generate(utterance: str, screen: Screen, done: Done) -> list[str]:
    number = screen[0].text
    if number.isdigit():
        value = int(number)
        bound = int(part(r"than (\d+)", utterance) or 0)
        right = {
            "odd": value % 2 == 1,
            "even": value % 2 == 0,
            "less": value < bound,
            "greater": value > bound,
        }
        if right[part(r"(odd|even|less|greater)", utterance)]:
            return submit(screen)
    return clicks(saying(screen, "Generate"))


EXPERTS: dict[str, Expert] = {
    "copy-paste": copy,
    "copy-paste-2": copy,
    "enter-password": one_text(_quoted_text),
    "enter-text": one_text(_quoted_text),
    "enter-text-2": one_text(_cased),
    "enter-text-dynamic": one_text(_quoted_text),
    "find-word": one_text(_word),
    "generate-number": generate,
    "guess-number": guess,
    "login-user": login,
    "login-user-popup": login,
    "multi-layouts": movie_search,
    "multi-orderings": movie_search,
    "read-table": one_text(_cell),
    "read-table-2": table_form,
    "simple-algebra": one_text(_unknown),
    "simple-arithmetic": one_text(_sum),
    "text-transform": one_text(_letters),
}
