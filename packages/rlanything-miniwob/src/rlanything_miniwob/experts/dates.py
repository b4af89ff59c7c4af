"""Pages that ask for a date or a time."""

from __future__ import annotations

import calendar
import re

from rlanything_miniwob.experts.base import (
    Done,
    Expert,
    Screen,
    clicks,
    fields,
    part,
    saying,
    submit,
)

MONTHS = list(calendar.month_name)


def pick(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Picks a date. An open calendar covers the button; choosing a day closes it."""
    date = part(r"(\d\d/\d\d/\d{4})", utterance)
    field = fields(screen)[0]
    if not saying(screen, "Prev"):
        return submit(screen) if field.value == date else clicks([field])
    month, day, year = map(int, date.split("/"))
    shown_month = next(MONTHS.index(each.text) for each in screen if each.text in MONTHS[1:])
    shown_year = next(int(each.text) for each in screen if re.fullmatch(r"\d{4}", each.text))
    if (shown_year, shown_month) == (year, month):
        return clicks(saying(screen, str(day)))
    return clicks(saying(screen, "Prev" if (year, month) < (shown_year, shown_month) else "Next"))


def enter_date(utterance: str, screen: Screen, done: Done) -> list[str]:
    date = part(r"(\d\d/\d\d/\d{4})", utterance)
    month, day, year = date.split("/")
    return _enter(screen, date, f"{year}-{month}-{day}")


def enter_time(utterance: str, screen: Screen, done: Done) -> list[str]:
    time = part(r"(\d+:\d\d [AP]M)", utterance)
    hour, minute = time[:-3].split(":")
    return _enter(screen, time, f"{int(hour) % 12 + 12 * (time[-2] == 'P'):02}:{minute}")


def _enter(screen: Screen, text: str, value: str) -> list[str]:
    """Types into a field, which reformats the typed text."""
    field = fields(screen)[0]
    return submit(screen) if field.value == value else [f"type [{field.number}] {text}"]


EXPERTS: dict[str, Expert] = {
    "choose-date": pick,
    "choose-date-easy": pick,
    "choose-date-medium": pick,
    "choose-date-nodelay": pick,
    "enter-date": enter_date,
    "enter-time": enter_time,
}
