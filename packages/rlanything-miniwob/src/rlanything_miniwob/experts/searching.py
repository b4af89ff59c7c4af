"""Pages that hide the right thing at first: behind tabs, in sections, on later pages."""

from __future__ import annotations

import re

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

CONTACTS = 5
"""Number of pages of the contact book."""
RESULTS = 3
"""Number of search results per page."""
CLOSED = "expandable-hitarea"


def tabs(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Opens the tabs in turn. They come first and keep their numbers, so visited ones are known."""
    links = of_role(screen, "link")
    titles = [link for link in links if re.fullmatch(r"(Tab #)?\d", link.text)]
    if wanted := [link for link in links if link.text in quoted(utterance)]:
        return clicks(wanted)
    others = [title for title in titles if "selected" not in title.state]
    return [action for action in clicks(others) if action not in done] or clicks(others)


def section(utterance: str, screen: Screen, done: Done) -> list[str]:
    header = next(each for each in screen if each.text.startswith("Section #"))
    return submit(screen) if "selected" in header.state else clicks([header])


def sections(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Opens the sections in turn. Only one is open at a time; the first one opened is known by its
    number."""
    links = [link for link in of_role(screen, "link") if link.text in quoted(utterance)]
    if links:
        return clicks(links)
    headers = [each for each in screen if each.text.startswith("Section #")]
    opened = [place for place, each in enumerate(headers) if "selected" in each.state]
    first = int(part(r"click \[([1-3])\]", done[0]) or 0) if done else 0
    seen = {*opened, first - 1}
    after = opened[0] + 1 if opened else 0
    order = [(after + step) % len(headers) for step in range(len(headers))]
    todo = [headers[place] for place in order if place not in seen]
    return clicks(todo or [headers[order[0]]])


def tree(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Opens the folders in turn: a folder's sign comes before it."""
    if wanted := [each for each in screen if each.text in quoted(utterance)]:
        return clicks(wanted)
    signs = [each for each in screen if CLOSED in each.text.split()]
    return clicks(screen[sign.number] for sign in signs) + clicks(signs)


def menu(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Chooses by keyboard: a click on an entry ends the task even if the entry opens a submenu.

    The entry that the keys would choose is selected, and so are its parents."""
    path = part(r"Select (.*)", utterance).split(">")
    at = [each for each in screen if "selected" in each.state]
    if not at:
        return ["press Tab"]
    for level, entry in enumerate(at):
        if level < len(path) and entry.text == path[level]:
            continue
        if level < len(at) - 1 or level >= len(path):
            return ["press ArrowLeft"]
        target = saying(screen, path[level])
        down = not target or target[-1].number > entry.number
        return ["press ArrowDown" if down else "press ArrowUp"]
    return ["press Enter"] if len(at) == len(path) else ["press ArrowRight"]


def menu_button(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Clicks an entry or its icon, which comes before it."""
    if len(screen) == 1:
        return clicks(screen)
    label = [*quoted(utterance), ""][1]
    icon = part(r"with the (\S+) icon", utterance)
    for place, element in enumerate(screen):
        if label and element.text == label:
            return clicks([element, screen[place - 1]])
        if icon and element.text == icon:
            return clicks([screen[place + 1], element])
    parent = saying(screen, "Playback")
    return clicks([*parent, *(screen[each.number - 2] for each in parent)])


def phone_book(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Turns the pages of the book, which have one contact each."""
    if screen[0].text == part(r"Find (.*?) in the contact", utterance):
        label = part(r"their (\w+)", utterance).capitalize() + ":"
        return clicks(screen[each.number] for each in saying(screen, label))
    page, seen, back = _walk(done)
    unseen = set(range(1, CONTACTS + 1)) - seen
    near = sorted(unseen, key=lambda number: (abs(number - page), number < page))
    ways = list(dict.fromkeys("<" if each < page else ">" for each in near))
    if not ways:  # it was skipped: continue in the same direction
        ways = ["<" if page == CONTACTS or (back and page > 1) else ">"]
    return clicks(link for way in ways for link in saying(screen, way))


def _walk(done: Done) -> tuple[int, set[int], bool]:
    """Returns the page that these actions led to, the pages seen, and whether the last step went
    back.

    The arrow to the next page is the last element of a page. The arrow to the previous page, which
    the first page lacks, is the first element after the contact."""
    page, seen, back = 1, {1}, False
    for action in done:
        number = int(part(r"click \[(\d+)\]", action) or 0)
        step = ({9: 1} if page == 1 else {8: -1, 10: 1}).get(number, 0)
        if step and page + step <= CONTACTS:
            page, back = page + step, step < 0
            seen.add(page)
    return page, seen, back


def search_engine(utterance: str, screen: Screen, done: Done) -> list[str]:
    """Searches, then goes to the result: results belong to the field's text at the last click of
    the button."""
    field, button = fields(screen)[0], saying(screen, "Search")[0]
    if todo := fill([(field, quoted(utterance)[0])]):
        return todo
    typed = max((place for place, each in enumerate(done) if each.startswith("type")), default=-1)
    searched = clicks([button])[0] in done[typed + 1 :]
    links = of_role(screen, "link")
    if not searched or not links:
        return clicks([button])
    page, place = divmod(position(utterance) - 1, RESULTS)
    now = next(link for link in links if "selected" in link.state and link.text.isdigit())
    if now.text == str(page + 1):
        return clicks([links[place]])
    step = ">" if int(now.text) < page + 1 else "<"
    near = abs(int(now.text) - page - 1) == 1
    return clicks(saying(links, str(page + 1))) + (clicks(saying(links, step)) if near else [])


EXPERTS: dict[str, Expert] = {
    "click-collapsible": section,
    "click-collapsible-nodelay": section,
    "click-collapsible-2": sections,
    "click-collapsible-2-nodelay": sections,
    "click-menu": menu,
    "click-menu-2": menu_button,
    "click-tab-2": tabs,
    "click-tab-2-easy": tabs,
    "click-tab-2-hard": tabs,
    "click-tab-2-medium": tabs,
    "navigate-tree": tree,
    "phone-book": phone_book,
    "search-engine": search_engine,
}
