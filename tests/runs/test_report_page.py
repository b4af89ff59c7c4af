"""The report in a real headless Chromium: it draws itself, answers, and obeys the keyboard."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.report_runs import make_run
from rlanything.domains.base import Image
from rlanything.engines.images import noise_png
from rlanything.runs.report.writing import write_report
from rlanything.runs.store.rows import write_metrics
from rlanything.runs.store.store import Store

sync_api = pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    named = (
        os.environ.get("RLANYTHING_CHROMIUM"),
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
    )
    found = [path for name in named if name and (path := shutil.which(name))]
    if not found:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        # As root it has no sandbox; nothing is downloaded.
        browser = playwright.chromium.launch(
            executable_path=found[0], args=["--no-sandbox", "--proxy-server=127.0.0.1:9"]
        )
        yield browser
        browser.close()


@dataclass
class Opened:
    """A report in a tab of its own."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Until everything was drawn."""

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)


def open_report(chromium: Any, file: Path, scheme: str = "light") -> Opened:
    page = chromium.new_page(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    opened = Opened(page)
    page.on("console", lambda said: opened.complaints.append(said.text))
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.on("request", lambda request: opened.requests.append(request.url))
    begun = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_selector("#summary")
    opened.seconds = time.perf_counter() - begun
    return opened


def report_of(folder: Path, *runs: Path) -> Path:
    write_report(runs, folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    return report_of(folder, make_run(folder / "run", 6))


@pytest.fixture(scope="module")
def shared(chromium: Any, file: Path) -> Opened:
    opened = open_report(chromium, file)
    opened.page.wait_for_selector(".step")
    return opened


@pytest.fixture
def opened(shared: Opened) -> Opened:
    shared.page.click("#trajectories .bar button")  # no filters
    return shared


def test_it_draws_itself_without_a_complaint_or_a_request(opened: Opened, file: Path) -> None:
    ids = opened.page.eval_on_selector_all("section", "all => all.map(each => each.id)")
    assert " ".join(ids) == "summary curves warnings tasks diagnostics time trajectories"
    for closed in opened.page.query_selector_all("details:not([open]) > summary"):
        closed.click()
    assert opened.page.locator("figure svg .line").count() > 40
    assert opened.complaints == []
    assert opened.requests == [file.as_uri()]


def test_the_four_answers_stand_first(opened: Opened) -> None:
    assert "Yes: in_domain and ood improved." in opened.text("#answer-policy")
    assert "30.0% [17.1, 46.7] → 80.0%" in opened.text("#answer-policy")
    assert "Yes: balanced Process Acc improved." in opened.text("#answer-judge")
    assert "of 6 candidates accepted." in opened.text("#answer-tasks")
    assert "The agent never opened the drawer." in opened.text("#answer-tasks")
    assert "of the steps of iteration 6." in opened.text("#answer-disagreement")
    top = opened.page.evaluate("document.querySelector('#answer-disagreement').offsetTop")
    assert top < 800


def test_clicks_are_drawn_on_what_the_agent_saw(chromium: Any, tmp_path: Path) -> None:
    picture = Image(noise_png(0, 105, 80))

    def act(text: str) -> str:
        return "click 60 21" if text.startswith("open") else text

    run = make_run(tmp_path / "run", 1, image=picture.name, say=act)
    (run / "images").mkdir()
    (run / "images" / picture.name).write_bytes(picture.data)
    opened = open_report(chromium, report_of(tmp_path, run))
    opened.page.wait_for_selector("#trajectories .step .screen img")
    screens = opened.page.locator("#trajectories .step .screen")
    assert screens.count() == 3
    assert screens.locator("circle").count() == 2  # one step was invalid
    seen = screens.locator("img").first.bounding_box()
    mark = screens.locator("circle").first.bounding_box()
    x, y = (mark[at] + mark[side] / 2 - seen[at] for at, side in (("x", "width"), ("y", "height")))
    assert abs(x - seen["width"] * 0.75) < 2
    assert abs(y - seen["height"] * 0.2) < 2
    assert opened.complaints == []


def shown(opened: Opened) -> str:
    return opened.text("#trajectories .count")


def items(opened: Opened) -> list[str]:
    return opened.page.eval_on_selector_all(
        "#trajectories .list li button:not(.more)", "all => all.map(each => each.innerText)"
    )


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("outcome", "1", "✓ won"),
        ("outcome", "-1", "✗ lost"),
        ("iteration", "3", "iteration 3"),
        ("judge", "differs", "judge differs"),
        ("tasks", "rewritten", "rewritten"),
    ],
)
def test_every_filter_keeps_what_it_says(opened: Opened, name: str, value: str, word: str) -> None:
    before = shown(opened)
    opened.page.select_option(f"#trajectories label:has-text('{name}') select", value)
    found = items(opened)
    assert found
    assert all(word in each for each in found)
    assert shown(opened) != before


def test_filters_add_up_and_clear(opened: Opened) -> None:
    everything = shown(opened)
    opened.page.fill("#trajectories input", "no such task")
    assert shown(opened).startswith("0 of")
    opened.page.fill("#trajectories input", "KEY")
    opened.page.select_option("#trajectories label:has-text('outcome') select", "1")
    opened.page.select_option("#trajectories label:has-text('judge') select", "agrees")
    assert all("✓ won" in each and "differs" not in each for each in items(opened))
    opened.page.click("#trajectories .bar button")
    assert shown(opened) == everything


def test_an_episode_shows_everything_that_was_said(opened: Opened) -> None:
    opened.page.click("#trajectories .list li:nth-child(2) button")
    opened.page.wait_for_function("document.querySelectorAll('.step').length === 4")
    first = opened.text(".step")
    for part in ("You see drawer 0", "the key may be in drawer 0", "open drawer 0"):
        assert part in first
    for judgement in range(3):
        assert f"drawer 0: a new place, says {judgement}." in first
    assert "oracle: good step" in first
    assert "advantage" in first
    assert "invalid action" in opened.text(".step >> nth=1")


def test_a_disagreement_links_into_the_browser(opened: Opened) -> None:
    opened.page.click("#answer-disagreement button >> nth=0")
    opened.page.wait_for_selector(".step.differs")
    assert "judge says" in opened.text(".step.differs >> nth=0")
    assert all("judge differs" in each for each in items(opened))


def test_lineage_can_be_searched_and_leads_to_episodes(opened: Opened) -> None:
    opened.page.select_option("#tasks select", "accepted")
    assert "accepted" in opened.text("#tasks .slot >> nth=0")
    opened.page.click("#tasks .slot button.link >> nth=0")
    assert all("rewritten" in each for each in items(opened))
    opened.page.fill("#tasks input", "nothing like that")
    assert opened.page.locator("#tasks .slot").count() == 0


def test_the_keyboard_reaches_and_works_everything(opened: Opened) -> None:
    page = opened.page
    page.reload()  # as it is when somebody comes to it
    page.wait_for_selector(".step")
    operable = "a, button, select, input, summary, svg[tabindex]"
    count = page.evaluate(
        "operable => { const all = [...document.querySelectorAll(operable)]"
        ".filter(e => e.checkVisibility()); window.unseen = new Set(all);"
        " addEventListener('focusin', e => unseen.delete(e.target)); return all.length; }",
        operable,
    )
    for _ in range(count + 100):  # some texts that scroll can be reached as well
        page.keyboard.press("Tab")
    assert page.evaluate("[...unseen].map(e => e.outerHTML.slice(0, 80))") == []
    page.focus("#curves svg")
    page.keyboard.press("End")
    assert "iteration 6: in_domain 80.0%" in opened.text("#curves .readout")
    page.keyboard.press("Home")
    assert "before training: in_domain 30.0%" in opened.text("#curves .readout")
    page.focus("#trajectories .list button")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    chosen = page.get_attribute("#trajectories .list li:nth-child(2) button", "aria-current")
    assert chosen == "true"


def luminance(page: Any, selector: str, what: str) -> float:
    color = page.eval_on_selector(selector, f"e => getComputedStyle(e).{what}")
    red, green, blue = (int(c) for c in color[color.index("(") + 1 : -1].split(",")[:3])
    parts = [
        c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4
        for c in (red, green, blue)
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_in_dark(chromium: Any, file: Path, scheme: str) -> None:
    opened = open_report(chromium, file, scheme)
    opened.page.wait_for_selector(".step")
    back = luminance(opened.page, ".card", "backgroundColor")
    assert (back < 0.1) == (scheme == "dark")
    for selector in (".answer", ".soft", ".won", ".lost", ".said", ".list .facts", "a"):
        ink = luminance(opened.page, selector, "color")
        contrast = (max(ink, back) + 0.05) / (min(ink, back) + 0.05)
        assert contrast >= 4.5, (selector, contrast)
    opened.page.close()


def test_hostile_text_is_shown_and_does_nothing(chromium: Any, tmp_path: Path) -> None:
    attack = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"
    run = make_run(tmp_path / "run", 2, say=lambda text: text + attack)
    opened = open_report(chromium, report_of(tmp_path, run))
    opened.page.wait_for_selector(".step")
    assert attack in opened.text(".step")
    assert attack in opened.text("#answer-tasks")
    assert opened.page.title() != "owned"
    assert opened.page.locator("img").count() == 0
    assert opened.complaints == []
    assert len(opened.requests) == 1
    opened.page.close()


@pytest.mark.parametrize("evaluated_iterations", [False, True])
def test_an_empty_run_says_so(chromium: Any, tmp_path: Path, evaluated_iterations: bool) -> None:
    run = make_run(tmp_path / "run", 0, evaluated_iterations=evaluated_iterations)
    opened = open_report(chromium, report_of(tmp_path, run))
    said = (
        "Not known yet: measured once so far."
        if evaluated_iterations
        else "Not measured in this run."
    )
    assert said in opened.text("#answer-policy")
    assert "No iteration is kept yet." in opened.text("#tasks")
    assert opened.complaints == []
    opened.page.close()


def test_a_sample_says_how_many_of_how_many(chromium: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 30, tasks=1, evaluated_iterations=False)
    opened = open_report(chromium, report_of(tmp_path, run))
    lead = opened.text("#trajectories .lead")
    assert "236 episodes of training so far." in lead
    assert "In this page are" in lead
    assert "where judge and outcome differ most" in lead
    opened.page.close()


def test_every_judge_is_drawn_and_signs_its_judgements(chromium: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2, judges=("judge", "critic"))
    opened = open_report(chromium, report_of(tmp_path, run))
    for card in ("#answer-judge", "#answer-disagreement"):
        assert opened.page.locator(f"{card} h4").all_inner_texts() == ["judge", "critic"]
    chart = opened.page.locator("#curves figure:has-text('Judge, held out: balanced Process Acc')")
    assert chart.locator(".legend").inner_text().split() == ["judge", "critic"]
    assert "μ = p₊ + p₋: critic" in opened.text("#diagnostics")
    opened.page.wait_for_selector("#trajectories .step .judgement")
    signs = opened.page.locator("#trajectories .step >> nth=0").locator(".judgement")
    assert signs.count() == 6
    assert [("critic" in text) for text in signs.all_inner_texts()] == [False] * 3 + [True] * 3
    assert opened.complaints == []
    opened.page.close()


def test_episodes_in_which_judges_contradict_each_other_are_a_filter(
    chromium: Any, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", 2, judges=("judge", "critic"))
    opened = open_report(chromium, report_of(tmp_path, run))
    every = len(items(opened))
    opened.page.select_option("#trajectories label:has-text('judge') select", "split")
    shown = items(opened)
    assert 0 < len(shown) < every
    assert all("judges contradict each other on" in each for each in shown)
    opened.page.click("#trajectories .list button >> nth=0")
    marked = opened.page.locator("#trajectories .step:has-text('judges contradict each other')")
    marked.first.wait_for()
    scores = marked.first.locator(".score").all_inner_texts()
    sums = [
        sum(1 if score == "+1" else -1 for score in three) for three in (scores[:3], scores[3:])
    ]
    assert sums[0] * sums[1] < 0
    opened.page.close()


def test_an_episode_has_an_address_of_its_own(chromium: Any, file: Path) -> None:
    opened = open_report(chromium, file)
    opened.page.click("#trajectories .list button >> nth=7")
    link = opened.page.locator("#trajectories .episode a:has-text('link')")
    link.wait_for()
    address, said = link.get_attribute("href"), opened.text("#trajectories .episode")
    opened.page.close()
    page = chromium.new_page()
    page.goto(f"{file.as_uri()}{address}")
    page.wait_for_function(
        "said => document.querySelector('#trajectories .episode').innerText === said", arg=said
    )
    assert page.evaluate("window.scrollY") > 0
    page.close()


def warned(run: Path) -> Path:
    """Returns the run, in which updates were skipped in the third of four iterations."""
    with closing(Store(run / "run.sqlite")) as store, store._db.transaction() as db:
        for iteration, skipped in ((1, 0.0), (2, 0.0), (3, 2.0), (4, 0.0)):
            numbers = {"rollouts/episodes": 12.0, "policy/skipped_updates": skipped}
            write_metrics(db, iteration, numbers)
    return run


def test_a_warning_leads_to_the_episodes_since(chromium: Any, tmp_path: Path) -> None:
    run = warned(make_run(tmp_path / "run", 4))
    opened = open_report(chromium, report_of(tmp_path, run))
    assert "skipped updates from iteration 3" in opened.text("#warnings")
    opened.page.click("#warnings button:has-text('episodes since then')")
    shown = items(opened)
    assert {each.split("iteration ")[1][0] for each in shown} == {"3", "4"}
    assert "iteration 3" in shown[0]
    assert opened.complaints == []
    opened.page.close()


def test_runs_stand_side_by_side(chromium: Any, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, 3) for name in ("one", "two")]
    opened = open_report(chromium, report_of(tmp_path, *runs))
    head = opened.text("#summary thead")
    assert "one" in head
    assert "two" in head
    assert "against one" in opened.text("#summary tbody")
    assert "one" in opened.text("#curves .legend >> nth=0")
    opened.page.select_option("#trajectories label:has-text('run') select", "1")
    assert all("two" in each for each in items(opened))
    assert opened.complaints == []
    opened.page.close()


def test_warnings_of_runs_side_by_side_name_their_run(chromium: Any, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "one", 4), warned(make_run(tmp_path / "two", 4))]
    opened = open_report(chromium, report_of(tmp_path, *runs))
    assert "skipped updates from iteration 3 of two" in opened.text("#warnings")
    opened.page.click("#warnings button:has-text('episodes since then')")
    assert all("two" in each for each in items(opened))
    assert opened.complaints == []
    opened.page.close()


def test_runs_whose_folders_end_alike_are_told_apart_by_those_above(
    chromium: Any, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    runs = [make_run(tmp_path / name / "seed-0", 3) for name in ("one", "two")]
    opened = open_report(chromium, report_of(tmp_path, *runs))
    head = opened.text("#summary thead")
    assert "(one/seed-0)" in head
    assert "(two/seed-0)" in head
    opened.page.close()


def assert_quick(chromium: Any, folder: Path, run: Path, limit: float) -> None:
    opened = open_report(chromium, report_of(folder, run))
    page = opened.page
    page.wait_for_selector(".step")
    assert opened.seconds < limit
    answer = page.evaluate(
        "(() => { const begun = performance.now();"
        " const field = document.querySelector('#trajectories input');"
        " field.value = 'key'; field.dispatchEvent(new Event('input'));"
        " return performance.now() - begun; })()"
    )
    assert answer < 500 * limit / 2
    assert opened.complaints == []
    page.close()


def test_a_long_run_opens_at_once(chromium: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 60, tasks=1)
    assert_quick(chromium, tmp_path, run, 6.0)  # seconds; the machine may be busy


@pytest.mark.slow
def test_two_hundred_iterations_open_in_two_seconds(chromium: Any, tmp_path: Path) -> None:
    def long(text: str) -> str:
        return f"{text} {hash(text)} {text} {hash(text + ' again')}"

    run = make_run(tmp_path / "run", 200, tasks=8, episodes=4, steps=4, say=long)
    assert_quick(chromium, tmp_path, run, 2.0)


def test_on_a_telephone_nothing_leaves_its_card_and_axes_can_be_read(
    chromium: Any, file: Path
) -> None:
    page = chromium.new_page(viewport={"width": 390, "height": 844})
    page.goto(file.as_uri())
    page.wait_for_selector("#summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    outside = """[...document.querySelectorAll('.card .tag')].filter((tag) => {
        const [own, card] = [tag, tag.closest('.card')].map((e) => e.getBoundingClientRect());
        return own.right > card.right; }).length"""
    assert page.evaluate(outside) == 0
    sizes = """[...document.querySelectorAll('#curves svg text.tick')].map((text) => {
        const svg = text.closest('svg');
        return 11 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width; })"""
    assert min(page.evaluate(sizes)) >= 9.0
    page.close()


def test_a_list_has_only_items_and_grows(opened: Opened) -> None:
    children = "all => all.flatMap(list => [...list.children].map(each => each.tagName))"
    assert {*opened.page.eval_on_selector_all("ul, ol", children)} == {"LI"}
    before = len(items(opened))
    opened.page.click("#trajectories .list .more")
    assert len(items(opened)) > before
    assert {*opened.page.eval_on_selector_all("ul, ol", children)} == {"LI"}


def test_two_iterations_have_a_tick_each(chromium: Any, tmp_path: Path) -> None:
    opened = open_report(chromium, report_of(tmp_path, make_run(tmp_path / "run", 2)))
    ticks = """[...document.querySelectorAll('#curves figure:last-of-type svg')].map((svg) =>
        [...svg.querySelectorAll('text.tick[text-anchor=middle]')].map((t) => t.textContent))"""
    assert ["1", "2"] in opened.page.evaluate(ticks)
    opened.page.close()


def test_an_id_in_full_is_no_part_of_another(opened: Opened) -> None:
    index = "JSON.parse(document.getElementById('facts').textContent).runs[0].index"
    ids = opened.page.evaluate(f"{index}.tasks.map(t => t.id)")
    short = next(one for one in ids if any(one != two and one in two for two in ids))
    opened.page.fill("#trajectories input[type=search]", short)
    opened.page.click("#trajectories .list button >> nth=0")
    shown = opened.page.eval_on_selector_all("#trajectories .list li", "all => all.length")
    rows = opened.page.evaluate(
        f"(id) => {{ const i = {index};"
        " const at = i.columns.indexOf('task');"
        " return i.rows.filter((row) => i.tasks[row[at]].id === id).length; }",
        short,
    )
    assert shown == rows
