"""Tests of the console with thousands of queues: the server paginates, and the browser makes few requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.console.chromium import ConsolePage
from tests.harness.console.many_queues import create_queues
from tests.harness.process import broker
from tests.harness.thorough import amount

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Response

QUEUES = amount("CAIRN_CONSOLE_QUEUES", 10_000, 1_000)
ROWS = 50
MOST_REQUESTS = 70
"""Maximum number of file and API requests until the page of queues is complete, including those of the frame."""
MOST_API_BYTES = 100_000
MOST_FILE_BYTES = 300_000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[str]:
    place: Path = tmp_path_factory.mktemp("many")
    with broker(place / "store", "--max-queues-per-user", "0", "--http-port", "0") as running:
        create_queues(running.port, [f"many-{number:05d}" for number in range(QUEUES)])
        yield running.wait_for(r"web console at (\S+)")[1]


@pytest.fixture
def console(url: str, browser: Browser) -> Iterator[ConsolePage]:
    page = ConsolePage(browser, url)
    yield page
    problems = page.problems
    page.close()
    assert problems == []


def test_page_of_many_queues_needs_few_requests_and_bytes(
    console: ConsolePage, record_property: Callable[[str, object], None]
) -> None:
    responses: list[Response] = []
    console.page.on("response", lambda response: responses.append(response))
    console.enter().open("queues")
    assert console.page.locator("tbody tr").count() == ROWS
    assert f"of {QUEUES:,}" in console.text(".pager")
    requests = len(responses)
    assert requests <= MOST_REQUESTS
    bodies = {"api": 0, "files": 0}
    for one in responses:
        left_page = one.request.failure is not None  # it belonged to the overview, and was cancelled with it
        if not one.url.endswith("/events") and one.status != 204 and not left_page:
            bodies["api" if "/api/" in one.url else "files"] += len(one.body())
    assert bodies["api"] < MOST_API_BYTES
    assert bodies["files"] < MOST_FILE_BYTES
    console.page.reload()
    console.settle()
    load_ms = console.page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    record_property("figures", {"requests": requests, **bodies, "load_ms": load_ms})
    print(f"{QUEUES} queues: {requests} requests, {bodies} bytes, loaded in {load_ms:.0f} ms")


def test_many_queues_are_paged_sorted_and_searched(console: ConsolePage) -> None:
    page = console.enter().open("queues", query=f"?page={QUEUES // ROWS}").page
    names = page.locator("tbody td.main-cell a")
    assert names.last.inner_text() == f"many-{QUEUES - 1:05d}"
    assert page.get_by_role("button", name="Next page").is_disabled()
    console.click("Previous page")
    page.wait_for_function(f"() => document.querySelector('tbody a').textContent === 'many-{QUEUES - 2 * ROWS:05d}'")
    page.get_by_role("columnheader", name="Name").get_by_role("button").click()
    page.wait_for_function(f"() => document.querySelector('tbody a').textContent === 'many-{QUEUES - 1:05d}'")
    page.get_by_role("searchbox").fill("-00042")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 1")
    names.first.click()
    page.wait_for_function("() => document.querySelector('h1').textContent === 'many-00042'")
