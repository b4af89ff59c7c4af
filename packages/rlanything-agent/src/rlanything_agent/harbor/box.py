"""Containers of bubblewrap: the files of a task's image over the programs of this machine.

An image is a folder, which every episode copies. Its box has that copy at /, with this machine's
/usr over it, read-only except for /usr/bin and /usr/local/bin: those are folders of links in
memory, and what is added to them is kept among the files. There is no network. Tests run in a
second box, after every process of the first has ended, and the paths through which the policy could
change how they run are restored before.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from rlanything.domains.base import DomainError
from rlanything_agent.harbor.container import (
    SHOWN_BYTES,
    ContainerFault,
    Ran,
    Tested,
    read_rewards,
)
from rlanything_agent.harbor.dockerfile import (
    CONTEXT,
    Build,
    NotPlain,
    PlainImage,
    plain_base,
    read_image,
)
from rlanything_agent.harbor.folder import HarborTask
from rlanything_agent.harbor.needed import Installed
from rlanything_sandbox.bubblewrap import (
    ISOLATED,
    READ_IN_ETC,
    BoxProcess,
    Shown,
    Writable,
    boxed,
    bubblewrap,
    no_bubblewrap,
    resource_limits,
    shown_in_place,
    system,
    unused_user,
)

_HERE = Path(__file__).parent
_OWN = "/run/harbor"
_SYSTEM = "/run/system"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TESTS_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_LINKED = ("usr/bin", "usr/local/bin")
"""Folders of /usr to which programs may be added."""
_ADDED = "var/lib/added"
"""Folder of what was added to them."""
_FOLDERS = ("etc", "home", "media", "mnt", "opt", "root", "run", "srv", "usr", "var/cache")
_FOLDERS += ("var/lib", "var/log", "var/tmp", "var/lib/dpkg", "tmp", "logs/agent", "dev", "proc")
_FOLDERS += ("etc/apt", *(f"{_ADDED}/{name}" for name in _LINKED))
_SHOWN = (*READ_IN_ETC, "/etc/os-release", "/etc/debian_version", "/var/lib/dpkg")
_USERS = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
_GROUPS = "root:x:0:\nnogroup:x:65534:\n"
_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"
_RESTORED = ("bin", "sbin", "lib", "lib32", "lib64", "root/.local", "conftest.py", "pytest.ini")
_RESTORED += (".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "setup.py")
_RESTORED += ("pytest.toml", ".pytest.toml", "etc/perl", "etc/gitconfig")
"""Paths whose state in the image is what tests see: links and files through which a shell, Python
or pytest would run what the policy left there."""
_KEEP = (
    f"for name in {' '.join(_LINKED)}; do find /$name -mindepth 1 -maxdepth 1 "
    f"! -lname '{_SYSTEM}/*' -exec cp -dR --preserve=mode -t /{_ADDED}/$name {{}} +; done"
)
_STAND_INS = ("apt-get", "apt", "uvx", "uv")
_SHARED_BYTES = 64 * 2**20
"""Size of /dev/shm, and of each folder of programs."""
_START_SECONDS = 30.0
_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_CLOSE_SECONDS = 5.0


class BoxImages:
    """The images of a worker, each made once, in a temporary folder."""

    MOST = 16
    """Number of images that are kept beyond those of episodes that go on."""

    def __init__(self, here: Installed) -> None:
        self._here = here
        self._root = tempfile.TemporaryDirectory(prefix="harbor-", ignore_cleanup_errors=True)
        self._made: dict[Path, tuple[PlainImage, Path]] = {}
        self.open = set[BoxContainer]()
        """Containers of episodes that go on: their images are kept."""
        self._counted = 0
        own = self.folder("own")
        (own / "bin").mkdir()
        (own / "tests-bin").mkdir()
        python = here.prefix / "bin" / "python3"
        for name in ("supervisor.py", "stand_ins.py"):
            shutil.copyfile(_HERE / name, own / name)
        packages = {"debian": dict(here.debian), "python": dict(here.python)}
        present = {**packages, "programs": f"{here.prefix}/bin"}
        (own / "installed.json").write_text(json.dumps(present), encoding="utf-8")
        (own / "empty").touch()
        call = f"exec {python} -I -S {_OWN}/stand_ins.py {_OWN}/installed.json"
        for name in _STAND_INS:
            _program(own / "bin" / name, f'{call} {name} "$@"')
        # `python -m pytest` would import what the policy left in the working directory first.
        for name in ("python", "python3"):
            test = "tr '\\0' '\\n' </proc/$PPID/cmdline | grep -qx /tests/test.sh"
            safe = f'if [ "$1" = -m ] && {test}; then exec {python} -P "$@"; fi'
            _program(own / "tests-bin" / name, f'{safe}\nexec {python} "$@"')
        self.own = own
        self.python = python

    def folder(self, name: str) -> Path:
        """Returns a new folder."""
        self._counted += 1
        place = Path(self._root.name, f"{name}-{self._counted}")
        place.mkdir()
        return place

    def of(self, task: HarborTask, seconds: float) -> tuple[PlainImage, Path]:
        """Returns a task's image and the folder with its files, which is made if necessary. Raises
        `NotPlain` if an instruction fails."""
        if task.folder not in self._made:
            used = {container.files for container in self.open}
            idle = [one for one, (_, files) in self._made.items() if files not in used]
            for oldest in idle[: max(0, len(idle) + 1 - self.MOST)]:
                shutil.rmtree(self._made.pop(oldest)[1], ignore_errors=True)
            image = box_image(task, self._here)
            files = self.folder("image")
            try:
                _lay_out(files)
                self._build(task, image, files, seconds)
            except BaseException:
                shutil.rmtree(files, ignore_errors=True)
                raise
            self._made[task.folder] = (image, files)
        return self._made[task.folder]

    def copied(self, files: Path) -> Path:
        """Returns a copy of an image's files. Nothing of an image is followed. Raises
        `ContainerFault` if there is no room for it."""
        place = self.folder("episode")
        copied = subprocess.run(["cp", "-a", f"{files}/.", str(place)], capture_output=True)
        if copied.returncode:
            _discard(place)
            said = _last_line(copied.stderr.decode("utf-8", "replace"))
            raise ContainerFault(
                f"its image cannot be copied ({said}); free space in {place.parent}"
            )
        return place

    def variables(self, image: PlainImage, given: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment of commands."""
        known = {
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "USER": "root",
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "TAR_OPTIONS": "--no-same-owner",  # a box has one user
        }
        known |= {"PATH": box_path(self._here), **image.variables, **given}
        return known

    def shown(self, files: Path, more: Sequence[Shown]) -> list[Shown]:
        """Returns the files of a box, in the order in which they are mounted."""
        places, _ = system()
        linked: list[Shown] = [
            (Path("/", name), PurePosixPath(_SYSTEM, name)) for name in _linked()
        ]
        paths = [*map(Path, _SHOWN), self._here.prefix, self._here.base_prefix]
        empty: Shown = (self.own / "empty", PurePosixPath("/etc/ld.so.preload"))
        own: Shown = (self.own, PurePosixPath(_OWN))
        there = [*places, *linked, *shown_in_place(paths, places)]
        return [(files, Writable("/")), *there, empty, own, *more]

    def _build(self, task: HarborTask, image: PlainImage, files: Path, seconds: float) -> None:
        more: list[Shown] = []
        with contextlib.ExitStack() as stack:
            if task.context.is_dir():
                context = self.folder("context")
                stack.callback(_discard, context)
                shutil.copytree(task.context, context, symlinks=True, dirs_exist_ok=True)
                _open_to_all(context)
                more = [(context, PurePosixPath(CONTEXT))]
            deadline = time.monotonic() + seconds
            variables = self.variables(image, task.variables)
            session = _Session(self, files, more, variables, task)
            stack.enter_context(contextlib.closing(session))
            for build in image.builds:
                left = max(1.0, deadline - time.monotonic())
                ran = session.run(_with_variables(build), build.folder, left)
                if ran.status or ran.late:
                    why = "it takes too long" if ran.late else _last_line(ran.output)
                    raise NotPlain(f"{build.instruction}: {why}")
            if task.workdir is not None:
                session.run(f"mkdir -p {shlex.quote(task.workdir)}", "/", seconds)
            session.run(_KEEP, "/", seconds)


class BoxContainer:
    """A container in bubblewrap."""

    def __init__(self, images: BoxImages, task: HarborTask, seconds: float) -> None:
        """Raises `NotPlain` if the image cannot be made, `ContainerFault` if it cannot be copied,
        `DomainError` if boxes do not work here."""
        self._images = images
        self._task = task
        self._image, self.files = images.of(task, seconds)
        """The image, and the folder with its files."""
        self._state = images.copied(self.files)
        self._places = [self._state]
        """Folders that are removed with the container."""
        self._folder = task.workdir or self._image.folder
        self._variables = images.variables(self._image, task.variables)
        try:
            self._session = _Session(images, self._state, [], self._variables, task)
        except BaseException:
            _discard(self._state)
            raise
        images.open.add(self)

    @property
    def folder(self) -> str:
        return self._folder

    def run(self, command: str, seconds: float) -> Ran:
        return self._session.run(command, self._folder, seconds)

    def test(self, seconds: float) -> Tested:
        with contextlib.suppress(ContainerFault):
            self._session.run(_KEEP, "/", _GRACE_SECONDS)
        self._session.close()
        tests, logs = self._images.folder("tests"), self._images.folder("logs")
        self._places += [tests, logs]
        shutil.copytree(self._task.tests, tests, dirs_exist_ok=True)
        _open_to_all(tests)
        _give(logs)
        more: list[Shown] = [
            (tests, PurePosixPath("/tests")),
            (logs, Writable("/logs/verifier")),
        ]
        try:
            # Python runs sitecustomize.py of these folders.
            pythons = [f"etc/{each.name}" for each in (self._state / "etc").glob("python*")]
            for name in (*_RESTORED, *pythons):
                _restore(self.files, self._state, name)
            # A box that mounts on a link would not begin.
            for _, place in self._images.shown(self._state, more):
                _unlinked(self._state, str(place).lstrip("/"))
        except (OSError, subprocess.CalledProcessError) as error:
            raise ContainerFault(f"tests cannot begin on what it left: {error}") from None
        path = self._variables["PATH"]
        own = f"{_OWN}/tests-bin:{_OWN}/bin:{self._images.python.parent}"
        variables = {
            **self._variables,
            **self._task.tests_variables,
            "PATH": f"{own}:{_TESTS_PATH}:{path}",
            "PYTHONNOUSERSITE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        try:
            session = _Session(self._images, self._state, more, variables, self._task)
        except DomainError as error:
            said = str(error).partition(": allow")[0]  # the remedy is for machines without boxes
            raise ContainerFault(f"tests cannot begin on what it left: {said}") from None
        with contextlib.closing(session):
            ran = session.run("exec /bin/bash /tests/test.sh", self._folder, seconds)
        return Tested(read_rewards(logs), ran)

    def close(self) -> None:
        self._images.open.discard(self)
        self._session.close()
        for place in self._places:
            _discard(place)


class _Session:
    """A box with its supervisor, from its start to its end."""

    def __init__(
        self,
        images: BoxImages,
        files: Path,
        more: Sequence[Shown],
        variables: Mapping[str, str],
        task: HarborTask,
    ) -> None:
        program = bubblewrap()
        if program is None:
            raise DomainError(
                f"{no_bubblewrap()}, or start docker and set domain.options.container=docker; a "
                "policy's commands are run in a box"
            )
        self._files = files
        self._most_bytes = task.storage_mb * 2**20
        limits = resource_limits(task.memory_mb, self._most_bytes)
        options = [*ISOLATED, "--clearenv", "--hostname", "task", "--uid", "0", "--gid", "0"]
        options += ["--cap-drop", "ALL", "--as-pid-1"]
        for name, value in variables.items():
            options += ["--setenv", name, value]
        rest = ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
        for place in ("/dev/shm", *(f"/{name}" for name in _linked())):
            rest += ["--size", str(_SHARED_BYTES), "--tmpfs", place]
        linked = [[f"{_SYSTEM}/{name}", f"/{_ADDED}/{name}", f"/{name}"] for name in _linked()]
        rest += ["--chdir", "/", "--", str(images.python), "-I", "-S", f"{_OWN}/supervisor.py"]
        last = [json.dumps(limits), json.dumps(linked)]
        shown = images.shown(files, more)
        self._box = BoxProcess(lambda fd: boxed(program, options, shown, [*rest, f"{fd}", *last]))
        self._channel = self._box.channel
        if fault := self._box.fault(_START_SECONDS):
            raise DomainError(fault)

    def run(self, command: str, folder: str, seconds: float) -> Ran:
        """Returns how a command ended. Raises `ContainerFault`."""
        request = {"folder": folder, "seconds": seconds, "output_bytes": SHOWN_BYTES}
        script, output = (os.memfd_create(name) for name in ("script", "output"))
        try:
            os.write(script, command.encode("utf-8", "surrogateescape"))
            os.lseek(script, 0, os.SEEK_SET)
            socket.send_fds(self._channel, [json.dumps(request).encode()], [script, output])
            reply = self._reply(seconds + _GRACE_SECONDS)
            ended = Ran(
                int(reply["status"]),
                os.pread(output, SHOWN_BYTES + 256, 0).decode("utf-8", "replace"),
                min(float(reply["seconds"]), seconds),
                bool(reply["late"]),
            )
        except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
            self.close()
            raise ContainerFault("its box ended, or did not answer") from error
        finally:
            os.close(script)
            os.close(output)
        self._check_size()
        return ended

    def _reply(self, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._channel.settimeout(min(left, _LOOK_SECONDS))
            with contextlib.suppress(TimeoutError):
                return json.loads(self._channel.recv(4096))
            self._check_size()
        raise OSError("no answer")

    def _check_size(self) -> None:
        if _size(self._files) > self._most_bytes:
            self.close()
            said = f"it wrote more than {self._most_bytes // 2**20} MiB (environment.storage_mb)"
            raise ContainerFault(said)

    def close(self) -> None:
        """Ends every process of the box."""
        self._channel.close()
        self._box.kill(_CLOSE_SECONDS)


def box_path(here: Installed) -> str:
    """Returns PATH in a box: stand-ins of package managers, its Python, the system."""
    return f"{_OWN}/bin:{here.prefix}/bin:{_PATH}"


def box_image(task: HarborTask, here: Installed) -> PlainImage:
    """Returns a task's image. Raises `NotPlain` for what a box cannot do, and for packages that
    are missing."""
    if (task.context / "Dockerfile").is_file():
        image = read_image(task.context, box_path(here))
    elif task.docker_image is not None:
        image = plain_base(task.docker_image)
    else:
        raise NotPlain("it has neither environment/Dockerfile nor docker_image")
    if (task.context / ".dockerignore").is_file():
        raise NotPlain("environment/.dockerignore is not supported")
    if image.python not in (None, here.version):
        theirs, ours = (".".join(map(str, each)) for each in (image.python or (), here.version))
        raise NotPlain(
            f"FROM has Python {theirs}, and the box {ours}: name a {theirs} in "
            "domain.options.python"
        )
    for build in image.builds:
        lacking = here.lacks(build.script)
        if lacking is not None:
            raise NotPlain(f"{build.instruction}: {lacking} is not installed here")
    script = (task.tests / "test.sh").read_text(encoding="utf-8", errors="replace")
    lacking = here.lacks(script)
    if lacking is not None:
        raise NotPlain(f"tests/test.sh: {lacking} is not installed here")
    return image


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def _with_variables(build: Build) -> str:
    """Returns a build's script with the environment of that instruction."""
    names = "".join(f"export {name}={shlex.quote(v)}\n" for name, v in build.variables.items())
    return names + build.script


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return f"{lines[-1].strip():.160}" if lines else "it fails here"


def _lay_out(files: Path) -> None:
    """Makes the folders of an empty image."""
    for name in _FOLDERS:
        (files / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), files / name)
    for name, text in (("passwd", _USERS), ("group", _GROUPS), ("hosts", _HOSTS)):
        (files / "etc" / name).write_text(text)
    _give(files)


def _give(place: Path) -> None:
    """Makes files belong to the user of boxes: another one if this process is root."""
    if os.geteuid() == 0:
        user = unused_user()
        for folder, folders, names in os.walk(place):
            for name in (".", *folders, *names):
                os.chown(os.path.join(folder, name), user, user, follow_symlinks=False)
    for name in ("tmp", "var/tmp"):
        if (place / name).is_dir():
            (place / name).chmod(0o1777)


def _open_to_all(place: Path) -> None:
    """Makes files readable for the user of boxes."""
    subprocess.run(["chmod", "-R", "a+rX", str(place)], check=True, capture_output=True)


def _restore(image: Path, state: Path, name: str) -> None:
    """Gives a path its state in the image. No process may be changing the files."""
    _unlinked(state, str(PurePosixPath(name).parent))
    source, target = image / name, state / name
    same = source.is_symlink() and target.is_symlink()
    if same and os.readlink(source) == os.readlink(target):
        return
    _remove(target)
    if source.is_symlink() or source.exists():
        subprocess.run(["cp", "-a", str(source), str(target)], check=True, capture_output=True)


def _unlinked(state: Path, name: str) -> None:
    """Removes the first link on the way to a path, or at its end: none that the policy left is
    followed."""
    place = state
    for part in PurePosixPath(name).parts:
        place /= part
        if place.is_symlink():
            place.unlink()
        elif not place.exists():
            return


def _linked() -> list[str]:
    return [name for name in _LINKED if Path("/", name).is_dir()]


def _remove(place: Path) -> None:
    """Removes a file, a link or a folder. Raises `OSError` if that fails. Programs do it, because
    the policy may nest folders more deeply than Python's own functions follow."""
    if not os.path.lexists(place):
        return
    if not place.is_symlink():  # chmod would follow it
        _make_readable(place)
    subprocess.run(["rm", "-rf", "--", str(place)], capture_output=True)
    if os.path.lexists(place):
        raise OSError(f"{place} cannot be removed")


def _make_readable(place: Path) -> None:
    subprocess.run(["chmod", "-R", "u+rwX", "--", str(place)], capture_output=True)


def _discard(place: Path) -> None:
    """Removes a folder that is no longer needed; one that stays only takes space."""
    with contextlib.suppress(OSError):
        _remove(place)


def _size(place: Path) -> int:
    """Returns the bytes of a folder's files, at least a block for each; those that vanish meanwhile
    count 0. Folders that the policy made unreadable are made readable."""
    listed = ["find", str(place), "-printf", "%b\n"]
    listing = subprocess.run(listed, capture_output=True, env={**os.environ, "LC_ALL": "C"})
    if b"Permission denied" in listing.stderr:
        _make_readable(place)
        listing = subprocess.run(listed, capture_output=True)
    return sum(max(1, int(blocks)) * 512 for blocks in listing.stdout.split())
