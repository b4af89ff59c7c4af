"""One Chromium with open pages of the MiniWoB++ package.

Routing serves the pages from the package's own files. Nothing else is reachable: neither the
network nor other files. Each episode that is in progress has its own copy of a page, up to
`OPEN_PAGES` in all. Beyond that one episode takes a page from another, and the episode that lost
its page replays its actions (`environment`).
"""

from __future__ import annotations

import contextlib
import mimetypes
import os
import secrets
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Protocol, TypeVar

import miniwob
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import BrowserContext, Page, Playwright, Route, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from rlanything.domains.base import DomainError

Result = TypeVar("Result")

PACKAGE = Path(miniwob.__file__).resolve().parent / "html"  # an environment may be a symlink
ORIGIN = "http://miniwob/"
"""Address of a host that does not exist: every request is answered here."""
WIDTH, HEIGHT = 160, 210
STUCK_SECONDS = 60.0
"""Time limit of one call of a page; after that it counts as hung, and the browser is killed."""
SCRIPTS = ("clock.js", "page.js")
"""Scripts that run in every page before its own."""
OPEN_PAGES = 40
"""Largest number of pages kept open: an idle one takes 20 MB and no time; opening one takes as long
as ten resets."""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-smooth-scrolling",  # smooth scrolling takes real time, not the page's
    "--disable-partial-raster",
    "--proxy-server=127.0.0.1:9",  # requests that bypass routing go nowhere
)
EMPTY_CLIPBOARD = """() => {
    const nothing = event => {
        event.clipboardData.setData("text/plain", "");
        event.preventDefault();
    };
    document.addEventListener("copy", nothing, { once: true });
    document.execCommand("copy");
}"""
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
REMEDY = (
    "install Debian's chromium-headless-shell or any Chromium, or name one: RLANYTHING_CHROMIUM="
)


class BrowserDied(Exception):
    """The end of the browser, by itself or because a page failed; the state of its pages is
    lost."""


class Tenant(Protocol):
    """An episode that uses a page until it ends or another episode takes the page."""

    ended: bool
    """Whether it no longer needs its page."""


@dataclass(slots=True, eq=False)
class _OpenPage:
    name: str
    page: Page
    tenant: Tenant
    """Episode that used the page last."""


def executable() -> str:
    """Returns the path of a Chromium. Raises `DomainError` if there is none."""
    named = os.environ.get("RLANYTHING_CHROMIUM")
    if named is not None:
        if shutil.which(named) is None:
            raise DomainError(f"RLANYTHING_CHROMIUM={named} is no program: {REMEDY}PATH")
        return named
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise DomainError(f"no Chromium found: {REMEDY}PATH")


class Browser:
    """A Chromium that starts on first use. Everything runs in its own thread, as Playwright
    requires."""

    def __init__(self, scale: int = 1) -> None:
        """`scale`: screenshot pixels per page pixel."""
        self.launches = 0
        self.blocked: list[str] = []
        """Refused addresses that pages requested."""
        self.page_errors: list[str] = []
        self._scale = scale
        self._thread = ThreadPoolExecutor(1, "browser")
        self._playwright: Playwright | None = None
        self._chromium: Chromium | None = None
        self._context: BrowserContext | None = None
        self._pages: list[_OpenPage] = []
        """Pages in order of use, least recently used first."""
        self._mark = f"--rlanything={secrets.token_hex(8)}"
        """A switch that Chromium ignores; it identifies the process."""
        self._clipboard_page: Page | None = None
        self._clipboard_user: Tenant | None = None

    def call(self, work: Callable[[], Result]) -> Result:
        """Calls `work`, which may use pages, in the browser's thread and returns its result. Raises
        `BrowserDied` if a page fails or hangs or the browser dies, and `DomainError` if the browser
        cannot be started."""
        future = self._thread.submit(self._guarded, work)
        if not wait([future], STUCK_SECONDS).done:  # scripts of a page may loop forever
            self._kill()
        return future.result()

    def version(self) -> str:
        """Starts the browser and returns its version. Raises `DomainError` if it cannot be
        started."""

        def running_version() -> str:
            self._running()
            assert self._chromium is not None
            return self._chromium.version

        return self.call(running_version)

    def close(self) -> None:
        """Ends the browser and its thread."""
        self._thread.submit(self._stop).result()
        self._thread.shutdown()

    def page(self, name: str, tenant: Tenant) -> tuple[Page, bool]:
        """Returns the page, and whether the tenant used it last; callable only within `call`."""
        same = [each for each in self._pages if each.name == name]
        mine = next((each for each in same if each.tenant is tenant), None)
        taken = mine or next((each for each in same if each.tenant.ended), None)
        if taken is None and len(self._pages) >= OPEN_PAGES:
            if same:
                taken = same[-1]  # episodes take turns: the others need their pages sooner
            else:
                self._pages.pop(0).page.close()
        if taken is not None:
            self._pages.remove(taken)
        page = taken.page if taken is not None else self._open(name)
        self._pages.append(_OpenPage(name, page, tenant))
        return page, mine is not None

    def _kill(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                if self._mark.encode() in words and b"--type=" not in words:
                    os.kill(int(process.name), signal.SIGKILL)

    def used_clipboard_last(self, tenant: Tenant) -> bool:
        """Returns whether the clipboard, which all pages share, still has the tenant's content."""
        return self._clipboard_user is tenant

    def empty_clipboard(self, tenant: Tenant) -> None:
        """Empties the clipboard for a tenant that is about to use it; callable only within
        `call`."""
        if self._clipboard_page is None:  # a separate page: others would lose focus or selection
            self._clipboard_page = self._running().new_page()
        self._clipboard_page.evaluate(EMPTY_CLIPBOARD)
        self._clipboard_user = tenant

    def _guarded(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except PlaywrightError as fault:
            # Start a new browser even if only a page fails: the next episode must not meet a
            # changed page, and closing a page during navigation may never end.
            self._kill()
            self._forget()
            raise BrowserDied(str(fault)) from fault

    def _open(self, name: str) -> Page:
        page = self._running().new_page()
        page.on("pageerror", lambda error: self.page_errors.append(f"{name}: {error}"))
        page.goto(f"{ORIGIN}miniwob/{name}.html")
        return page

    def _running(self) -> BrowserContext:
        if self._context is not None:
            return self._context
        path = executable()
        if self._playwright is None:
            self._playwright = sync_playwright().start()
        try:
            self._chromium = self._playwright.chromium.launch(
                executable_path=path, args=[*FLAGS, self._mark]
            )
        except PlaywrightError as fault:
            reason = str(fault).splitlines()[0]
            raise DomainError(f"{path} does not start ({reason}): {REMEDY}PATH") from fault
        self.launches += 1
        self._context = self._chromium.new_context(
            viewport={"width": WIDTH, "height": HEIGHT},
            device_scale_factor=self._scale,
            locale="en-US",
            timezone_id="UTC",
            service_workers="block",
        )
        self._context.route("**/*", self._serve)
        folder = files("rlanything_miniwob")
        scripts = [(folder / name).read_text(encoding="utf-8") for name in SCRIPTS]
        self._context.add_init_script("\n".join(scripts))
        return self._context

    def _serve(self, route: Route) -> None:
        address = route.request.url
        path = address.removeprefix(ORIGIN).partition("?")[0].partition("#")[0]
        file = (PACKAGE / path).resolve()
        if address.startswith(ORIGIN) and file.is_relative_to(PACKAGE) and file.is_file():
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            words = "; charset=utf-8" if kind.startswith("text/") else ""
            route.fulfill(body=file.read_bytes(), content_type=f"{kind}{words}")
        else:
            self.blocked.append(address)
            route.abort()

    def _forget(self) -> None:
        self._pages.clear()
        self._clipboard_page = self._clipboard_user = None
        self._context = self._chromium = None

    def _stop(self) -> None:
        self._forget()
        if self._playwright is not None:
            self._playwright.stop()
            self._playwright = None
