"""A line for the terminal with what was explored, shown also where output is captured."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="module")
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    assert capture is not None

    def write_line(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}")

    return write_line
