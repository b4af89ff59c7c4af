"""The Debian packages of a desktop: a file that identifies each, and the missing ones.

`python -m rlanything_osworld.packages` prints the missing ones, for `make osworld`.
"""

from __future__ import annotations

from pathlib import Path

from rlanything.domains.findings import Finding
from rlanything.terminal import write_line

_PYTHON = "usr/lib/python3/dist-packages"
DESKTOP = {
    "bubblewrap": "usr/bin/bwrap",
    "xvfb": "usr/bin/Xvfb",
    "xkb-data": "usr/share/X11/xkb/rules/evdev",
    "dbus": "usr/bin/dbus-daemon",
    "at-spi2-core": "usr/libexec/at-spi-bus-launcher",
    "gir1.2-gtk-3.0": "usr/lib/*/girepository-1.0/Gtk-3.0.typelib",
    "python3-gi": f"{_PYTHON}/gi",
    "python3-xlib": f"{_PYTHON}/Xlib",
    "openbox": "usr/bin/openbox",
}
"""The packages of the desktop itself, each with a file path from the root."""
APPLICATIONS = {
    "libreoffice-calc": "usr/lib/libreoffice/program/libsclo.so",
    "libreoffice-writer": "usr/lib/libreoffice/program/libswlo.so",
    "libreoffice-impress": "usr/lib/libreoffice/program/libsdlo.so",
    "libreoffice-gtk3": "usr/lib/libreoffice/program/libvclplug_gtk3lo.so",
    "mousepad": "usr/bin/mousepad",
    "pcmanfm": "usr/bin/pcmanfm",
    "libatk-adaptor": "usr/lib/*/gtk-2.0/modules/libatk-bridge.so",
    "libgail-common": "usr/lib/*/gtk-2.0/modules/libgail.so",
    "lxterminal": "usr/bin/lxterminal",
    "chromium": "usr/bin/chromium",
    "libglib2.0-bin": "usr/bin/gsettings",
    "gsettings-desktop-schemas": (
        "usr/share/glib-2.0/schemas/org.gnome.desktop.interface.gschema.xml"
    ),
    "wmctrl": "usr/bin/wmctrl",
    "xdotool": "usr/bin/xdotool",
    "x11-utils": "usr/bin/xprop",
    "xdg-utils": "usr/bin/xdg-open",
    "fonts-dejavu-core": "usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
}
"""Packages of the applications in tasks, and of commands that OSWorld's tasks call."""
OPTIONAL = {"gimp": "usr/bin/gimp", "vlc": "usr/bin/vlc"}
"""Applications that only some of OSWorld's own tasks need."""


def missing(packages: dict[str, str], root: Path = Path("/")) -> list[str]:
    """Returns the packages that are missing on this machine."""
    return [name for name, file in packages.items() if not any(root.glob(file))]


def remedy(names: list[str]) -> str:
    """Returns how to install the packages, in one line."""
    return f"install them with `make osworld`, or: apt-get install {' '.join(names)}"


def findings() -> list[Finding]:
    """Returns the findings of `rlanything doctor` about desktops; missing ones are not an error."""
    lacking = missing(DESKTOP) + missing(APPLICATIONS)
    if lacking:
        text = f"desktop tasks lack packages ({', '.join(lacking)}): {remedy(lacking)}"
        return [Finding("desktop", "missing", text)]
    text = "every package of desktop tasks is installed"
    if optional := missing(OPTIONAL):
        names = " ".join(optional)
        text += f"; OSWorld's own tasks of {' and '.join(optional)} need apt-get install {names}"
    return [Finding("desktop", "ok", text)]


if __name__ == "__main__":
    write_line(" ".join(missing({**DESKTOP, **APPLICATIONS})))
