"""Endpoints with the OpenAI chat API, called through the official client."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeVar

import openai

from rlanything.backoff import asked_seconds, backoff_seconds
from rlanything.engines.base import OnSamples, Sampling
from rlanything.engines.deadline import GenerationTimeout
from rlanything.engines.images import ImageBook
from rlanything.records import Message, Messages
from rlanything.replies import BadReply, json_object, key_headers, key_in, number, place, quoted
from rlanything.surrogates import whole_characters

# They log every header of a reply, which may contain the key.
for name in ("httpx2", "httpcore2"):
    logging.getLogger(name).setLevel(logging.WARNING)

T = TypeVar("T")
_PASSING = frozenset({408, 429})
"""Transient statuses below 500."""
BYTES_PER_TOKEN = 256
"""Limit of an answer's bytes per allowed token; the longest tokens have half of that."""
ENVELOPE = 2**20
"""Limit of a reply's bytes besides its tokens."""
MOST_TOKENS = 2**53
SHARED_WITH_KEY = 6
"""Redact any word that shares this many consecutive characters with the key, forwards or
reversed."""
SHORTEST_ENCODED = 12
"""Also redact any word at least this long and no shorter than the key: it may be the key,
encoded."""
_NO_ROOM = re.compile(
    rb"context[ _](length|size|window)|model length|(prompt|input) is too long|input token count|"
    rb"maximum prompt length|range of input length|max_new_tokens. must be",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    rb"insufficient_quota|billing_(hard_limit_reached|not_active)|exceeded your current quota|"
    rb"insufficient_(credits|funds|balance)|credit balance is too low",
    re.IGNORECASE,
)
_SOON = re.compile(rb"retry in [\d.]+ ?m?s|retryDelay")
"""In Google's message about a limit that passes, which otherwise speaks of used up quota too."""
_CUT = frozenset({"length", "max_tokens", "model_length", "max_output_tokens"})
_BROKEN_OFF = frozenset({"abort", "aborted", "cancelled", "error"})
_WITHHELD = frozenset(
    {"content_filter", "refusal", "safety", "recitation", "blocklist", "prohibited_content", "spii"}
)


class EndpointError(ValueError):
    """An endpoint failed; the message is one line with role, address, reason and remedy."""


class EndpointSettings(Protocol):
    """The settings of an endpoint, documented in `OpenAIEngineConfig`."""

    @property
    def url(self) -> str: ...
    @property
    def key_variable(self) -> str | None: ...
    @property
    def concurrency(self) -> int: ...
    @property
    def retries(self) -> int: ...
    @property
    def timeout_seconds(self) -> float: ...
    @property
    def extra_body(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the endpoint, without its separate reasoning."""

    text: str
    stop_reason: Literal["stop", "length"]


@dataclass(slots=True)
class Usage:
    """Usage counts of an endpoint."""

    requests: int = 0
    """Number of requests, retries included."""
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Completion tokens counted by the endpoint, reasoning included."""
    too_long: int = 0
    """Prompts that did not fit and got an empty answer."""
    cut: int = 0
    """Answers that max_tokens cut off."""
    refused: int = 0
    """Answers that the endpoint withheld or broke off: refusals and content filters."""
    empty: int = 0
    """Complete answers without any text."""

    def by_name(self) -> dict[str, int]:
        """Returns the counts by name; the last three only if they are not 0."""
        return {k: n for k, n in asdict(self).items() if n or k not in ("cut", "refused", "empty")}


class _Fault(Exception):
    """One try failed, with a reason and a remedy."""

    def __init__(
        self, what: str, remedy: str, passing: bool, asked_seconds: float | None = None
    ) -> None:
        super().__init__(what)
        self.remedy = remedy
        self.passing = passing
        """Whether a retry may succeed."""
        self.asked_seconds = asked_seconds
        """Seconds that the endpoint asks to wait before a retry."""


class Refused(Exception):
    """A reply with an error status or a redirect."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """An HTTP client that limits replies to `most` bytes, does not decompress them, and follows no
    redirects, which would send prompts elsewhere. It hides headers from the official client, which
    would log them."""

    def __init__(self, most: int) -> None:
        super().__init__(follow_redirects=False, headers={"Accept-Encoding": "identity"})
        self._most = most

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Raises `Refused`, and `BadReply` for a reply that is too long."""
        del stream
        response = await super().send(request, stream=True, **options)
        body = bytearray()
        try:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > self._most:
                    break
        finally:
            await response.aclose()
        if not response.is_success:
            raise Refused(response.status_code, response.headers, bytes(body))
        if len(body) > self._most:
            raise BadReply(f"sent more than {self._most} bytes")
        return type(response)(response.status_code, content=bytes(body), request=request)


class Endpoint:
    """One model of one endpoint, for one role."""

    def __init__(
        self,
        role: str,
        model: str,
        config: EndpointSettings,
        seconds: float,
        images: ImageBook | None = None,
    ) -> None:
        """`seconds`: longest time without an answer; `images`: images that messages may name.
        Reads the key from the environment; raises `EndpointError` if it is missing."""
        self._role = role
        self._model = model
        self._config = config
        self._seconds = seconds
        self._usage = Usage()
        self._images = images or ImageBook()
        self._key = self._read_key()
        self._limit = "max_tokens"

    def ask(
        self,
        chats: Sequence[tuple[Messages, int]],
        sampling: Sampling,
        on_samples: OnSamples | None = None,
    ) -> list[Answer]:
        """Returns one answer per chat and seed, by one request each; an empty one, with stop reason
        "length", for a chat that the endpoint finds too long. `on_samples` is called in another
        thread.

        Raises `EndpointError` for the first request that fails permanently, `GenerationTimeout` if
        no answer comes for too long, `ModelError` for a missing image. Any interruption cancels the
        pending requests."""
        try:
            return _interruptible(self._ask_all(chats, sampling, on_samples))
        except TimeoutError:
            raise GenerationTimeout(
                f"{self._role}: {self._config.url} answered none of {len(chats)} requests for "
                f"{self._seconds:g} s; raise {self._role}.timeout_seconds"
            ) from None

    def pop_usage(self) -> dict[str, int]:
        """Returns the usage since the last call, by name."""
        usage, self._usage = self._usage, Usage()
        return usage.by_name()

    def _read_key(self) -> str | None:
        variable = self._config.key_variable
        if variable is None:
            return None
        key = key_in(variable)
        if key is None:
            raise EndpointError(
                f"{self._role}: the environment variable {variable} holds no key for "
                f"{self._config.url}; set it, or use {self._role}.engine.key_variable=null if the "
                "endpoint needs none"
            )
        return key

    async def _ask_all(
        self,
        chats: Sequence[tuple[Messages, int]],
        sampling: Sampling,
        on_samples: OnSamples | None,
    ) -> list[Answer]:
        slots = asyncio.Semaphore(self._config.concurrency)
        clock = asyncio.get_running_loop().time
        async with (
            asyncio.timeout(self._seconds) as patience,
            openai.AsyncOpenAI(
                # Without a key the client would look for one itself.
                api_key=self._key or "none",
                base_url=self._config.url,
                timeout=self._config.timeout_seconds,
                max_retries=0,
                default_headers=key_headers(self._key or "none", openai.omit),
                http_client=BoundedClient(ENVELOPE + BYTES_PER_TOKEN * sampling.max_tokens),
            ) as client,
        ):

            async def one(messages: Messages, seed: int) -> Answer:
                # Waiting before a retry keeps the slot, which reduces the load of a busy endpoint.
                async with slots:
                    answer = await self._persist(client, messages, seed, sampling, patience)
                if not patience.expired():
                    patience.reschedule(clock() + self._seconds)
                if on_samples is not None:
                    on_samples(1)
                return answer

            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(one(*chat)) for chat in chats]
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _persist(
        self,
        client: openai.AsyncOpenAI,
        messages: Messages,
        seed: int,
        sampling: Sampling,
        patience: asyncio.Timeout,
    ) -> Answer:
        """Retries until there is an answer, the error is permanent, or the next wait would exceed
        all patience."""
        tries, clock = 0, asyncio.get_running_loop().time
        while True:
            tries += 1
            self._usage.retries += tries > 1
            try:
                return await self._try(client, messages, seed, sampling)
            except _Fault as fault:
                wait = backoff_seconds(tries, fault.asked_seconds)
                end = patience.when()
                late = end is not None and clock() + wait > end
                if late or not fault.passing or tries > self._config.retries:
                    raise self._failure(fault, tries, late) from None
            await asyncio.sleep(wait)

    def _failure(self, fault: _Fault, tries: int, late: bool) -> EndpointError:
        asked = fault.asked_seconds
        wish = f" and asks to wait {asked:.0f} s" if asked and late else ""
        tried = f" at each of {tries} tries" if tries > 1 else ""
        return EndpointError(
            f"{self._role}: {self._config.url} {fault}{wish}{tried}; {fault.remedy}"
        )

    def _quoted(self, words: object) -> str:
        """Returns the endpoint's message in one line, without words that may contain the key, which
        some endpoints repeat."""
        key = (self._key or "").casefold()
        length = SHARED_WITH_KEY
        parts = {
            text[start : start + length]
            for text in (key, key[::-1])
            for start in range(max(len(text) - length + 1, 1))
        }

        def hide(word: str) -> bool:
            encoded = len(word) >= max(len(key), SHORTEST_ENCODED)
            return bool(key) and (encoded or any(part in word.casefold() for part in parts))

        return quoted(words, hide)

    async def _try(
        self, client: openai.AsyncOpenAI, messages: Messages, seed: int, sampling: Sampling
    ) -> Answer:
        """Sends one request. Raises `_Fault`."""
        config, role, limit = self._config, self._role, self._limit
        self._usage.requests += 1
        try:
            # The client's own timeout restarts with every byte.
            async with asyncio.timeout(config.timeout_seconds):
                reply = await client.chat.completions.with_raw_response.create(
                    model=self._model,
                    messages=[self._turn(message) for message in messages],
                    # Some servers only use 32 bits, some refuse more.
                    seed=seed % 2**31,
                    temperature=sampling.temperature,
                    extra_body={**config.extra_body, limit: sampling.max_tokens},
                )
        except (TimeoutError, openai.APITimeoutError):
            what = f"did not answer within {config.timeout_seconds:g} s"
            raise _Fault(what, f"raise {role}.engine.timeout_seconds", True) from None
        except Refused as refused:
            # The newest models need the new name, which older servers do not know.
            if limit == "max_tokens" and b"max_completion_tokens" in refused.body:
                self._limit = "max_completion_tokens"
                return await self._try(client, messages, seed, sampling)
            if _says_no_room(refused.status, refused.body):
                self._usage.too_long += 1
                return Answer("", "length")
            raise self._refusal(refused) from None
        except BadReply as bad:
            raise self._no_answer(str(bad)) from None
        except openai.APIConnectionError as error:
            reason = type(error.__cause__ or error).__name__
            remedy = f"check that it is running and that {role}.engine.url is its address"
            raise _Fault(f"cannot be reached ({reason})", remedy, True) from None
        return self._read(reply.content, sampling.max_tokens)

    def _turn(self, message: Message) -> Any:
        text = whole_characters(message.content)
        if not message.images:
            return {"role": message.role, "content": text}
        encoded = (base64.b64encode(self._images.data(name)).decode() for name in message.images)
        urls = [{"url": f"data:image/png;base64,{data}"} for data in encoded]
        shown = [{"type": "image_url", "image_url": url} for url in urls]
        return {"role": message.role, "content": [{"type": "text", "text": text}, *shown]}

    def _refusal(self, refused: Refused) -> _Fault:
        status, role = refused.status, self._role
        words = self._quoted(_words(refused.body))
        what = f"answered {status}{f' ({words})' if words else ''}"
        variable = self._config.key_variable
        no_credit = _says_no_credit(status, refused.body)
        if 300 <= status < 400:
            where = self._quoted(place(refused.headers.get("location", ""))) or "another path"
            what = f"answered {status} and redirects to {where}, which is not followed"
            remedy = f"if that is right, set {role}.engine.url to its address"
        elif status in (401, 403):
            remedy = (
                f"put a valid key into the environment variable {variable}"
                if variable
                else f"name the environment variable with its key in {role}.engine.key_variable"
            )
        elif status == 404:
            remedy = (
                f"{role}.model ({self._model}) must be a model that it serves, and "
                f"{role}.engine.url the base URL of its API, which often ends in /v1"
            )
        elif no_credit:
            what = f"answered {status}: its quota is used up{f' ({words})' if words else ''}"
            account = f"of the key in {variable}" if variable else "that it asks for"
            remedy = f"add credit to the account {account}, then resume; waiting does not help"
        elif status == 429:
            remedy = f"lower {role}.engine.concurrency or raise {role}.engine.retries"
        elif status >= 500:
            remedy = "check its log, then resume"
        else:
            remedy = f"check its requirements for {role}.model, temperature and max_tokens"
        passing = (status in _PASSING or status >= 500) and not no_credit
        return _Fault(what, remedy, passing, asked_seconds(refused.headers))

    def _no_answer(self, what: str) -> _Fault:
        remedy = f"check that {self._role}.engine.url is an OpenAI-compatible API"
        return _Fault(what, remedy, True)

    def _read(self, content: bytes, max_tokens: int) -> Answer:
        """Returns the answer in a reply and counts its tokens. Raises `_Fault` if there is none."""
        try:
            reply = json_object(content)
            [choice, *_] = reply["choices"]
            message = choice["message"]
            text = message.get("content") or ""
            if isinstance(text, list):  # in parts; some models' reasoning has other types
                text = "".join(part["text"] for part in text if part["type"] == "text")
            if not isinstance(text, str):
                raise TypeError("the content is not a text")
            usage = reply.get("usage") or {}
            prompt, completion = (
                int(number(usage.get(name), MOST_TOKENS))
                for name in ("prompt_tokens", "completion_tokens")
            )
            if _reason(choice) in _BROKEN_OFF or choice.get("error"):
                raise BadReply("broke its answer off")
        except BadReply as bad:
            raise self._no_answer(str(bad)) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            what = f"sent something other than a chat completion ({type(error).__name__})"
            raise self._no_answer(what) from None
        text = whole_characters(text)
        if (size := len(text.encode())) > BYTES_PER_TOKEN * max_tokens:
            raise self._no_answer(f"sent {size} bytes of text for max_tokens={max_tokens}")
        self._usage.prompt_tokens += prompt
        self._usage.completion_tokens += completion
        self._usage.cut += (cut := _was_cut(choice))
        self._usage.refused += (refused := _was_withheld(choice))
        self._usage.empty += not (text.strip() or cut or refused or message.get("tool_calls"))
        # A filter leaves a partial answer, like a token limit.
        return Answer(text, "length" if cut or refused else "stop")


def _says_no_room(status: int, body: bytes) -> bool:
    """Whether an error says that the prompt is too long."""
    return 400 <= status < 500 and bool(_NO_ROOM.search(body))


def _says_no_credit(status: int, body: bytes) -> bool:
    """Whether an error says that the account has no credit, so that waiting does not help."""
    without = bool(_NO_CREDIT.search(body)) and not _SOON.search(body)
    return status == 402 or (status == 429 and without)


def _was_cut(choice: Mapping[str, Any]) -> bool:
    """Whether the token limit cut an answer off."""
    return _reason(choice) in _CUT


def _was_withheld(choice: Mapping[str, Any]) -> bool:
    """Whether a refusal or content filter withheld an answer or broke it off."""
    return _reason(choice) in _WITHHELD or bool(choice["message"].get("refusal"))


def _reason(choice: Mapping[str, Any]) -> str:
    return str(choice.get("finish_reason") or "").lower()


def _words(body: bytes) -> object:
    """Returns an endpoint's error message: the one in its JSON, or the whole body."""
    try:
        said = json_object(body)
    except BadReply:
        return body.decode("utf-8", "replace")
    error = said.get("error", said)
    return error.get("message") or error.get("detail") if isinstance(error, dict) else error


def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`, whose event loop runs in its own thread.

    An event loop in the main thread may swallow a signal handler's exception. Here the main thread
    only waits, so that Ctrl-C takes effect immediately."""
    loop = asyncio.new_event_loop()
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(loop.run_until_complete(work))
        except BaseException as error:
            result.set_exception(error)
        finally:
            loop.close()

    def cancel() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()

    thread = threading.Thread(target=run, name="endpoint", daemon=True)
    thread.start()
    try:
        return result.result()
    except BaseException:
        with suppress(RuntimeError):  # the loop has just closed
            loop.call_soon_threadsafe(cancel)
        thread.join(1.0)
        raise
