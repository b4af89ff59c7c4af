import gzip
import json
import subprocess
import sys
import tracemalloc
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.command import call
from rlanything.algorithm.feedback import AdvantageConfig, FeedbackSettings, RewardConfig
from rlanything.algorithm.signals import task_signals
from rlanything_judge.rollouts import lines
from rlanything_judge.rollouts.signals import RolloutsError, Summary, write_signals

GOOD = {"task": "t", "trajectory": "a", "outcome": 1, "steps": [{"scores": [1, -1, 0]}]}


def silent(done: int, total: int) -> None:
    pass


def line(
    task: Any = "t", trajectory: Any = "a", outcome: Any = 1, scores=((1, -1, 0),), **others
) -> str:
    steps = [{"scores": list(step)} for step in scores]
    return json.dumps(
        {"task": task, "trajectory": trajectory, "outcome": outcome, "steps": steps, **others}
    )


def run(folder: Path, *lines: str, **options) -> tuple[Summary, list[dict]]:
    rollouts, out = folder / "rollouts.jsonl", folder / "signals.jsonl"
    rollouts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    chosen = options.pop("settings", FeedbackSettings())
    summary = write_signals(rollouts, out, chosen, silent, **options)
    return summary, [json.loads(text) for text in out.read_text(encoding="utf-8").splitlines()]


def expected(rollouts: list[tuple[str, int, list[list[int]]]], chosen: FeedbackSettings):
    """The same signals by way of `task_signals`, in the order of the rollouts."""
    groups = defaultdict(list)
    for index, (task, _, _) in enumerate(rollouts):
        groups[task].append(index)
    found = {}
    for members in groups.values():
        outcomes, scores = [rollouts[i][1] for i in members], [rollouts[i][2] for i in members]
        signals = task_signals(outcomes, scores, chosen)
        for i, policy, judge in zip(members, signals.policy, signals.judges["judge"], strict=True):
            found[i] = (signals.accuracy, policy, judge)
    return [found[i] for i in range(len(rollouts))]


def numbers(advantages: list[float | None]) -> list[float]:
    assert 0 not in advantages
    return [advantage or 0.0 for advantage in advantages]


scores_of_step = st.lists(st.sampled_from([-1, 0, 1]), max_size=4)
rollout = st.tuples(
    st.sampled_from(["x", "y", "ü\ud83d\n"]),
    st.sampled_from([-1, 1]),
    st.lists(scores_of_step, max_size=4),
)
windows = st.sampled_from([(0.0, 1.0), (1 / 8, 7 / 8), (0.2, 0.8)])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(rollout, min_size=1, max_size=16),
    st.builds(
        FeedbackSettings,
        policy_lambda=st.sampled_from([0.0, 1.0, 1.7]),
        judge_lambda=st.sampled_from([0.25, 1.0, 4.0]),
        policy_reward=st.sampled_from(["integrated", "outcome", "judge"]),
        advantage=st.builds(
            AdvantageConfig, name=st.sampled_from(["step", "trajectory", "leave_one_out"])
        ),
        policy_window=windows,
        judge_window=windows,
        judge_reward=st.builds(
            RewardConfig,
            options=st.fixed_dictionaries(
                {
                    "normalization": st.sampled_from(["step", "task"]),
                    "balance": st.sampled_from(["none", "outcome"]),
                }
            ),
        ),
    ),
)
def test_a_file_gives_the_signals_that_the_loop_would_compute(rollouts, chosen):
    lines = [line(t, str(i), o, scores) for i, (t, o, scores) in enumerate(rollouts)]
    with TemporaryDirectory() as folder:
        summary, signals = run(Path(folder), *lines, settings=chosen)
    policy_samples = judge_samples = 0
    for (task, _, _), got, (accuracy, policy, judge) in zip(
        rollouts, signals, expected(rollouts, chosen), strict=True
    ):
        assert (got["task"], got["accuracy"]) == (task, accuracy)
        assert numbers(got["policy"]) == policy.tolist()
        assert len(got["judge"]) == len(judge)
        for ours, theirs in zip(got["judge"], judge, strict=True):
            assert numbers(ours) == theirs.tolist()
        policy_samples += int((policy != 0).sum())
        judge_samples += sum(int((step != 0).sum()) for step in judge)
    assert [got["trajectory"] for got in signals] == [str(i) for i in range(len(rollouts))]
    assert (summary.policy_samples, summary.judge_samples) == (policy_samples, judge_samples)


def test_numbers_are_names_too(tmp_path):
    _, signals = run(tmp_path, line(7, 0), line(7, 1, outcome=-1))
    assert [(each["task"], each["trajectory"]) for each in signals] == [("7", "0"), ("7", "1")]
    with pytest.raises(RolloutsError, match="line 2: trajectory '7' of task 't' is on line 1"):
        run(tmp_path, line("t", 7), line("t", "7"), overwrite=True)


def test_a_reward_wins_from_the_mark_on(tmp_path):
    lines = [line(trajectory=str(i), outcome=None, reward=0.25 * i) for i in range(4)]
    summary, signals = run(tmp_path, *lines, win_at=0.5)
    assert summary.trajectories == 4
    assert {each["accuracy"] for each in signals} == {0.5}
    assert [each["policy"][0] > 0 for each in signals] == [False, False, True, True]
    summary, _ = run(tmp_path, line(reward=10**400), overwrite=True, win_at=0.5)
    assert summary.trajectories == 1
    for reward in ("0.9", True, float("nan")):
        with pytest.raises(RolloutsError, match=r"line 1: 'reward' is .*, no number"):
            run(tmp_path, line(reward=reward), overwrite=True, win_at=0.5)
    with pytest.raises(RolloutsError, match="line 1: 'reward' is missing"):
        run(tmp_path, line(reward=None), overwrite=True, win_at=0.5)
    for mark in (float("nan"), float("inf")):
        with pytest.raises(RolloutsError, match="--win-at is"):
            run(tmp_path, *lines, overwrite=True, win_at=mark)


def test_packed_files_are_read_and_written(tmp_path):
    lines = [line(trajectory=str(i), outcome=1 - 2 * (i % 2), pad="x" * 3000) for i in range(600)]
    _, plain = run(tmp_path, *lines)
    packed, out, again = (tmp_path / f"{name}.jsonl.gz" for name in ("r", "s", "again"))
    packed.write_bytes(gzip.compress("\n".join(lines).encode()))
    told: list[tuple[int, int]] = []
    write_signals(packed, out, FeedbackSettings(), lambda done, all: told.append((done, all)))
    write_signals(packed, again, FeedbackSettings(), silent)
    unpacked = gzip.decompress(out.read_bytes()).decode()
    assert [json.loads(text) for text in unpacked.splitlines()] == plain
    assert out.read_bytes() == again.read_bytes()
    assert max(done for done, _ in told) == 2 * packed.stat().st_size
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(RolloutsError, match="not a complete gzip file"):
        write_signals(packed, tmp_path / "third", FeedbackSettings(), silent)
    packed.write_text("{}")
    with pytest.raises(RolloutsError, match="not a complete gzip file"):
        write_signals(packed, tmp_path / "third", FeedbackSettings(), silent)


def test_rollouts_come_in_at_stdin_and_signals_go_out_at_stdout(tmp_path):
    _, signals = run(tmp_path, line(), line(trajectory="b", outcome=-1))
    command = [sys.executable, "-m", "rlanything", "feedback", "-", "--out", "-"]
    given = (tmp_path / "rollouts.jsonl").read_bytes()
    done = subprocess.run(command, input=given, capture_output=True, check=True)
    assert [json.loads(text) for text in done.stdout.splitlines()] == signals
    assert b"2 trajectories of 1 task;" in done.stderr


def test_states_that_no_line_holds_are_not_guessed(tmp_path):
    with pytest.raises(RolloutsError, match="advantage state needs states, which these lines lack"):
        run(tmp_path, line(), settings=FeedbackSettings(advantage=AdvantageConfig(name="state")))


def test_other_keys_empty_lines_and_a_missing_last_newline_do_not_matter(tmp_path):
    rollouts, out = tmp_path / "rollouts.jsonl", tmp_path / "signals.jsonl"
    text = (
        line(trajectory="a", note={"x": 1.5}, valid=True)
        + "\n\n"
        + line(trajectory="b", outcome=-1)
    )
    rollouts.write_bytes(b"\xef\xbb\xbf" + text.encode())
    summary = write_signals(rollouts, out, FeedbackSettings(), silent)
    assert summary.trajectories == 2
    first, second = map(json.loads, out.read_text().splitlines())
    assert (first["policy"], second["policy"]) == ([1.0], [-1.0])


def test_the_summary_counts_what_the_file_held(tmp_path):
    summary, _ = run(
        tmp_path,
        line("x", "a", 1, [[1, 1, -1], [1, 1, 1]]),
        line("y", "a", 1, [[1]]),
        line("x", "b", -1, [[1, -1, 0]]),
    )
    assert summary == Summary(
        trajectories=3,
        tasks=2,
        single_trajectory_tasks=1,
        steps=4,
        judgements=10,
        policy_samples=2,
        judge_samples=6,
        scores=Counter({(1, 1): 6, (1, -1): 1, (-1, 1): 1, (-1, 0): 1, (-1, -1): 1}),
        judged_steps=4,
        agreeing_steps=3,
    )


def test_progress_ends_at_the_total_and_never_goes_back(tmp_path):
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text(
        "".join(line(f"t{i % 6}", str(i), pad="x" * 50_000) + "\n" for i in range(60)),
        encoding="utf-8",
    )
    told: list[tuple[int, int]] = []
    write_signals(
        rollouts, tmp_path / "out", FeedbackSettings(), lambda done, all: told.append((done, all))
    )
    total = 2 * rollouts.stat().st_size
    assert {all for _, all in told} == {total}
    done = [done for done, _ in told]
    assert done == sorted(done)
    assert done[-1] == total
    assert len(done) >= 5


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        ("{", "not JSON"),
        ("[1]", "a list, not an object"),
        ("[" * 100_000, "not readable|not JSON"),
        ('{"outcome": ' + "1" * 5000 + "}", "not readable"),
        *[(json.dumps({k: v for k, v in GOOD.items() if k != key}), f"no '{key}'") for key in GOOD],
        (json.dumps({**GOOD, "task": 3.5}), "'task' is 3.5, not a text"),
        (json.dumps({**GOOD, "task": True}), "'task' is True, not a text"),
        (json.dumps({**GOOD, "trajectory": None}), "'trajectory' is None"),
        *[
            (json.dumps({**GOOD, "outcome": value}), "'outcome' is")
            for value in (0, 2, True, 1.0, "1", None)
        ],
        (json.dumps({**GOOD, "steps": {}}), "'steps' is {}, not a list"),
        (json.dumps({**GOOD, "steps": [[1]]}), "step 1 has no list of 'scores'"),
        (json.dumps({**GOOD, "steps": [{"scores": [1]}, {}]}), "step 2 has no list"),
        *[
            (json.dumps({**GOOD, "steps": [{"scores": [1, value]}]}), "step 1: the score .* none")
            for value in (2, True, False, 1.0, 0.0, "1", None, [1], {})
        ],
    ],
)
def test_a_bad_line_is_named_with_its_fault_and_nothing_is_left_behind(tmp_path, bad, fault):
    with pytest.raises(RolloutsError, match=fault) as caught:
        run(tmp_path, line(trajectory="x", scores=[[1, 1], [0, 0], [1, 0]]), bad, line())
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'rollouts.jsonl'}, line 2: ")
    assert "; " in message
    assert "\n" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["rollouts.jsonl"]


@pytest.mark.parametrize("cut", [-3, -40])
def test_a_half_written_last_line_is_recognised(tmp_path, cut):
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text(line(trajectory="a") + "\n" + line(trajectory="b")[:cut])
    with pytest.raises(RolloutsError, match="line 2: not complete, and the file ends"):
        write_signals(rollouts, tmp_path / "out", FeedbackSettings(), silent)


def test_a_last_line_cut_within_a_letter_is_recognised(tmp_path):
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_bytes('{"task": "ü'.encode()[:-1])
    with pytest.raises(RolloutsError, match="line 1: the file ends in the middle"):
        write_signals(rollouts, tmp_path / "out", FeedbackSettings(), silent)


def test_text_that_is_not_utf_8_is_refused(tmp_path):
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_bytes(b'{"task": "\xfc"}\n')
    with pytest.raises(RolloutsError, match="line 1: byte 11 is not UTF-8; save"):
        write_signals(rollouts, tmp_path / "out", FeedbackSettings(), silent)


def test_a_trajectory_that_occurs_twice_is_refused_with_both_lines(tmp_path):
    with pytest.raises(RolloutsError, match="line 3: trajectory 'a' of task 'x' is on line 1"):
        run(tmp_path, line("x", "a"), line("y", "a"), line("x", "a", -1))


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_refused(tmp_path, text):
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text(text)
    with pytest.raises(RolloutsError, match="is empty"):
        write_signals(rollouts, tmp_path / "out", FeedbackSettings(), silent)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(RolloutsError, match="no such file"):
        write_signals(tmp_path / "none", tmp_path / "out", FeedbackSettings(), silent)
    with pytest.raises(RolloutsError, match="not a regular file"):
        write_signals(tmp_path, tmp_path / "out", FeedbackSettings(), silent)


def test_an_existing_output_is_kept_unless_it_may_be_overwritten(tmp_path):
    out = tmp_path / "signals.jsonl"
    out.write_text("precious")
    with pytest.raises(
        RolloutsError, match="exists already; remove it, or overwrite it with --force"
    ):
        run(tmp_path, line())
    assert out.read_text() == "precious"
    run(tmp_path, line(), overwrite=True)
    assert "precious" not in out.read_text()


def test_a_failed_overwrite_leaves_the_old_output(tmp_path):
    out = tmp_path / "signals.jsonl"
    out.write_text("precious")
    with pytest.raises(RolloutsError, match="line 2"):
        run(tmp_path, line(), "{", overwrite=True)
    assert out.read_text() == "precious"


def test_the_rollouts_are_never_overwritten(tmp_path):
    rollouts, alias = tmp_path / "rollouts.jsonl", tmp_path / "alias.jsonl"
    rollouts.write_text(line() + "\n")
    alias.symlink_to(rollouts)
    for out in (rollouts, alias):
        with pytest.raises(RolloutsError, match="would overwrite the rollouts"):
            write_signals(rollouts, out, FeedbackSettings(), silent, overwrite=True)


def test_an_output_that_cannot_be_written_is_refused(tmp_path):
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text(line() + "\n")
    with pytest.raises(RolloutsError, match="folder does not exist"):
        write_signals(rollouts, tmp_path / "no" / "out", FeedbackSettings(), silent)
    with pytest.raises(RolloutsError, match="is a folder"):
        write_signals(rollouts, tmp_path, FeedbackSettings(), silent)
    with pytest.raises(RolloutsError, match="cannot be written"):
        write_signals(rollouts, tmp_path / ("x" * 250), FeedbackSettings(), silent)


def test_memory_is_what_it_is_said_to_be(tmp_path):
    rollouts = tmp_path / "rollouts.jsonl"
    steps = [[1, -1, 0]] * 100
    with rollouts.open("w") as file:
        for g in range(8):
            for task in range(100):
                text = line(
                    str(task), f"rollout-{task}-{g}", 1 if g % 2 else -1, steps, pad="x" * 2000
                )
                file.write(text + "\n")
    tracemalloc.start()
    summary = write_signals(rollouts, tmp_path / "out", FeedbackSettings(), silent)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # 4 bytes a step, 300 a trajectory, and one task's signals at a time
    assert peak < 4 * summary.steps + 300 * summary.trajectories + 2_000_000
    assert peak < rollouts.stat().st_size / 2


def test_a_line_has_a_limit_also_where_it_is_packed(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MOST_BYTES", 1000)
    content = line().encode() + b"\n" + b" " * 2000
    for name, data in (("rollouts.jsonl", content), ("rollouts.jsonl.gz", gzip.compress(content))):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(RolloutsError, match=r"line 2: longer than 0 MiB; write each"):
            write_signals(path, tmp_path / "out.jsonl", FeedbackSettings(), silent)


def test_its_settings_are_those_of_a_recipe(tmp_path, monkeypatch):
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text("\n".join(line(trajectory=i, outcome=(-1) ** i) for i in range(4)))
    changes = {"policy_lambda": 0.5, "judge_window": [0, 1], "advantage": "trajectory"}
    changes["judge_reward"] = {"options": {"balance": "none"}}
    for number, chosen in enumerate(({}, changes)):
        ours, theirs = tmp_path / f"{number}", tmp_path / f"expected {number}"
        words = [f"{key}={json.dumps(value)}" for key, value in chosen.items()]
        assert call(monkeypatch, "feedback", str(rollouts), "--out", str(ours), *words) == 0
        write_signals(rollouts, theirs, FeedbackSettings.model_validate(chosen), silent)
        assert ours.read_text() == theirs.read_text()


def test_a_setting_that_there_is_not_is_one_line(tmp_path, monkeypatch, capsys):
    for words, said in (
        (["policy_lamda=2"], "feedback.policy_lamda: unknown key, did you mean policy_lambda?"),
        (["policy_lambda=-1"], "feedback.policy_lambda: input should be greater than or equal"),
        (["advantage=gae"], "feedback.advantage: gae needs values"),
    ):
        assert call(monkeypatch, "feedback", "-", "--out", str(tmp_path / "out"), *words) == 2
        assert said in capsys.readouterr().err.replace("\n", " ")


def test_how_far_the_scores_agree_with_the_outcomes_is_said(tmp_path: Path) -> None:
    won = line(trajectory="a", scores=((1, 1, -1), (1, 0, -1)))
    lost = line(trajectory="b", outcome=-1, scores=((-1, -1, 1), (-1, -1, -1)))
    summary, _ = run(tmp_path, won, lost)
    assert summary.judge_line() == (
        "the judge's scores: p+ 0.50, p- 0.83, mu 1.33 (better than chance, which has 1), "
        "Outcome Acc 75%, 8% unreadable"
    )
    summary, _ = run(tmp_path, won, overwrite=True)
    assert summary.judge_line() == "the judge's scores: Outcome Acc 50%, 17% unreadable"
    summary, _ = run(tmp_path, line(scores=((), ())), overwrite=True)
    assert summary.judge_line() is None


def test_signals_are_not_written_as_columns(tmp_path: Path) -> None:
    (tmp_path / "rollouts.jsonl").write_text(line() + "\n")
    with pytest.raises(RolloutsError, match=r"choose a name without \.parquet"):
        write_signals(
            tmp_path / "rollouts.jsonl", tmp_path / "s.parquet", FeedbackSettings(), silent
        )
