"""Tests of the group properties on real daemons in a lab; skipped with the reason if no lab is available."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.tools.lab.cluster_lab import Lab, unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import LabOptions
from tests.harness.cluster.group_harness import NODES, CorosyncEngine, GroupHarness
from tests.harness.cluster.group_properties import GroupProperties


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    made = Lab(f"t{secrets.token_hex(2)}", Path(tmp_path_factory.mktemp("labs")))
    made.up(LabOptions(len(NODES)))
    yield made
    made.down()


class TestOnCorosync(GroupProperties):
    @pytest.fixture
    def harness(self, lab: Lab) -> Iterator[GroupHarness]:
        machines = CorosyncEngine(lab)
        made = GroupHarness(machines, patience_s=180)
        yield made
        made.close()
        machines.restore()
