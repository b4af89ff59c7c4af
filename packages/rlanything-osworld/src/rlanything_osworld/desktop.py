"""A Linux desktop in namespaces: isolated from the host, without network, with limits on
everything.

    desktop = Desktop()
    desktop.request("POST", "/setup/launch", {"command": ["mousepad"]})
    desktop.close()

The host talks to the desktop's server by HTTP, over a listening socket that the host creates and
passes on. So no host folder has to be writable from the desktop.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import weakref
from pathlib import Path, PurePosixPath

from rlanything.domains.base import DomainError
from rlanything_osworld.denied import syscall_filter
from rlanything_osworld.guest.relay import Relay
from rlanything_osworld.machine import PORTS, Body, DesktopLost, NoAnswer, exchange
from rlanything_osworld.packages import DESKTOP, missing, remedy
from rlanything_osworld.watchdog import DesktopLimits, Watchdog
from rlanything_sandbox.bubblewrap import (
    ISOLATED,
    Shown,
    boxed,
    bubblewrap,
    no_bubblewrap,
    refusal,
    system,
)

GUEST = Path(__file__).with_name("guest")
START_SECONDS = 60.0
_SHOWN = (
    "etc/alternatives",
    "etc/chromium",
    "etc/dconf",
    "etc/fonts",
    "etc/gimp",
    "etc/gtk-2.0",
    "etc/gtk-3.0",
    "etc/ld.so.cache",
    "etc/libreoffice",
    "etc/localtime",
    "etc/mailcap",
    "etc/mime.types",
    "etc/X11",
    "etc/xdg",
    "var/lib/libreoffice",
    "var/cache/fontconfig",
    "var/lib/dictionaries",
)
"""Files of the host, besides /usr, without which programs do not start or look different."""
_WRITTEN = {
    "/etc/passwd": "user:x:1000:1000:User:/home/user:/bin/bash\n",
    "/etc/group": "user:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost desktop\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
}
_ENVIRONMENT = {
    "HOME": "/home/user",
    "USER": "user",
    "LOGNAME": "user",
    "SHELL": "/bin/bash",
    "PATH": "/tmp/.bin:/usr/bin:/bin:/usr/games",
    "PYTHONPATH": "/opt/guest",
    "PYTHONDONTWRITEBYTECODE": "1",
    "DISPLAY": ":0",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "XDG_RUNTIME_DIR": "/run/user",
    "XDG_CURRENT_DESKTOP": "X-Generic",
    "GDK_BACKEND": "x11",
    "GSETTINGS_BACKEND": "keyfile",
    "GTK_MODULES": "gail:atk-bridge",
    "NO_AT_BRIDGE": "0",
    "GNOME_ACCESSIBILITY": "1",
    "ACCESSIBILITY_ENABLED": "1",
    "SAL_USE_VCLPLUGIN": "gtk3",
    "LIBGL_ALWAYS_SOFTWARE": "1",
}


class DesktopUnavailable(DomainError):
    """Error if no desktop can be contained on this machine; one line that ends with the remedy."""


class Desktop:
    """A desktop with its own processes, files and screen.

    `size`: of the screen in pixels. `home`: a folder whose files are copied into /home/user. The
    constructor returns while the desktop is still starting; the first request waits for it. Raises
    `DesktopUnavailable` if packages or namespaces are missing."""

    password = ""

    def __init__(
        self,
        size: tuple[int, int] = (1280, 800),
        home: Path | None = None,
        limits: DesktopLimits | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise DesktopUnavailable(f"a desktop runs in a box, and {no_bubblewrap()}")
        self.size = size
        self._limits = limits or DesktopLimits()
        # Only its owner can look into it, and so only its owner can connect.
        self._sockets = tempfile.TemporaryDirectory(
            prefix="rlanything-desktop-", ignore_cleanup_errors=True
        )
        self._folder = Path(self._sockets.name)
        self._relays: list[Relay] = []
        self._ready = False
        self._closed = False
        self._lock = threading.Lock()
        listeners = [self._listener(port) for port in PORTS]
        information, theirs = os.pipe()
        seen, held = os.pipe()
        files = [_memory_file("home", _archive(home)), _memory_file("filter", syscall_filter())]
        files += [_memory_file("written", text.encode()) for text in _WRITTEN.values()]
        try:
            numbers = [seen, *(each.fileno() for each in listeners)]
            command = self._command(numbers, theirs, files)
            self._process = subprocess.Popen(
                command,
                pass_fds=[*numbers, theirs, *files],
                stdin=files[0],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            self._sockets.cleanup()
            os.close(information)
            os.close(held)
            raise
        finally:
            for listener in listeners:
                listener.close()
            for file in (theirs, seen, *files):
                os.close(file)
        self._watchdog = Watchdog(self._process, information, self._limits)
        # An unclosed desktop ends with the last reference to it, or with this process.
        self._end = weakref.finalize(self, _kill, self._process.pid, held)

    def request(self, method: str, path: str, body: Body = None, seconds: float = 60.0) -> bytes:
        """Returns the answer of the desktop's server to a request.

        `body`: sent as JSON, or bytes as they are. Raises `DesktopRefusal` if the server cannot
        carry it out. Raises `DesktopLost` if the desktop died or does not answer in `seconds`; it
        is then ended."""
        self.ready()
        return self._exchange(method, path, body, seconds)

    def ready(self) -> None:
        """Waits until the desktop has started. Raises `DesktopUnavailable` and `DesktopLost`."""
        if not self._ready:
            self._await_start()

    def forward(self, port: int) -> int:
        """Returns a TCP port on 127.0.0.1 that reaches a port of the desktop, one of `PORTS`."""
        if port not in PORTS:
            raise ValueError(f"port {port} of a desktop is not reachable: forward one of {PORTS}")
        relay = Relay(str(self._folder / f"{port}"))
        self._relays.append(relay)
        return relay.port

    def socket_path(self, port: int) -> Path:
        """Returns the unix socket that reaches a port of the desktop, one of `PORTS`."""
        return self._folder / f"{port}"

    @property
    def pid(self) -> int:
        """The outermost process of the desktop."""
        return self._process.pid

    def memory(self) -> int:
        """Returns the total bytes of its processes and files, as counted for the limit."""
        return self._watchdog.memory()

    def close(self) -> None:
        """Ends every process of the desktop and deletes its files."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._watchdog.stop()
        for relay in self._relays:
            relay.close()
        # bwrap's first process ends with it, and then the namespace with everything in it.
        self._end()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._sockets.cleanup()

    def _listener(self, port: int) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._folder / f"{port}"))
        listener.listen(64)
        return listener

    def _command(self, numbers: list[int], information: int, files: list[int]) -> list[str]:
        program = bubblewrap()
        lacking = missing(DESKTOP)
        if program is None or lacking:
            lacking = lacking or ["bubblewrap"]
            raise DesktopUnavailable(
                f"a desktop needs {', '.join(lacking)}, missing here: {remedy(lacking)}"
            )
        width, height = self.size
        start = ["/usr/bin/python3", "-B", "/opt/guest/start.py", str(width), str(height)]
        start += [json.dumps(self._limits.of_processes()), *map(str, numbers)]
        options = [*ISOLATED, "--clearenv", "--hostname", "desktop", "--uid", "1000"]
        options += ["--gid", "1000"]
        options += ["--cap-drop", "ALL", "--seccomp", str(files[1])]
        options += ["--info-fd", str(information)]
        for name, value in _ENVIRONMENT.items():
            options += ["--setenv", name, value]
        programs, links = system()
        rest = ["--tmpfs", "/usr/local", "--remount-ro", "/usr/local", *links]
        for (path, _), file in zip(_WRITTEN.items(), files[2:], strict=True):
            rest += ["--perms", "0444", "--ro-bind-data", str(file), path]
        rest += ["--proc", "/proc", "--dev", "/dev"]
        for path, mebibytes in self._limits.of_folders().items():
            rest += ["--size", str(mebibytes * 2**20), "--tmpfs", path]
        # Anything still writable would be a tmpfs without a size limit.
        rest += ["--remount-ro", "/dev", "--remount-ro", "/"]
        rest += ["--chdir", "/home/user", "--", *start]
        return boxed(program, options, [*programs, *_shown()], rest)

    def _await_start(self) -> None:
        try:
            self._exchange("GET", "/ready", None, START_SECONDS)
        except DesktopLost as lost:
            said = self._last_words()
            if not self._watchdog.began:
                raise DesktopUnavailable(refusal(said)) from lost
            raise DesktopLost(f"the desktop did not start: {said or lost}") from lost
        self._ready = True

    def _last_words(self) -> str:
        """Returns the last line that bwrap or the first process printed; "" if there is none."""
        stderr = self._process.stderr
        if stderr is None or not select.select([stderr], [], [], 1.0)[0]:
            return ""
        said = os.read(stderr.fileno(), 65536).decode("utf-8", "replace").strip()
        return said.splitlines()[-1] if said else ""

    def _exchange(self, method: str, path: str, body: Body, seconds: float) -> bytes:
        try:
            return exchange(str(self._folder / "5000"), method, path, body, seconds)
        except NoAnswer as fault:
            self._end()
            reason = str(fault) if fault.late else f"the desktop ended at {fault}"
            raise DesktopLost(self._watchdog.reason or reason) from fault


def _kill(group: int, pipe: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    os.close(pipe)


def _shown() -> list[Shown]:
    """Returns the further files of the host that a desktop shows, and our own."""
    places = [Path("/", name) for name in _SHOWN]
    shown = [(place, PurePosixPath(place)) for place in places if place.exists()]
    # Its processes are named after the file: tasks end the browser with `pkill chrome`.
    browser = [
        (file, PurePosixPath("/opt/google/chrome", file.name.replace("chromium", "chrome")))
        for file in sorted(Path("/usr/lib/chromium").glob("*"))
    ]
    return [*shown, *browser, (GUEST, PurePosixPath("/opt/guest"))]


def _archive(home: Path | None) -> bytes:
    """Returns a tar of a folder's files, all owned by the desktop's user."""

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 1000
        member.uname = member.gname = ""
        return member

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        if home is not None:
            for path in sorted(home.iterdir()):
                archive.add(path, path.name, filter=owned)
    return data.getvalue()


def _memory_file(name: str, content: bytes) -> int:
    """Returns an immutable file in memory: the desktop inherits it, and could otherwise write to it
    at the host's expense."""
    file = os.memfd_create(name, os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
    os.lseek(file, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file
