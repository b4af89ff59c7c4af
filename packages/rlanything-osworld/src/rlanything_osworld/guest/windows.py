"""The windows on the screen: their list, their order, their pixels."""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
from __future__ import annotations

import struct
import threading
import zlib
from dataclasses import asdict, dataclass

from Xlib import X
from Xlib.display import Display
from Xlib.error import XError
from Xlib.protocol import event
from Xlib.xobject.drawable import Window

lock = threading.Lock()
_display = Display()
_root = _display.screen().root


@dataclass(frozen=True)
class ShownWindow:
    """A window on the screen."""

    number: int
    title: str
    classes: str
    """Names of its class, in the format of `wmctrl -lx`."""
    box: tuple[int, int, int, int]
    """Left, top, width and height with its frame, in pixels of the screen."""
    active: bool
    pid: int
    """Process that owns it; 0 if unknown."""
    managed: bool
    """False for menus and the like, which the window manager does not manage."""

    def to_json(self) -> dict:
        """Returns its fields by name."""
        return asdict(self)


def listed() -> list[ShownWindow]:
    """Returns the visible windows, from the lowest to the topmost."""
    with lock:
        inside = {_outermost(number): number for number in _numbers(_root, "_NET_CLIENT_LIST")}
        active = next(iter(_numbers(_root, "_NET_ACTIVE_WINDOW")), 0)
        seen = []
        for window in _root.query_tree().children:
            try:
                if window.get_attributes().map_state != X.IsViewable:
                    continue
                geometry = window.get_geometry()
            except XError:  # the window was closed meanwhile
                continue
            box = (geometry.x, geometry.y, geometry.width, geometry.height)
            outer = int(window.id or 0)
            number = inside.get(outer, outer)
            client = _display.create_resource_object("window", number)
            seen.append(
                ShownWindow(
                    number=number,
                    title=_title(client),
                    classes=_classes(client),
                    box=box,
                    active=number == active,
                    pid=_pid(client),
                    managed=outer in inside,
                )
            )
        return seen


def named(name: str, strict: bool = False, by_class: bool = False) -> ShownWindow | None:
    """Returns the window with a title or class that equals or contains the name, or None."""
    for window in reversed(listed()):
        known = window.classes if by_class else window.title
        if window.managed and (known == name if strict else name.lower() in known.lower()):
            return window
    return None


def activate(number: int) -> None:
    """Raises a window and gives it the focus."""
    _tell(number, "_NET_ACTIVE_WINDOW", [2, X.CurrentTime, 0])


def close(number: int) -> None:
    """Asks a window to close, like the button in its frame."""
    _tell(number, "_NET_CLOSE_WINDOW", [X.CurrentTime, 2])


def size() -> tuple[int, int]:
    """Returns width and height of the screen in pixels."""
    screen = _display.screen()
    return screen.width_in_pixels, screen.height_in_pixels


def screenshot() -> bytes:
    """Returns a PNG of the screen, without the pointer."""
    width, height = size()
    with lock:
        pixels = _root.get_image(0, 0, width, height, X.ZPixmap, 0xFFFFFFFF).data
    colors = bytearray(3 * width * height)
    for channel in range(3):
        colors[channel::3] = pixels[2 - channel :: 4]
    rows = b"".join(
        b"\0" + colors[start : start + 3 * width] for start in range(0, len(colors), 3 * width)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b""))
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _tell(number: int, message: str, values: list[int]) -> None:
    with lock:
        window = _display.create_resource_object("window", number)
        words = (values + [0] * 5)[:5]
        told = event.ClientMessage(
            window=window, client_type=_display.intern_atom(message), data=(32, words)
        )
        _root.send_event(told, X.SubstructureRedirectMask | X.SubstructureNotifyMask)
        _display.sync()


def _numbers(window: Window, name: str) -> list[int]:
    answer = window.get_full_property(_display.intern_atom(name), X.AnyPropertyType)
    return list(answer.value) if answer else []


def _outermost(number: int) -> int:
    """Returns the window that contains a client and its frame; 0 if it is gone."""
    window = _display.create_resource_object("window", number)
    try:
        while (parent := window.query_tree().parent) and parent.id != _root.id:
            window = parent
    except XError:
        return 0
    return window.id


def _title(window: Window) -> str:
    for name in ("_NET_WM_NAME", "WM_NAME"):
        try:
            answer = window.get_full_property(_display.intern_atom(name), X.AnyPropertyType)
        except XError:
            return ""
        if answer:
            value = answer.value
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return ""


def _pid(window: Window) -> int:
    try:
        return next(iter(_numbers(window, "_NET_WM_PID")), 0)
    except XError:
        return 0


def _classes(window: Window) -> str:
    try:
        return ".".join(window.get_wm_class() or ())
    except XError:
        return ""
