"""Tests of the console's actions in a real browser, against a real broker."""

from __future__ import annotations

from proton import Message

from tests.harness.console.chromium import ConsolePage
from tests.harness.console.site import ConsoleSite


def confirm(console: ConsolePage, label: str, typed: str | None = None) -> None:
    """Fill in *typed*, if given, press the button *label* of the open dialog, and wait until the dialog is closed."""
    dialog = console.page.locator("dialog")
    if typed is not None:
        dialog.get_by_role("textbox").fill(typed)
    dialog.get_by_role("button", name=label, exact=True).click()
    dialog.wait_for(state="detached")


def test_queue_from_creation_to_deletion(console: ConsolePage, site: ConsoleSite) -> None:
    console.open("queues").click("Create queue")
    console.fill("Name", "returns")
    console.page.get_by_text("Limits", exact=True).click()
    console.fill("Maximum messages", "many")
    console.page.locator("dialog").get_by_role("button", name="Create queue").click()
    console.wait_for_text("Enter a whole number.", "dialog")
    console.fill("Maximum messages", "250")
    console.page.locator("dialog").get_by_role("button", name="Create queue").click()
    console.page.wait_for_function("() => document.querySelector('h1').textContent === 'returns'")
    console.wait_for_text("of at most 250", "main")

    console.click("Change")
    console.fill("Maximum messages", "300")
    console.click("Save")
    console.wait_for_text("of at most 300", "main")

    with site.client() as connection:
        connection.create_sender("returns").send(Message("one parcel", durable=True))
    console.open("queues", "returns", "messages")
    console.wait_for_text("one parcel", "main table")

    console.open("queues", "returns").click("Move messages")
    console.fill("To the address", "audit")
    console.page.locator("dialog").get_by_role("button", name="Move", exact=True).click()
    console.wait_for_text("Moved 1 message to audit")

    console.click("Delete")
    go = console.page.locator("dialog").get_by_role("button", name="Delete")
    assert go.is_disabled()
    confirm(console, "Delete", "returns")
    console.page.wait_for_function("() => document.querySelector('h1').textContent === 'Queues'")
    console.settle()
    assert console.page.get_by_role("link", name="returns", exact=True).count() == 0


def test_purge_asks_for_the_name(console: ConsolePage) -> None:
    console.open("queues").choose("emails", "Purge")
    confirm(console, "Purge", "emails")
    console.wait_for_text("Removed 7 messages")


def test_table_is_filtered_sorted_and_shared_by_its_address(console: ConsolePage) -> None:
    page = console.open("queues").page
    page.get_by_role("searchbox").fill("shipping")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 2")
    page.get_by_role("searchbox").fill("")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length > 5")
    page.get_by_role("columnheader", name="Messages").get_by_role("button").click()
    page.wait_for_function("() => document.querySelector('tbody a').textContent === 'audit'")
    assert page.get_by_role("columnheader", name="Messages").get_attribute("aria-sort") == "descending"
    assert "sort=messages" in page.url
    page.reload()
    page.wait_for_function("() => document.querySelector('tbody a')?.textContent === 'audit'")
    console.open("queues", query="?search=nothing-like-this")
    console.wait_for_text("Nothing found", "main")


def test_messages_are_searched_and_shown(console: ConsolePage) -> None:
    page = console.open("queues", "orders.dead", "messages").page
    assert page.locator("tbody tr").count() == 5
    assert "rejected in orders" in console.text()
    page.get_by_role("searchbox").fill("order-4713")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
    page.get_by_role("link", name="order-4713").click()
    console.wait_for_text('"customer": "Anna Nordström"', "main pre")
    text = console.text()
    assert {"tenant", "acme", "x-opt-last-death-queue"} <= {*text.split()}
