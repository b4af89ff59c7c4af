"""Experts for web pages: what they answer from the text of a screen alone, and in a browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from rlanything_miniwob.actions import parse_action
from rlanything_miniwob.experts import EXPERTS
from rlanything_miniwob.screen import read, text_of

if TYPE_CHECKING:
    from rlanything_miniwob.browser import Browser

MOST_STEPS = 30


def ask(page: str, utterance: str, lines: str, done: Sequence[str] = ()) -> list[str]:
    return EXPERTS[page](utterance, read(lines), done)


SPINNER = """
textbox "" [1] = "{value}"
button "spinner-up" [2]
button "spinner-down" [3]
button "Submit" [4]
"""
BOXES = """
checkbox "a" [1]{a}
checkbox "b" [2]{b}
checkbox "c" [3]{c}
button "Submit" [4]
"""


@pytest.mark.parametrize(
    ("marks", "actions"),
    [
        ({}, ["click [1]", "click [3]"]),
        ({"b": " checked"}, ["click [2]", "click [1]", "click [3]"]),
        ({"a": " checked", "c": " checked"}, ["click [4]"]),
    ],
)
def test_any_missing_tick_is_right_and_a_wrong_one_comes_first(marks, actions):
    lines = BOXES.format(**({"a": "", "b": "", "c": ""} | marks))
    assert ask("click-checkboxes", "Select c, a and click Submit.", lines) == actions


def test_nothing_to_select():
    lines = BOXES.format(a="", b=" checked", c="")
    assert ask("click-checkboxes", "Select nothing and click Submit.", lines) == ["click [2]"]


def test_words_that_mean_the_same():
    lines = 'checkbox "huge" [1]\ncheckbox "TV" [2]\nbutton "Submit" [3]'
    asked = "Select words similar to Gigantic and click Submit."
    assert ask("click-checkboxes-soft", asked, lines) == ["click [1]"]


def test_what_is_wrongly_selected_is_selected_again():
    lines = 'select "" [1] = "B, C" of "A", "B", "C" focused\nbutton "Submit" [2]'
    asked = "Select A, B from the scroll list and click Submit."
    assert ask("click-scroll-list", asked, lines) == ["select [1] C", "select [1] A"]
    only_one = lines.replace("B, C", "C")
    assert ask("choose-list", "Select A from the list and click Submit.", only_one) == [
        "select [1] A"
    ]


def test_a_field_that_should_be_empty_is_emptied_first():
    lines = """radio "" [1] checked
radio "" [2]
textbox "" [3] = "5"
textbox "" [4] = ""
button "Submit" [5]"""
    asked = 'Check the 2nd radio button and enter the number "5" into the 2nd textbox.'
    assert ask("form-sequence-2", asked, lines) == ["type [3]", "type [4] 5", "click [2]"]
    assert parse_action("type [3]") == parse_action("type [3] ")


def test_fields_are_filled_in_any_order_and_a_message_is_sent_away_first():
    lines = """text "Username" [1]
textbox "" [2] = "{}"
text "Password" [3]
textbox "" [4] = ""
button "OK" [5]"""
    asked = 'Enter the username "ann" and the password "pw" into the text fields and press login.'
    both = ["type [2] ann", "type [4] pw"]
    assert ask("login-user-popup", asked, lines.format("")) == both
    assert ask("login-user-popup", asked, lines.format("ann")) == both[1:]
    message = '\ntext "Exit to home page?" [6]\nbutton "OK" [7]\nbutton "Cancel" [8]'
    assert ask("login-user-popup", asked, lines.format("ann") + message) == ["click [8]"]


def test_labels_before_or_after_their_fields():
    asked = "Search for urban movies directed by Ray from year 1999."
    before = """text "Movie Genre" [1]
textbox "" [2] = ""
text "Released Date" [3]
textbox "" [4] = "1999"
text "Director Name" [5]
textbox "" [6] = ""
button "Go!" [7]"""
    assert ask("multi-layouts", asked, before) == ["type [2] urban", "type [6] Ray"]
    after = """textbox "" [1] = "Ray"
text "Director" [2]
textbox "" [3] = "urban"
text "Genre" [4]
textbox "" [5] = "1999"
text "Year" [6]
text "Search" [7]"""
    assert ask("multi-layouts", asked, after) == ["click [7]"]


@pytest.mark.parametrize(
    ("problem", "answer"),
    [("8 - x = 85", "-77"), ("x - 8 = 85", "93"), ("x + 8 = 5", "-3"), ("8 + x = 9", "1")],
)
def test_the_unknown(problem, answer):
    lines = f'text "{problem}" [1]\ntext "x =" [2]\ntextbox "" [3] = ""\nbutton "Submit" [4]'
    assert ask("simple-algebra", "Solve for x", lines) == [f"type [3] {answer}"]


GUESSING = """text "The number is {} than" [1]
text "{}" [2]
text "." [3]
textbox "" [4] = "{}"
button "Submit" [5]"""


def test_guesses_keep_to_all_answers():
    done = ["type [2] 2", "click [3]", "type [4] 7", "click [5]"]
    lines = GUESSING.format("lower", 7, 7)
    # That 7 was guessed after 2 tells that the number was said to be higher than 2.
    assert ask("guess-number", "Guess", lines, done) == [f"type [4] {n}" for n in (4, 5, 3, 6)]
    typed = GUESSING.format("lower", 7, 5)
    assert ask("guess-number", "Guess", typed, [*done, "type [4] 5"]) == ["click [5]"]


def test_guesses_against_the_answers_are_forgotten():
    done = ["type [2] 7", "click [3]", "type [4] 2", "click [5]", "type [4] 8", "click [5]"]
    lines = GUESSING.format("higher", 8, 8)
    assert ask("guess-number", "Guess", lines, done) == ["type [4] 9"]


CALENDAR = """text "Date:" [1]
textbox "" [2] = "{}"
button "Submit" [3]
link "Prev" [4]
link "Next" [5]
text "{}" [6]
text "2016" [7]
link "1" [8]
link "2" [9]"""


@pytest.mark.parametrize(
    ("month", "action"), [("December", "[4]"), ("March", "[9]"), ("January", "[5]")]
)
def test_the_month_comes_before_the_day(month, action):
    asked = "Select 03/02/2016 as the date and hit submit."
    assert ask("choose-date", asked, CALENDAR.format("", month)) == [f"click {action}"]


@pytest.mark.parametrize(("value", "action"), [("03/02/2016", "[3]"), ("03/01/2016", "[2]")])
def test_a_wrong_date_is_chosen_again(value, action):
    lines = "\n".join(CALENDAR.format(value, "").splitlines()[:3])
    asked = "Select 03/02/2016 as the date and hit submit."
    assert ask("choose-date", asked, lines) == [f"click {action}"]


@pytest.mark.parametrize(
    ("asked", "value"), [("12:05 AM", "00:05"), ("12:30 PM", "12:30"), ("1:05 PM", "13:05")]
)
def test_noon_and_midnight(asked, value):
    lines = f'textbox "" [1] = "{value}"\nbutton "Submit" [2]'
    assert ask("enter-time", f"Enter {asked} as the time and press submit.", lines) == ["click [2]"]


def test_tabs_are_looked_at_once():
    lines = """link "Tab #1" [1]
link "Tab #2" [2] selected
link "Tab #3" [3]
link "other" [4]"""
    asked = 'Switch between the tabs to find and click on the link "this".'
    assert ask("click-tab-2", asked, lines, ["click [2]"]) == ["click [1]", "click [3]"]
    assert ask("click-tab-2", asked, lines, ["click [3]", "click [2]"]) == ["click [1]"]


def test_sections_that_were_opened_are_left_alone():
    lines = """text "Section #1" [1]
text "Section #2" [2] selected
link "other" [3]
text "Section #3" [4]"""
    asked = 'Expand the sections below, to find and click on the link "this".'
    assert ask("click-collapsible-2", asked, lines, ["click [2]"]) == ["click [4]", "click [1]"]
    twice = ["click [3]", "click [2]"]
    assert ask("click-collapsible-2", asked, lines, twice) == ["click [1]"]


def test_a_contact_that_was_passed_over_is_found_again():
    lines = """heading "Eve" [1]
text "Phone:" [2]
link "1" [3]
text "Email:" [4]
link "e" [5]
text "Address:" [6]
link "a" [7]
link "<" [8]
link "{}" [9] selected
link ">" [10]"""
    there = ["click [9]", "click [10]", "click [10]", "click [10]"]
    asked = "Find Ada in the contact book and click on their email."
    assert ask("phone-book", asked, lines.format(2), there[:1]) == ["click [10]"]
    assert ask("phone-book", asked, lines.format(4), [*there, "click [8]"]) == ["click [8]"]
    found = lines.format(2).replace("Eve", "Ada")
    assert ask("phone-book", asked, found, there[:1]) == ["click [5]"]


def test_results_are_stale_until_searched_again():
    lines = """textbox "" [1] = "Ann"
button "Search" [2]
link "x" [3]
link "y" [4]
link "z" [5]
link "1" [6] selected
link "2" [7]
link "3" [8]
link ">" [9]"""
    asked = 'Use the textbox to enter "Ann" and press "Search", then find and click the {} result.'
    stale = ["type [1] Bob", "click [2]", "type [1] Ann"]
    assert ask("search-engine", asked.format("2nd"), lines, stale) == ["click [2]"]
    searched = [*stale, "click [2]"]
    assert ask("search-engine", asked.format("2nd"), lines, searched) == ["click [4]"]
    assert ask("search-engine", asked.format("5th"), lines, searched) == ["click [7]", "click [9]"]


MENU = """text "ui-icon-caret-1-e" [1]
text "Ann" [2]{}
text "Bob" [3]{}
text "Cid" [4]{}
text "Dan" [5]{}"""


@pytest.mark.parametrize(
    ("chosen", "key"),
    [
        ("", "Tab"),
        ("2", "ArrowRight"),
        ("5", "ArrowUp"),
        ("23", "ArrowDown"),
        ("24", "Enter"),
        ("25", "ArrowUp"),
    ],
)
def test_menus_by_keyboard(chosen, key):
    lines = MENU.format(*(" selected" if number in chosen else "" for number in "2345"))
    assert ask("click-menu", "Select Ann>Cid", lines) == [f"press {key}"]


@pytest.mark.parametrize(
    ("value", "action"),
    [
        ("4", "click [2]"),
        ("9", "click [3]"),
        ("7", "click [4]"),
        ("0é", "click [2]"),
        ("", "click [2]"),
    ],
)
def test_a_spinner_counts_from_zero_where_no_number_is_in_it(value, action):
    lines = SPINNER.format(value=value)
    assert ask("use-spinner", "Select 7 with the spinner and hit Submit", lines) == [action]


def test_shapes_by_kind_color_and_size():
    lines = """text "7" [1] aqua 10px
text "s" [2] red 20px
rect "red" [3] 20px
circle "aqua" [4] 10px
button "2" [5]
button "1" [6]"""
    for description, actions in {
        "large red item": ["click [2]", "click [3]"],
        "small aqua shape": ["click [4]"],
        "digit": ["click [1]"],
        "s": ["click [2]"],
        "red rectangle": ["click [3]"],
    }.items():
        assert ask("click-shape", f"Click on a {description}", lines) == actions
    assert ask("count-shape", "How many ss are there?", lines) == ["click [6]"]
    assert ask("count-shape", "How many large red items are there?", lines) == ["click [5]"]


LETTER = """text "close-{0}" [1]
text "send-{0}" [2]
text "to:" [3]
{1}
text "subject:" [5]
text "Re: x" [6]
textarea "" [7] = "{2}\""""


def test_letters():
    asked = 'Find the email by Ann and reply to them with the text "Yes.".'
    to_ann = 'text "Ann" [4]'
    for lines, action in {
        LETTER.format("reply", to_ann, ""): "type [7] Yes.",
        LETTER.format("reply", to_ann, "Yes."): "click [2]",
        LETTER.format("reply", 'text "Bob" [4]', "Yes."): "click [1]",
        LETTER.format("forward", 'textbox "" [4] = ""', "x"): "click [1]",
    }.items():
        assert ask("email-inbox", asked, lines) == [action]


@pytest.mark.parametrize(
    "asked",
    [
        "Send Bob the email you got from Ann-Lee.",
        "Forward to Bob the email from Ann-Lee.",
        "Bob wants the email Ann-Lee sent to you.",
        "Ann-Lee wants his or her message to be sent to Bob.",
        "Bob is waiting for the email by Ann-Lee.",
        "Give Bob the message you received from Ann-Lee,",
        "Search for the mail Ann-Lee sent you and send it to Bob.",
    ],
)
def test_who_forwards_what_to_whom(asked):
    lines = """text "close-email" [1]
text "trash" [2]
text "star" [3]
text "x" [4]
text "Ann-Lee" [5]
text "to me" [6]
text "icon" [7]
text "Forward" [8]"""
    assert ask("email-inbox-forward-nl", asked, lines) == ["click [8]", "click [7]"]
    letter = LETTER.format("forward", 'textbox "" [4] = ""', "x")
    assert ask("email-inbox-forward-nl", asked, letter) == ["type [4] Bob"]


def test_so_many_posts_of_a_user_and_no_others():
    lines = """text "@ann" [1]
text "like" [2] selected
text "@bob" [3]
text "like" [4]{}
text "@ann" [5]
text "like" [6]{}
button "Submit" [7]"""
    asked = 'Click the "Like" button on {} by @ann and then click Submit.'
    some = asked.format("1 post")
    assert ask("social-media-some", some, lines.format("", "")) == ["click [7]"]
    two = lines.format(" selected", " selected")
    assert ask("social-media-some", some, two) == ["click [4]", "click [2]", "click [6]"]
    every = asked.format("all posts")
    assert ask("social-media-all", every, lines.format("", "")) == ["click [6]"]


def test_dishes_too_many_go_first():
    lines = """heading "Entrees" [1]
text "Soup" [2]
image "vegan" [3]
text "-" [4]
text "1" [5]
text "+" [6]
text "Beef" [7]
image "meat" [8]
text "-" [9]
text "+" [10]
button "Order!" [11]"""
    assert ask("order-food", "Order 2 items that are meat", lines) == ["click [4]", "click [10]"]
    assert ask("order-food", "Order 1 items that are vegan", lines) == ["click [11]"]
    asked = "Order one of each item: Soup, Beef"
    assert ask("order-food", asked, lines) == ["click [10]"]


def test_copies_by_keyboard_what_ends_in_a_space():
    lines = """textarea "" [1] = "Some text. "{}
textbox "" [2] = "{}"{}
button "Submit" [3]"""
    asked = "Copy the text from the 1st text area below and paste it into the text input"
    all_chosen = ["click [1]", "press Control+a"]
    copied = [*all_chosen, "press Control+c"]
    for screen, done, action in (
        (lines.format("", "", ""), [], "click [1]"),
        (lines.format(" focused", "", ""), all_chosen[:1], "press Control+a"),
        (lines.format(" focused", "", ""), all_chosen, "press Control+c"),
        (lines.format(" focused", "", ""), copied, "click [2]"),
        (lines.format("", "", " focused"), [*copied, "click [2]"], "press Control+v"),
        (lines.format("", "Some text.", " focused"), [*copied, "click [2]"], "press Control+a"),
        (lines.format("", "Some text. ", " focused"), copied, "click [3]"),
    ):
        assert ask("copy-paste-2", asked, screen, done)[0] == action


def test_sliders_take_the_shortest_way():
    lines = """text "#fff" [1]{}
text "{}" [2]
text "#fff" [3]
text "5" [4]
text "#fff" [5]
text "5" [6]
button "Submit" [7]"""
    asked = "Set the sliders to the combination [19,5,5] and submit."
    assert ask("use-slider-2", asked, lines.format("", 3)) == ["click [1]"]
    assert ask("use-slider-2", asked, lines.format(" focused", 3)) == ["press End"]
    keys = ask("use-slider-2", asked, lines.format(" focused", 14))
    assert keys == ["press ArrowRight", "press PageUp", "press End"]
    assert ask("use-slider-2", asked, lines.format(" focused", 19)) == ["click [7]"]


def test_where_a_screen_lacks_what_is_asked_for_an_expert_is_lost():
    lines = 'link "other" [1]'
    assert ask("click-link", 'Click on the link "this".', lines) == []
    assert ask("navigate-tree", 'Find and click on the folder or file named "X".', lines) == []


@pytest.mark.slow  # the demonstrator's test plays the pages of training by these experts
def test_every_expert_wins_in_a_browser():
    from helpers.chromium import require_chromium
    from rlanything_miniwob.browser import Browser

    require_chromium()
    browser = Browser()
    try:
        lost = [page for page in EXPERTS if not wins(browser, page)]
    finally:
        browser.close()
    assert not lost


def wins(browser: Browser, page: str) -> bool:
    from rlanything_miniwob.environment import EpisodeSpec, PageEpisode

    episode = PageEpisode(browser, EpisodeSpec(page, 1))
    look = episode.begin()
    utterance, done = look.utterance, []
    while not look.done and len(done) < MOST_STEPS:
        # From the text, as an agent has it: nothing that the text leaves out may be needed.
        action = EXPERTS[page](utterance, read(text_of(look.elements)), done)[0]
        look = episode.act(parse_action(action))
        done.append(action)
    return look.done and look.reward == 1
