"""Runs programs on a server: the HTTP API of SandboxFusion, which other servers speak too."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from rlanything.backoff import asked_seconds, backoff_seconds
from rlanything.domains.coding.sandbox.base import (
    Job,
    RunResult,
    SandboxUnavailable,
    Verdict,
)
from rlanything.domains.coding.sandbox.comparison import verdict_on

TRIES = 5
GRACE_SECONDS = 30.0
"""Seconds that a server may take beyond a run's own limit: to queue, compile and answer."""
LARGEST_ANSWER = 64 * 2**20
TEMPORARY = (408, 429, 500, 502, 503, 504)


class RemoteExecutor:
    """POSTs every run to `url` (`http://host:8080`, to which `/run_code` is added).

    The server decides how programs are contained, and how stdin that is no text is handled. Outputs
    are compared here: the expected output does not leave this process."""

    def __init__(self, url: str, parallel: int = 16) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise SandboxUnavailable(f"{url}: a sandbox server's url begins with http(s)://")
        self._url = f"{url.rstrip('/')}/run_code"
        # No proxy of the environment: programs go to the server that was named.
        self._opener = build_opener(ProxyHandler({}))
        self._threads = ThreadPoolExecutor(parallel, "sandbox")

    def run(self, job: Job) -> RunResult:
        """Runs one job on the server. Raises `SandboxUnavailable` where the server refuses such
        requests."""
        body = json.dumps(_request(job)).encode()
        reason = ""
        for tries in range(1, TRIES + 1):
            asked = None
            try:
                return _result(job, self._post(body, job.limits.wall + GRACE_SECONDS))
            except HTTPError as error:
                error.close()
                if error.code not in TEMPORARY:
                    raise SandboxUnavailable(
                        f"{self._url} answers {error.code} {error.reason}: is it a SandboxFusion "
                        "server, and the url right?"
                    ) from None
                reason = f"it answers {error.code}"
                asked = asked_seconds(
                    {name.lower(): value for name, value in error.headers.items()}
                )
            except (URLError, http.client.HTTPException, OSError) as error:
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            except _Unreadable as error:
                reason = str(error)
            if tries < TRIES:
                time.sleep(backoff_seconds(tries, asked))
        return RunResult(Verdict.BROKEN, reason=f"{self._url}: {reason}, {TRIES} times")

    def run_all(self, jobs: Sequence[Job]) -> list[RunResult]:
        return list(self._threads.map(self.run, jobs))

    def close(self) -> None:
        self._threads.shutdown()

    def _post(self, body: bytes, timeout: float) -> Mapping[str, Any]:
        request = Request(self._url, body, {"Content-Type": "application/json"})
        with self._opener.open(request, timeout=timeout) as response:
            raw = response.read(LARGEST_ANSWER + 1)
        if len(raw) > LARGEST_ANSWER:
            raise _Unreadable("its answer is too long")
        try:
            answer = json.loads(raw)
        except ValueError:
            raise _Unreadable("its answer is no JSON") from None
        if not isinstance(answer, dict):
            raise _Unreadable("its answer is no object")
        return answer


class _Unreadable(Exception):
    """An answer that says nothing about the run."""


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
    status, run = answer.get("status"), answer.get("run_result")
    if status not in ("Success", "Failed") or not isinstance(run, dict):
        raise _Unreadable(f"its status is {status!r}: {answer.get('message') or 'no message'}")
    stdout = str(run.get("stdout") or "").encode("utf-8", "surrogateescape")
    stderr = str(run.get("stderr") or "")
    seconds = float(run.get("execution_time") or 0.0)
    verdict, reason = _verdict(job, run, stdout, stderr)
    limit = job.limits.output_bytes
    return RunResult(verdict, stdout[:limit], stderr[-4096:], seconds, None, reason)


def _verdict(job: Job, run: Mapping[str, Any], stdout: bytes, stderr: str) -> tuple[Verdict, str]:
    if run.get("status") == "TimeLimitExceeded":
        return Verdict.TIMEOUT, f"more than {job.limits.wall:g} s"
    code = run.get("return_code")
    if run.get("status") != "Finished" or not isinstance(code, int):
        raise _Unreadable(f"the run's status is {run.get('status')!r}")
    if max(len(stdout), len(stderr)) > job.limits.output_bytes:
        return Verdict.OUTPUT, f"more than {job.limits.output_bytes} bytes"
    if code != 0:
        if stderr.rstrip().endswith("MemoryError"):
            return Verdict.MEMORY, f"more than {job.limits.memory_mb} MiB"
        return Verdict.ERROR, f"exit status {code}"
    return verdict_on(stdout, job.expected, job.tolerance), ""
