"""A fixture that starts a real cluster, or skips the test without corosync."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.tools.lab.cluster_lab import unavailable_reason
from tests.harness.cluster.real_cluster import RealScenario, real_scenario


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[RealScenario]:
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    with real_scenario(tmp_path) as made:
        yield made
