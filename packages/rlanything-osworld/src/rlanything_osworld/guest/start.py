"""The first process of a desktop: limits, files, then screen, buses, window manager and server.

    python3 start.py WIDTH HEIGHT LIMITS HOST_FD SERVER_FD CHROMIUM_FD VLC_FD < home.tar

It waits for all of them, and ends as soon as one ends, because they need each other. HOST_FD: a
pipe whose other end closes when the host ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tarfile

DUMPABLE = 4
"""Option of `prctl`."""
HERE = os.path.dirname(os.path.abspath(__file__))
BUS = "/run/user/bus"
OFFICE = "/usr/lib/libreoffice/program"
VLC = "/usr/bin/vlc"
CHROMIUM_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--password-store=basic", "--force-renderer-accessibility", "--no-default-browser-check"),
    *(
        "--user-data-dir=/home/user/.config/google-chrome",
        "--disable-smooth-scrolling",
        "--test-type",
    ),
)
CHROME = "/opt/google/chrome/chrome"
# OSWorld's tasks call programs by their names on its own machine.
SHIMS = {
    "python": 'exec /usr/bin/python3 "$@"',
    "google-chrome": f'exec {CHROME} {" ".join(CHROMIUM_FLAGS)} "$@"',
    "gnome-terminal": 'exec /usr/bin/lxterminal "$@"',
    "nautilus": 'exec /usr/bin/pcmanfm "$@"',
    "gedit": 'exec /usr/bin/mousepad "$@"',
    # No user has more rights in here; set-ups that request them mostly need none.
    "sudo": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
}
SHIMS["chromium"] = SHIMS["chromium-browser"] = SHIMS["google-chrome"]


def main() -> None:
    width, height, limits, host_pipe, *listeners = sys.argv[1:]
    prepare(json.loads(limits))
    # No program may read or write its memory. Not earlier: it may then not write to /proc/self.
    ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)
    host = os.dup(2)
    log = os.open("/tmp/.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    screen = start_screen(width, height)
    if select.select([int(host_pipe)], [], [], 0)[0]:
        # The host ended before bwrap had asked to end with it, which it has by now. The first
        # process inside ends when it has no child left.
        os.kill(-1, signal.SIGKILL)
        return
    os.close(int(host_pipe))
    # The bus starts the accessibility bus on its first request.
    bus = start_bus()
    manager = subprocess.Popen(["openbox", "--config-file", f"{HERE}/openbox.xml"])
    numbers = [int(number) for number in listeners]
    command = [sys.executable, "-B", f"{HERE}/server.py", *listeners]
    server = subprocess.Popen(command, pass_fds=numbers)
    for number in numbers:
        os.close(number)
    subprocess.Popen([sys.executable, "-B", f"{HERE}/launcher.py"])
    names = {screen.pid: "X", bus.pid: "D-Bus", manager.pid: "openbox", server.pid: "the server"}
    while (ended := os.wait()[0]) not in names:
        pass
    with open("/tmp/.log", "rb") as file:
        last = file.read()[-200:].decode("utf-8", "replace").strip().rpartition("\n")[2]
    os.write(host, f"{names[ended]} ended ({last})\n".encode())


def prepare(limits: dict[str, int]) -> None:
    """Sets the limits of all later processes, and fills the home folder."""
    for name, amount in limits.items():
        resource.setrlimit(getattr(resource, name), (amount, amount))
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # if the host runs out of memory, the desktop is killed first
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        archive.extractall("/home/user")
    for name in ("Desktop", "Documents", "Downloads", ".config"):
        os.makedirs(f"/home/user/{name}", exist_ok=True)
    settle_office()
    settle_player()
    os.makedirs("/tmp/.bin")
    for name, line in SHIMS.items():
        with open(f"/tmp/.bin/{name}", "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\n{line}\n")
        os.chmod(f"/tmp/.bin/{name}", 0o755)


def settle_office() -> None:
    """Gives LibreOffice the settings of an earlier start: a first start repeats much work, and
    takes five times as long."""
    folder = "/home/user/.config/libreoffice/4/user"
    if os.path.exists(folder) or not os.path.exists(OFFICE):
        return
    known = {}
    for name in ("versionrc", "bootstraprc"):
        with open(f"{OFFICE}/{name}", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.strip().partition("=")
                known[key] = value
    with open(f"{HERE}/libreoffice.xcu", encoding="utf-8") as file:
        settings = file.read().replace("BUILD", known.get("buildid", ""))
    settings = settings.replace("VERSION", known.get("ProductKey", "").rpartition(" ")[2])
    os.makedirs(folder)
    with open(f"{folder}/registrymodifications.xcu", "w", encoding="utf-8") as file:
        file.write(settings)


def settle_player() -> None:
    """Gives VLC the settings of an earlier start, as on OSWorld's own machine: it does not ask
    about privacy, and evaluators find a file of settings."""
    folder = "/home/user/.config/vlc"
    if os.path.exists(folder) or not os.path.exists(VLC):
        return
    os.makedirs(folder)
    with open(f"{folder}/vlcrc", "w", encoding="utf-8") as file:
        file.write("[qt]\nqt-privacy-ask=0\n")


def start_screen(width: str, height: str) -> subprocess.Popen[bytes]:
    """Starts the X server and waits until it accepts connections."""
    os.makedirs("/tmp/.X11-unix", mode=0o1777)
    ready, theirs = os.pipe()
    # Shared memory between X and programs would not count towards any limit.
    command = ["Xvfb", ":0", "-screen", "0", f"{width}x{height}x24", "-nolisten", "tcp"]
    command += ["-noreset", "-extension", "MIT-SHM", "-displayfd", str(theirs)]
    process = subprocess.Popen(command, pass_fds=[theirs])
    await_line(ready, theirs)
    return process


def start_bus() -> subprocess.Popen[bytes]:
    """Starts the session bus and waits until it accepts connections."""
    os.environ["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={BUS}"
    ready, theirs = os.pipe()
    command = ["dbus-daemon", "--session", "--nofork", f"--address=unix:path={BUS}"]
    process = subprocess.Popen([*command, f"--print-address={theirs}"], pass_fds=[theirs])
    await_line(ready, theirs)
    return process


def await_line(ready: int, theirs: int) -> None:
    """Reads from a pipe until a line arrives or the other end is closed."""
    os.close(theirs)
    said = b""
    while not said.endswith(b"\n") and (more := os.read(ready, 256)):
        said += more
    os.close(ready)


if __name__ == "__main__":
    main()
