"""Families of tasks on a spreadsheet."""

from __future__ import annotations

import random
from typing import Any

from rlanything_osworld.families.base import (
    DesktopDraft,
    DesktopFamily,
    DesktopGoal,
    Move,
    absent,
    compares,
    moves,
    office,
    place_files,
)

ITEMS = ("Pen", "Book", "Lamp", "Cup", "Desk", "Bag", "Clock", "Chair", "Plate", "Rug")
FILES = ("sales", "stock", "orders", "budget", "shop", "prices")
SHEETS = ("May", "June", "North", "South", "Draft", "Final", "Totals", "Archive")
SAVE = ("press ctrl+s", Move("press enter", when="Confirm File Format"))
HEADER = ("Item", "Qty", "Price")
DATA = [{"type": "sheet_data", "sheet_idx0": "RI0", "sheet_idx1": "EI0"}]
NAMES = [*DATA, {"type": "sheet_name"}]

Rows = list[list[Any]]


def _table(rng: random.Random, least: int, most: int) -> tuple[str, Rows]:
    """Returns a file name and rows with different items, quantities and prices."""
    count = rng.randint(least, most)
    items, quantities = rng.sample(ITEMS, count), rng.sample(range(2, 30), count)
    rows = zip(items, quantities, rng.sample(range(2, 60), count), strict=True)
    return f"{rng.choice(FILES)}.xlsx", [list(HEADER), *(list(row) for row in rows)]


def _draft(name: str, rows: Rows, *goals: DesktopGoal) -> DesktopDraft:
    config = (place_files(name), office("calc", name))
    return DesktopDraft(config, {name: {"sheets": {"Sheet1": rows}}}, goals)


def _goal(
    goal: str, wordings: tuple[str, ...], name: str, rows: Rows, *actions: str | Move, hint: str
) -> DesktopGoal:
    return DesktopGoal(
        goal,
        wordings,
        compares("compare_table", name, "gold.xlsx", rules=DATA),
        moves(*actions, *SAVE),
        hint,
        {"gold.xlsx": {"sheets": {"Sheet1": rows}}},
    )


def summary(rng: random.Random) -> DesktopDraft:
    name, rows = _table(rng, 3, 6)
    column = rng.choice((1, 2))
    title, letter, last = HEADER[column], "ABC"[column], len(rows)
    cell, span = f"{letter}{last + 1}", f"{letter}2:{letter}{last}"
    values = [row[column] for row in rows[1:]]

    def goal(kind: str, word: str, function: str, value: float) -> DesktopGoal:
        new: list[Any] = [None, None, None]
        new[column] = value
        return _goal(
            kind,
            (
                f"Put the {word} of the {title} column into cell {cell} and save the file as xlsx.",
                f"In cell {cell}, work out the {word} of all {title} values; then save the sheet.",
                f"I need the {word} of {title} in {cell} of {name}. Save it when that is done.",
            ),
            name,
            [*rows, new],
            f"click [{cell}]",
            f"type ={function}({span})",
            "press enter",
            hint=f"Type ={function}({span}) into {cell}, press enter, then ctrl+s.",
        )

    return _draft(
        name,
        rows,
        goal("total", "total", "SUM", sum(values)),
        goal("largest", "largest value", "MAX", max(values)),
        goal("smallest", "smallest value", "MIN", min(values)),
    )


def formulas(rng: random.Random) -> DesktopDraft:
    name, rows = _table(rng, 2, 4)

    def goal(kind: str, title: str, sign: str, words: str) -> DesktopGoal:
        value = {"*": lambda q, p: q * p, "+": lambda q, p: q + p, "-": lambda q, p: p - q}[sign]
        new = [[*rows[0], title], *([*row, value(row[1], row[2])] for row in rows[1:])]
        operands = ("C", "B") if sign == "-" else ("B", "C")
        typed = [f"{operands[0]}{i}{sign}{operands[1]}{i}" for i in range(2, len(rows) + 1)]
        steps = [step for each in typed for step in (f"type ={each}", "press enter")]
        return _goal(
            kind,
            (
                f"Add a column {title} in D, with its name in D1, that holds {words}; then save.",
                f"Give the sheet a fourth column named {title}: {words}. Save the file as xlsx.",
                f"For every item, write {words} into column D, headed {title} in D1, and save.",
            ),
            name,
            new,
            "click [D1]",
            f"type {title}",
            "press enter",
            *steps,
            hint=f"Click D1, type {title} and enter, then ={typed[0]} and enter, and so on.",
        )

    return _draft(
        name,
        rows,
        goal("product", "Amount", "*", "Qty times Price"),
        goal("sum", "Both", "+", "Qty plus Price"),
        goal("difference", "Gap", "-", "Price minus Qty"),
    )


def change_cell(rng: random.Random) -> DesktopDraft:
    name, rows = _table(rng, 3, 6)
    at = rng.randrange(1, len(rows))
    item, value = rows[at][0], rng.randint(61, 99)
    missing = rng.choice([each for each in ITEMS if each not in {row[0] for row in rows}])

    def goal(kind: str, column: int) -> DesktopGoal:
        new = [list(row) for row in rows]
        new[at][column] = value
        cell = f"{'ABC'[column]}{at + 1}"
        title = HEADER[column]
        return _goal(
            kind,
            (
                f"Change the {title} of {item} to {value} and save the sheet as xlsx.",
                f"The {title} of {item} is wrong: make it {value}. Then save the file.",
                f"Set {item}'s {title} to {value} in {name}, and save.",
            ),
            name,
            new,
            f"click [{cell}]",
            f"type {value}",
            "press enter",
            hint=f"Click {cell}, type {value}, press enter, then ctrl+s.",
        )

    return _draft(
        name,
        rows,
        goal("price", 2),
        goal("quantity", 1),
        absent(
            f"Change the Price of {missing} to {value} and save the sheet as xlsx.",
            f"The Price of {missing} is wrong: make it {value}. Then save the file.",
        ),
    )


def sort(rng: random.Random) -> DesktopDraft:
    name, rows = _table(rng, 3, 6)

    def goal(kind: str, column: int, falling: bool, words: str) -> DesktopGoal:
        order = sorted(rows[1:], key=lambda row: row[column], reverse=falling)
        button = "Sort Descending" if falling else "Sort Ascending"
        return _goal(
            kind,
            (
                f"Sort the rows by {HEADER[column]}, {words}, and save the file as xlsx.",
                f"Put the items in order of {HEADER[column]} ({words}). Save the sheet.",
            ),
            name,
            [rows[0], *order],
            f"click [{'ABC'[column]}1]",
            f"click [{button}]",
            hint=f"Click {'ABC'[column]}1, then {button}, then ctrl+s.",
        )

    goals = [
        goal("rising", 1, False, "smallest first"),
        goal("falling", 2, True, "largest first"),
        goal("names", 0, False, "from A to Z"),
    ]
    # A table that is already in the requested order would be right untouched.
    given = {"sheets": {"Sheet1": rows}}
    left = [goal for goal in goals if goal.gold["gold.xlsx"] != given]
    return _draft(name, rows, *left) if left else sort(rng)


def rename_sheet(rng: random.Random) -> DesktopDraft:
    name, rows = _table(rng, 2, 4)
    new, missing = rng.sample(SHEETS, 2)
    wordings = (
        f"Rename the sheet Sheet1 to {new} and save the file as xlsx.",
        f"The sheet of {name} should be called {new}. Save the change.",
        f"Give Sheet1 the name {new}, then save.",
    )
    goal = DesktopGoal(
        "rename",
        wordings,
        compares("compare_table", name, "gold.xlsx", rules=NAMES),
        moves("double_click [Sheet1]", "press ctrl+a", f"type {new}", "press enter", *SAVE),
        "Double-click the tab of the sheet, type the name, press enter, then ctrl+s.",
        {"gold.xlsx": {"sheets": {new: rows}}},
    )
    nothing = absent(f"Rename the sheet {missing} to {new} and save the file as xlsx.")
    return _draft(name, rows, goal, nothing)


FAMILIES = (
    DesktopFamily("calc-change-cell", "calc", change_cell),
    DesktopFamily("calc-summary", "calc", summary),
    DesktopFamily("calc-sort", "calc", sort),
    DesktopFamily("calc-rename-sheet", "calc", rename_sheet),
    DesktopFamily("calc-formulas", "calc", formulas),
)
