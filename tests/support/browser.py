"""A headless Chromium that tests drive, and what they do in it.

Owns the start and the end of the browser. Must not know the pages.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import (
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.parts import need_command

WAIT_S = 15.0
POLL_S = 0.03
KEYS = {
    "Tab": Keys.TAB, "Enter": Keys.ENTER, "Escape": Keys.ESCAPE, "End": Keys.END, "Home": Keys.HOME,
    "ArrowLeft": Keys.ARROW_LEFT, "ArrowRight": Keys.ARROW_RIGHT,
}  # fmt: skip
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # All pages are drawn by one process. Otherwise the browser starts another for each page that is opened.
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",
    "--disable-features=BackForwardCache,SpareRendererForSitePerProcess",
)


class Browser:
    """One window of the browser."""

    def __init__(self, driver: webdriver.Chrome, downloads: Path) -> None:
        self.driver = driver
        self.downloads = downloads

    def size(self, width: int, height: int, *, is_dark: bool = False) -> None:
        """Set the size of the page in CSS pixels, and the colour scheme that it prefers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def wait(self, condition: Any, what: str) -> Any:
        """Return what `condition()` returns as soon as that is true."""
        return WebDriverWait(self.driver, WAIT_S, POLL_S).until(lambda _: condition(), f"not seen in time: {what}")

    def script(self, text: str, *arguments: object) -> Any:
        """Return the value of a script in the page."""
        return self.driver.execute_script(text, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def find(self, selector: str) -> WebElement:
        """Return the first element that a selector finds, as soon as there is one."""
        found: WebElement = self.wait(lambda: next(iter(self.all(selector)), None), selector)
        return found

    def click(self, selector: str) -> None:
        """Click the first element that a selector finds, as soon as that can be clicked."""

        def click(element: WebElement) -> None:
            self.script("arguments[0].scrollIntoView({ block: 'center' })", element)  # the head may cover it
            element.click()

        self.act(selector, click)

    def enter(self, selector: str, text: str) -> None:
        """Replace the text of a field."""

        def type_text(field: WebElement) -> None:
            field.clear()
            field.send_keys(text)

        self.act(selector, type_text)

    def press(self, *keys: str) -> None:
        """Press keys one after another, wherever the focus is; names are those of DOM events (`Tab`, `ArrowLeft`)."""
        actions = ActionChains(self.driver, duration=0)
        for key in keys:
            actions.send_keys(KEYS[key])
        actions.perform()

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})

    def act(self, selector: str, action: Callable[[WebElement], None]) -> None:
        """Do something with an element, again if the page replaces it at the same moment."""

        def is_done() -> bool:
            try:
                action(self.driver.find_element(By.CSS_SELECTOR, selector))
            except (NoSuchElementException, StaleElementReferenceException, ElementNotInteractableException):
                return False
            return True

        self.wait(is_done, selector)

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
        except Exception:
            raise AssertionError(f"{text!r} is not in {self.text(selector)!r}") from None

    def leave(self) -> None:
        """Leave the page, which would go on with its requests: call this before its server stops."""
        self.driver.get("about:blank")

    def errors(self) -> list[str]:
        """Return what the browser has reported since the last call: scripts that failed, violations of the policy.

        Requests that the broker refuses are left out: the page shows them.
        """
        messages = [entry["message"] for entry in self.driver.get_log("browser")]
        return [each for each in messages if "the server responded with a status of 4" not in each]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a browser. Raises UnavailableError if the machine has none."""
    need_command("chromium", "chromium")
    need_command("chromedriver", "chromium-driver")
    with TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as folder:
        options = Options()
        options.binary_location = shutil.which("chromium") or ""
        for flag in (*FLAGS, f"--user-data-dir={folder}/profile"):
            options.add_argument(flag)
        options.add_experimental_option("prefs", {"download.default_directory": f"{folder}/downloads"})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            yield Browser(driver, Path(folder, "downloads"))
        finally:
            driver.quit()
