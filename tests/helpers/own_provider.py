"""A provider of machines as a user may write one: desktops of this machine, of which it passes on
what OSWorld's own server has as well.

Imported by desktop_env's Python, and slow to nobody: it stands in for docker or a cloud.
"""

from __future__ import annotations

from rlanything_osworld.desktop import Desktop
from rlanything_osworld.machine import PORTS


class OwnDesktops:
    """The methods of desktop_env's providers, on a desktop in namespaces."""

    def __init__(self, region: str | None) -> None:
        assert region == "here"
        self._desktop: Desktop | None = None
        self._ports: list[int] = []

    def start_emulator(self, path: str, headless: bool, os_type: str) -> None:
        if self._desktop is None:
            self._desktop = Desktop()
            self._ports = [self._desktop.forward(port) for port in PORTS]
            self._desktop.ready()

    def get_ip_address(self, path: str) -> str:
        server, chromium, vlc = self._ports
        return f"127.0.0.1:{server}:{chromium}:0:{vlc}"

    def revert_to_snapshot(self, path: str, snapshot_name: str) -> str:
        assert (path, snapshot_name) == ("own", "init_state")
        self.stop_emulator(path)
        return path

    def stop_emulator(self, path: str) -> None:
        if self._desktop is not None:
            self._desktop.close()
            self._desktop = None
