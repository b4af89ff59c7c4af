"""The mailbox: find a sender's mail, then reply to it, forward, delete or star it."""

from __future__ import annotations

from dataclasses import dataclass

from rlanything_miniwob.experts.base import (
    Done,
    Expert,
    Screen,
    clicks,
    fields,
    fill,
    part,
    quoted,
    saying,
)
from rlanything_miniwob.screen import Element

NAME = r"([A-Z][\w-]+(?: [A-Z][\w-]+)?)"
SENDER = (rf"(?:by|from) {NAME}", rf"{NAME} sent", rf"{NAME} wants his or her")
RECEIVER = (
    rf"to {NAME}",
    rf"\b(?:[Ff]orward|[Ss]end|[Gg]ive) {NAME} the",
    rf"^{NAME} wants the",
    rf"^{NAME} is waiting",
)
ICONS = {"delete": ("trash",), "star": ("star", "star clicked")}


@dataclass(frozen=True, slots=True)
class Errand:
    kind: str
    sender: str
    text: str = ""
    """The reply, or the recipient of a forwarded mail."""


def mail(utterance: str, screen: Screen, done: Done) -> list[str]:
    errand = _errand(utterance)
    top = screen[0].text
    if top == "close-email":
        return _mail(errand, screen)
    if top in ("close-reply", "close-forward"):
        return _letter(errand, screen)
    if top == "search-cancel":
        return clicks(screen[:1])
    return _inbox(errand, screen)


def _errand(utterance: str) -> Errand:
    sender = next((name for each in SENDER if (name := part(each, utterance))), "")
    if "reply" in utterance:
        return Errand("reply", sender, quoted(utterance)[0])
    if "delete" in utterance:
        return Errand("delete", sender)
    if "star icon" in utterance:
        return Errand("star", sender)
    receiver = next((name for each in RECEIVER if (name := part(each, utterance))), "")
    return Errand("forward", sender, receiver)


def _inbox(errand: Errand, screen: Screen) -> list[str]:
    """Clicks in the list. Each mail has a sender, subject, beginning and two icons; the list comes
    after the heading and its icon."""
    rows = [screen[at : at + 5] for at in range(2, len(screen) - 4, 5)]
    matching = [row for row in rows if row[0].text == errand.sender]
    if errand.kind in ICONS:
        return clicks(each for row in matching for each in saying(row, *ICONS[errand.kind]))
    return clicks(each for row in matching for each in row[:3])


def _mail(errand: Errand, screen: Screen) -> list[str]:
    sender = screen[saying(screen, "to me")[0].number - 2]
    if sender.text != errand.sender:
        return clicks(screen[:1])
    if errand.kind in ICONS:
        return clicks(saying(screen, *ICONS[errand.kind]))
    name = saying(screen, errand.kind.capitalize())[-1]
    return clicks([name, screen[name.number - 2]])


def _letter(errand: Errand, screen: Screen) -> list[str]:
    close, send = screen[:2]
    if not close.text.endswith(errand.kind) or not _fits(errand, screen):
        return clicks([close])
    return fill([(fields(screen)[0], errand.text)]) or clicks([send])


def _fits(errand: Errand, screen: Screen) -> bool:
    """Returns whether a letter is the right one. A reply shows its recipient; a forwarded mail does
    not show its sender."""
    if errand.kind == "forward":
        return True
    to: Element = saying(screen, "to:")[0]
    return screen[to.number].text == errand.sender


PAGES = (
    "email-inbox",
    "email-inbox-delete",
    "email-inbox-forward",
    "email-inbox-forward-nl",
    "email-inbox-important",
    "email-inbox-noscroll",
    "email-inbox-reply",
    "email-inbox-star-reply",
)
EXPERTS: dict[str, Expert] = dict.fromkeys(PAGES, mail)
