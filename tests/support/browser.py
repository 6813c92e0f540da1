"""A headless Chromium that tests drive, and what they do in it.

Owns the start and the end of the browser. Must not know the pages.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

from tests.support.devtools import DevTools
from tests.support.parts import need_command
from tests.support.waiting import wait_until

WAIT_S = 15.0
START_S = 60.0
POLL_S = 0.01
KEYS = {
    "Backspace": 8, "Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39,
}  # fmt: skip
"""The codes of the keys that are pressed, by the names of DOM events."""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    # All pages are drawn by one process. Otherwise the browser starts another for each page that is opened.
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",
    "--disable-features=BackForwardCache,SpareRendererForSitePerProcess",
)

# Both return whether the element exists, is shown and is not disabled. Above it there may be nothing but its label.
CHOOSE = """
const option = document.querySelector(arguments[0]);
if (!option || option.disabled) return false;
const list = option.closest("select");
list.value = option.value;
for (const kind of ["input", "change"]) list.dispatchEvent(new Event(kind, { bubbles: true }));
return true;
"""
REACH = """
const element = document.querySelector(arguments[0]);
if (!element || element.disabled || !element.checkVisibility()) return null;
element.scrollIntoView({ block: "center" });
const box = element.getClientRects()[0];
const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
const top = document.elementFromPoint(x, y);
return element.contains(top) || top?.contains(element) ? [x, y] : null;
"""
SELECT = """
const element = document.querySelector(arguments[0]);
if (!element || element.disabled || !element.checkVisibility()) return false;
element.focus();
element.select();
return document.activeElement === element;
"""


class Browser:
    """One window of the browser."""

    def __init__(self, page: DevTools, downloads: Path) -> None:
        self.page = page
        self._downloads = downloads
        self._size: tuple[int, int, bool] | None = None
        for domain in ("Page", "Runtime", "Log"):
            page.send(f"{domain}.enable")
        page.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    def size(self, width: int, height: int, *, is_dark: bool = False) -> None:
        """Set the size of the page in CSS pixels, and the colour scheme that it prefers."""
        if self._size == (width, height, is_dark):
            return
        self._size = (width, height, is_dark)
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},  # animations take processor time
        ]
        self.page.send_all(
            [("Emulation.setDeviceMetricsOverride", metrics), ("Emulation.setEmulatedMedia", {"features": features})]
        )

    def go(self, address: str) -> None:
        """Load an address."""
        self.page.send("Page.navigate", url=address)

    def wait(self, condition: Any, what: str) -> Any:
        """Return what `condition()` returns as soon as that is true."""
        results: list[Any] = []

        def is_true() -> bool:
            results[:] = [condition()]
            return bool(results[0])

        wait_until(is_true, what, timeout_s=WAIT_S, interval_s=POLL_S)
        return results[0]

    def downloaded(self, name: str) -> str:
        """Return the text of a file that the page has exported, and remove it. An empty file has the name before."""
        path = self._downloads / name
        text: str = self.wait(lambda: path.exists() and path.read_text(), name)
        path.unlink()
        return text

    def script(self, text: str, *arguments: object) -> Any:
        """Return the value of a script in the page."""
        return self.page.evaluate(text, *arguments)

    def count(self, selector: str) -> int:
        """Return how many elements a selector finds."""
        found: int = self.script("return document.querySelectorAll(arguments[0]).length", selector)
        return found

    def click(self, selector: str) -> None:
        """Click the first element that a selector finds, or choose an option, as soon as that is possible."""
        if "option" in selector.rpartition(" ")[2]:
            self.wait(lambda: self.script(CHOOSE, selector), selector)
            return
        x, y = self.wait(lambda: self.script(REACH, selector), selector)
        at = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.page.send_all([("Input.dispatchMouseEvent", {"type": f"mouse{each}", **at}) for each in PRESS])

    def enter(self, selector: str, text: str) -> None:
        """Replace the text of a field; a line break at its end is the key Enter."""
        self.wait(lambda: self.script(SELECT, selector), selector)
        line = text.removesuffix("\n")
        self.type(line) if line else self.press("Backspace")
        if line != text:
            self.press("Enter")

    def press(self, *keys: str) -> None:
        """Press keys one after another, wherever the focus is; names are those of DOM events (`Tab`, `ArrowLeft`)."""
        events = []
        for key in keys:
            named = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            text = {"text": "\r"} if key == "Enter" else {}
            events += [{"type": "keyDown", **named, **text}, {"type": "keyUp", **named}]
        self.page.send_all([("Input.dispatchKeyEvent", each) for each in events])

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.page.send("Input.insertText", text=text)

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements that a selector finds."""
        found: list[str] = self.script(
            "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)", selector
        )
        return found

    def text(self, selector: str = "main") -> str:
        """Return the text of an element as people see it."""
        shown: str = self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return shown

    def sees(self, text: str, selector: str = "main") -> None:
        """Wait until an element shows a text."""
        try:
            self.wait(lambda: text in self.text(selector), text)
        except AssertionError:
            raise AssertionError(f"{text!r} is not in {self.text(selector)!r}") from None

    def picture(self, height_max: int) -> bytes:
        """Return the whole page as PNG."""
        width, height = self.script(
            "const page = document.documentElement; return [innerWidth, Math.ceil(page.getBoundingClientRect().height)]"
        )
        clip = {"x": 0, "y": 0, "width": width, "height": min(height_max, height), "scale": 1}
        shot = self.page.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def leave(self) -> None:
        """Leave the page, which would go on with its requests: call this before its server stops."""
        self.go("about:blank")

    def errors(self) -> list[str]:
        """Return what the browser has reported since the last call: scripts that failed, violations of the policy.

        Requests that the broker refuses are left out: the page shows them.
        """
        self.script("")  # the page sends its events before it responds
        messages = []
        for event in self.page.events():
            match event["method"]:
                case "Runtime.exceptionThrown":
                    messages.append(json.dumps(event["params"]["exceptionDetails"]))
                case "Runtime.consoleAPICalled":
                    messages.append(json.dumps(event["params"]["args"]))
                case "Log.entryAdded":
                    entry = event["params"]["entry"]
                    messages.append(f"{entry.get('url', '')} {entry['text']}")
        return [each for each in messages if "the server responded with a status of 4" not in each]


PRESS = ("Moved", "Pressed", "Released")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a browser. Raises UnavailableError if the machine has none."""
    need_command("chromium", "chromium")
    with TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as folder:
        profile, downloads = Path(folder, "profile"), Path(folder, "downloads")
        command = ["chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                page = DevTools(_address_of_page(profile / "DevToolsActivePort"))
                try:
                    yield Browser(page, downloads)
                finally:
                    page.close()
            finally:
                process.terminate()


def _address_of_page(port_file: Path) -> str:
    """Return the address of the only page of a browser that starts."""

    def pages() -> list[str]:
        lines = port_file.read_text().splitlines() if port_file.exists() else []
        if len(lines) < 2:  # it is being written
            return []
        with urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=START_S) as response:
            return [each["webSocketDebuggerUrl"] for each in json.load(response) if each["type"] == "page"]

    found: list[str] = []
    wait_until(lambda: found.extend(pages()) or found, "a page of Chromium", timeout_s=START_S)
    return found[0]
