"""Harbor task folders: what is read of them, and what is refused.

The format is that of Harbor 0.26: `task.toml`, `instruction.md`, `environment/`, `tests/test.sh`
and, for the expert, `solution/solve.sh`.
"""

from __future__ import annotations

import base64
import io
import re
import shlex
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlanything.domains.base import DomainError, MissingData
from rlanything_agent.harbor.dockerfile import NotPlain, text_of

_TEMPLATE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_SOLUTION = "/solution"


class _Section(BaseModel):
    model_config = ConfigDict(extra="allow")
    """Harbor adds keys in every release; those that change an episode are checked by name."""


class _Timed(_Section):
    timeout_sec: Annotated[float, Field(gt=0)] | None = None
    env: dict[str, str] = Field(default_factory=dict)
    user: str | int | None = None
    network_mode: str | None = None
    environment_mode: str | None = None
    environment: Any = None
    collect: list[Any] = Field(default_factory=list)


class _Surroundings(_Section):
    docker_image: str | None = None
    os: str = "linux"
    cpus: float | None = None
    memory_mb: Annotated[int, Field(gt=0)] | None = None
    memory: str | None = None
    storage_mb: Annotated[int, Field(gt=0)] | None = None
    gpus: int | None = None
    tpu: Any = None
    mcp_servers: list[Any] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    healthcheck: Any = None
    workdir: str | None = None
    network_mode: str | None = None
    allow_internet: bool | None = None


class _Settings(_Section):
    verifier: _Timed = _Timed()
    agent: _Timed = _Timed()
    solution: _Timed = _Timed()
    environment: _Surroundings = _Surroundings()
    steps: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class HarborTask:
    """A task folder whose settings have been read."""

    folder: Path
    instruction: str
    agent_seconds: float
    """Time that all commands of an episode may take together."""
    tests_seconds: float
    variables: Mapping[str, str]
    """Environment of the container."""
    tests_variables: Mapping[str, str]
    """Additional environment of the tests."""
    workdir: str | None
    """Working directory; None: the image's."""
    docker_image: str | None
    memory_mb: int
    storage_mb: int
    cpus: float | None
    network: bool
    """Whether the task's container may use the network, which a box never has."""

    @property
    def context(self) -> Path:
        return self.folder / "environment"

    @property
    def tests(self) -> Path:
        return self.folder / "tests"


def task_folders(folder: Path) -> list[Path]:
    """Returns the task folders in a folder, or the folder itself. Raises `DomainError` if there are
    none."""
    if (folder / "task.toml").is_file():
        return [folder]
    inside = sorted(path.parent for path in folder.glob("*/task.toml"))
    if not folder.is_dir():
        raise MissingData(f"tasks: {folder} is no folder; name one that has Harbor's task folders")
    if not inside:
        raise DomainError(f"tasks: {folder} has no */task.toml; name a folder of Harbor's tasks")
    return inside


def read_task(folder: Path) -> HarborTask:
    """Returns a task. Raises `NotPlain` for a folder that is incomplete, or that asks for what is
    not done here."""
    text = text_of(folder / "task.toml")
    try:
        settings = _Settings.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise NotPlain(f"task.toml is no TOML ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise NotPlain(f"task.toml: {place}: {first['msg']}") from None
    around = settings.environment
    unfit = _unfit(settings, folder)
    if unfit is not None:
        raise NotPlain(f"{unfit} is not supported")
    if not (folder / "tests" / "test.sh").is_file():
        raise NotPlain("it has no tests/test.sh")
    return HarborTask(
        folder,
        text_of(folder / "instruction.md").strip(),
        settings.agent.timeout_sec or 600.0,
        settings.verifier.timeout_sec or 600.0,
        _resolved(around.env, "environment.env"),
        _resolved(settings.verifier.env, "verifier.env"),
        around.workdir,
        around.docker_image,
        around.memory_mb or _megabytes(around.memory) or 2048,
        around.storage_mb or 10240,
        around.cpus,
        around.allow_internet is not False and around.network_mode in (None, "public"),
    )


def solving(folder: Path) -> str | None:
    """Returns the commands that unpack the reference solution and run it; None without one."""
    if not (folder / "solution" / "solve.sh").is_file():
        return None
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder / "solution", ".", filter=_owned_by_root)
    lines = base64.encodebytes(packed.getvalue()).decode()
    settings = _Settings.model_validate(tomllib.loads(text_of(folder / "task.toml")))
    variables = _resolved(settings.solution.env, "solution.env")
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return (
        f"mkdir -p {_SOLUTION} && base64 -d <<'PACKED' | tar xz -C {_SOLUTION}\n{lines}PACKED\n"
        f"{exports}export DEBIAN_FRONTEND=noninteractive\nbash {_SOLUTION}/solve.sh"
    )


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _unfit(settings: _Settings, folder: Path) -> str | None:
    """Returns the setting that is not honoured here, None if all are."""
    around, tests, agent = settings.environment, settings.verifier, settings.agent
    refused = {
        "steps": settings.steps,
        "environment.os": around.os.lower() != "linux",
        "environment.gpus": around.gpus,
        "environment.tpu": around.tpu,
        "environment.mcp_servers": around.mcp_servers,
        "environment.healthcheck": around.healthcheck,
        "environment.network_mode": around.network_mode == "allowlist",
        "verifier.environment": tests.environment,
        "verifier.environment_mode": tests.environment_mode not in (None, "shared"),
        "verifier.collect": tests.collect,
        "verifier.network_mode": tests.network_mode,
        "verifier.user": tests.user not in (None, "root", 0),
        "agent.network_mode": agent.network_mode,
        "agent.user": agent.user not in (None, "root", 0),
    }
    for name, value in refused.items():
        if value:
            return f"task.toml: {name}"
    composed = sorted((folder / "environment").glob("*compose.y*ml"))
    return f"environment/{composed[0].name}" if composed else None


def _resolved(variables: Mapping[str, str], place: str) -> dict[str, str]:
    """Returns variables with the defaults of their templates. Raises `NotPlain` for one that comes
    from this machine, whose secrets are not passed on."""

    def default(match: re.Match[str]) -> str:
        if match[2] is None:
            raise NotPlain(f"task.toml: {place}: {match[0]} is not passed on from this machine")
        return match[2]

    return {name: _TEMPLATE.sub(default, value) for name, value in variables.items()}


def _megabytes(size: str | None) -> int | None:
    """Returns a size such as `2G`, as older tasks have it, in MiB."""
    match = re.fullmatch(r"([\d.]+)\s*([KMG])B?", (size or "").strip().upper())
    scale = {"K": 1 / 1024, "M": 1, "G": 1024}
    return max(1, int(float(match[1]) * scale[match[2]])) if match else None
