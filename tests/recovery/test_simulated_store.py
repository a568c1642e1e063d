"""Tests of the simulated store, and of its example in docs/reference/stores.md."""

from __future__ import annotations

from errno import EIO

import pytest

from cairnmq.base.errors import DiskError
from cairnmq.base.testing import Fault, MemoryDirectory, ever_after
from cairnmq.recovery.simulated_store import SimulatedStore
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.store.journaled.store import JournalStore

from ..readme_blocks import DOCS, blocks_of


def test_example_in_the_documentation_runs() -> None:
    page = blocks_of(DOCS / "reference" / "stores.md")
    [example] = [block.text for block in page if block.section == "Simulation of crashes"]
    exec(compile(example, "stores.md", "exec"), {})


def test_kill_keeps_what_was_flushed_and_loses_what_was_appended() -> None:
    simulated = SimulatedStore()
    store, first = simulated.open()
    queue_id = queue(store)
    flushed, _ = store.put(queue_id, b"flushed", 1)
    store.kick()
    appended, _ = store.put(queue_id, b"appended", 1)
    simulated.kill()
    store, second = simulated.open()
    assert (store.holds(flushed), store.holds(appended)) == (True, False)
    assert second.log.incarnation == first.log.incarnation + 1


@pytest.mark.parametrize("keeps", [False, True])
def test_power_cut_keeps_the_chosen_changes_of_a_write_without_sync(keeps: bool) -> None:
    simulated = SimulatedStore()
    store, _ = simulated.open()
    queue_id = queue(store)
    message_id, _ = store.put(queue_id, b"written", 1)
    copies: list[MemoryDirectory] = []
    disk = simulated.files
    disk.on_operation = lambda operation: copies.append(disk.after_kill())
    store.kick()
    simulated.files = copies[0]  # after the write of the block, before the sync
    simulated.cut_power(lambda change: keeps)
    store, _ = simulated.open()
    assert store.holds(message_id) is keeps


def test_disk_that_fails_refuses_to_open() -> None:
    simulated = SimulatedStore()
    with pytest.raises(DiskError, match="Input/output error"):
        simulated.open(ever_after(1, Fault(EIO)))
    simulated.open()


def queue(store: JournalStore) -> int:
    rows: list[QueueRow | Exception] = []
    store.create_queue("q", rows.append)
    [row] = rows
    assert isinstance(row, QueueRow)
    return row.id
