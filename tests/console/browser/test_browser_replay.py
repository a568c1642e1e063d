"""Tests of the time slider's replay dialog in a real browser: sending a range of a queue to another queue again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proton import Message
from proton.utils import BlockingConnection

from tests.harness.console.chromium import DEADLINE_MS, ConsolePage
from tests.harness.console.site import HOSTILE, READER, ConsoleSite

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

LAST_LSN = 'async () => (await (await fetch("/api/v1/history/range")).json()).last_lsn'
DEADLINE_S = DEADLINE_MS / 1000


def send(connection: BlockingConnection, queue: str, *bodies: str) -> None:
    """Send durable messages, and wait for each confirmation."""
    sender = connection.create_sender(queue)
    for body in bodies:
        sender.send(Message(body, id=f"id of {body}", properties={"text": body}, durable=True))
    sender.close()


def received(connection: BlockingConnection, queue: str, count: int) -> list[Message]:
    """Receive, accept and return *count* messages."""
    receiver = connection.create_receiver(queue, credit=count)
    found = []
    for _ in range(count):
        found.append(receiver.receive(timeout=DEADLINE_S))
        receiver.accept()
    receiver.close()
    return found


def ask(console: ConsolePage) -> Locator:
    """Open the replay dialog, and return it."""
    console.click("Replay this range")
    dialog = console.page.get_by_role("dialog", name="Replay a range")
    dialog.wait_for()
    return dialog


def test_range_of_the_time_slider_is_replayed_into_a_queue(console: ConsolePage, site: ConsoleSite) -> None:
    page = console.page
    with site.client() as connection:
        send(connection, "replay.source", "before")
        begin = page.evaluate(LAST_LSN)
        send(connection, "replay.source", "first", HOSTILE, "third")
        end = page.evaluate(LAST_LSN)
        send(connection, "replay.source", "after")

        console.open("time", query=f"?mode=replay&from={begin}")
        console.fill("Go to", str(end))
        console.click("Go")
        page.wait_for_url(f"**to={end}*")
        console.settle()
        dialog = ask(console)
        assert f"LSN {begin:,}" in dialog.inner_text()
        assert f"LSN {end:,}" in dialog.inner_text()
        go = dialog.get_by_role("button", name="Replay", exact=True)
        go.click()
        assert dialog.get_by_text("This is required.").count() == 2
        dialog.get_by_label("Messages of the queue").fill("replay.source")
        dialog.get_by_label("To the address").fill("replay.target")
        page.keyboard.press("Enter")
        dialog.get_by_role("alert").get_by_text("there is no such queue or exchange").wait_for()
        dialog.get_by_label("Create the queue if it does not exist").check()
        go.click()
        dialog.wait_for(state="detached")
        console.wait_for_text("Sent 3 messages to replay.target")
        found = received(connection, "replay.target", 3)
        assert [one.body for one in found] == ["first", HOSTILE, "third"]
        assert [one.id for one in found] == ["id of first", f"id of {HOSTILE}", "id of third"]
        assert [one.properties["text"] for one in found] == ["first", HOSTILE, "third"]

        page.get_by_role("slider", name="To").press("End")  # includes the message that was sent later
        page.wait_for_url(lambda url: f"to={end}" not in url)
        console.settle()
        dialog = ask(console)
        dialog.get_by_label("Messages of the queue").fill("replay.source")
        dialog.get_by_label("To the address").fill("replay.target")
        dialog.get_by_role("button", name="Replay", exact=True).click()
        dialog.wait_for(state="detached")
        console.wait_for_text("Sent 4 messages to replay.target")
        assert [one.body for one in received(connection, "replay.target", 4)] == ["first", HOSTILE, "third", "after"]
        empty = 'async () => (await (await fetch("/api/v1/queues/replay.target")).json()).messages === 0'
        page.wait_for_function(empty)
        source = received(connection, "replay.source", 5)
        assert [one.body for one in source] == ["before", "first", HOSTILE, "third", "after"], "it is unchanged"


def test_refused_replay_is_explained_in_the_dialog(site: ConsoleSite, browser: Browser) -> None:
    window = ConsolePage(browser, site.url).sign_in(READER).open("time", query="?mode=replay&queue=orders")
    before = window.page.evaluate('async () => (await (await fetch("/api/v1/queues/orders")).json()).enqueued')
    window.page.get_by_role("slider", name="From").press("Home")
    window.settle()
    dialog = ask(window)
    assert dialog.get_by_label("Messages of the queue").input_value() == "orders"
    dialog.get_by_label("To the address").fill("orders")
    dialog.get_by_role("button", name="Replay", exact=True).click()
    dialog.get_by_role("alert").get_by_text("'rita' may not send").wait_for()
    dialog.get_by_label("Messages of the queue").fill("no such queue")
    dialog.get_by_role("button", name="Replay", exact=True).click()
    dialog.get_by_role("alert").get_by_text("no such queue").wait_for()
    window.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    after = window.page.evaluate('async () => (await (await fetch("/api/v1/queues/orders")).json()).enqueued')
    assert after == before
    assert window.problems == []
    window.close()
