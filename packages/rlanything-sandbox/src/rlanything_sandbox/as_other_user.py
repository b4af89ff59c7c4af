"""A script for root: shows some files to another user, becomes that user, then runs a command.

    python as_other_user.py '{"user": 64001, "staging": "/tmp", "shown": [[from, name], ...],
                              "command": [...]}'

The files are bound under `staging` in a new mount namespace, because they may be in a folder that
only root can read (/root). Standalone: it runs isolated and imports nothing from the library.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

NEW_MOUNT_NAMESPACE = 0x00020000
BIND, RECURSIVE, PRIVATE = 4096, 16384, 1 << 18


def main() -> None:
    wanted = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments):
            sys.exit(f"{name}: {os.strerror(ctypes.get_errno())}")

    def mount(source: str, target: str, kind: str, flags: int) -> None:
        call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None)

    call("unshare", NEW_MOUNT_NAMESPACE)
    mount("none", "/", "", RECURSIVE | PRIVATE)
    # Files under the staging folder must be bound before it is covered.
    places = [(os.open(source, os.O_PATH), name) for source, name in wanted["shown"]]
    mount("tmpfs", wanted["staging"], "tmpfs", 0)
    os.chmod(wanted["staging"], 0o755)
    os.umask(0o022)
    for place, name in places:
        source, target = f"/proc/self/fd/{place}", os.path.join(wanted["staging"], name)
        if os.path.isdir(source):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        mount(source, target, "", BIND | RECURSIVE)
        os.close(place)
    os.setgroups([])
    os.setresgid(wanted["user"], wanted["user"], wanted["user"])
    os.setresuid(wanted["user"], wanted["user"], wanted["user"])
    os.execv(wanted["command"][0], wanted["command"])


if __name__ == "__main__":
    main()
