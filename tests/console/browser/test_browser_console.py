"""Tests of what an operator sees: live figures, gaps, escaped names, dialogs, bulk actions, questions to history."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from proton import Message
from proton.utils import SyncRequestResponse

from tests.harness.console.chromium import ConsolePage
from tests.harness.console.site import ConsoleSite, create

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DISGUISED = "line\nbreak\u202etxt\x07"
SHOWN = r"line\nbreak\u202etxt\x07"


def test_deepest_queues_are_live(console: ConsolePage, site: ConsoleSite) -> None:  # U6
    console.open("")
    row = console.page.locator(".bar-list .entry").filter(has_text="flooded")
    assert row.count() == 0
    with site.client() as connection:
        sender = connection.create_sender("flooded")
        for _ in range(60):
            sender.send(Message("x"))
        row.get_by_text("60", exact=True).wait_for()


def test_chart_has_no_line_where_samples_are_missing(console: ConsolePage) -> None:  # U6
    pieces = console.page.evaluate("""async () => {
      const { lineChart } = await import("./js/parts/line_chart.js");
      const chart = lineChart({ label: "Depth", format: String, series: [{ key: "messages", label: "Messages" }] });
      document.body.append(chart.element);
      const at = (second, messages) => ({ time: 1000 * second, messages });
      chart.update([at(0, 18), at(5, 19), at(10, null), at(60, 24), at(65, 25), at(120, 1)], 5);
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      const found = ["path.line", "circle.lone"].map((one) => chart.element.querySelectorAll(one).length);
      chart.element.remove();
      return found;
    }""")
    assert pieces == [2, 1]


def test_hidden_characters_of_names_are_shown(console: ConsolePage, site: ConsoleSite) -> None:  # U6
    with site.client() as connection:
        create(SyncRequestResponse(connection, "$management"), "queue", DISGUISED, arguments={})
        connection.create_sender(DISGUISED).send(Message("a\n\u202eb", id=DISGUISED))
    for parts in (("queues",), ("queues", DISGUISED), ("queues", DISGUISED, "messages")):
        console.open(*parts).wait_for_text(SHOWN, "main")  # lists may be some seconds old
        text = console.page.inner_text("main") + console.page.title()
        assert "\u202e" not in text
        assert "\x07" not in text
    console.open("queues").choose(SHOWN, "Delete")
    dialog = console.page.locator("dialog")
    dialog.get_by_role("textbox").fill(SHOWN)
    dialog.get_by_role("button", name="Delete", exact=True).click()
    console.wait_for_text("Deleted the queue")


def test_purge_counts_what_it_removes_and_the_holders_are_named(console: ConsolePage, site: ConsoleSite) -> None:  # U6
    with site.client() as connection:
        sender = connection.create_sender("held")
        for _ in range(4):
            sender.send(Message("x"))
        receiver = connection.create_receiver("held", credit=4, name="the-holder")
        receiver.receive(timeout=60)
        console.open("queues")
        held = console.page.locator("tbody tr").filter(has_text="held")
        held.get_by_role("cell").nth(4).get_by_text("4").wait_for()
        console.choose("held", "Purge")
        assert "This removes 0 ready messages" in console.text("dialog")
        assert "4 unsettled messages" in console.text("dialog")
        console.page.keyboard.press("Escape")
        console.open("queues", "held", "messages")
        console.wait_for_text("No message is ready: 4 messages of this queue are unsettled.")
        console.wait_for_text("the-holder")


def test_dialog_starts_in_its_first_field_and_keeps_what_was_entered(console: ConsolePage) -> None:  # U6
    page = console.open("queues").page
    console.click("Create queue")
    assert page.evaluate("document.activeElement.name") == "name"
    page.keyboard.type("typed")
    page.mouse.click(5, 5)
    assert page.locator("dialog input[name=name]").input_value() == "typed"
    page.keyboard.press("Escape")
    console.click("Create queue")
    page.mouse.click(5, 5)
    page.locator("dialog").wait_for(state="detached")


def test_page_load_logs_no_error(site: ConsoleSite, browser: Browser) -> None:  # U6
    window = ConsolePage(browser, site.url)
    errors: list[str] = []
    window.page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    window.page.goto(site.url)
    window.page.get_by_label("User").wait_for()
    assert errors == []
    window.sign_in()
    window.page.reload()
    window.page.wait_for_selector("h1")
    assert errors == []
    window.close()


def test_question_to_history_is_cancelled_and_asked_again(console: ConsolePage) -> None:  # U6
    page = console.page
    page.route("**/api/v1/journal", lambda route: None)
    page.evaluate("location.hash = '#/journal'")
    page.get_by_role("progressbar").wait_for()
    console.click("Cancel")
    console.wait_for_text("The question was not answered.")
    page.unroute("**/api/v1/journal")
    console.click("Ask again")
    console.wait_for_text("Why is the log this long?")


def test_command_that_destroys_asks_before_it_is_copied(console: ConsolePage, site: ConsoleSite) -> None:  # U6
    console.open("journal")
    danger = console.page.locator(".command.danger").first
    assert f"--url amqp://127.0.0.1:{site.port} queues purge" in danger.inner_text()
    assert "removes all messages" in danger.inner_text()
    danger.get_by_role("button", name="Copy the command").click()
    console.wait_for_text("This command destroys data", "dialog")
    console.page.keyboard.press("Escape")


def test_queues_are_deleted_together(console: ConsolePage, site: ConsoleSite) -> None:  # U6
    with site.client() as connection:
        management = SyncRequestResponse(connection, "$management")
        for number in range(3):
            create(management, "queue", f"tenant-{number}", arguments={})
    page = console.open("queues", query="?search=tenant-").page
    page.get_by_label("Select all on this page").check()
    console.click("Delete")
    page.locator("dialog").get_by_role("textbox").fill("3")
    page.locator("dialog").get_by_role("button", name="Delete", exact=True).click()
    console.wait_for_text("Deleted 3 queues")
    console.wait_for_text("Nothing matches", "main")


def test_list_is_a_csv_file(console: ConsolePage) -> None:  # U6
    page = console.open("queues", query="?search=orders").page
    with page.expect_download() as waiting:
        page.get_by_role("link", name="CSV").click()
    lines = waiting.value.path().read_text().splitlines()
    assert lines[0].startswith("name,durable,arguments,messages")
    assert {line.partition(",")[0] for line in lines[1:]} == {"orders", "orders.dead"}


@pytest.mark.parametrize("address", ["#/trace?message_id=order-4711", "#/time?to=", "#/time?mode=difference&from="])
def test_link_shows_the_same_again(site: ConsoleSite, console: ConsolePage, address: str) -> None:  # U6
    console.open("trace", query="?message_id=order-4711")
    lsns = [int(one) for one in re.findall(r"LSN (\d+)", console.text())]
    if "time" in address:
        address += str(lsns[0]) + (f"&to={lsns[-1]}" if "difference" in address else "")
    console.page.evaluate("(hash) => { location.hash = hash; location.reload(); }", address)
    console.page.wait_for_selector("h1")
    console.settle()
    assert console.page.url.endswith(quote(address, safe="#/?=&-_"))
    assert console.page.get_by_role("button", name="Copy link").count() == 1
    assert f"LSN {lsns[0]:,}" in console.text() or f"LSN {lsns[0]}" in console.text()


def test_cluster_page_of_a_single_broker_is_one_panel(console: ConsolePage) -> None:  # U6
    console.open("cluster")
    assert console.page.locator("main .panel").count() == 1
    console.wait_for_text("This broker runs alone", "main")
