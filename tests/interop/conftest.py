"""Clients that npm has to fetch are run when asked for: `pytest -m interop`."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "interop" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("interop")]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
