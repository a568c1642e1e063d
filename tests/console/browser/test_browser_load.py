"""Tests of the console's load time: few parallel requests, and a time close to that of a page of one file.

Absolute times depend on the load of the machine, so they are only printed. The page of one file comes from the same
server in the same window just before, so both wait for the same other processes.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.conftest import Tell
from tests.harness.console.accounts import write_users
from tests.harness.console.chromium import ConsolePage
from tests.harness.console.site import ADMIN, PASSWORD
from tests.harness.process import broker

if TYPE_CHECKING:
    from playwright.sync_api import Browser

STATIC = Path(__file__).parents[3] / "console/static"
ONE_FILE = "js/scheme.js"
ROUNDS = 5
MOST_REQUESTS = 60
"""Maximum number of file and API requests before the first paint."""
MOST_BYTES = 220_000
MOST_RATIO = 15.0
PAINT = """() => new Promise((done) => {
  const painted = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
  const look = () => (painted() === undefined ? requestAnimationFrame(look) : done(painted()));
  look();
})"""
LOADED = """(paint) => {
  const [page] = performance.getEntriesByType("navigation");
  const all = [page, ...performance.getEntriesByType("resource")].filter((one) => one.startTime < paint);
  return {requests: all.length, bytes: all.reduce((sum, one) => sum + one.encodedBodySize, 0)};
}"""


class Load(NamedTuple):
    """Measurements of one load of a page into an empty cache."""

    paint_ms: float
    requests: int
    bytes: int


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[str]:
    place = tmp_path_factory.mktemp("load")
    write_users(place / "users", {ADMIN: PASSWORD})
    options = "--users-file", str(place / "users"), "--allow-insecure-auth", "--http-port", "0"
    with broker(place / "store", *options) as running:
        yield running.wait_for(r"web console at (\S+)")[1]


def loaded(window: ConsolePage, url: str) -> Load:
    window.page.goto(url)
    paint_ms = window.page.evaluate(PAINT)
    found: dict[str, Any] = window.page.evaluate(LOADED, paint_ms)
    return Load(paint_ms, **found)


def test_first_paint_needs_few_requests_and_little_time(url: str, browser: Browser, tell: Tell) -> None:
    of_one_file, of_console = [], []
    for _ in range(ROUNDS):
        window = ConsolePage(browser, url)
        of_one_file.append(loaded(window, url + ONE_FILE))
        of_console.append(loaded(window, url))
        assert window.page.get_by_label("User").count() == 1, "the form is what was painted"
        assert window.problems == []
        window.close()
    one_file_ms, console_ms = [statistics.median(one.paint_ms for one in each) for each in (of_one_file, of_console)]
    ratio = statistics.median(one.paint_ms / base.paint_ms for one, base in zip(of_console, of_one_file, strict=True))
    requests, size_bytes = max(one.requests for one in of_console), max(one.bytes for one in of_console)
    tell(
        f"first paint after {console_ms:.0f} ms, {requests} requests and {size_bytes} bytes; "
        f"x{ratio:.1f} of a page of one file ({one_file_ms:.0f} ms)"
    )
    assert max(one.requests for one in of_one_file) <= 2, "the file, and the icon that browsers ask for"
    assert 10 < requests <= MOST_REQUESTS
    assert 10_000 < size_bytes <= MOST_BYTES
    assert ratio <= MOST_RATIO


def test_page_names_all_scripts_so_that_none_waits_for_another() -> None:
    """The page names all scripts; otherwise each level of imports would cost a round trip."""
    page = (STATIC / "index.html").read_text()
    named = re.findall(r'<(?:link rel="modulepreload" href|script (?:type="module" )?src)="([^"]+)"', page)
    assert sorted(named) == sorted(str(path.relative_to(STATIC)) for path in STATIC.rglob("*.js"))
