"""An endpoint that fails is asked again where that can help, and named in one line where not."""

from __future__ import annotations

import base64
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from helpers.fake_endpoint import (
    HELLO,
    KEY,
    MODEL,
    SAMPLING,
    FakeEndpoint,
    Respond,
    dribble,
    drop,
    fake_endpoint,
    half,
    hang,
    open_endpoint,
    refused,
    status,
    text,
)
from rlanything.backoff import asked_seconds, backoff_seconds
from rlanything.config.roles import RoleConfig
from rlanything.domains.base import Image
from rlanything.engines.base import ModelError
from rlanything.engines.deadline import GenerationTimeout
from rlanything.engines.images import noise_png
from rlanything.records import Message
from rlanything.roles.chat_model import ChatRequest
from rlanything.runs.stopping import Stopped, Stopper
from rlanything_openai.endpoint import Answer, EndpointError


def test_messages_seed_and_sampling_go_out_as_they_are(fake: FakeEndpoint) -> None:
    [answer] = open_endpoint(fake).ask([(HELLO, 2**62 + 5)], SAMPLING)
    assert answer == Answer("Hello.", "stop")
    assert fake.bodies == [
        {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello?"},
            ],
            "seed": 5,
            "temperature": 0.5,
            "max_tokens": 16,
        }
    ]
    assert fake.keys == [f"Bearer {KEY}"]


def test_answers_come_in_the_order_of_the_questions(fake: FakeEndpoint) -> None:
    def say(body: dict[str, Any]) -> str:
        time.sleep(0.05 if body["seed"] % 2 else 0)
        return f"{body['messages'][0]['content']} {body['seed']}"

    fake.say = say
    chats = [((Message("user", f"question {i // 2}"),), i) for i in range(20)]
    answers = open_endpoint(fake).ask(chats, SAMPLING)
    assert [each.text for each in answers] == [f"question {i // 2} {i}" for i in range(20)]


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_requests_are_under_way_than_allowed(fake: FakeEndpoint, limit: int) -> None:
    fake.delay_seconds = 0.2
    open_endpoint(fake, concurrency=limit, timeout_seconds=30).ask(
        [(HELLO, i) for i in range(12)], SAMPLING
    )
    assert (fake.most_at_once, fake.requests) == (limit, 12)


def ended(reason: str | None, content: str | None, **more: Any) -> Respond:
    message = {"role": "assistant", "content": content, **more}
    return text(json.dumps({"choices": [{"message": message, "finish_reason": reason}]}))


PASSING: dict[str, Respond] = {
    "429": status(429),
    "500": status(500),
    "503": status(503),
    "408": status(408),
    "hang": hang,
    "dribble": dribble,
    "dropped": drop,
    "half an answer": half,
    "truncated JSON": text('{"choices": [{"message": {"content": "Hel'),
    "no JSON": text("<html>gateway</html>"),
    "another JSON": text("[1, 2]"),
    "an error called 200": text('{"error": {"message": "overloaded"}}'),
    "no choices": text('{"choices": []}'),
    "endless JSON": text("[" * 200_000),
    "an answer broken off": ended("abort", "Hel"),
    "an error for an answer": text(
        '{"choices": [{"message": {"content": "Hel"}, "error": {"code": 502}}]}'
    ),
    "a limit that passes": status(
        429, "You exceeded your current quota, check your plan. Please retry in 45.5s."
    ),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_may_pass_is_tried_again(fake: FakeEndpoint, fault: Respond) -> None:
    fake.faults.extend([fault, fault])
    endpoint = open_endpoint(fake, timeout_seconds=0.5 if fault in (hang, dribble) else 5)
    assert endpoint.ask([(HELLO, 1)], SAMPLING) == [Answer("Hello.", "stop")]
    assert fake.requests == 3
    assert fake.bodies[0] == fake.bodies[1] == fake.bodies[2]
    assert endpoint.pop_usage() == {
        "requests": 3,
        "retries": 2,
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "too_long": 0,
    }
    assert set(endpoint.pop_usage().values()) == {0}


FOR_GOOD = [
    (400, "check its requirements for adapter.model, temperature and max_tokens"),
    (401, "put a valid key into the environment variable MY_KEY"),
    (403, "put a valid key into the environment variable MY_KEY"),
    (422, "check its requirements for adapter.model"),
]


@pytest.mark.parametrize(("number", "remedy"), FOR_GOOD)
def test_what_will_not_pass_is_not_tried_again(
    fake: FakeEndpoint, number: int, remedy: str
) -> None:
    fake.faults.extend([status(number, f"bad\nkey {KEY}\x1b[31m")] * 9)
    line = refused(open_endpoint(fake))
    assert f"answered {number} (bad key [...]); {remedy}" in line
    assert fake.requests == 1


NO_ROOM = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
    '{"error": {"code": "context_length_exceeded", "message": "Too much."}}',
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "the request exceeds the available context size, try increasing it",
    "The input token count (9000) exceeds the maximum number of tokens allowed (8192).",
    "This model's maximum prompt length is 8192 but the request contains 9000 tokens.",
    "Range of input length should be [1, 8192]",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
)


@pytest.mark.parametrize("words", NO_ROOM)
def test_a_prompt_that_is_too_long_is_answered_with_nothing(fake: FakeEndpoint, words: str) -> None:
    fake.faults.append(status(400, words))
    endpoint = open_endpoint(fake, concurrency=1)
    answers = endpoint.ask([(HELLO, 1), (HELLO, 2)], SAMPLING)
    assert answers == [Answer("", "length"), Answer("Hello.", "stop")]
    assert endpoint.pop_usage()["too_long"] == 1


@pytest.mark.parametrize(
    ("reply", "answer", "count"),
    [
        (ended("length", "Hel"), Answer("Hel", "length"), "cut"),
        (ended("MAX_TOKENS", "Hel"), Answer("Hel", "length"), "cut"),
        (ended("content_filter", "Hel"), Answer("Hel", "length"), "refused"),
        (ended("stop", None, refusal="I cannot."), Answer("", "length"), "refused"),
        (ended("stop", " "), Answer(" ", "stop"), "empty"),
        (ended("stop", None), Answer("", "stop"), "empty"),
    ],
)
def test_how_an_answer_ended_is_kept_and_counted(
    fake: FakeEndpoint, reply: Respond, answer: Answer, count: str
) -> None:
    fake.faults.append(reply)
    endpoint = open_endpoint(fake)
    assert endpoint.ask([(HELLO, 1)], SAMPLING) == [answer]
    usage = endpoint.pop_usage()
    assert {name: usage.get(name, 0) for name in ("cut", "refused", "empty")} == {
        **dict.fromkeys(("cut", "refused", "empty"), 0),
        count: 1,
    }


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (429, '{"error": {"message": "Check your plan.", "code": "insufficient_quota"}}'),
        (429, "You exceeded your current quota, please check your plan."),
        (402, "Payment required"),
    ],
)
def test_an_account_without_credit_is_not_asked_again(
    fake: FakeEndpoint, number: int, words: str
) -> None:
    fake.faults.extend([lambda handler: handler.reply(number, words)] * 9)
    line = refused(open_endpoint(fake))
    assert f"answered {number}: its quota is used up" in line
    assert "add credit to the account of the key in MY_KEY" in line
    assert fake.requests == 1


def test_only_the_named_key_is_sent_and_no_secret_of_another_gateway(
    fake: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    custom = "Authorization: Bearer sk-other\nX-Api-Key: sk-other\nnothing"
    for name in ("ORG_ID", "PROJECT_ID", "ADMIN_KEY", "API_KEY"):
        monkeypatch.setenv(f"OPENAI_{name}", "sk-other")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", custom)
    for variable in ("MY_KEY", None):
        open_endpoint(fake, key_variable=variable).ask([(HELLO, 1)], SAMPLING)
    assert fake.keys == [f"Bearer {KEY}", "Bearer none"]
    assert "sk-other" not in str(fake.headers)


def test_an_endpoints_answers_have_more_room_by_default() -> None:
    engine = {"name": "openai", "url": "http://127.0.0.1:1/v1", "key_variable": None}
    assert RoleConfig.model_validate({"model": "m", "engine": engine}).max_tokens == 512
    section = {"model": "m", "engine": engine, "max_tokens": 9}
    assert RoleConfig.model_validate(section).max_tokens == 9
    assert RoleConfig().max_tokens == 48


def test_a_wrong_model_is_named(fake: FakeEndpoint) -> None:
    line = refused(open_endpoint(fake, "small-model"))
    assert "answered 404 (The model `small-model` does not exist.)" in line
    assert "adapter.model (small-model)" in line
    assert fake.requests == 1


def test_a_model_that_wants_the_limit_by_its_newer_name_gets_it(fake: FakeEndpoint) -> None:
    fake.faults.extend([status(400, "Use 'max_completion_tokens' instead of 'max_tokens'.")] * 2)
    endpoint = open_endpoint(fake, retries=0, concurrency=2, timeout_seconds=9)
    fake.delay_seconds = 0.5  # so that both are refused before either knows
    assert len(endpoint.ask([(HELLO, 1), (HELLO, 2)], SAMPLING)) == 2
    names = [{"max_tokens", "max_completion_tokens"} & set(body) for body in fake.bodies]
    assert names == [{"max_tokens"}] * 2 + [{"max_completion_tokens"}] * 2
    assert {body.get("max_completion_tokens", 16) for body in fake.bodies} == {16}
    endpoint.ask([(HELLO, 3)], SAMPLING)
    assert "max_tokens" not in fake.bodies[-1]
    assert endpoint.pop_usage()["requests"] == fake.requests == 5


def test_a_wrong_address_is_named(fake: FakeEndpoint) -> None:
    line = refused(open_endpoint(fake, url=fake.url.removesuffix("/v1")))
    assert "answered 404 (Not Found)" in line
    assert "often ends in /v1" in line


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (status(429), "answered 429 (no luck) at each of 3 tries; lower adapter.engine.concurr"),
        (status(500), "answered 500 (no luck) at each of 3 tries; check its log"),
        (drop, "cannot be reached (RemoteProtocolError) at each of 3 tries; check that it"),
        (dribble, "did not answer within 0.3 s at each of 3 tries; raise adapter.engine.timeout_"),
        (text("{"), "sent invalid JSON at each of 3 tries; check"),
    ],
)
def test_after_the_last_try_the_reason_and_a_remedy_are_one_line(
    fake: FakeEndpoint, fault: Respond, said: str
) -> None:
    fake.faults.extend([fault] * 9)
    seconds = 0.3 if fault is dribble else 5
    assert said in refused(open_endpoint(fake, retries=2, timeout_seconds=seconds))
    assert fake.requests == 3


def test_nobody_at_the_address_is_one_line(fake: FakeEndpoint) -> None:
    with fake_endpoint() as gone:
        pass
    line = refused(open_endpoint(gone, retries=1))
    assert "cannot be reached (ConnectError) at each of 2 tries" in line


def test_one_failure_ends_the_others(fake: FakeEndpoint) -> None:
    fake.faults.append(status(401))
    with pytest.raises(EndpointError, match="401"):
        open_endpoint(fake, concurrency=1).ask([(HELLO, i) for i in range(50)], SAMPLING)
    assert fake.requests < 5


def test_a_server_that_asks_to_wait_is_not_asked_before(fake: FakeEndpoint) -> None:
    fake.faults.append(status(429, Retry_After="0.7"))
    open_endpoint(fake).ask([(HELLO, 1)], SAMPLING)
    first, second = fake.times
    assert 0.7 <= second - first < 8


def test_a_wait_longer_than_the_call_may_take_is_not_begun(fake: FakeEndpoint) -> None:
    fake.faults.append(status(429, Retry_After="3600"))
    begun = time.monotonic()
    assert "asks to wait 3600 s; lower" in refused(open_endpoint(fake))
    assert time.monotonic() - begun < 8
    assert fake.requests == 1


def test_waits_double_up_to_a_limit_and_differ_by_chance() -> None:
    for tries, longest in ((1, 0.5), (2, 1.0), (5, 8.0), (7, 30.0), (5000, 30.0)):
        waits = {backoff_seconds(tries, None) for _ in range(50)}
        assert longest / 2 <= min(waits) < max(waits) <= longest
    assert backoff_seconds(1, 12.0) == 12.0


def test_retry_after_is_read_in_seconds_and_as_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert asked_seconds({"retry-after": later}) == pytest.approx(100, abs=3)
    assert asked_seconds({"retry-after": "1.5"}) == 1.5
    assert asked_seconds({}) is None
    for nothing in ("soon", "nan", "inf", "-4", "1e9", "9" * 400, "1_0", "", "\u0663"):
        assert asked_seconds({"retry-after": nothing}) is None


def test_requests_together_take_as_long_as_answers_keep_coming(fake: FakeEndpoint) -> None:
    fake.delay_seconds = 0.5
    done = list[int]()
    endpoint = open_endpoint(fake, seconds=3.0, concurrency=1, timeout_seconds=9)
    answers = endpoint.ask([(HELLO, i) for i in range(8)], SAMPLING, done.append)
    assert [answer.text for answer in answers] == ["Hello."] * 8
    assert done == [1] * 8


def test_silence_has_a_limit_whatever_the_limit_of_a_try(fake: FakeEndpoint) -> None:
    fake.faults.extend([hang] * 8)
    begun = time.monotonic()
    with pytest.raises(GenerationTimeout, match=r"raise adapter\.timeout_seconds"):
        open_endpoint(fake, seconds=0.4, timeout_seconds=9).ask([(HELLO, 1)], SAMPLING)
    assert time.monotonic() - begun < 8


@pytest.mark.parametrize("waiting", ["for an answer", "before another try"])
def test_a_signal_stops_it_at_once(fake: FakeEndpoint, waiting: str) -> None:
    wait = status(503, Retry_After="30")
    fake.faults.extend([hang if waiting == "for an answer" else wait] * 20)
    endpoint = open_endpoint(fake, timeout_seconds=30)
    blow = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT))
    begun = time.monotonic()
    with Stopper().listening():
        blow.start()
        with pytest.raises(Stopped):
            endpoint.ask([(HELLO, i) for i in range(10)], SAMPLING)
    assert time.monotonic() - begun < 20
    deadline = time.monotonic() + 2
    while any(each.name == "endpoint" for each in threading.enumerate()):
        assert time.monotonic() < deadline, "requests go on after the interruption"
        time.sleep(0.01)
    blow.join()


@pytest.mark.parametrize(("said", "text_of_it"), [(None, ""), ("", ""), ("a \ud83d", "a \ufffd")])
def test_answers_without_text_or_with_half_characters_are_answers(
    fake: FakeEndpoint, said: str | None, text_of_it: str
) -> None:
    fake.say = lambda body: said
    assert open_endpoint(fake).ask([(HELLO, 1)], SAMPLING) == [Answer(text_of_it, "stop")]


def test_the_text_among_the_parts_of_an_answer_is_the_answer(fake: FakeEndpoint) -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    parts: Any = [thought, {"type": "text", "text": "No, "}, {"type": "text", "text": "go."}]
    fake.say = lambda body: parts
    assert open_endpoint(fake).ask([(HELLO, 1)], SAMPLING) == [Answer("No, go.", "stop")]


def test_further_fields_go_out_and_say_nothing_twice(fake: FakeEndpoint) -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    open_endpoint(fake, extra_body=extra).ask([(HELLO, 1)], SAMPLING)
    assert fake.bodies[0].items() >= {**extra, "max_tokens": 16}.items()
    with pytest.raises(ValidationError, match="temperature comes from the role"):
        open_endpoint(fake, extra_body={**extra, "temperature": 0})


def test_half_a_character_is_not_sent(fake: FakeEndpoint) -> None:
    open_endpoint(fake).ask([((Message("user", "a \ud83d"),), 1)], SAMPLING)
    assert fake.bodies[0]["messages"][0]["content"] == "a \ufffd"


def test_an_answer_that_was_cut_says_so(fake: FakeEndpoint) -> None:
    fake.finish_reason = "length"
    assert open_endpoint(fake).ask([(HELLO, 1)], SAMPLING) == [Answer("Hello.", "length")]


def test_an_endpoint_that_counts_no_tokens_is_no_fault(fake: FakeEndpoint) -> None:
    reply: dict[str, Any] = fake.completion({})
    for usage in (None, {}, {"prompt_tokens": None}):
        fake.faults.append(text(json.dumps({**reply, "usage": usage})))
    endpoint = open_endpoint(fake)
    endpoint.ask([(HELLO, i) for i in range(3)], SAMPLING)
    assert endpoint.pop_usage()["prompt_tokens"] == 0


@pytest.mark.parametrize("value", [None, "", "  \n", "two words", "é"])
def test_a_missing_key_is_one_line_that_names_the_variable(
    fake: FakeEndpoint, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("MY_KEY")
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(EndpointError, match=r"adapter: the environment variable MY_KEY holds no"):
        open_endpoint(fake)


def test_an_endpoint_without_keys_gets_none(
    fake: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    open_endpoint(fake, key_variable=None).ask([(HELLO, 1)], SAMPLING)
    assert fake.keys == ["Bearer none"]


def test_the_key_is_in_no_log(fake: FakeEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fake.faults.append(status(500))
    open_endpoint(fake).ask([(HELLO, 1)], SAMPLING)
    assert caplog.records, "the client logs nothing, so this shows nothing"
    assert KEY not in caplog.text


def test_it_works_outside_the_main_thread(fake: FakeEndpoint) -> None:
    found: list[Answer] = []
    ask: Callable[[], None] = lambda: found.extend(  # noqa: E731
        open_endpoint(fake).ask([(HELLO, 1)], SAMPLING)
    )
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(10)
    assert found == [Answer("Hello.", "stop")]


def test_images_go_out_as_data(fake: FakeEndpoint, tmp_path: Path) -> None:
    data = noise_png(0, 8, 8)
    name = Image(data).name
    (tmp_path / name).write_bytes(data)
    role = RoleConfig.model_validate(
        {"model": MODEL, "engine": {"name": "openai", "url": fake.url, "key_variable": None}}
    )
    setting = role.engine_setting("judge", 0, (tmp_path,))
    model = role.engine.build(None, setting)
    chat = (Message("system", "Look."), Message("user", "What is it?", (name,)))
    model.answer([ChatRequest(chat, (0,))], SAMPLING)
    [body] = fake.bodies
    system, user = body["messages"]
    assert system == {"role": "system", "content": "Look."}
    text, shown = user["content"]
    assert text == {"type": "text", "text": "What is it?"}
    begun, _, encoded = shown["image_url"]["url"].partition(",")
    assert (shown["type"], begun) == ("image_url", "data:image/png;base64")
    assert base64.b64decode(encoded) == data
    lost = (Message("user", "And this?", (f"{'0' * 32}.png",)),)
    with pytest.raises(ModelError, match=r"image 0{32}\.png is not in"):
        model.answer([ChatRequest(lost, (0,))], SAMPLING)
