"""The server's handlers, by request path.

Requests and answers have the names and formats of OSWorld's controllers and getters for the same
function; `tree` and `act` are ours.
"""

# pyright: reportMissingModuleSource=false
from __future__ import annotations

import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import accessible
import busy
import pyautogui
import windows

MOST_SECONDS = 120.0
"""Time limit of a command."""
MOST_OUTPUT = 16 * 2**20
SETTLED_SECONDS = 0.6
"""Seconds for which successive readings of the screen must agree. Programs wait for timers while
they appear idle: LibreOffice arranges its tool bars 0.3 seconds after everything else."""
NAMESPACE = "https://accessibility.ubuntu.example.org/ns"
_NAMES_THERE = {"Chromium": "Google Chrome"}
"""Names of applications on OSWorld's machines, by which evaluators find them."""
_ILLEGAL = {code: " " for code in range(32) if code not in (9, 10, 13)}
_HOME = "/home/user"


class RequestRefused(Exception):
    """A request that cannot be carried out."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


_reader = accessible.TreeReader()
_input = threading.Lock()


def await_screen() -> None:
    """Waits until there is a window manager, and something to click on."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if windows.named("Launcher") is not None:
            return
        time.sleep(0.02)


def _execute(request: dict[str, Any]) -> dict[str, Any]:
    command, shell = _command(request)
    return _finished(command, shell, float(request.get("timeout", MOST_SECONDS)), None)


def _run_bash_script(request: dict[str, Any]) -> dict[str, Any]:
    seconds = float(request.get("timeout", 30))
    return _finished(["bash", "-c", request["script"]], False, seconds, request.get("working_dir"))


def _run_python(request: dict[str, Any]) -> dict[str, Any]:
    return _finished(["python3", "-c", request["code"]], False, MOST_SECONDS, None)


def _execute_with_verification(request: dict[str, Any]) -> dict[str, Any]:
    result = _execute(request)
    wanted = request.get("verification") or {}
    deadline = time.monotonic() + float(request.get("max_wait_time", 10))
    while True:
        passed = True
        if "window_exists" in wanted:
            passed = windows.named(wanted["window_exists"]) is not None
        if passed and "command_success" in wanted:
            check = ["bash", "-c", wanted["command_success"]]
            passed = _finished(check, False, MOST_SECONDS, None)["returncode"] == 0
        if passed:
            return {**result, "verification": "success"}
        if time.monotonic() > deadline:
            raise RequestRefused("the command's effect was not seen in time", 500)
        time.sleep(float(request.get("check_interval", 1)))


def _launch(request: dict[str, Any]) -> str:
    command, shell = _command(request)
    _started(command, shell)
    return f"{command} launched successfully"


def _file(request: dict[str, Any]) -> bytes:
    path = _path(request["file_path"])
    if not path.is_file():
        raise RequestRefused(f"no such file: {path}", 404)
    return path.read_bytes()


def _upload(request: dict[str, Any]) -> str:
    path = _path(request["file_path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(request["file_data"])
    return f"File uploaded successfully: {path}"


def _open_file(request: dict[str, Any]) -> str:
    path = _path(request["path"])
    if not path.exists():
        raise RequestRefused(f"no such file: {path}", 404)
    before = {window.number for window in windows.listed()}
    _started(["xdg-open", str(path)], False)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        new = [each for each in windows.listed() if each.managed and each.number not in before]
        if any(path.stem in window.title for window in new):
            return "File opened successfully"
        time.sleep(0.1)
    raise RequestRefused(f"no window shows {path} after 60 s", 500)


def _activate_window(request: dict[str, Any]) -> str:
    windows.activate(_window(request).number)
    return "Window activated successfully"


def _close_window(request: dict[str, Any]) -> str:
    number = _window(request).number
    windows.close(number)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and number in {each.number for each in windows.listed()}:
        time.sleep(0.05)
    return "Window closed successfully"


def _screen_size(request: dict[str, Any]) -> dict[str, int]:
    width, height = windows.size()
    return {"width": width, "height": height}


def _window_size(request: dict[str, Any]) -> dict[str, int]:
    window = windows.named(request["app_class_name"], by_class=True)
    if window is None:
        raise RequestRefused(f"no window of class {request['app_class_name']}", 404)
    return {"width": window.box[2], "height": window.box[3]}


def _list_directory(request: dict[str, Any]) -> dict[str, Any]:
    path = _path(request["path"])
    if not path.is_dir():
        raise RequestRefused(f"no such folder: {path}", 404)
    return {"directory_tree": _listing(path, 0)}


def _listing(path: Path, depth: int) -> dict[str, Any]:
    children = [
        _listing(child, depth + 1)
        if child.is_dir() and not child.is_symlink() and depth < 20
        else {"type": "file", "name": child.name}
        for child in sorted(path.iterdir())
    ]
    return {"type": "directory", "name": path.name, "children": children}


def _terminal(request: dict[str, Any]) -> dict[str, Any]:
    with _reader.lock:
        applications = _reader.applications()
    texts = [node.text for node in _walk(applications) if node.role == "terminal"]
    return {"output": texts[-1].rstrip() if texts else None, "status": "success"}


def _accessibility(request: dict[str, Any]) -> dict[str, str]:
    with _reader.lock:
        applications = _reader.applications()
    root = ElementTree.Element("desktop-frame")
    for node in applications:
        _element(root, node).set("name", _NAMES_THERE.get(node.name, node.name))
    return {"AT": ElementTree.tostring(root, encoding="unicode")}


def _element(parent: ElementTree.Element, node: accessible.Node) -> ElementTree.Element:
    tag = "".join(each if each.isalnum() else "-" for each in node.role) or "unknown"
    element = ElementTree.SubElement(parent, tag, {"name": node.name.translate(_ILLEGAL)})
    for state in sorted(node.states):
        element.set(f"{{{NAMESPACE}/state}}{state.replace(' ', '-')}", "true")
    if node.box is not None:
        left, top, width, height = node.box
        element.set(f"{{{NAMESPACE}/component}}screencoord", f"({left}, {top})")
        element.set(f"{{{NAMESPACE}/component}}size", f"({width}, {height})")
    element.text = node.text.translate(_ILLEGAL)
    for child in node.children:
        _element(element, child)
    return element


def _tree(request: dict[str, Any]) -> dict[str, Any]:
    """Returns windows and nodes once two readings agree with no program at work in between, or at
    the end of the waiting time.

    A reading takes hundreds of calls that keep applications busy, so none is made while programs
    are at work."""
    deadline = time.monotonic() + float(request.get("quiet", 0))
    state: dict[str, Any] | None = None
    since = time.monotonic()
    with _reader.lock:
        while time.monotonic() < deadline:
            if busy.at_work():
                since = time.monotonic()
            elif state is None or time.monotonic() - since >= SETTLED_SECONDS:
                after, owners = _look()
                if after == state and not (_reader.late or busy.starting(owners)):
                    return {**after, "quiet": True}
                state, since = after, time.monotonic()
        return {**_look()[0], "quiet": False}


def _look() -> tuple[dict[str, Any], set[int]]:
    """Returns windows and nodes, and the processes with windows that describe their content."""
    applications = _reader.applications()
    shown = windows.listed()
    nodes = [
        [node.depth, node.role, node.name, node.text, node.box, sorted(node.states)]
        for node in _walk(applications)
    ]
    owners = {each.pid for each in applications if each.children}
    state = {"windows": [window.to_json() for window in shown], "nodes": nodes}
    return state, owners & {window.pid for window in shown}


def _act(request: dict[str, Any]) -> dict[str, str]:
    """Executes calls of `pyautogui`: their names, each with its arguments."""
    with _input:
        for name, *arguments in request["calls"]:
            if name == "activate":
                windows.activate(*arguments)
            elif name in _ACTS:
                getattr(pyautogui, name)(*arguments)
            else:
                raise RequestRefused(f"no such action: {name}")
    return {"status": "success"}


_ACTS = {
    *("moveTo", "click", "doubleClick", "rightClick", "mouseDown", "mouseUp", "dragTo"),
    *("scroll", "hscroll", "write", "press", "keyDown", "keyUp", "hotkey"),
}


def _walk(nodes: list[accessible.Node]) -> list[accessible.Node]:
    return [each for node in nodes for each in (node, *_walk(node.children))]


def _window(request: dict[str, Any]) -> windows.ShownWindow:
    name = request["window_name"]
    strict, by_class = bool(request.get("strict")), bool(request.get("by_class"))
    window = windows.named(name, strict, by_class)
    if window is None:
        raise RequestRefused(f"no window named {name}", 404)
    return window


def _command(request: dict[str, Any]) -> tuple[str | list[str], bool]:
    command = request.get("command", "")
    shell = bool(request.get("shell", False))
    if isinstance(command, str) and not shell:
        command = shlex.split(command)
    if isinstance(command, list):
        command = [_expanded(str(word)) for word in command]
        if shell:
            command = " ".join(command)
    if not command:
        raise RequestRefused("the request names no command")
    return command, shell


def _started(command: str | list[str], shell: bool) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, shell=shell, cwd=_HOME, start_new_session=True)
    except OSError as fault:
        raise RequestRefused(f"{command}: {fault.strerror}", 500) from fault


def _finished(
    command: str | list[str], shell: bool, seconds: float, folder: str | None
) -> dict[str, Any]:
    seconds = min(max(seconds, 0.1), MOST_SECONDS)
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command,
            shell=shell,
            cwd=folder or _HOME,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
    except OSError as fault:
        raise RequestRefused(f"{command}: {fault.strerror}", 500) from fault
    texts = ["", ""]
    readers = []
    for i, stream in enumerate((process.stdout, process.stderr)):
        reader = threading.Thread(target=_read, args=(stream, texts, i), daemon=True)
        reader.start()
        readers.append(reader)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        raise RequestRefused(f"the command took more than {seconds:g} s", 500) from None
    for reader in readers:
        reader.join(1.0)  # a background program may keep them open
    code = process.returncode
    return {"status": "success", "output": texts[0], "error": texts[1], "returncode": code}


def _read(stream: Any, texts: list[str], index: int) -> None:
    """Reads a stream to its end, and keeps the beginning: a full pipe would block the program."""
    kept = b""
    with stream:
        while data := os.read(stream.fileno(), 65536):
            kept += data[: MOST_OUTPUT - len(kept)]
            texts[index] = kept.decode("utf-8", "replace")


def _expanded(word: str) -> str:
    return os.path.expanduser(word) if word.startswith("~/") else word


def _path(name: Any) -> Path:
    if not isinstance(name, str) or not name:
        raise RequestRefused("the request names no file")
    return Path(_HOME, os.path.expandvars(os.path.expanduser(name)))


ANSWERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "ready": lambda request: "ready",
    "execute": _execute,
    "execute_with_verification": _execute_with_verification,
    "run_bash_script": _run_bash_script,
    "run_python": _run_python,
    "launch": _launch,
    "file": _file,
    "upload": _upload,
    "open_file": _open_file,
    "activate_window": _activate_window,
    "close_window": _close_window,
    "screenshot": lambda request: windows.screenshot(),
    "accessibility": _accessibility,
    "terminal": _terminal,
    "screen_size": _screen_size,
    "window_size": _window_size,
    "list_directory": _list_directory,
    "desktop_path": lambda request: {"desktop_path": f"{_HOME}/Desktop"},
    "platform": lambda request: "Linux",
    "tree": _tree,
    "act": _act,
}
