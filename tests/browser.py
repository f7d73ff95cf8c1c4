"""A real browser for tests: Chromium without a window, spoken to in its own protocol over two pipes.

Clicks and keys are those of a mouse and a keyboard, so a test sees what a person would. Everything that the
browser asks of a network and everything that goes wrong inside a page is kept.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# A machine under load may take its time; only a browser that hangs takes this long.
_PATIENCE_S = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",  # it refuses to have one as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",  # in containers that is small
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--password-store=basic",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


class BrowserError(Exception):
    """The browser said no, or nothing."""


class Browser:
    """One Chromium with a profile folder of its own. :meth:`open` gives pages; close it at the end."""

    def __init__(self, profile: Path) -> None:
        executable = shutil.which("chromium")
        if executable is None:
            raise BrowserError("there is no chromium here; on Debian and Ubuntu: tests/packages.sh install")
        theirs_in, self._write = _pipe()
        self._read, theirs_out = _pipe()
        # It reads its descriptor 3 and writes to 4, which only a shell can give it by number.
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", executable, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        """End it and all of its processes, which are in a session of their own."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended by itself
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def open(
        self, page: Path, width: int = 1280, height: int = 900, *, dark: bool = False, fragment: str = ""
    ) -> Page:
        """Load a file in a tab of its own, at a place in it, and wait until everything in it is there."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        tab = Page(self, target, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        tab.call("Emulation.setDeviceMetricsOverride", **size)
        tab.system(dark=dark)
        tab.load(page, fragment)
        return tab

    def call(self, method: str, params: dict[str, Any] | None = None, session: str = "") -> dict[str, Any]:
        """Send a command and give its answer; what happens meanwhile goes to ``events``."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def wait_for(self, event: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first event, past or to come, of which this is true."""
        seen = 0
        while True:
            for one in self.events[seen:]:
                if event(one):
                    return one
            seen = len(self.events)
            self._next()

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise BrowserError(f"the browser said nothing for {_PATIENCE_S:.0f} s")
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise BrowserError(f"the browser has ended with {self._process.wait()}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


class Page:
    """A tab. Its methods are what a person does, and ``evaluate`` is what a test looks at."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, params, self._session)

    def load(self, page: Path, fragment: str = "") -> None:
        seen = len(self._browser.events)
        self.call("Page.navigate", url=page.absolute().as_uri() + fragment)
        self._browser.wait_for(
            lambda event: (
                event in self._browser.events[seen:]
                and (event["method"], event.get("sessionId")) == ("Page.loadEventFired", self._session)
            )
        )

    def close(self) -> None:
        self._browser.call("Target.closeTarget", {"targetId": self._target})

    def evaluate(self, expression: str) -> Any:
        """The value of some JavaScript, as JSON can say it; a promise's when it is kept."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Press the mouse's left button in the middle of the first element of this kind."""
        found = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            " e.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        if found is None:
            raise BrowserError(f"nothing on the page is a {selector}")
        where = {"x": found[0], "y": found[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **where)

    def download(self, selector: str, folder: Path) -> str:
        """Click on the first element of this kind, and give the text of the file that it saves."""
        folder.mkdir(exist_ok=True)
        told = {"behavior": "allow", "downloadPath": str(folder), "eventsEnabled": True}
        self._browser.call("Browser.setDownloadBehavior", told)
        seen = len(self._browser.events)
        self.click(selector)
        self._browser.wait_for(
            lambda event: (
                event["method"] == "Browser.downloadProgress"
                and event["params"]["state"] == "completed"
                and event in self._browser.events[seen:]
            )
        )
        [file] = folder.iterdir()
        return file.rename(folder.parent / file.name).read_text(encoding="utf-8")

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """One key, by the name that a browser has for it: ``Tab``, ``Enter``, ``a``."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        told = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        text = {"Enter": "\r", "Tab": ""}.get(key, key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyDown", **told, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def system(self, *, dark: bool = False, paper: bool = False) -> None:
        """What the system asks for: a dark page, a printed one."""
        wanted = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media="print" if paper else "", features=wanted)

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])

    def screenshot(self, *, whole: bool = False) -> bytes:
        """PNG of what is seen, or of the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    @property
    def requests(self) -> list[str]:
        """The addresses that the page asked for, the page's own among them."""
        return [event["params"]["request"]["url"] for event in self._own("Network.requestWillBeSent")]

    @property
    def complaints(self) -> list[str]:
        """What the console holds: errors, warnings, exceptions, what a policy forbade."""
        said = [event["params"]["entry"]["text"] for event in self._own("Log.entryAdded")]
        said += [str(event["params"]["args"]) for event in self._own("Runtime.consoleAPICalled")]
        said += [str(event["params"]["exceptionDetails"]) for event in self._own("Runtime.exceptionThrown")]
        return said

    def _own(self, method: str) -> Iterator[dict[str, Any]]:
        for event in self._browser.events:
            if (event["method"], event.get("sessionId")) == (method, self._session):
                yield event


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    browser = Browser(profile)
    try:
        yield browser
    finally:
        browser.close()


def _pipe() -> tuple[int, int]:
    """Both ends far above the numbers that the browser expects of its own."""
    low = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in low]
    for end in low:
        os.close(end)
    return high[0], high[1]
