"""Things of the host that a hostile program may want, and a run of it with nothing in between."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template

from helpers.attacks import REACHED, Attack

TOKEN = "s3cr3t-of-the-host"
EXPECTED = "42 forty-two 4711"
HANGS_SECONDS = 1.5
NAIVE = Path(__file__).with_name("naive_harness.py")


@dataclass(frozen=True, slots=True)
class Stage:
    folder: Path
    victim: subprocess.Popen[bytes]
    names: dict[str, str]

    def program(self, attack: Attack) -> str:
        return Template(attack.program).safe_substitute(self.names)


@contextmanager
def new_stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        # Not below a folder that only this user can enter: a box must be what keeps others out.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        folder.chmod(0o755)
        (folder / "secret").write_text(TOKEN)
        (folder / "expected").write_text(TOKEN + EXPECTED)
        (folder / "victim").write_text("still here")
        # It sleeps in this process's session, and has the same user.
        victim = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        path, abstract = str(folder / "socket"), f"rlanything-{os.getpid()}"
        for address in (path, f"\0{abstract}"):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(address)
            server.listen(8)
        names = {
            "secret": str(folder / "secret"),
            "expected": str(folder / "expected"),
            "victim_file": str(folder / "victim"),
            "socket": path,
            "abstract": abstract,
            "port": str(tcp.getsockname()[1]),
            "victim": str(victim.pid),
            "token": TOKEN,
        }
        yield Stage(folder, victim, names)


def run_unprotected(stage: Stage, attack: Attack) -> str:
    """The effect it had: "says", "hangs", "dies", "passes", "absent" or nothing."""
    with tempfile.TemporaryDirectory(dir=stage.folder) as place:
        program = Path(place, "program.py")
        program.write_text(stage.program(attack))
        (Path(place) / "expected").write_text(TOKEN + EXPECTED)
        secret = os.open(stage.folder / "secret", os.O_RDONLY)
        read, write = os.pipe()
        command = [sys.executable, "-I", "-S", str(program)]
        if attack.effect == "passes":
            command[3:] = [str(NAIVE), str(program), str(write), EXPECTED]
        with open(Path(place, "out"), "w+b") as out, open(read, "rb") as channel:
            try:
                ended = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.DEVNULL if "stderr" not in attack.name else out,
                    cwd=place,
                    env={"TOKEN": TOKEN, "PATH": os.defpath, "HOME": place},
                    pass_fds=[secret, write],
                    start_new_session=True,
                )
            finally:
                os.close(secret)
                os.close(write)
            try:
                patience = HANGS_SECONDS if attack.effect == "hangs" else 30
                status = ended.wait(patience)
            except subprocess.TimeoutExpired:
                return "hangs"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(ended.pid, signal.SIGKILL)
                ended.wait()
            out.seek(0)
            said = out.read()
            if attack.effect == "passes":
                return "passes" if channel.read().startswith(b"passed") else ""
        if status < 0:
            return "dies"
        if REACHED.encode() in said:
            return "says"
        return "absent" if b"ABSENT" in said else ""
