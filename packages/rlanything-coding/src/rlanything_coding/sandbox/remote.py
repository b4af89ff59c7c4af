"""Runs programs on a server with the HTTP API of SandboxFusion, which other servers offer too."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any
from urllib.parse import urlsplit

from rlanything.backoff import asked_seconds, backoff_seconds
from rlanything.replies import BadReply, json_object, number, place, quoted
from rlanything_coding.sandbox.base import (
    CONTROL,
    Job,
    RunResult,
    SandboxUnavailable,
    Verdict,
)
from rlanything_coding.sandbox.comparison import kept, verdict_on

TRIES = 5
GRACE_SECONDS = 20.0
"""Seconds beyond a run's own limit that a server may take to queue, compile and answer."""
SILENT_SECONDS = 20.0
"""Seconds without an answer after which a trial program is sent instead of a retry."""
TRIAL_SECONDS = 10.0
"""Seconds within which a server must answer the trial program."""
REMEMBERED_SECONDS = 60.0
"""Seconds for which a server that answered neither program is not contacted again."""
LONGEST_SECONDS = 86_400.0
"""Upper limit in seconds of one request, regardless of the run's limit."""
TEMPORARY = (408, 429, 500, 502, 503, 504)
BYTES_AS_JSON = 6
"""Largest number of JSON bytes for one byte of output."""
ENVELOPE = 2**20
"""Largest size in bytes of an answer without its output."""


class _Silence(BadReply):
    """No answer within the time limit of a request."""


class RemoteExecutor:
    """POSTs every run to `url` (`http://host:8080`, to which `/run_code` is added).

    The server decides how programs are contained, and how stdin that is not valid text is handled.
    Outputs are compared here: the expected output does not leave this process."""

    def __init__(self, url: str, parallel: int = 16) -> None:
        if not re.fullmatch("https?://[!-~]+", url) or not place(url):
            raise SandboxUnavailable(
                f"{quoted(url)}: a sandbox server's url begins with http(s):// and its host"
            )
        parts = urlsplit(url)
        if "@" in parts.netloc or parts.query or parts.fragment:  # which may hold a secret
            raise SandboxUnavailable(
                f"{parts.scheme}://{place(url)}: a sandbox server's url has no user, query or "
                "fragment: give its host and path only"
            )
        self._url = f"{url.rstrip('/')}/run_code"
        self._threads = ThreadPoolExecutor(parallel, "sandbox")
        self._silence = ""
        self._silent_until = 0.0

    def run(self, job: Job) -> RunResult:
        """Runs one job on the server; the result is broken if the server gives no valid answer, to
        this program or to any other. Raises `SandboxUnavailable` if the server refuses every
        program or does not answer."""
        if time.monotonic() < self._silent_until:
            raise SandboxUnavailable(self._silence)
        try:
            result, refusal = self._patiently(job), None
        except SandboxUnavailable as fault:
            result, refusal = RunResult(Verdict.BROKEN, reason=str(fault)), fault
        except _Silence as fault:
            return self._after(fault)
        if result.verdict is not Verdict.BROKEN:
            return result
        if self._answers(CONTROL, TRIAL_SECONDS).verdict is Verdict.OK:
            # A program must not be able to exclude itself: a fault that only it triggers is
            # attributed to it.
            again = self._answers(job, LONGEST_SECONDS)
            if again.verdict is not Verdict.BROKEN:
                return again
            return RunResult(Verdict.ERROR, reason=f"{result.reason}; another program ran")
        if refusal is not None:
            raise refusal
        return result

    def _after(self, silence: _Silence) -> RunResult:
        """Returns the result of a program that got no answer, if the server answers another
        program. Otherwise raises `SandboxUnavailable`, as do other calls for a while."""
        reason = f"{self._url}: it {silence}"
        if self._answers(CONTROL, TRIAL_SECONDS).verdict is Verdict.OK:
            return RunResult(Verdict.ERROR, reason=f"{reason}; another program ran")
        self._silence = (
            f"{reason}, nor a trial program within {TRIAL_SECONDS:g} s: see that a sandbox server "
            "runs there"
        )
        self._silent_until = time.monotonic() + REMEMBERED_SECONDS
        raise SandboxUnavailable(self._silence)

    def _answers(self, job: Job, most_seconds: float) -> RunResult:
        """Runs a job in one try; the result is broken if that fails for any reason."""
        body, seconds = _sent(job)
        try:
            return self._try(job, body, min(seconds, most_seconds))
        except (BadReply, SandboxUnavailable) as fault:
            return RunResult(Verdict.BROKEN, reason=str(fault))

    def _patiently(self, job: Job) -> RunResult:
        """Runs a job with retries; the result is broken if none succeeds. Raises
        `SandboxUnavailable`, or `_Silence` after a long wait."""
        body, seconds = _sent(job)
        begun = time.monotonic()
        end = begun + TRIES * seconds
        tries = 0
        while True:
            tries += 1
            try:
                return self._try(job, body, seconds)
            except BadReply as fault:
                if isinstance(fault, _Silence) and time.monotonic() - begun >= SILENT_SECONDS:
                    raise
                reason, asked = str(fault), fault.asked_seconds
            wait = backoff_seconds(tries, asked)
            if tries == TRIES or wait > end - time.monotonic():
                break
            time.sleep(wait)
        wish = f" and asks to wait {asked:.0f} s" if asked else ""
        times = f", {tries} times" if tries > 1 else ""
        return RunResult(Verdict.BROKEN, reason=f"{self._url}: it {reason}{wish}{times}")

    def run_all(self, jobs: Sequence[Job]) -> list[RunResult]:
        return list(self._threads.map(self.run, jobs))

    def close(self) -> None:
        self._threads.shutdown()

    def _try(self, job: Job, body: bytes, seconds: float) -> RunResult:
        """Returns the result of one try. Raises `BadReply`."""
        most = 2 * BYTES_AS_JSON * job.limits.output_bytes + ENVELOPE
        end = time.monotonic() + seconds
        try:
            response, raw = self._post(body, most, end)
            if time.monotonic() >= end:
                raise TimeoutError
        except (OSError, http.client.HTTPException, ValueError) as error:
            if time.monotonic() >= end:
                raise _Silence(f"did not answer within {seconds:g} s") from None
            reason = quoted(str(error)) or type(error).__name__
            raise BadReply(f"cannot be reached ({reason})") from None
        if not 200 <= response.status < 300:
            raise self._refusal(response)
        return _too_long(job, raw) if len(raw) > most else _result(job, json_object(raw))

    def _post(self, body: bytes, most: int, end: float) -> tuple[http.client.HTTPResponse, bytes]:
        """Returns the answer with its body, or its first `most` + 1 bytes; stops at the time `end`.

        Redirects are not followed, nothing is unpacked, and no proxy from the environment is used:
        programs go only to the server that was named."""
        parts = urlsplit(self._url)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        with closing(kind(parts.netloc, timeout=end - time.monotonic())) as connection:
            connection.connect()
            # The socket's own time limit restarts with every byte that arrives.
            watch = threading.Timer(end - time.monotonic(), _hang_up, (connection.sock,))
            watch.daemon = True
            watch.start()
            try:
                headers = {"Content-Type": "application/json"}
                connection.request("POST", parts.path, body, headers)
                response = connection.getresponse()
                return response, response.read(most + 1)
            finally:
                watch.cancel()

    def _refusal(self, response: http.client.HTTPResponse) -> BadReply:
        """Returns a temporary refusal; raises `SandboxUnavailable` for a permanent one."""
        status = response.status
        if status in TEMPORARY:
            headers = {name.lower(): value for name, value in response.getheaders()}
            return BadReply(f"answers {status}", asked_seconds(headers))
        if 300 <= status < 400:
            where = quoted(place(response.headers.get("Location", ""))) or "another path"
            raise SandboxUnavailable(
                f"{self._url} answers {status} and points to {where}, and programs do not "
                "follow redirects: give the url of the server itself, if that is it"
            )
        raise SandboxUnavailable(
            f"{self._url} answers {status} {quoted(response.reason)}: is it a SandboxFusion "
            "server, and the url right?"
        )


def _hang_up(connection: socket.socket) -> None:
    """Shuts down the socket itself: the `shutdown` of TLS would wait for the server."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _sent(job: Job) -> tuple[bytes, float]:
    """Returns a request's body, and the seconds that the server may take for it."""
    seconds = min(job.limits.wall + GRACE_SECONDS, LONGEST_SECONDS)
    return json.dumps(_request(job)).encode(), seconds


def _request(job: Job) -> dict[str, Any]:
    stdin = job.stdin
    if isinstance(stdin, bytes):
        stdin = stdin.decode("utf-8", "surrogateescape")
    return {
        "code": job.program,
        "language": "python",
        "stdin": stdin,
        "run_timeout": job.limits.wall,
        "memory_limit_MB": job.limits.memory_mb,
    }


def _result(job: Job, answer: Mapping[str, Any]) -> RunResult:
    """Returns the result in an answer. Raises `BadReply`."""
    status, run = answer.get("status"), answer.get("run_result")
    if status not in ("Success", "Failed") or not isinstance(run, dict):
        message = quoted(answer.get("message")) or "no message"
        raise BadReply(f"has status {quoted(status) or 'none'}: {message}")
    stdout, stderr = _output(run.get("stdout")), _output(run.get("stderr"))
    took = number(run.get("execution_time"), LONGEST_SECONDS)
    verdict, reason = _verdict(job, run, stdout, stderr)
    end = stderr[-4096:].decode("utf-8", "replace")
    beginning, summary = kept(job, verdict, stdout[: job.limits.output_bytes])
    return RunResult(verdict, beginning, end, took, None, reason, summary)


def _output(text: object) -> bytes:
    """Returns a program's output. Programs may print any bytes, so no bytes are the server's fault.
    Raises `BadReply` if it is not a text."""
    if not isinstance(text, str | None):
        raise BadReply("sent an output that is no text")
    try:
        return (text or "").encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return (text or "").encode("utf-8", "surrogatepass")


_OUTPUT = re.compile(rb'"std(?:out|err)"\s*+:\s*+"((?:[^"\\]++|\\.)*+)', re.DOTALL)


def _too_long(job: Job, raw: bytes) -> RunResult:
    """Returns the verdict on a program whose output alone makes the answer too long. Raises
    `BadReply` if the server caused the length."""
    limit = job.limits.output_bytes
    if all(len(text[1]) <= BYTES_AS_JSON * limit for text in _OUTPUT.finditer(raw)):
        raise BadReply("sent too much")
    return RunResult(Verdict.OUTPUT, reason=f"more than {limit} bytes")


def _verdict(job: Job, run: Mapping[str, Any], stdout: bytes, stderr: bytes) -> tuple[Verdict, str]:
    if run.get("status") == "TimeLimitExceeded":
        return Verdict.TIMEOUT, f"more than {job.limits.wall:g} s"
    code = run.get("return_code")
    if run.get("status") != "Finished" or type(code) is not int or abs(code) >= 2**32:
        raise BadReply(f"has a run of status {quoted(run.get('status')) or 'none'}")
    if max(len(stdout), len(stderr)) > job.limits.output_bytes:
        return Verdict.OUTPUT, f"more than {job.limits.output_bytes} bytes"
    if code != 0:
        if stderr.rstrip().endswith(b"MemoryError"):
            return Verdict.MEMORY, f"more than {job.limits.memory_mb} MiB"
        return Verdict.ERROR, f"exit status {code}"
    return verdict_on(stdout, job.expected, job.grading), ""
