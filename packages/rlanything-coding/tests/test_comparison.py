"""Outputs are compared as competitive judges do."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything_coding.sandbox import comparison
from rlanything_coding.sandbox.base import DEFAULT_GRADING, EXACT, Grading, Job, Verdict
from rlanything_coding.sandbox.comparison import kept, same_tokens, verdict_on


@pytest.mark.parametrize(
    ("said", "expected", "same"),
    [
        ("1 2\n3", "1 2 3\n", True),
        ("1\r\n2  \n\n", "1\n2", True),
        ("\n\n 1 2 \n \n", "1 2", True),
        ("12", "1 2", False),
        ("1 2", "1", False),
        ("1", "1 2", False),
        ("", "", True),
        (" \n", "", True),
        ("0", "", False),
        ("Yes", "YES", False),
        ("0.10", "0.1", False),
        ("-0.0", "0.0", False),
        ("nan", "nan", True),
    ],
)
def test_tokens_are_equal_but_for_white_space(said: str, expected: str, same: bool) -> None:
    assert same_tokens(said, expected) is same
    assert same_tokens(said, expected, EXACT) is same


@pytest.mark.parametrize(
    ("said", "expected", "same"),
    [
        # What is expected has a fraction, in digits or as an exponent.
        ("0.333333", "0.333333333333", True),
        ("0.33333", "0.333333333333", False),
        ("0.10", "0.1", True),
        ("1.0000001", "1.0", True),
        ("1", "1.0", True),
        ("1.", "1.0", True),
        (".5", "0.5", True),
        ("+0.5", "0.5", True),
        ("0.500001", "0.5", True),
        ("0.5000011", "0.5", False),
        ("1.1", "1.0", False),
        ("-0.0", "0.0", True),
        ("-0.0000001", "0.0", True),
        ("0", "-0.00", True),
        ("1e-7", "0.0", True),
        ("1e-05", "0.00001", True),
        ("2.5E+3", "2500.0", True),
        ("2500", "2.5e3", True),
        ("1000000.5", "1000000.0", True),
        ("1000002", "1000000.0", False),
        ("123456789012.5", "123456789012.0", True),
        ("yes 1.0 2", "yes 1.0000001 2", True),
        ("no 1.0", "yes 1.0", False),
        # Whole numbers are exact.
        ("1000000", "1000001", False),
        ("1.0", "1", False),
        ("1.0000001", "1", False),
        ("-0", "0", False),
        ("+1", "1", False),
        ("01", "1", False),
        ("1e3", "1000", False),
        # What is no number is compared as text.
        ("nan", "1.0", False),
        ("1.0", "nan", False),
        ("inf", "1.0", False),
        ("inf", "Infinity", False),
        ("1e999", "1e998", False),
        ("1e999", "inf", False),
        ("1_0.5", "10.5", False),
        ("0x1p0", "1.0", False),
        ("\u0661.5", "1.5", False),
        ("1,5", "1.5", False),
        ("1.5.0", "1.5", False),
        ("1.5f", "1.5", False),
        (f"{'1' * 500}.5", f"{'1' * 500}.6", False),
    ],
)
def test_numbers_may_differ_a_little_where_a_fraction_is_expected(
    said: str, expected: str, same: bool
) -> None:
    assert same_tokens(said, expected, DEFAULT_GRADING) is same


@pytest.mark.parametrize(
    ("said", "expected", "same"),
    [
        ("1.0", "1", True),
        ("1.0000001 -1", "1 -1", True),
        ("1.1", "1", False),
        ("2e0", "2", True),
        ("2.0", "2.0000001", True),
        # Two whole numbers are still exact: one off in a million is wrong.
        ("1000001", "1000000", False),
        ("01", "1", False),
        ("1", "1.0", True),
        ("YES", "Yes", False),
    ],
)
def test_a_whole_number_may_be_a_rounded_one_where_the_problem_says_so(
    said: str, expected: str, same: bool
) -> None:
    assert same_tokens(said, expected, Grading(real_numbers=True)) is same


def test_capitals_may_not_matter() -> None:
    assert same_tokens("yes No", "YES NO", Grading(ignore_case=True))
    assert same_tokens("YES 0.5", "Yes 0.50000001", Grading(ignore_case=True))
    assert not same_tokens("yes", "no", Grading(ignore_case=True))


def test_an_output_that_is_no_text_is_wrong_and_nothing_expected_is_ok() -> None:
    assert verdict_on(b"caf\xe9", "café", EXACT) is Verdict.WRONG
    assert verdict_on(b"caf\xe9", None, EXACT) is Verdict.OK


def test_a_flood_is_compared_as_fast_as_it_is_read() -> None:
    began = time.process_time()
    assert not same_tokens("x\n" * 2**22, "x", DEFAULT_GRADING)
    assert not same_tokens(f"{'1' * 2**22}.5", "1.5", DEFAULT_GRADING)
    assert time.process_time() - began < 0.5


TEXTS = st.text(alphabet="ab \n\t", max_size=300)


@given(TEXTS, TEXTS, st.integers(1, 9))
def test_digests_are_equal_where_the_words_are(one: str, other: str, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "_PIECE", piece)
        job = Job("", kept_bytes=5)
        kept_of = [kept(job, Verdict.OK, each.encode()) for each in (one, other)]
    assert [len(text) for text, _ in kept_of] == [min(5, len(one)), min(5, len(other))]
    assert (kept_of[0][1] == kept_of[1][1]) is (one.split() == other.split())


def test_all_is_kept_where_the_job_does_not_say_less() -> None:
    assert kept(Job(""), Verdict.OK, b"abc") == (b"abc", "")
    assert kept(Job("", kept_bytes=2), Verdict.ERROR, b"abc") == (b"ab", "")
