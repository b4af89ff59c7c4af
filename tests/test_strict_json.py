"""JSON that any reader takes, in and out."""

from __future__ import annotations

import json
import math

import pytest

from rlanything.strict_json import finite_json, read_json


@pytest.mark.parametrize(
    "text",
    ["NaN", "[Infinity]", "-Infinity", "1e999", "-1e999", '{"a": 1, "a": 2}', "{'a': 1}", "", "{"],
)
def test_what_json_has_not_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_json(text)


def test_what_json_has_is_read() -> None:
    value = {"a": [1, -0.5, 1e300, 10**30, "NaN", True, None]}
    assert read_json(json.dumps(value)) == read_json(json.dumps(value).encode()) == value


def test_what_is_written_is_strict() -> None:
    value = {"a": [math.nan, 1.5, (math.inf,)], "b": {"c": -math.inf, "d": "NaN"}}
    written = json.dumps(finite_json(value), allow_nan=False)
    assert read_json(written) == {"a": [None, 1.5, [None]], "b": {"c": None, "d": "NaN"}}
