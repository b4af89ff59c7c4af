"""A bar at the lower edge of the screen with a button for every application."""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
from __future__ import annotations

import os
import subprocess

import gi

gi.require_version("Gtk", "3.0")
gi.require_version("Gdk", "3.0")
from gi.repository import Gdk, GLib, Gtk  # noqa: E402

HEIGHT = 32
APPLICATIONS = {
    "Calc": ("/usr/bin/localc", ["soffice", "--calc"]),
    "Writer": ("/usr/bin/lowriter", ["soffice", "--writer"]),
    "Impress": ("/usr/bin/loimpress", ["soffice", "--impress"]),
    "Text editor": ("/usr/bin/mousepad", ["mousepad"]),
    "Files": ("/usr/bin/pcmanfm", ["pcmanfm"]),
    "Terminal": ("/usr/bin/lxterminal", ["lxterminal"]),
    "Browser": ("/usr/bin/chromium", ["google-chrome"]),
}


def main() -> None:
    GLib.set_prgname("launcher")
    window = Gtk.Window(title="Launcher", type_hint=Gdk.WindowTypeHint.DOCK)
    window.set_wmclass("launcher", "launcher")
    bar = Gtk.Box()
    for name, (program, command) in APPLICATIONS.items():
        if os.path.exists(program):
            button = Gtk.Button(label=name, can_focus=False)
            button.connect("clicked", started, command)
            bar.pack_start(button, False, False, 0)
    window.add(bar)
    screen = Gdk.Screen.get_default()
    window.set_default_size(screen.get_width(), HEIGHT)
    window.move(0, screen.get_height() - HEIGHT)
    window.show_all()
    # Maximized windows leave it free.
    strut = [0, 0, 0, HEIGHT, 0, 0, 0, 0, 0, 0, 0, screen.get_width()]
    reserve(window.get_window().get_xid(), strut)
    GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, 15, Gtk.main_quit)
    Gtk.main()


def reserve(number: int, strut: list[int]) -> None:
    """Tells the window manager which edge of the screen the window occupies."""
    from Xlib import Xatom
    from Xlib.display import Display

    display = Display()
    window = display.create_resource_object("window", number)
    for name, values in (("_NET_WM_STRUT_PARTIAL", strut), ("_NET_WM_STRUT", strut[:4])):
        window.change_property(display.intern_atom(name), Xatom.CARDINAL, 32, values)
    display.sync()
    display.close()


def started(button: Gtk.Button, command: list[str]) -> None:
    """Starts the application of a button."""
    subprocess.Popen(command, start_new_session=True)


if __name__ == "__main__":
    main()
