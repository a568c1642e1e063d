"""A real cluster for a test, where corosync is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.tools.cluster_lab import why_not

from .real import Life, a_life


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    reason = why_not()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    with a_life(tmp_path) as made:
        yield made
