"""Real desktops: how they start and end, what their server answers, what agents can do in them."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import struct
import subprocess
import sys
import time
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.desktops import WITHOUT_DESKTOP, desktop, needs_application, said
from rlanything.records import Task
from rlanything.runs.report.episode_index import IMAGE_BYTES
from rlanything_osworld import desktop as module
from rlanything_osworld.desktop import Desktop, DesktopUnavailable
from rlanything_osworld.environment import DesktopEnvironment, DesktopOptions
from rlanything_osworld.machine import DesktopRefusal, Machine
from rlanything_osworld.packages import OPTIONAL, findings, missing

SEEN_WIDTH = 1000 + os.getpid() % 300 * 3
"""Of a screen whose processes are looked for, and not those of others that test on this machine."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Desktop]:
    with desktop() as machine:
        yield machine


def answer(machine: Desktop, path: str, body: Any = None) -> Any:
    return json.loads(machine.request("POST" if body is not None else "GET", path, body))


@WITHOUT_DESKTOP
def test_vlc_has_the_settings_of_an_earlier_start(shared: Desktop) -> None:
    if missing({"vlc": OPTIONAL["vlc"]}):
        pytest.skip("vlc is not installed")
    assert said(shared, "cat ~/.config/vlc/vlcrc") == "[qt]\nqt-privacy-ask=0\n"


@WITHOUT_DESKTOP
def test_a_home_folder_is_copied_with_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "Desktop").mkdir()
    (tmp_path / "Desktop" / "notes.txt").write_text("mine")
    (tmp_path / "Desktop" / "link").symlink_to("notes.txt")
    (tmp_path / "Desktop" / "notes.txt").chmod(0o600)
    machine = Desktop(size=(800, 600), home=tmp_path)
    try:
        assert said(machine, "cat ~/Desktop/link; stat -c %U ~/Desktop/notes.txt") == "mineuser\n"
        assert answer(machine, "/screen_size", {}) == {"width": 800, "height": 600}
        said(machine, "echo theirs > ~/Desktop/notes.txt")
    finally:
        machine.close()
    assert (tmp_path / "Desktop" / "notes.txt").read_text() == "mine"


@WITHOUT_DESKTOP
def test_nothing_is_left_of_a_desktop_that_was_closed() -> None:
    machine = Desktop()
    machine.ready()
    port, folder = machine.forward(5000), Path(machine._folder)
    machine.close()
    machine.close()
    assert not Path(f"/proc/{machine.pid}").exists()
    assert not folder.exists()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5)


@WITHOUT_DESKTOP
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_nothing_is_left_of_a_desktop_that_was_closed_while_it_started(seconds: float) -> None:
    machine = Desktop(size=(SEEN_WIDTH, 777))
    time.sleep(seconds)
    machine.close()
    deadline = time.monotonic() + 5
    while (left := started_with(SEEN_WIDTH)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


@WITHOUT_DESKTOP
def test_what_starts_a_desktop_is_in_the_group_that_is_killed() -> None:
    machine = Desktop(size=(SEEN_WIDTH + 1, 777))
    try:
        machine.ready()
        starting = started_with(SEEN_WIDTH + 1)
        assert len(starting) == 3  # bwrap, the first process inside, and start.py
        assert {os.getpgid(int(number)) for number in starting} == {machine.pid}
    finally:
        machine.close()


def started_with(width: int) -> list[str]:
    """The processes that start a desktop of this width."""
    left, words = [], b"%d\x00777" % width
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            left += [path.parent.name] if words in path.read_bytes() else []
    return left


@WITHOUT_DESKTOP
def test_a_desktop_ends_with_the_process_that_started_it() -> None:
    code = "from rlanything_osworld.desktop import Desktop; import os, signal\n"
    code += "d = Desktop(); d.ready(); os.write(1, str(d.pid).encode())\n"
    code += "os.kill(os.getpid(), signal.SIGKILL)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{int(ended.stdout)}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{int(ended.stdout)}").exists()


@WITHOUT_DESKTOP
def test_a_desktop_whose_host_has_ended_before_it_starts_does_not_start() -> None:
    machine = Desktop(size=(SEEN_WIDTH + 2, 777))
    finalizer = machine._end.peek()
    assert finalizer is not None
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), finalizer[2][1])  # as the kernel closes it with the host
    assert machine._process.wait(20) == 0
    machine.close()


def test_a_mac_is_told_that_a_desktop_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(DesktopUnavailable, match=r"needs Linux, .* darwin: use a Linux .*$"):
        Desktop()


def test_without_its_packages_a_desktop_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "missing", lambda packages: ["xvfb", "openbox"])
    with pytest.raises(DesktopUnavailable, match=r"xvfb, openbox.*apt-get install") as caught:
        Desktop()
    assert "\n" not in str(caught.value)


@WITHOUT_DESKTOP
def test_without_namespaces_a_desktop_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('bwrap: No permissions to create')"]
    monkeypatch.setattr(module, "boxed", lambda *arguments: command)
    machine = Desktop()
    try:
        with pytest.raises(DesktopUnavailable, match=r"No permissions.*namespaces") as caught:
            machine.ready()
        assert "\n" not in str(caught.value)
    finally:
        machine.close()


def test_what_is_missing_is_found_by_a_file_of_each_package(tmp_path: Path) -> None:
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "Xvfb").touch()
    packages = {"xvfb": "usr/bin/Xvfb", "openbox": "usr/*/openbox"}
    assert missing(packages, tmp_path) == ["openbox"]


def test_doctor_names_what_is_missing_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlanything_osworld.packages.missing", lambda packages: ["a", "b"])
    (found,) = findings()
    assert found.status == "missing"
    assert "a, b" in found.text
    assert "\n" not in found.line()


@WITHOUT_DESKTOP
def test_commands_are_answered_as_osworlds_controllers_expect(shared: Desktop) -> None:
    done = answer(shared, "/execute", {"command": ["sh", "-c", "echo a; echo b >&2; exit 3"]})
    assert done == {"status": "success", "output": "a\n", "error": "b\n", "returncode": 3}
    done = answer(shared, "/setup/execute", {"command": "echo $((1 + 2))", "shell": True})
    assert done["output"] == "3\n"
    code = "import pyautogui; import time; pyautogui.FAILSAFE = False; print(pyautogui.size())"
    done = answer(shared, "/execute", {"command": ["python", "-c", code], "shell": False})
    assert done["output"] == "(1280, 800)\n"
    done = answer(shared, "/run_bash_script", {"script": "cd /; pwd\nexit 1", "timeout": 5})
    assert (done["output"], done["returncode"]) == ("/\n", 1)
    assert answer(shared, "/run_python", {"code": "print(6 * 7)"})["output"] == "42\n"
    assert shared.request("POST", "/platform", {}) == b"Linux"
    assert answer(shared, "/desktop_path", {}) == {"desktop_path": "/home/user/Desktop"}


@WITHOUT_DESKTOP
def test_files_go_in_as_a_form_and_come_out_as_they_are(shared: Desktop) -> None:
    content = bytes(range(256)) * 100
    port = shared.forward(5000)
    form = b'--b\r\nContent-Disposition: form-data; name="file_path"\r\n\r\n~/deep/er/x.bin\r\n'
    form += b'--b\r\nContent-Disposition: form-data; name="file_data"; filename="x.bin"\r\n'
    form += b"Content-Type: application/octet-stream\r\n\r\n" + content + b"\r\n--b--\r\n"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    connection.request("POST", "/setup/upload", form, kind)
    assert connection.getresponse().status == 200
    connection.close()
    encoded = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/file", "file_path=/home/user/deep/er/x.bin", encoded)
    assert connection.getresponse().read() == content
    connection.close()
    listing = answer(shared, "/list_directory", {"path": "/home/user/deep"})["directory_tree"]
    file = {"type": "file", "name": "x.bin"}
    er = {"type": "directory", "name": "er", "children": [file]}
    assert listing == {"type": "directory", "name": "deep", "children": [er]}


BAD = {
    "an unknown path": ("/nothing", {}),
    "no command": ("/execute", {"command": []}),
    "a program that is not there": ("/execute", {"command": ["no-such-program"]}),
    "a command that is no text": ("/execute", {"command": 5}),
    "a command that takes too long": ("/execute", {"command": ["sleep", "60"], "timeout": 0.2}),
    "a file that is not there": ("/file", {"file_path": "/nothing"}),
    "a file without a name": ("/file", {}),
    "a folder": ("/file", {"file_path": "/home/user"}),
    "an upload to where nothing can be": (
        "/setup/upload",
        {"file_path": "/usr/x", "file_data": "x"},
    ),
    "a window that is not there": ("/setup/activate_window", {"window_name": "nothing"}),
    "no JSON": ("/execute", b"{"),
    "JSON of another kind": ("/act", {"calls": 5}),
    "an action that is none": ("/act", {"calls": [["exec", "1"]]}),
    "a key that is none": ("/act", {"calls": [["press", "nokey"]]}),
}


@WITHOUT_DESKTOP
@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_gets_a_reason_and_the_next_is_answered(shared: Desktop, name: str) -> None:
    path, body = BAD[name]
    with pytest.raises(DesktopRefusal, match=r".{10}"):
        shared.request("POST", path, body)
    assert shared.request("GET", "/ready") == b"ready"


@WITHOUT_DESKTOP
def test_a_screenshot_is_a_png_of_the_screen(shared: Desktop) -> None:
    data = shared.request("GET", "/screenshot")
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (1280, 800)
    start = data.index(b"IDAT") + 4
    length = struct.unpack(">I", data[start - 8 : start - 4])[0]
    assert len(zlib.decompress(data[start : start + length])) == 800 * (1 + 3 * 1280)


@WITHOUT_DESKTOP
def test_a_port_inside_is_reached_from_the_host(shared: Desktop) -> None:
    shared.request("POST", "/setup/launch", {"command": ["python3", "-m", "http.server", "9222"]})
    address = f"http://127.0.0.1:{shared.forward(9222)}/"
    for _ in range(100):
        try:
            with urllib.request.urlopen(address, timeout=5) as page:
                assert b"Desktop/" in page.read()
            break
        except OSError:
            time.sleep(0.1)
    else:
        pytest.fail("the port was never reached")
    said(shared, "pkill -f http.server")
    with pytest.raises(ValueError, match="5000, 9222, 8080"):
        shared.forward(22)


@WITHOUT_DESKTOP
@needs_application("pcmanfm")
def test_a_screen_that_rests_shows_what_is_in_a_window_and_not_its_frame_alone() -> None:
    for _ in range(3):
        with desktop() as machine:
            said(machine, "touch ~/Desktop/a.txt")
            command = {"command": ["pcmanfm", "/home/user/Desktop"]}
            machine.request("POST", "/setup/launch", command)
            tree = answer(machine, "/tree?quiet=30")
            assert tree["quiet"]
            assert [node[3] for node in tree["nodes"] if node[1] == "icon"] == ["a.txt"]


class Notes:
    """A task in a text editor: the file must say hello."""

    def setup(self, data: Mapping[str, Any], desktop: Machine) -> None:
        encoded = base64.b64encode(data["text"].encode()).decode()
        desktop.request(
            "POST",
            "/setup/execute",
            {"command": f"echo {encoded} | base64 -d > ~/notes.txt", "shell": True},
        )
        desktop.request("POST", "/setup/launch", {"command": ["mousepad", "/home/user/notes.txt"]})

    def score(self, data: Mapping[str, Any], desktop: Machine, last_action: str) -> float:
        content = desktop.request("POST", "/file", {"file_path": "/home/user/notes.txt"})
        return float(content.decode() == data["wanted"])


@WITHOUT_DESKTOP
@needs_application("mousepad")
def test_an_episode_is_won_by_keys_and_clicks_and_replayed_it_shows_the_same() -> None:
    wanted = "hé 5 > 3 €\n" + "some text\n"
    task = Task("notes", "Write.", data={"text": "some text\n", "wanted": wanted})
    script = ["> click [9]", "> press escape", "> type hé 5 > 3 €", "> press enter"]
    script += ["> press ctrl+s", "> done"]
    environment = DesktopEnvironment(Notes(), DesktopOptions(screenshots=True))
    try:
        shown = []
        for _ in range(2):
            texts = [environment.reset(task).text]
            result = None
            for response in script:
                result = environment.step(response)
                assert result.valid
                texts.append(result.observation.text)
            assert result is not None
            assert (result.outcome, result.reward) == (1, 1.0)
            shown.append(texts)
    finally:
        environment.close()
    assert shown[0] == shown[1]
    assert "menu item Select All" in shown[0][1]
    assert "| hé 5 > 3 €" in shown[0][-2]


class Sheet:
    """A sheet that is open in Calc."""

    def setup(self, data: Mapping[str, Any], desktop: Machine) -> None:
        write = {"command": "printf 'Item,Qty\\nPen,3\\nCup,9\\n' > ~/s.csv", "shell": True}
        desktop.request("POST", "/setup/execute", write)
        command = ["soffice", "--norestore", "--calc", "--infilter=CSV:44,34,76,1"]
        desktop.request("POST", "/setup/launch", {"command": [*command, "/home/user/s.csv"]})

    def score(self, data: Mapping[str, Any], desktop: Machine, last_action: str) -> float:
        return 0.0


@WITHOUT_DESKTOP
@needs_application("libreoffice-calc")
@needs_application("libreoffice-gtk3")
def test_a_sheet_is_read_as_far_as_it_is_used_and_a_click_finds_its_cell() -> None:
    environment = DesktopEnvironment(Sheet(), DesktopOptions(screenshots=True))
    try:
        seen = environment.reset(Task("sheet", "Look.", data={}))
        assert seen.image is not None
        assert len(seen.image.data) <= IMAGE_BYTES  # a report shows it
        text = seen.text
        assert "A1 Item (focused) | " in text
        assert "B3 9 | " in text
        assert "B4" in text
        assert "B5" not in text
        assert len(text) < 1500
        (number,) = (part.split("]")[0] for part in text.split("[") if "] B3 9" in part)
        after = environment.step(f"> click [{number}]")
        assert "B3 9 (focused)" in after.observation.text
        assert environment.step("> press ctrl+q").valid
    finally:
        environment.close()


@needs_application("chromium")
def test_the_browser_has_the_names_that_osworlds_tasks_know_it_by() -> None:
    page = "data:text/html,<div role=menu><div role=menuitem tabindex=0>Add a folder</div></div>"
    with desktop() as machine:
        machine.request("POST", "/setup/launch", {"command": ["google-chrome", page]})
        deadline, tree = time.monotonic() + 40, ""
        while time.monotonic() < deadline and "Add a folder" not in tree:
            tree = machine.request("GET", "/tree?quiet=10").decode()
        assert "Add a folder" in tree, "an open menu of a page is read"
        answer = json.loads(machine.request("GET", "/accessibility"))["AT"]
        assert '<application name="Google Chrome"' in answer
        count = "pgrep -fc '^/opt/google/chrom[e]'"
        ended = f"pkill chrome; for i in $(seq 40); do {count} || break; sleep 0.5; done"
        assert said(machine, ended).endswith("0\n")


@WITHOUT_DESKTOP
def test_a_set_up_that_asks_for_rights_is_carried_out_without(shared: Desktop) -> None:
    assert said(shared, "echo password | sudo -S id -u") == "1000\n"
