"""A real cluster for a test, where corosync is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.tools.lab.cluster_lab import unavailable_reason

from .real import Life, a_life


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    with a_life(tmp_path) as made:
        yield made
