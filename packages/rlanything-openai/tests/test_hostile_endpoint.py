"""An endpoint that means harm costs a request's time at most, and one line that tells no key."""

from __future__ import annotations

import base64
import codecs
import json
import logging
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from helpers.fake_endpoint import (
    HELLO,
    KEY,
    SAMPLING,
    FakeEndpoint,
    open_endpoint,
    refused,
    status,
    text,
)
from helpers.hostile_answers import ENDLESS, HEAD, NO_ANSWER, SLOW, Respond, body, redirect
from rlanything.engines.base import Sampling
from rlanything_openai.endpoint import Answer, EndpointError, Refused, _Fault

HOSTILE = {**SLOW, **ENDLESS, **NO_ANSWER}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_is_one_line_in_time(fake: FakeEndpoint, answer: Respond) -> None:
    fake.faults.extend([answer] * 2)
    begun = time.monotonic()
    line = refused(open_endpoint(fake, retries=1, timeout_seconds=0.3))
    assert time.monotonic() - begun < 5
    assert len(line) < 500
    assert " at each of 2 tries; " in line
    if answer in SLOW.values():
        assert "did not answer within 0.3 s" in line


def reply(fake: FakeEndpoint, **changes: Any) -> str:
    return json.dumps(fake.completion({}) | changes)


COUNTS = [float("inf"), float("nan"), -1, True, "7", [7], 2**60, 10**400, {"a": 1}]


@pytest.mark.parametrize("count", COUNTS, ids=lambda count: repr(count)[:20])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_tokens_that_cannot_be_counted_are_a_fault(
    fake: FakeEndpoint, name: str, count: Any
) -> None:
    fake.faults.extend([text(reply(fake, usage={name: count}))])
    endpoint = open_endpoint(fake)
    assert endpoint.ask([(HELLO, 1)], SAMPLING) == [Answer("Hello.", "stop")]
    assert endpoint.pop_usage() == {
        "requests": 2,
        "retries": 1,
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "too_long": 0,
    }
    fake.faults.extend([text(reply(fake, usage={name: count}))] * 2)
    assert "sent " in refused(open_endpoint(fake, retries=1))


def test_more_text_than_max_tokens_can_be_is_a_fault(fake: FakeEndpoint) -> None:
    few = Sampling(0.5, 8)
    fake.say = lambda body: " " * 128 * 8  # some tokens are as long as that
    assert open_endpoint(fake).ask([(HELLO, 1)], few)[0].text == " " * 1024
    for size, said in ((2049, "2049 bytes of text for max_tokens=8"), (30_000_000, "more than ")):
        fake.say = lambda body, size=size: "x" * size
        with pytest.raises(EndpointError, match=f"sent {said}"):
            open_endpoint(fake, retries=0, timeout_seconds=5).ask([(HELLO, 1)], few)


@pytest.mark.parametrize("number", [301, 303, 307, 308])
def test_a_redirect_is_refused_and_names_the_place(fake: FakeEndpoint, number: int) -> None:
    fake.faults.append(redirect(number, "http://user:pw@evil.example/v1?a=b"))
    line = refused(open_endpoint(fake))
    assert f"answered {number} and redirects to evil.example, which is not followed" in line
    assert fake.requests == 1


@pytest.mark.parametrize(
    "location", ["/v2", "http://[::1", "//", "\x1b[31m", "x" * 60_000, "", "http://a:b:c", "\xff"]
)
def test_a_redirect_to_nowhere_is_refused(fake: FakeEndpoint, location: str) -> None:
    fake.faults.extend([redirect(307, location)] * 9)
    assert len(refused(open_endpoint(fake, retries=0))) < 500


@pytest.mark.parametrize("wait", ["1000000000", "9" * 400, "1e9", "inf", "nan", "-1", "soon"])
def test_no_wait_that_it_asks_for_hangs_a_request(fake: FakeEndpoint, wait: str) -> None:
    fake.faults.extend([status(503, Retry_After=wait)] * 2)
    begun = time.monotonic()
    line = refused(open_endpoint(fake, retries=1))
    assert time.monotonic() - begun < 8
    assert ("asks to wait 1000000000 s" in line) == (wait == "1000000000")


ALTERED = {
    "as it is": KEY,
    "upper case": KEY.upper(),
    "reversed": KEY[::-1],
    "reversed upper case": KEY[::-1].upper(),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64 of the header": base64.b64encode(f"Bearer {KEY}".encode()).decode(),
    "hex": KEY.encode().hex(),
    "rot13": codecs.encode(KEY, "rot13"),
    "url-quoted": quote(KEY, safe="").replace("-", "%2D"),
    "cut": KEY[3:12],
    "in quotes": f"'{KEY}',",
    "in a long word": f"key={KEY}&" + "x" * 5000,
    "at the end of a line": "aaa " * 73 + KEY,
}


@pytest.mark.parametrize("echo", ALTERED.values(), ids=ALTERED)
def test_a_key_in_any_shape_is_not_quoted(
    fake: FakeEndpoint, echo: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = [
        status(400, f"The key {echo} is wrong.", X_Request_Id=echo),
        body(
            json.dumps({"error": echo}).encode(), HEAD.replace(b"200 OK", b"400 " + echo.encode())
        ),
        body(f"<p>{echo}</p>".encode(), HEAD.replace(b"200", b"500")),
        redirect(307, f"http://{echo}.example/{echo}?{echo}"),
        body(b"{}", HEAD + f"X-Request-Id: {echo}\r\nX-Key: {echo}\r\n".encode()),
    ]
    for answer in answers:
        fake.faults.append(answer)
        line = refused(open_endpoint(fake, retries=0))
        written = f"{line} {caplog.text}"
        for piece in (written, written[::-1]):
            for start in range(len(echo.strip("a ")) - 6):
                assert echo.strip("a ")[start : start + 7].casefold() not in piece.casefold()


def test_what_is_no_key_is_quoted(fake: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "This model takes at most 8192 turns, in 'messages' are 9000."
    for key in (KEY, "EMPTY", "none"):
        monkeypatch.setenv("MY_KEY", key)
        fake.faults.append(status(400, said))
        with pytest.raises(EndpointError) as caught:
            open_endpoint(fake).ask([(HELLO, 1)], SAMPLING)
        assert f"answered 400 ({said})" in str(caught.value)


def test_a_refusal_of_any_length_is_one_line(fake: FakeEndpoint) -> None:
    for complaint in ("no \x1b[31m luck " * 200_000, "x" * 2_400_000, "\ud800" * 9, "\u202e" * 9):
        fake.faults.append(status(400, complaint))
        assert len(refused(open_endpoint(fake, timeout_seconds=5))) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "a", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("a"), inner),
    max_leaves=4,
)
MESSAGE = st.fixed_dictionaries({}, optional={"content": JSON}) | JSON
CHOICE = st.fixed_dictionaries({}, optional={"message": MESSAGE, "finish_reason": JSON}) | JSON
USAGE = st.fixed_dictionaries({}, optional={"prompt_tokens": JSON, "completion_tokens": JSON})
CHOICES = st.lists(CHOICE, max_size=2) | JSON
REPLY = st.fixed_dictionaries({}, optional={"choices": CHOICES, "usage": USAGE | JSON})
REFUSAL = st.fixed_dictionaries({}, optional={"error": JSON, "message": JSON, "detail": JSON})


@given(st.one_of(REPLY, REFUSAL, JSON).map(json.dumps).map(str.encode) | st.binary(max_size=40))
@hypothesis_settings(
    max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
def test_any_body_is_an_answer_or_one_line(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("RLANYTHING_KEYS", "MY_KEY@127.0.0.1")
    nowhere: Any = SimpleNamespace(url="http://127.0.0.1:9/v1")
    endpoint = open_endpoint(nowhere)
    for status_of_it in (307, 400, 503):
        fault = endpoint._refusal(Refused(status_of_it, {}, raw))
        assert str(fault).isprintable()
    with suppress(_Fault):
        endpoint._read(raw, 16).text.encode()
