"""The address of an HTTP server: its socket, its key, and the names that requests call it by."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL_ONLY = (
    "only serves this machine: address it as 127.0.0.1 or localhost, from no other site's page"
)
"""The refusal of a request that is not local, after the server's name."""


class ServeError(ValueError):
    """Something cannot be served; the message is one line with the remedy."""


def bound(host: str, port: int) -> socket.socket:
    """Returns a socket bound to an address, not listening yet. Raises `ServeError`."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ServeError(
            f"--host {host} --port {port}: {error.strerror}; choose another port (0: a free one), "
            "or an address of this machine"
        ) from None
    return listening


def key_of(variable: str | None, option: str = "--key-variable") -> str | None:
    """Returns the key in an environment variable, as a header carries it; None: no variable, no
    key. `option`: the one that named the variable. Raises `ServeError` for an empty key, and for
    one that clients could not send."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii():
        fault = "is not ASCII" if key else "is empty"
        raise ServeError(f"{option}: {variable} {fault}: set it to the key, in ASCII")
    return key


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is a loopback one."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_local(hosts: Sequence[str], origins: Sequence[str]) -> bool:
    """Whether a request's headers `host` and `origin` are loopback names or addresses. A web page
    whose name was pointed at this machine sends that name as host; every page that sends to another
    site, or opens a web socket, says where it is from as origin."""
    try:
        names = [urlsplit(f"//{host}").hostname for host in hosts]
        names += [urlsplit(origin).hostname for origin in origins]
    except ValueError:
        return False
    return bool(hosts) and all(is_loopback(name or "") for name in names)
