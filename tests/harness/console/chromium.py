"""Debian's Chromium, and the web console in one of its pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.harness.console.site import ADMIN, PASSWORD

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DEADLINE_MS = 120_000
DESKTOP, PHONE = 1280, 360
HEIGHTS = {DESKTOP: 900, PHONE: 740}
"""The height of a window by its width."""
_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifts.push(one.value);
}).observe({type: "layout-shift", buffered: true});
"""
_GO = """
(hash) => new Promise((done) => {
  const before = location.href;
  addEventListener("hashchange", () => done(), {once: true});
  location.hash = hash;
  if (location.href === before) done();
})
"""
"""A script that ends when the console has opened the page: its listener was registered before."""


@contextmanager
def chromium(*options: str) -> Iterator[Browser]:
    """Run a browser; the test is skipped if none is installed."""
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", *options])
        try:
            yield browser
        finally:
            browser.close()


class ConsolePage:
    """A browser page with the console. `problems` collects errors, policy violations and alerts."""

    def __init__(self, browser: Browser, url: str, width: int = DESKTOP, scheme: Any = "light") -> None:
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": HEIGHTS[width]}, color_scheme=scheme
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(DEADLINE_MS)
        self.page.add_init_script(_SHIFTS)
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", self._alert)
        self.page.on("console", self._log)
        self._url = url

    def _alert(self, dialog: Any) -> None:
        self.problems.append(f"alert: {dialog.message}")
        dialog.dismiss()

    def _log(self, message: Any) -> None:
        # the browser logs each response with an error status, which pages report themselves
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(f"log: {message.text}")

    def sign_in(self, user: str = ADMIN, password: str = PASSWORD) -> ConsolePage:
        self.page.goto(self._url)
        self.page.get_by_label("User").fill(user)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_selector("nav#nav", state="attached")
        return self

    def enter(self) -> ConsolePage:
        """Open the console of a broker on this machine without users: it asks for no name, and shows its overview."""
        self.page.goto(self._url)
        self.page.wait_for_selector("nav#nav", state="attached")
        self.settle()
        return self

    def open(self, *parts: str, query: str = "") -> ConsolePage:
        """Open the page of this address, and wait until its parts are loaded."""
        address = "/".join(quote(part, safe="") for part in parts)
        self.page.evaluate(_GO, f"#/{address}{query}")
        self.settle()
        return self

    def settle(self) -> None:
        self.page.wait_for_function("() => !document.querySelector('main .skeleton, [aria-busy=true]')")

    def click(self, name: str, *, exact: bool = True) -> None:
        self.page.get_by_role("button", name=name, exact=exact).first.click()

    def choose(self, row: str, action: str) -> None:
        """Choose an action of the menu of a row."""
        self.click(f"Actions for {row}")
        self.page.get_by_role("menuitem", name=action, exact=True).click()

    def fill(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).last.fill(text)

    def text(self, selector: str = "main") -> str:
        return self.page.inner_text(selector)

    def wait_for_text(self, text: str, selector: str = "body") -> None:
        self.page.locator(selector).get_by_text(text).first.wait_for()

    def close(self) -> None:
        self.context.close()
