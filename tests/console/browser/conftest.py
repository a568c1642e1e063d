"""Fixtures: one broker, one console and one browser for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.harness.console.chromium import ConsolePage, chromium
from tests.harness.console.site import ConsoleSite, filled

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    pytest.importorskip("cairnmq.console.server", reason="no web console: pip install cairnmq[console]")
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[ConsoleSite]:
    """Yield a site with queues and messages; depends on the browser, so that it is not started without one."""
    with filled(ConsoleSite(tmp_path_factory.mktemp("site"))) as running:
        yield running


@pytest.fixture
def console(site: ConsoleSite, browser: Browser) -> Iterator[ConsolePage]:
    """Yield the console in a desktop window, signed in as administrator; fail if the page had errors."""
    page = ConsolePage(browser, site.url).sign_in()
    yield page
    problems = page.problems
    page.close()
    assert problems == []
