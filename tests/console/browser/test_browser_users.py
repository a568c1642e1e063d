"""Tests of the user forms in a real browser: adding, changing a password, removing, and users without permission."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.harness.console.browser import ApiClient
from tests.harness.console.chromium import DESKTOP, PHONE, ConsolePage
from tests.harness.console.contrast import low_contrast
from tests.harness.console.site import ADMIN, PASSWORD, READER, ConsoleSite
from tests.harness.process import broker

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

HOSTILE_USER = "<img/src=x/onerror=alert(1)>"
"""User name with markup, but without spaces, which user names cannot have."""
WRONG, VALID_WITHOUT_RIGHTS = 401, 403
FORGED = """async () => {
  const {csrf} = await (await fetch("/api/v1/session")).json();
  const headers = {"Content-Type": "application/json", "X-CSRF-Token": csrf};
  const send = async (method, path, given) => {
    const answer = await fetch("/api/v1" + path, {method, headers, body: JSON.stringify(given)});
    return answer.status;
  };
  return [await send("POST", "/users", {name: "mallory", password: "any"}),
    await send("PATCH", "/users/olga", {password: "mine"}), await send("DELETE", "/users/olga")];
}"""


def client(site: ConsoleSite) -> ApiClient:
    port = urlsplit(site.url).port
    assert port is not None
    return ApiClient(port)


def login_status(site: ConsoleSite, user: str, password: str) -> int:
    return client(site).login(user, password).status


def add(site: ConsoleSite, console: ConsolePage, name: str) -> None:
    """Add a user through the API, and wait until the page of users lists it."""
    admin = client(site)
    assert admin.login(ADMIN, PASSWORD).status == 201
    admin.done("POST", "/users", {"name": name, "password": "first"})
    admin.done("DELETE", "/session")
    console.open("users").page.get_by_role("link", name=name, exact=True).wait_for()


def problem(field: Locator) -> str:
    """Return the error text of an invalid, focused field, which assistive technology also reads."""
    assert field.get_attribute("aria-invalid") == "true"
    assert field.evaluate("one => document.activeElement === one"), "the invalid field has the focus"
    ids = (field.get_attribute("aria-describedby") or "").split()
    return field.page.locator(f"#{ids[-1]}").inner_text()


def test_user_is_added_with_the_keyboard_and_its_name_stays_text(console: ConsolePage, site: ConsoleSite) -> None:
    page = console.open("users").page
    page.get_by_role("button", name="Add user").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Add a user")
    assert page.evaluate("document.activeElement.name") == "name", "typing can begin"
    for text in (HOSTILE_USER, "first", "first"):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    assert low_contrast(page) == []
    page.keyboard.press("Enter")
    dialog.wait_for(state="detached")
    console.wait_for_text(f"Added the user {HOSTILE_USER}")
    assert page.evaluate("document.activeElement.textContent") == "Add user"
    page.get_by_role("link", name=HOSTILE_USER, exact=True).wait_for()
    assert page.locator("main img, dialog img, .toast img").count() == 0
    assert login_status(site, HOSTILE_USER, "first") == VALID_WITHOUT_RIGHTS
    console.choose(HOSTILE_USER, "Change the password")
    assert HOSTILE_USER in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    console.choose(HOSTILE_USER, "Remove")
    assert HOSTILE_USER in page.locator("dialog").inner_text()
    assert page.locator("dialog img").count() == 0
    page.keyboard.type(HOSTILE_USER)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("dialog").wait_for(state="detached")
    page.get_by_role("link", name=HOSTILE_USER, exact=True).wait_for(state="detached")
    assert login_status(site, HOSTILE_USER, "first") == WRONG


def test_errors_of_a_new_user_are_at_their_fields(console: ConsolePage, site: ConsoleSite) -> None:
    console.open("users").click("Add user")
    dialog = console.page.get_by_role("dialog")
    go = dialog.get_by_role("button", name="Add user")
    name, password = dialog.get_by_label("Name"), dialog.get_by_label("Password", exact=True)
    repeated = dialog.get_by_label("Repeat the password")
    go.click()
    assert problem(name) == "This is required."
    name.fill(READER)
    password.fill("quiet")
    repeated.fill("quite")
    go.click()
    assert problem(repeated) == "The passwords differ."
    repeated.fill("quiet")
    go.click()
    dialog.get_by_text("there is a user 'rita' already").wait_for()
    assert problem(name) == "there is a user 'rita' already; use another name"
    name.fill("anna berg")
    go.click()
    dialog.get_by_text("no spaces").wait_for()
    assert "no spaces" in problem(name)
    name.fill("anna")
    for field in (password, repeated):
        field.fill("\u0007bell")
    go.click()
    dialog.locator("[name=password][aria-invalid=true]").wait_for()
    assert problem(password)
    assert name.get_attribute("aria-invalid") == "false"
    console.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert login_status(site, READER, PASSWORD) == 201, "the existing user is unchanged"
    assert console.open("users").page.get_by_role("link", name="anna").count() == 0


def test_password_is_changed(console: ConsolePage, site: ConsoleSite) -> None:
    add(site, console, "ben")
    console.choose("ben", "Change the password")
    dialog = console.page.get_by_role("dialog", name="Change the password")
    dialog.get_by_label("New password").fill("second")
    dialog.get_by_label("Repeat the password").fill("second")
    dialog.get_by_role("button", name="Change password").click()
    dialog.wait_for(state="detached")
    console.wait_for_text("Changed the password of ben")
    assert login_status(site, "ben", "first") == WRONG
    assert login_status(site, "ben", "second") == VALID_WITHOUT_RIGHTS


def test_removal_needs_the_name_and_can_be_cancelled(console: ConsolePage, site: ConsoleSite) -> None:
    add(site, console, "carl")
    page = console.page
    console.choose("carl", "Remove")
    go = page.locator("dialog").get_by_role("button", name="Remove", exact=True)
    page.locator("dialog").get_by_role("textbox").fill("car")
    assert go.is_disabled()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert login_status(site, "carl", "first") == VALID_WITHOUT_RIGHTS
    console.choose("carl", "Remove")
    page.locator("dialog").get_by_role("textbox").fill("carl")
    go.click()
    page.locator("dialog").wait_for(state="detached")
    console.wait_for_text("Removed the user carl")
    page.get_by_role("link", name="carl", exact=True).wait_for(state="detached")
    assert login_status(site, "carl", "first") == WRONG


def test_own_password_is_changed_and_the_session_continues(console: ConsolePage, site: ConsoleSite) -> None:
    page = console.open("users").page
    page.get_by_role("link", name=ADMIN, exact=True).wait_for()
    console.click(f"Actions for {ADMIN}")
    assert page.get_by_role("menuitem", name="Remove").count() == 0
    page.keyboard.press("Escape")
    try:
        console.choose(ADMIN, "Change the password")
        console.fill("New password", "loud-stones")
        console.fill("Repeat the password", "loud-stones")
        page.locator("dialog").get_by_role("button", name="Change password").click()
        console.wait_for_text(f"Changed the password of {ADMIN}")
        assert login_status(site, ADMIN, PASSWORD) == WRONG
        console.open("queues", "orders.dead").click("Move messages")  # over a new connection
        console.fill("To the address", "audit")
        page.locator("dialog").get_by_role("button", name="Move", exact=True).click()
        console.wait_for_text("Moved 5 messages to audit")
    finally:
        console.open("users").choose(ADMIN, "Change the password")
        console.fill("New password", PASSWORD)
        console.fill("Repeat the password", PASSWORD)
        page.locator("dialog").get_by_role("button", name="Change password").click()
        page.locator("dialog").wait_for(state="detached")
    assert login_status(site, ADMIN, PASSWORD) == 201


@pytest.mark.parametrize(("width", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")])
def test_forms_fit_the_window(site: ConsoleSite, browser: Browser, width: int, scheme: str) -> None:
    window = ConsolePage(browser, site.url, width, scheme).sign_in().open("users")
    assert window.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert low_contrast(window.page) == []
    window.click("Add user")
    window.page.locator("dialog").get_by_role("button", name="Add user").click()
    assert window.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert window.page.evaluate("(one => one.scrollWidth <= one.clientWidth)(document.querySelector('dialog'))")
    assert low_contrast(window.page) == []
    assert window.problems == []
    window.close()


def test_reader_has_no_forms_and_cannot_change_users(site: ConsoleSite, browser: Browser) -> None:
    window = ConsolePage(browser, site.url).sign_in(READER).open("users")
    window.wait_for_text("'rita' may not", "main")
    assert window.page.get_by_role("button", name="Add user").count() == 0
    window.click("Actions for", exact=False)
    assert window.page.get_by_role("menuitem").all_inner_texts() == ["Show access"]
    assert window.page.evaluate(FORGED) == [403, 403, 403]
    assert login_status(site, ADMIN, PASSWORD) == 201
    assert window.problems == []
    window.close()


def test_broker_without_a_users_file_names_the_option(tmp_path: Path, browser: Browser) -> None:
    with broker(tmp_path / "store", "--http-port", "0") as running:
        window = ConsolePage(browser, url := running.wait_for(r"web console at (\S+)")[1])
        window.page.goto(url)
        window.page.wait_for_selector("nav#nav", state="attached")
        window.open("users")
        window.wait_for_text("start it with --users-file", "main")
        assert window.page.get_by_role("button", name="Add user").count() == 0
        assert "cairnmq users add" in window.text()
        assert window.problems == []
        window.close()
