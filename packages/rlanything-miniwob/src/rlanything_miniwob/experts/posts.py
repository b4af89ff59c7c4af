"""Posts of several users, each post with its own buttons."""

from __future__ import annotations

from collections.abc import Iterator

from rlanything_miniwob.experts.base import (
    Done,
    Expert,
    Screen,
    clicks,
    part,
    quoted,
    saying,
    submit,
    tick,
)
from rlanything_miniwob.screen import Element

BUTTONS = ("reply", "retweet", "like", "share", "more")


def button_of_post(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Clicks a button of a post; some appear only after a click on `more`."""
    user, name = part(r"user (@\S+),", utterance), quoted(utterance)[0]
    posts = list(_posts(user, screen))
    if name.lower() in BUTTONS:
        return clicks(each for post in posts for each in saying(post, name.lower()))
    shown = [each for post in posts for each in saying(post, name, f"{name} {user}")]
    return clicks(shown or [each for post in posts for each in saying(post, "more")])


def button_of_posts(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Clicks a button on all posts of a user, or on a given number of them, and on no others."""
    user, name = part(r"by (@\S+) and", utterance), quoted(utterance)[0].lower()
    mine = [each for post in _posts(user, screen) for each in saying(post, name)]
    count = int(part(r"on (\d+) post", utterance) or len(mine))
    on = [each for each in mine if "selected" in each.state]
    others = [each for each in saying(screen, *BUTTONS) if each not in mine]
    wrong = tick(others, lambda each: False, "selected")
    if len(on) > count:
        wrong += clicks(on)
    elif len(on) < count:
        wrong += clicks(each for each in mine if each not in on)
    return wrong or submit(screen)


def _posts(user: str, screen: Screen) -> Iterator[list[Element]]:
    """Yields a user's posts, from the line with the user's name to the one before the next."""
    starts = [place for place, each in enumerate(screen) if each.text.startswith("@")]
    for start, end in zip(starts, [*starts[1:], len(screen)], strict=True):
        if screen[start].text == user:
            yield list(screen[start:end])


EXPERTS: dict[str, Expert] = {
    "social-media": button_of_post,
    "social-media-all": button_of_posts,
    "social-media-some": button_of_posts,
}
