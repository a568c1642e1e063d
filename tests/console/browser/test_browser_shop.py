"""Tests of all console pages and actions in a real browser, with the data of a busy shop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from proton.utils import SyncRequestResponse

from tests.harness.console.chromium import DESKTOP, PHONE, ConsolePage
from tests.harness.console.contrast import low_contrast
from tests.harness.console.shop import REJECTED, XIDS, Shop
from tests.harness.console.site import HOSTILE, READER, create, filled

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE_EXCHANGE = f"exchange {HOSTILE}"
PAGES: dict[str, tuple[str, ...]] = {
    "Overview": ("",), "Queues": ("queues",), "orders": ("queues", "orders"),
    "Messages": ("queues", "orders.dead", "messages"), "Message 1": ("queues", HOSTILE, "messages", "1"),
    "Exchanges and bindings": ("exchanges",), HOSTILE_EXCHANGE: ("exchanges", HOSTILE_EXCHANGE),
    "Connections and links": ("connections",), "Transactions": ("transactions",), "Time slider": ("time",),
    "Journal map": ("journal",), "Cluster and federation": ("cluster",), "Users and rules": ("users",),
    "What may billing do?": ("users", "billing"), "Configuration": ("configuration",), "Logs": ("logs",),
}  # fmt: skip
HOSTILE_PAGES = (
    ("queues",), ("queues", HOSTILE), ("queues", HOSTILE, "messages"), ("queues", HOSTILE, "messages", "1"),
    ("exchanges",), ("exchanges", HOSTILE_EXCHANGE), ("connections",), ("transactions",), ("time",), ("logs",),
)  # fmt: skip
"""Pages with names, keys, AMQP container IDs, transactions, bodies or log lines that clients chose."""
FOR_MANAGERS = (("configuration",), ("logs",), ("journal",), ("time",), ("users", "olga"))
FIRST_ENQUEUE = """async () => {
  const {messages} = await (await fetch("/api/v1/history/trace?message_id=order-4711")).json();
  return messages[0].events.find((one) => one.kind === "enqueued").lsn;
}"""
CUT_TABLES = """() => [...document.querySelectorAll('.table-frame')]
  .map(one => one.scrollWidth - one.clientWidth).filter(one => one > 0)"""
"""Script that returns by how many pixels tables exceed their frames, which would hide the buttons on the right."""
WIDE_LABELS = """() => [...document.querySelectorAll('.graph a.node, .graph g.key')]
  .filter((one) => one.querySelector('text').getBBox().width > one.querySelector('rect').getBBox().width)
  .map((one) => one.textContent)"""
BOXES = """(row) => [...[...row.querySelectorAll('td.end')].slice(0, 2), row.querySelector('input'),
  row.querySelector('a')].map((one) => one.getBoundingClientRect().toJSON())"""
HIDDEN_PANELS = "[...document.querySelectorAll('.page > *')].filter(one => !one.getClientRects().length).length"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Shop]:
    with filled(Shop(tmp_path_factory.mktemp("shop"))) as running:
        yield running


@pytest.fixture(scope="module")
def signed_in(shop: Shop, browser: Browser) -> Iterator[ConsolePage]:
    page = ConsolePage(browser, shop.url).sign_in()
    yield page
    page.close()


@pytest.fixture
def console(signed_in: ConsolePage) -> Iterator[ConsolePage]:
    """Yield the console of the shop, signed in as administrator; fail if a page had errors."""
    yield signed_in
    problems, signed_in.problems = signed_in.problems, []
    assert problems == []


@pytest.fixture
def reader(shop: Shop, browser: Browser) -> Iterator[ConsolePage]:
    page = ConsolePage(browser, shop.url).sign_in(READER)
    yield page
    problems = page.problems
    page.close()
    assert problems == []


def answer(console: ConsolePage, label: str) -> None:
    """Press a button of the open dialog, and wait until the dialog is closed."""
    dialog = console.page.locator("dialog")
    dialog.get_by_role("button", name=label, exact=True).click()
    dialog.wait_for(state="detached")


def row(console: ConsolePage, text: str, table: str = "main table") -> str:
    """Wait for a row with *text*, and return its complete text."""
    found = console.page.locator(f"{table} tbody tr").filter(has_text=text).first
    found.wait_for()
    return found.inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")])
def test_pages_have_their_panels(shop: Shop, browser: Browser, width: int, scheme: str) -> None:
    window = ConsolePage(browser, shop.url, width, scheme).sign_in()
    for title, parts in PAGES.items():
        window.open(*parts)
        page = window.page
        assert page.inner_text("h1") == title
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), title
        assert page.evaluate(HIDDEN_PANELS) == 0, title
        assert page.evaluate(CUT_TABLES) == [], title
        assert low_contrast(page) == [], title
        assert page.get_by_role("alert").filter(has_text="could not be loaded").count() == 0, (title, window.text())
    assert window.problems == []
    window.close()


def test_hostile_texts_stay_text_on_every_page(console: ConsolePage) -> None:
    for parts in HOSTILE_PAGES:
        console.open(*parts)
        assert "onerror=alert(1)" in (console.page.text_content("main") or ""), parts
        assert console.page.locator("main img").count() == 0, parts
    console.open("trace", query="?message_id=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    console.wait_for_text("Lifetime", "main")
    assert console.page.locator("main img").count() == 0


def test_hidden_characters_stay_within_the_diagram(shop: Shop, console: ConsolePage) -> None:
    name = "to" + "\N{RIGHT-TO-LEFT OVERRIDE}" * 30  # U6
    connection = shop.client(container="hidden")
    management = SyncRequestResponse(connection, "$management")
    create(management, "exchange", name, **{"exchange-type": "topic"})
    create(management, "binding", None, exchange=name, queue="audit", key=name)
    console.open("exchanges", name)
    texts = console.page.locator(".graph a.node, .graph g.key")
    assert all("\\u202e" in text for text in texts.all_text_contents() if text.startswith("to"))
    assert console.page.evaluate(WIDE_LABELS) == []
    console.click("Delete")
    console.page.locator("dialog").get_by_role("textbox").fill(name)
    answer(console, "Delete")


def test_bindings_of_an_exchange_are_all_listed(shop: Shop, console: ConsolePage) -> None:
    management = SyncRequestResponse(shop.client(container="binder"), "$management")
    create(management, "exchange", "busy", **{"exchange-type": "topic"})
    for number in range(205):
        create(management, "binding", None, exchange="busy", queue="audit", key=f"k{number}")
    console.open("exchanges", "busy")
    console.wait_for_text("of 205", "main .pager")
    console.click("Delete")
    console.page.locator("dialog").get_by_role("textbox").fill("busy")
    answer(console, "Delete")


def test_page_that_does_not_exist_is_not_the_overview(console: ConsolePage) -> None:
    assert console.open("nowhere").page.locator("nav a[aria-current]").count() == 0
    assert console.open("").page.locator("nav a[aria-current]").all_inner_texts() == ["Overview"]


def test_rows_on_a_phone_show_figures_beside_each_other(shop: Shop, browser: Browser) -> None:
    window = ConsolePage(browser, shop.url, PHONE).sign_in().open("queues")
    first = window.page.locator("tbody tr").first
    messages, unsettled, check, name = first.evaluate(BOXES)
    assert messages["y"] == unsettled["y"]
    assert messages["right"] <= unsettled["x"]
    assert check["right"] <= name["x"]
    window.close()


def test_exchange_is_bound_explained_and_published_to(console: ConsolePage) -> None:
    console.open("exchanges").click("Create exchange")
    console.fill("Name", "returns.events")
    console.page.get_by_label("Type").select_option("topic")
    console.page.locator("dialog").get_by_role("button", name="Create exchange").click()
    console.page.wait_for_function("() => document.querySelector('h1').textContent === 'returns.events'")
    for queue, key in (("audit", "returned.#"), ("emails", "returned.late")):
        console.click("Bind")
        console.fill("Queue", queue)
        console.fill("Key", key)
        answer(console, "Add binding")
        row(console, queue)
    console.fill("Routing key", "returned.early")
    console.click("Show")
    console.wait_for_text("reaches one queue", "main")
    hits = console.page.locator(".graph .node.hit text")
    hits.first.wait_for()
    assert hits.all_text_contents() == ["returns.events", "audit"]
    console.click("Publish a test message")
    console.fill("Body", "came back")
    answer(console, "Publish")
    console.page.locator("main dd").filter(has_text="1").first.wait_for()
    console.open("queues", "audit", "messages")
    console.wait_for_text("came back", "main table")
    console.open("exchanges", "returns.events").choose("the binding of emails", "Remove")
    answer(console, "Remove")
    console.page.wait_for_function("() => document.querySelectorAll('main tbody tr').length === 1")
    console.click("Delete")
    console.page.locator("dialog").get_by_role("textbox").fill("returns.events")
    answer(console, "Delete")
    console.page.wait_for_function("() => document.querySelector('h1').textContent === 'Exchanges and bindings'")


def cells_of(console: ConsolePage, table: str, text: str) -> dict[str, str]:
    """Return the cells of the row with *text* by their column headers."""
    found = console.page.get_by_role("table", name=table)
    heads = found.get_by_role("columnheader").all_inner_texts()
    cells = found.locator("tbody tr").filter(has_text=text).get_by_role("cell").all_inner_texts()
    return dict(zip(heads, cells, strict=True))


def test_link_and_connection_are_closed(console: ConsolePage) -> None:
    console.open("connections", query="?l_search=order-events")
    assert cells_of(console, "Links", "order-events")["Credit"] == "1,000", "the sender has all its credit"
    console.open("connections", query="?l_search=pick-list")
    assert cells_of(console, "Links", "pick-list")["Credit"] == "50"
    console.choose("pick-list", "Close")
    answer(console, "Close it")
    console.wait_for_text("Nothing found", "main")
    console.open("connections", query="?search=checkout")
    connections = console.page.get_by_role("table", name="Connections")
    assert "checkout-7f9c4" in connections.inner_text()
    assert re.fullmatch(r"[\d.]+ (ms|s|min)( \d+ s)?", cells_of(console, "Connections", "checkout")["Idle for"])
    connections.get_by_role("button", name="Actions for").click()
    console.page.get_by_role("menuitem", name="Close").click()
    answer(console, "Close it")
    console.wait_for_text("Nothing found", "main")


def test_dead_letters_are_searched_retried_and_sent_elsewhere(console: ConsolePage) -> None:
    page = console.open("queues", "orders.dead", "messages").page
    assert page.locator("tbody tr").count() == REJECTED
    assert page.get_by_role("button", name="Later").is_disabled()
    page.get_by_label("Select message").nth(0).check()
    page.get_by_label("Select message").nth(1).check()
    console.wait_for_text("2 selected")
    console.click("Retry")
    answer(console, "Retry")
    console.wait_for_text("Retried 2 messages")
    page.wait_for_function(f"() => document.querySelectorAll('tbody tr').length === {REJECTED - 2}")
    page.get_by_label("Select message").nth(0).check()
    console.click("Retry")
    console.fill("Other address", "orders.retry")
    answer(console, "Retry")
    page.wait_for_function(f"() => document.querySelectorAll('tbody tr').length === {REJECTED - 3}")
    console.open("queues", "orders.retry", "messages")
    console.wait_for_text("order-4713", "main table")
    console.open("queues", "orders.dead", "messages").page.get_by_role("link", name="order-4714").click()
    console.wait_for_text("x-opt-last-death-queue", "main")
    console.click("Delete")
    answer(console, "Delete")
    page.wait_for_function(f"() => document.querySelectorAll('tbody tr').length === {REJECTED - 4}")


def test_scheduled_messages_are_marked_with_their_time(console: ConsolePage) -> None:
    page = console.open("queues", "reminders", "messages").page
    assert page.locator("tbody tr").count() == 8
    assert "due " in row(console, "reminder-1")
    assert "ready" not in console.text("main table")
    page.get_by_role("link", name="reminder-8").click()
    console.wait_for_text("This message is scheduled.", "main")
    console.wait_for_text("Due", "main dt")


def test_timeline_shows_queues_side_by_side(console: ConsolePage) -> None:
    console.open("queues", "orders.dead", "messages").page.get_by_role("link", name="order-4716").click()
    console.page.get_by_role("link", name="Timeline", exact=True).click()
    console.wait_for_text("Lifetime", "main")
    text = console.text()
    assert "reason rejected" in text
    assert "container setup" in text, "the acquisition is recorded"
    lanes = console.page.locator(".life").first.locator("xpath=..").locator(".legend span").all_inner_texts()
    assert {"orders", "audit", "invoices", "emails", "orders.dead"} <= {lane.strip() for lane in lanes}
    assert "on 4 queues" in text
    assert "so far" in text
    console.page.get_by_label("Find by").select_option("message_id")
    console.fill("Value", "never sent")
    console.click("Show timeline")
    console.wait_for_text("No such message", "main")


def test_timeline_joins_the_events_of_both_sites(console: ConsolePage) -> None:
    console.open("trace", query="?message_id=return-4711")
    console.wait_for_text("Lifetime", "main")
    life = console.page.locator(".life")
    assert life.count() == 1, "the lifetimes of both brokers are one"
    sites = life.locator(".life-event .badge").all_inner_texts()
    assert sites[0] == "frankfurt", "the message arrived there first"
    assert set(sites) == {"frankfurt", "this broker"}
    assert len(sites) == life.locator(".life-event").count()
    lanes = {text.strip() for text in life.locator("xpath=..").locator(".legend span").all_inner_texts()}
    assert lanes == {"returns at frankfurt", "returns at this broker"}
    links = {
        site: life.locator(".life-event").filter(has=console.page.get_by_text(site, exact=True))
        .locator("a[href*=queues]").count()
        for site in ("frankfurt", "this broker")
    }
    assert links == {"frankfurt": 0, "this broker": 2}, "queues of the other broker are elsewhere"
    console.open("trace", query="?message_id=return-4712")
    console.wait_for_text("Lifetime", "main")
    assert console.page.locator("main dd .badge").all_inner_texts() == [
        "on 2 queues", "returns at this broker", "returns at frankfurt",
    ]  # fmt: skip
    console.open("trace", query="?message_id=order-4711")
    console.wait_for_text("Lifetime", "main")
    assert console.page.locator(".life-event .badge").count() == 0, "the other broker never had it"


def test_time_slider_goes_to_a_point_and_compares(console: ConsolePage) -> None:
    page = console.open("time").page
    console.wait_for_text("Messages: ", "main")
    first_lsn = page.evaluate(FIRST_ENQUEUE)
    console.fill("Go to", str(first_lsn + 1))
    console.click("Go")
    page.wait_for_url(f"**to={first_lsn + 1}*")
    console.settle()
    assert "order-4711" in console.text("main table")
    assert "order-4712" not in console.text("main table"), "it arrived later"
    page.get_by_role("slider", name="Point in time").press("End")
    console.wait_for_text("payments.log", "main")
    console.fill("Go to", "yesterday at noon")
    console.click("Go")
    page.get_by_role("alert").filter(has_text="yesterday at noon").wait_for()
    page.get_by_label("Queue", exact=True).fill("payments.log")
    page.keyboard.press("Tab")
    console.click("Difference")
    console.wait_for_text("passed through", "main")
    page.get_by_label("Queue", exact=True).fill("invoices")
    page.keyboard.press("Tab")
    page.get_by_role("slider", name="From").press("Home")
    console.wait_for_text("order-4711", "main table")
    assert "added" in row(console, "order-4711")
    page.get_by_role("slider", name="From").press("End")
    console.wait_for_text("The queues hold the same messages at both points.", "main")


def test_transactions_in_doubt_are_decided(console: ConsolePage) -> None:
    committed, rolled_back = XIDS
    console.open("transactions")
    assert "prepared" in row(console, HOSTILE)
    assert "open" in row(console, "open")
    for xid, verb, state in ((committed, "Commit", "committed"), (rolled_back, "Roll back", "rolled back")):
        line = console.page.locator("main tbody tr").filter(has_text=xid)
        line.get_by_role("button", name=verb).click()
        answer(console, verb)
        console.page.locator("main tbody tr").filter(has_text=xid).filter(has_text=f"{state} without").wait_for()
    console.open("queues", "payments", "messages", query="?search=transfer")
    assert [text.strip() for text in console.page.locator("tbody td.mono").all_inner_texts()] == ["transfer 1"]


def test_journal_map_shows_what_pins_the_log(console: ConsolePage) -> None:
    console.open("journal")
    pinned = console.page.locator("button.container.pinned")
    assert pinned.count() == 1
    assert console.page.locator("button.container").count() >= 3
    pinned.click()
    console.wait_for_text("on queue payments.log", "main dd")
    assert " queues peek " in console.text(".command")


def test_cluster_and_federation_show_both_sites(shop: Shop, browser: Browser, console: ConsolePage) -> None:
    console.open("cluster")
    assert "complete" in row(console, "returns")
    assert "This broker is in no cluster" in console.text()
    remote = ConsolePage(browser, shop.remote_url).sign_in().open("cluster")
    assert "this broker" in row(remote, "synchronized")
    assert "returns" in row(remote, "follow-")
    assert remote.problems == []
    remote.close()


def test_rights_of_a_user_are_explained(console: ConsolePage) -> None:
    console.open("users").page.get_by_role("link", name="billing", exact=True).click()
    console.wait_for_text("What may billing do?", "h1")
    assert "allowed" in row(console, "receive")
    console.fill("Queue or exchange", "orders")
    console.click("Show")
    assert "'billing' may not delete 'orders'" in row(console, "delete")
    assert "name=orders" in console.page.url


def test_configuration_is_filtered_and_names_its_sources(console: ConsolePage) -> None:
    console.open("configuration").page.get_by_role("searchbox").fill("container-size")
    console.page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
    assert "command line" in row(console, "512 KiB")
    shown = {"checkpoint-interval": "64 MiB", "export-every": "5 min", "trace-ratio": "0", "http-port": "0"}
    console.open("configuration")
    for option, value in shown.items():  # U6: by the type of the option, not by its name
        line = console.page.locator("main tbody tr").filter(has_text=option).first
        assert line.get_by_role("cell").all_inner_texts()[1] == value


def test_log_follows_what_happens(console: ConsolePage) -> None:
    console.open("logs")
    before = console.page.locator(".log-line").count()
    console.page.evaluate(
        """async () => {
          const {csrf} = await (await fetch("/api/v1/session")).json();
          await fetch("/api/v1/queues", {method: "POST", body: JSON.stringify({name: "made-now"}),
            headers: {"Content-Type": "application/json", "X-CSRF-Token": csrf}});
        }"""
    )
    console.wait_for_text("CREATE queue 'made-now' by user 'olga'", ".log")
    assert console.page.locator(".log-line").count() > before
    console.page.get_by_role("searchbox").fill("made-now")
    console.page.wait_for_function("() => document.querySelectorAll('.log-line').length === 1")
    console.click("Errors")
    console.wait_for_text("No line matches the filter.", "main")


def test_reader_is_refused_with_a_reason(reader: ConsolePage) -> None:
    for parts in FOR_MANAGERS:
        reader.open(*parts)
        reader.page.get_by_role("alert").filter(has_text="may not").first.wait_for()
    reader.open("connections").page.get_by_role("button", name="Actions for").first.click()
    reader.page.get_by_role("menuitem", name="Close").click()
    refused_in_dialog(reader, "Close it")
    reader.open("transactions").page.get_by_role("button", name="Commit").first.click()
    refused_in_dialog(reader, "Commit")
    reader.open("exchanges", "shop").click("Publish a test message")
    refused_in_dialog(reader, "Publish")
    reader.open("exchanges").click("Create exchange")
    reader.fill("Name", "forbidden")
    refused_in_dialog(reader, "Create exchange")


def refused_in_dialog(console: ConsolePage, label: str) -> None:
    dialog = console.page.locator("dialog")
    dialog.get_by_role("button", name=label, exact=True).click()
    dialog.get_by_role("alert").get_by_text("may not").wait_for()
    console.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_expired_login_ends_an_open_dialog(shop: Shop, browser: Browser) -> None:
    window = ConsolePage(browser, shop.url).sign_in().open("exchanges", "shop")
    window.click("Publish a test message")
    window.fill("Body", "too late")
    window.context.clear_cookies()
    window.page.locator("dialog").get_by_role("button", name="Publish", exact=True).click()
    window.wait_for_text("Your session has ended")
    assert window.page.locator("dialog").count() == 0
    window.page.get_by_label("User").fill("olga")
    window.page.get_by_label("Password").fill("quiet-stones")
    window.click("Sign in")
    window.page.wait_for_function("() => document.querySelector('h1').textContent === 'shop'")
    assert window.problems == []
    window.close()


def test_restart_of_broker_and_console_asks_to_sign_in_again(shop: Shop, browser: Browser) -> None:
    """After a restart the console requires a new login. This test is the last one, as clients are disconnected."""
    window = ConsolePage(browser, shop.url).sign_in().open("transactions")
    row(window, HOSTILE)
    shop.restart()
    window.wait_for_text("Your session has ended")
    window.page.get_by_label("User").fill("olga")
    window.page.get_by_label("Password").fill("quiet-stones")
    window.click("Sign in")
    assert "prepared" in row(window, HOSTILE), "it is still in doubt"
    assert window.problems == []
    window.close()
