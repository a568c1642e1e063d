"""Tests of console sessions in a real browser: login, expiry, a restart of the broker, and a read-only user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.harness.console.chromium import ConsolePage
from tests.harness.console.site import READER, ConsoleSite

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_wrong_password_is_reported(site: ConsoleSite, browser: Browser) -> None:
    window = ConsolePage(browser, site.url)
    window.page.goto(site.url)
    window.page.get_by_label("User").fill("olga")
    window.page.get_by_label("Password").fill("guess")
    window.click("Sign in")
    window.page.get_by_role("alert").get_by_text("wrong user name or password").wait_for()
    assert window.problems == []
    window.close()


def test_expired_session_asks_to_sign_in_and_returns_to_the_page(console: ConsolePage) -> None:
    console.open("queues", "orders")
    console.context.clear_cookies()  # reported at the next refresh of the page
    console.wait_for_text("Your session has ended")
    console.page.get_by_label("User").fill("olga")
    console.page.get_by_label("Password").fill("quiet-stones")
    console.click("Sign in")
    console.page.wait_for_function("() => document.querySelector('h1').textContent === 'orders'")


def test_sign_out_ends_the_session(console: ConsolePage) -> None:
    console.click("Sign out")
    console.wait_for_text("Sign in to the broker")
    console.page.reload()
    console.wait_for_text("Sign in to the broker")


def test_restart_of_the_broker_shows_a_banner_and_recovers(console: ConsolePage, site: ConsoleSite) -> None:
    console.open("queues")
    site.stop_broker()
    banner = console.page.locator(".banner")
    banner.wait_for(state="visible")
    assert "orders" in console.text("main table")
    site.start_broker()
    banner.wait_for(state="hidden")
    console.open("queues", "orders.dead", "messages")
    assert console.page.locator("tbody tr").count() == 5


def test_reader_sees_everything_and_changes_nothing(site: ConsoleSite, browser: Browser) -> None:
    window = ConsolePage(browser, site.url).sign_in(READER)
    window.open("queues", "orders.dead", "messages")
    assert window.page.locator("tbody tr").count() == 5
    window.open("queues").choose("orders.dead", "Purge")
    dialog = window.page.locator("dialog")
    dialog.get_by_role("textbox").fill("orders.dead")
    dialog.get_by_role("button", name="Purge").click()
    dialog.get_by_role("alert").get_by_text("orders.dead").wait_for()
    window.page.keyboard.press("Escape")
    window.open("queues", "orders.dead", "messages")
    assert window.page.locator("tbody tr").count() == 5
    assert window.problems == []
    window.close()
