"""A run's report: what it says, how large it is, and that it never stands in the way."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from helpers.command import call
from helpers.guess import FEW, GUESS
from helpers.report_runs import make_run
from rlanything.config.recipe import load_recipe
from rlanything.domains.base import Image
from rlanything.engines.images import noise_png
from rlanything.plugins import PluginError
from rlanything.progress import Progress
from rlanything.runs.report import pointing, writing
from rlanything.runs.report.episode_index import Rewards
from rlanything.runs.report.facts import Reader
from rlanything.runs.report.page import render
from rlanything.runs.report.payload import TEXT_BYTES, build
from rlanything.runs.report.sampling import Episode, choose, reasons, spread
from rlanything.runs.report.writing import Reporter, ReportError, write_report
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything.runs.warnings import Warned


def facts_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def chunk_in(page: str, number: int) -> Any:
    found = re.search(f'<script type="text/plain" id="chunk-{number}">(.*?)</script>', page)
    assert found is not None
    return json.loads(zlib.decompress(base64.b64decode(found[1])))


def report(*runs: Path) -> str:
    out = runs[0] / "report.html"
    write_report(runs, out)
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of the tiny recipe, two iterations."""
    directory = tmp_path_factory.mktemp("report") / "run"
    overrides = ["loop.tasks_per_iteration=2", "loop.rollouts_per_task=2", "loop.max_steps=5"]
    overrides += ["evaluation.episodes=2", "evaluation.judged_episodes=2", "environment.workers=1"]
    recipe = load_recipe(GUESS, [*FEW, f"run_dir={directory}", *overrides])
    Trainer(recipe, progress=Progress(Console(quiet=True))).train()
    return directory


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run", 5)


def test_training_leaves_a_report_of_everything_it_kept(trained: Path) -> None:
    page = (trained / "report.html").read_text(encoding="utf-8")
    (run,) = facts_in(page)["runs"]
    assert run["state"] == "finished"
    assert run["iterations"] == run["planned"] == 2
    assert {each["gain"]["name"] for each in run["policy"]["verdicts"]} == {"in_domain", "ood"}
    assert run["shown"] == run["episodes"] > 0
    assert "seconds/report" in run["metrics"]
    store = Store(trained / "run.sqlite")
    columns = run["index"]["columns"]
    for values in run["index"]["rows"][:3]:
        row = dict(zip(columns, values, strict=True))
        task = run["index"]["tasks"][row["task"]]["id"]
        kept = store.trajectory(f"{row['iteration']}/{task}/{row['attempt']}")
        shown = chunk_in(page, row["chunk"])[row["place"]]
        assert row["outcome"] == kept.outcome
        assert shown["observations"][0] == kept.steps[0].observation
        for one, two in zip(shown["steps"], kept.steps, strict=True):
            assert one["said"] == two.completion.text
            assert one["action"] == two.action
            assert [text for text, *_ in one["judgements"]] == [
                each.completion.text for each in two.judgements
            ]
            scores = [each.score for each in two.judgements]
            assert [score for _, score, *_ in one["judgements"]] == scores
            mean = sum(scores) / len(scores)
            assert one["feedback"] == pytest.approx(kept.outcome + mean, abs=1e-3)
    store.close()


def test_the_report_says_what_the_closing_lines_say(trained: Path) -> None:
    store = Store(trained / "run.sqlite")
    closing = json.loads(dict(store.query("SELECT key, value FROM run"))["closing"])
    store.close()
    (run,) = facts_in(report(trained))["runs"]
    for each in run["policy"]["verdicts"]:
        line = next(line for line in closing if f"policy, {each['gain']['name']}:" in line)
        assert line.endswith(each["verdict"])
        assert f"{each['gain']['before']['estimate']:.1%}" in line
        assert f"{each['gain']['after']['estimate']:.1%}" in line


def test_curves_have_a_point_and_an_interval_for_every_evaluation_and_iteration(made: Path) -> None:
    (run,) = facts_in(report(made))["runs"]
    (judge,) = run["judges"]
    curves = {curve["name"]: curve for curve in run["policy"]["curves"] + judge["curves"]}
    assert [p["iteration"] for p in curves["in_domain"]["points"]] == [0, 5]
    assert [p["iteration"] for p in curves["rollouts"]["points"]] == [1, 2, 3, 4, 5]
    assert [p["iteration"] for p in curves["balanced Process Acc"]["points"]] == [0, 5]
    for curve in curves.values():
        assert all(p["low"] <= p["estimate"] <= p["high"] for p in curve["points"])


def test_missing_rollouts_widen_the_curve_of_their_iteration(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2)  # four rollouts of each task
    undisturbed = curve_of_rollouts(run)
    with closing(sqlite3.connect(run / "run.sqlite")) as db:
        recipe = json.loads(db.execute("SELECT value FROM run WHERE key = 'recipe'").fetchone()[0])
        recipe["loop"]["rollouts_per_task"] = 8
        db.execute("UPDATE run SET value = ? WHERE key = 'recipe'", (json.dumps(recipe),))
        [(task,), *_] = db.execute("SELECT task FROM groups WHERE iteration = 2 AND NOT candidate")
        db.execute("INSERT INTO failures VALUES (2, ?, 'the server is gone')", (task,))
        db.commit()
    first, second = curve_of_rollouts(run)
    assert first == undisturbed[0]
    assert second["estimate"] == undisturbed[1]["estimate"]
    assert second["low"] < second["estimate"] / 2, "half of the rollouts are missing"
    assert second["high"] > (1 + second["estimate"]) / 2


def curve_of_rollouts(run: Path) -> list[dict[str, Any]]:
    curves = facts_in(report(run))["runs"][0]["policy"]["curves"]
    return next(curve["points"] for curve in curves if curve["name"] == "rollouts")


def test_disagreement_counts_what_the_store_holds(made: Path) -> None:
    (run,) = facts_in(report(made))["runs"]
    counts = run["judges"][0]["disagreements"][-1]["counts"]
    store = Store(made / "run.sqlite")
    rows = store.query(
        "SELECT outcome, SUM(score) FROM judgements JOIN trajectories ON number = trajectory"
        " WHERE iteration = 5 GROUP BY number, step"
    )
    store.close()
    assert counts["won_approved"] == sum(o == 1 and s > 0 for o, s in rows)
    assert counts["won_rejected"] == sum(o == 1 and s < 0 for o, s in rows)
    assert counts["lost_approved"] == sum(o == -1 and s > 0 for o, s in rows)
    assert counts["lost_rejected"] == sum(o == -1 and s < 0 for o, s in rows)
    # All steps are labelled good here: where the two differ, the oracle is with the approval.
    assert counts["labelled"] == counts["won_rejected"] + counts["lost_approved"]
    assert counts["sided"] == counts["lost_approved"]


def test_lineage_tells_why_and_by_which_critics(made: Path) -> None:
    page = report(made)
    (run,) = facts_in(page)["runs"]
    slots = chunk_in(page, run["lineage"])
    events = [event for slot in slots for event in slot["history"]]
    assert {event["event"] for event in events} >= {"proposed", "accepted"}
    asked = next(event for event in events if event["event"] == "proposed")
    assert asked["critics"] == ["The agent never opened the drawer."]


def test_warnings_are_found_in_the_metrics_and_carried(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def find(history: Any, roles: Any) -> list[Warned]:
        asked.append(history)
        return [Warned(4, "collapse", "the judge says one thing", "balance it")]

    monkeypatch.setattr("rlanything.runs.report.facts.find_warnings", find)
    with closing(Store(made / "run.sqlite")) as store:
        payload = build([Reader(store, made)])
    assert asked[0][5]["judge/mu"] == 1.1
    (warning,) = payload.facts["runs"][0]["warnings"]
    assert warning == {
        "iteration": 4,
        "name": "collapse",
        "message": "the judge says one thing",
        "remedy": "balance it",
    }
    assert "the judge says one thing" in render(payload)


def test_hostile_text_stays_data(tmp_path: Path) -> None:
    attack = "</script><script>document.title='owned'</script><!--<img src=x onerror=alert(1)>"
    run = make_run(tmp_path / "run", 2, say=lambda text: text + attack + "\ud800 {{script}}")
    page = report(run)
    assert "<script>document" not in page  # compressed, or with its `<` written otherwise
    assert "<img" not in page
    assert page.count("</html>") == page.count("</title>") == 1
    data = 1 + len(re.findall(r'id="chunk-', page))
    assert page.count("<script") == page.count("</script>") == data + 1
    (facts,) = facts_in(page)["runs"]
    assert attack in facts["index"]["tasks"][0]["instruction"]
    assert attack in chunk_in(page, facts["index"]["rows"][0][0])[0]["observations"][0]


def test_a_page_lets_nothing_out_and_only_its_own_script_in(made: Path) -> None:
    page = report(made)
    assert "default-src 'none'" in page
    assert "unsafe" not in page.split("</head>")[0]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_every_judge_of_a_run_is_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 3, judges=("judge", "critic"))
    page = report(run)
    (facts,) = facts_in(page)["runs"]
    judge, critic = facts["judges"]
    assert (judge["name"], critic["name"]) == ("judge", "critic")
    assert facts["roles"] == ["policy", "judge", "critic", "adapter"]
    levels = [one["verdicts"][0]["gain"]["after"]["estimate"] for one in (judge, critic)]
    assert levels == [pytest.approx(0.8), pytest.approx(0.7)]
    for one in (judge, critic):
        curves = {curve["name"]: curve for curve in one["curves"]}
        assert [p["iteration"] for p in curves["balanced Process Acc"]["points"]] == [0, 3]
        assert [p["iteration"] for p in curves["Outcome Acc, rollouts"]["points"]] == [1, 2, 3]
        with closing(Store(run / "run.sqlite")) as store:
            [(approved,)] = store.query(
                "SELECT COUNT(*) FROM (SELECT SUM(score) AS total FROM judgements"
                " JOIN trajectories ON number = trajectory WHERE iteration = 3 AND role = ?"
                " AND outcome = 1 GROUP BY number, step) WHERE total > 0",
                one["name"],
            )
        assert one["disagreements"][-1]["counts"]["won_approved"] == approved
    assert judge["disagreements"] != critic["disagreements"]
    step = chunk_in(page, facts["index"]["rows"][0][0])[0]["steps"][0]
    assert [by for *_, by in step["judgements"]] == ["judge"] * 3 + ["critic"] * 3


def test_the_reward_shown_is_of_the_weighted_scores_of_all_judges() -> None:
    episode = cast(Episode, SimpleNamespace(outcome=-1, reward=None, iteration=7))
    rewards = Rewards(1.0, "integrated", judges={"critic": 3.0})
    scores = {"judge": [1, 1, 1], "critic": [-1, 1]}
    assert rewards.of(episode, scores, False) == pytest.approx(-1 + (1 + 3 * 0) / 4)
    assert rewards.of(episode, {}, False) == -1
    # An adaptive lambda is each judge's own, in its iteration.
    adaptive = replace(rewards, lambdas={7: {"judge": 0.5, "critic": 0.25}})
    scores["critic"] = [-1, -1]
    assert adaptive.of(episode, scores, False) == pytest.approx(-1 + (0.5 * 1 + 0.25 * -3) / 4)


# --- what there may be little of


def test_a_run_that_has_done_nothing_has_a_report(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 0, evaluated_iterations=False)
    (facts,) = facts_in(report(run))["runs"]
    assert facts["state"] == "stopped"
    assert facts["iterations"] == facts["episodes"] == facts["shown"] == 0
    assert facts["policy"]["verdicts"] == facts["judges"][0]["verdicts"] == []


def test_one_sitting_is_compared_with_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 0)
    (facts,) = facts_in(report(run))["runs"]
    assert facts["policy"]["verdicts"][0]["gain"]["change"] is None
    assert facts["policy"]["verdicts"][0]["gain"]["after"]["estimate"] == 0.3


def test_forgotten_texts_are_counted_and_the_numbers_stay(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 4)
    store = Store(run / "run.sqlite")
    store.forget_texts(4)
    store.close()
    (facts,) = facts_in(report(run))["runs"]
    assert facts["forgotten"] > 0
    assert facts["shown"] == facts["episodes"] - facts["forgotten"]
    assert {row[2] for row in facts["index"]["rows"]} == {4}
    assert len(facts["judges"][0]["disagreements"]) == 2


def test_a_run_killed_while_it_writes_still_has_a_report(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 3)
    writer = (
        "import os, sys\nfrom pathlib import Path\n"
        "from rlanything.runs.store.database import Database\n"
        "db = Database(Path(sys.argv[1]) / 'run.sqlite')\n"
        "with db.transaction() as connection:\n"
        "    connection.execute('DELETE FROM metrics')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", writer, run], check=False)
    assert done.returncode == -9
    (facts,) = facts_in(report(run))["runs"]
    assert facts["iterations"] == 3
    assert facts["metrics"]["judge/mu"][-1] == 1.1


def test_judgements_that_programs_share_are_shown_with_each(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 1, steps=1)
    store = Store(run / "run.sqlite")
    numbers = [n for (n,) in store.query("SELECT number FROM trajectories ORDER BY number")]
    for number in numbers:
        first = store.query(
            "SELECT MIN(b.number) FROM trajectories a JOIN trajectories b USING (iteration, task)"
            " WHERE a.number = ?",
            number,
        )[0][0]
        texts = store.query("SELECT texts FROM transcripts WHERE trajectory = ?", number)[0][0]
        seen, said, judged = json.loads(zlib.decompress(texts))
        if number != first:
            judged = [["" for _ in row] for row in judged]
        packed = zlib.compress(json.dumps([seen, said, judged]).encode())
        store.query("UPDATE transcripts SET texts = ? WHERE trajectory = ?", packed, number)
    store.close()
    page = report(run)
    (facts,) = facts_in(page)["runs"]
    for row in facts["index"]["rows"]:
        shown = chunk_in(page, row[0])[row[1]]["steps"][0]["judgements"]
        assert [text for text, *_ in shown] == [
            f"drawer 0: a new place, says {j}." for j in (0, 1, 2)
        ]


# --- how much is shown


def test_what_is_shown_is_a_fair_sample_within_the_budget(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 12)
    store = Store(run / "run.sqlite")
    reader = Reader(store, run)
    every = choose(store, reader.history, reader.iterations(), 1e9)
    some = choose(store, reader.history, reader.iterations(), 30_000)
    assert 10 < len(some) < len(every) / 2
    assert set(reasons(some)) == {"latest", "first", "disagreement", "rewritten", "spread"}
    assert {1, 12} <= {each.episode.iteration for each in some}
    assert some == choose(store, reader.history, reader.iterations(), 30_000)
    store.close()


@pytest.mark.parametrize("count", [1, 5, 24, 25, 200])
def test_a_long_run_is_sampled_from_its_ends_and_evenly_between(count: int) -> None:
    iterations = list(range(1, count + 1))
    chosen = spread(iterations, 24)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(count, 24)
    assert chosen[0] == 1
    assert chosen[-min(8, count) :] == iterations[-8:]


def test_fifty_iterations_with_long_texts_stay_below_five_megabytes(tmp_path: Path) -> None:
    def noisy(text: str) -> str:  # what hardly compresses
        return text + base64.b64encode(os.urandom(900)).decode()

    run = make_run(tmp_path / "run", 50, tasks=1, say=noisy)
    page = report(run)
    (facts,) = facts_in(page)["runs"]
    assert 0 < facts["shown"] < facts["episodes"]
    assert sum(len(each) for each in re.findall(r'id="chunk-\d+">(.*?)<', page)) < 2 * TEXT_BYTES
    assert len(page.encode()) < 5_000_000


def test_small_screenshots_are_in_the_page_and_large_ones_named(tmp_path: Path) -> None:
    for size in (900, 120_000):
        name = Image(os.urandom(9)).name
        run = make_run(tmp_path / name, 1, image=name)
        (run / "images").mkdir()
        (run / "images" / name).write_bytes(os.urandom(size))
        page = report(run)
        assert (f'data-image="{name}"' in page) == (size == 900)
        (facts,) = facts_in(page)["runs"]
        assert chunk_in(page, facts["index"]["rows"][0][0])[0]["steps"][0]["image"] == name


class Pages:
    """A domain whose coordinates count in units of its own."""

    pointer_size = (160, 210)


def installed(kind: str, name: str) -> type[Pages]:
    """Returns the one installed domain."""
    if name != "pages":
        raise PluginError(f"there is no {kind} {name}")
    return Pages


def pointing_run(tmp_path: Path, action: str, **options: Any) -> Path:
    """A run in which every action that opens something is this one, on a screenshot of 40 x 50."""
    picture = Image(noise_png(0, 40, 50))

    def act(text: str) -> str:
        return action if text.startswith("open") else text

    run = make_run(tmp_path / "run", 1, image=picture.name, say=act, **options)
    (run / "images").mkdir()
    (run / "images" / picture.name).write_bytes(picture.data)
    return run


@pytest.mark.parametrize(
    ("domain", "action", "points"),
    [
        ("pages", "click 80 21", [[0.5, 0.1]]),  # in the page's units, not the picture's
        ("pages", "click 160 21", []),
        ("pages", "click [3]", []),
        ("desktops", '{"action_type": "CLICK", "parameters": {"x": 10, "y": 30}}', [[0.2, 0.75]]),
        ("desktops", '{"action_type": "MOVE_TO", "x": 0, "y": 0}', [[0.0, 0.0]]),
        ("desktops", '{"action_type": "CLICK", "parameters": {"x": 1e999, "y": -1}}', []),
        ("desktops", '{"action_type": "CLICK", "parameters": []}', []),
        (
            "desktops",
            "pyautogui.moveTo(5, 4)\npyautogui.dragTo(x=25, y=8.0)",
            [[0.1, 0.1], [0.5, 0.2]],
        ),
        ("desktops", "print('click')", []),
    ],
)
def test_a_step_says_where_on_its_screenshot_it_pointed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    domain: str,
    action: str,
    points: list[list[float]],
) -> None:
    monkeypatch.setattr(pointing, "load_plugin", installed)
    run = pointing_run(tmp_path, action, domain=domain)
    page = report(run)
    (facts,) = facts_in(page)["runs"]
    steps = chunk_in(page, facts["index"]["rows"][0][0])[0]["steps"]
    assert [each["valid"] for each in steps] == [True, False, True]
    # What was not carried out pointed at nothing.
    assert [each["points"] for each in steps] == [points, [], points]


def test_of_several_worlds_each_counts_in_units_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pointing, "load_plugin", installed)
    run = pointing_run(tmp_path, "click 80 21", tasks=1)
    # The label of its world begins a task's id, here all of it.
    pages = [{"name": "pages", "label": f"root-{i}"} for i in range(4)]
    worlds = [{"name": "desktops", "label": "other"}, *pages]
    with closing(Store(run / "run.sqlite")) as store:
        recipe = json.loads(store.fact("recipe") or "")
        recipe["domain"] = {"name": "several", "options": {"worlds": worlds}}
        store.describe({"recipe": json.dumps(recipe)})
    page = report(run)
    (facts,) = facts_in(page)["runs"]
    steps = chunk_in(page, facts["index"]["rows"][0][0])[0]["steps"]
    assert [each["points"] for each in steps if each["valid"]] == [[[0.5, 0.1]]] * 2


# --- files


def test_a_report_appears_whole_or_not_at_all(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "report.html"
    out.write_text("the one before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ReportError, match="No space left on device"):
        write_report([made], out)
    assert out.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [out]


def test_a_report_that_fails_is_said_in_one_line_and_stops_nothing(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    store = Store(made / "run.sqlite")
    reporter = Reporter(store, made, said.append)
    monkeypatch.setattr(writing, "render", lambda _: 1 / 0)
    reporter.update()
    store.close()
    assert said == ["no report: ZeroDivisionError: division by zero"]


def test_reports_take_a_small_share_of_a_runs_time(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[float] = []

    def slow(*_: object) -> None:
        written.append(time.perf_counter())
        time.sleep(0.02)

    monkeypatch.setattr(writing, "_write", slow)
    store = Store(made / "run.sqlite")
    reporter = Reporter(store, made, print)
    begun = time.perf_counter()
    while time.perf_counter() - begun < 1.0:
        reporter.update()
    assert 1 <= len(written) <= 2  # 0.02 s are 3% of 0.67 s
    reporter.write()  # at the end, whatever it costs
    store.close()
    assert len(written) <= 3


def test_iterations_that_are_repeated_are_read_again(made: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(made, tmp_path / "run"))
    with closing(Store(run / "run.sqlite")) as store:
        reader = Reader(store, run)
        build([reader])
        before = reader.history.episodes(5)
        assert reader.history.episodes(5) is before
        with store._db.transaction() as db:
            db.execute("UPDATE iterations SET finished = '2026-06-06' WHERE iteration = 5")
            db.execute("UPDATE trajectories SET outcome = -outcome WHERE iteration = 5")
        build([reader])
        after = reader.history.episodes(5)
    assert [each.outcome for each in after] == [-each.outcome for each in before]


def test_scores_of_a_judge_of_value_are_no_part_of_the_rewards(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 1)
    with closing(Store(run / "run.sqlite")) as store:
        recipe = Reader(store, run).recipe()
        recipe["roles"]["judge"]["name"] = "value"
        store.describe({"recipe": json.dumps(recipe)})
        [facts] = build([Reader(store, run)]).facts["runs"]
    assert facts["rewards"]["weight"] == 0


def test_a_report_is_read_again_only_where_something_is_new(made: Path) -> None:
    store = Store(made / "run.sqlite")
    reader = Reader(store, made)
    once = build([reader]).facts
    asked: list[str] = []
    query = store.query

    def watched(sql: str, *values: Any) -> list[tuple[Any, ...]]:
        asked.append(sql)
        return query(sql, *values)

    store.query = watched  # type: ignore[method-assign]
    assert build([reader]).facts == once
    store.close()
    assert not any("verdicts" in sql for sql in asked)


# --- several runs, and the command


def test_runs_are_compared_on_the_held_out_tasks_that_both_played(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, 2) for name in ("one", "two")]
    facts = facts_in(report(*runs))
    assert [run["name"] for run in facts["runs"]] == ["one", "two"]
    (against,) = facts["against"]
    assert {each["split"] for each in against} == {"in_domain", "ood"}
    assert against[0]["change"]["estimate"] == 0.0
    chunks = [{row[0] for row in run["index"]["rows"]} for run in facts["runs"]]
    assert not chunks[0] & chunks[1]


def test_the_command_writes_a_report_and_says_where(
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import webbrowser

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    out = tmp_path / "there.html"
    assert call(monkeypatch, "report", str(made), "--out", str(out), "--open") == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert opened == [out.as_uri()]
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "report", str(made), str(made)) == 0
    assert len(facts_in((tmp_path / "comparison.html").read_text())["runs"]) == 2


def test_what_is_no_run_or_no_place_is_one_line(
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "report", str(tmp_path)) == 2
    assert "is not a run directory" in capsys.readouterr().err
    assert call(monkeypatch, "report", str(made), "--out", str(tmp_path / "no" / "x.html")) == 2
    errors = capsys.readouterr().err
    assert "x.html: cannot be written (No such file or directory)" in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize(("measured", "shown"), [(True, 0.5), (False, -1.0)])
def test_outcomes_are_shown_where_one_rollout_of_a_task_has_no_reward(
    measured: bool, shown: float
) -> None:
    episode = cast(Episode, SimpleNamespace(outcome=-1, reward=0.5))
    assert Rewards(1.0, "outcome").of(episode, {"judge": [1]}, measured) == shown
