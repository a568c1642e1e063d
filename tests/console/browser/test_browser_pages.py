"""Tests of every console page in a real browser: errors, width, contrast, layout shifts, and hostile texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.harness.console.chromium import DESKTOP, PHONE, ConsolePage
from tests.harness.console.contrast import low_contrast
from tests.harness.console.site import HOSTILE, ConsoleSite

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES: dict[str, tuple[str, ...]] = {
    "Overview": ("",), "Queues": ("queues",), "orders": ("queues", "orders"),
    "Messages": ("queues", "orders.dead", "messages"), "Message 1": ("queues", HOSTILE, "messages", "1"),
    "Exchanges and bindings": ("exchanges",), "shop": ("exchanges", "shop"), "Connections and links": ("connections",),
    "Transactions": ("transactions",), "Message timeline": ("trace",), "Time slider": ("time",),
    "Journal map": ("journal",), "Cluster and federation": ("cluster",), "Users and rules": ("users",),
    "What may olga do?": ("users", "olga"), "Configuration": ("configuration",), "Logs": ("logs",),
    "This page does not exist": ("nowhere", "at", "all", "here"),
}  # fmt: skip
MOST_SHIFT = 0.1
"""The limit of a good Cumulative Layout Shift."""


@pytest.fixture(scope="module", params=[(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop-light", "phone-dark"])
def window(request: pytest.FixtureRequest, site: ConsoleSite, browser: Browser) -> Iterator[ConsolePage]:
    width, scheme = request.param
    page = ConsolePage(browser, site.url, width, scheme).sign_in()
    yield page
    page.close()


@pytest.mark.parametrize(("title", "parts"), PAGES.items(), ids=lambda value: value if isinstance(value, str) else "")
def test_page_opens_in_its_frame(window: ConsolePage, title: str, parts: tuple[str, ...]) -> None:
    page = window.page
    page.evaluate("window.shifts = []")
    window.open(*parts)
    assert page.inner_text("h1") == title
    assert page.title() == f"{title} \N{EN DASH} CairnMQ"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("window.shifts.reduce((sum, one) => sum + one, 0)") < MOST_SHIFT
    assert low_contrast(page) == []
    assert window.problems == []
    assert page.get_by_role("alert").filter(has_text="could not be loaded").count() == 0, window.text()


def test_hostile_texts_stay_text(window: ConsolePage) -> None:
    queue = ("queues", HOSTILE)
    for parts in (("queues",), queue, (*queue, "messages"), (*queue, "messages", "1")):
        window.open(*parts)
        assert HOSTILE in (window.page.text_content("main") or ""), parts
        assert window.page.locator("main img").count() == 0
    assert window.problems == []


def test_scheme_follows_the_switch_and_stays(site: ConsoleSite, browser: Browser) -> None:
    window = ConsolePage(browser, site.url, scheme="dark").sign_in()
    scheme = "document.documentElement.dataset.scheme"
    assert window.page.evaluate(scheme) == "dark"
    window.click("Use light colors")
    assert window.page.evaluate(scheme) == "light"
    window.page.reload()
    window.page.wait_for_selector("h1")
    assert window.page.evaluate(scheme) == "light"
    window.close()


def test_keyboard_reaches_the_content(console: ConsolePage) -> None:
    page = console.page
    page.reload()
    page.wait_for_selector("h1")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    console.open("queues")
    page.get_by_role("link", name="orders", exact=True).focus()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('h1').textContent === 'orders'")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    assert outline != "none"


def test_dialog_holds_the_focus_and_escape_closes_it(console: ConsolePage) -> None:
    page = console.open("queues").page
    opener = page.get_by_role("button", name="Create queue").first
    opener.click()
    inside = (
        "document.querySelector('dialog').contains(document.activeElement) || document.activeElement === document.body"
    )
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('dialog')")
    assert page.evaluate("document.activeElement.textContent") == "Create queue"


def test_menu_of_a_phone_opens_and_closes(site: ConsoleSite, browser: Browser) -> None:
    window = ConsolePage(browser, site.url, PHONE).sign_in()
    menu = window.page.get_by_role("button", name="Menu")
    menu.click()
    assert menu.get_attribute("aria-expanded") == "true"
    window.page.get_by_role("link", name="Queues", exact=True).click()
    window.page.wait_for_function("() => document.querySelector('h1').textContent === 'Queues'")
    assert menu.get_attribute("aria-expanded") == "false"
    assert window.problems == []
    window.close()
