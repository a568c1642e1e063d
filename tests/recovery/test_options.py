"""Tests of options of a store at creation and in operation, and of the place of its log (E5, E6, E11, E59 to E61)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format import container
from cairnmq.journal.format import log_mark as mark
from cairnmq.journal.read.scanner import LogReader
from cairnmq.recovery.recover import open_store, recover
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.wiring.wiring import Wiring
from tests.harness.recovery.world import MemoryWiring
from tests.harness.store.stores import queue


def test_one_log_and_nothing_else_in_a_directory_of_its_own(tmp_path: Path) -> None:
    """E5, E11: the mark, each container and SQL contain the UUID of the log."""
    store, report = open_store(str(tmp_path / "store"), ManualClock())
    store.close()
    path = tmp_path / "store" / "journal"
    names = {found.name for found in path.iterdir()}
    assert names == {mark.NAME, "00000001.cairn", "00000002.cairn"}
    head = container.decode_head((path / "00000001.cairn").read_bytes()[:512], "")
    assert head.log_uuid == report.log.log_uuid
    written = mark.decode((path / mark.NAME).read_bytes()[:512], "")
    assert written is not None
    assert written.log_uuid == report.log.log_uuid
    wiring = Wiring.open(str(tmp_path / "store" / "wiring.sqlite"))
    assert wiring.identify(report.log.log_uuid) == (report.log.log_uuid, True)
    wiring.close()


@pytest.mark.parametrize(
    ("wanted", "made"), [(1, 512 << 10), ((512 << 10) + 1, (512 << 10) + 512), (1 << 20, 1 << 20), (None, 1 << 20)]
)
def test_the_container_size_is_as_asked_for_and_stays(wanted: int | None, made: int) -> None:
    """E59: 1 MiB by default, at least 512 KiB, whole sectors; fixed for all later containers of the log."""
    disk, wiring = MemoryDirectory(), MemoryWiring()
    options = StoreOptions() if wanted is None else StoreOptions(container_bytes=wanted)
    recover(disk, wiring, ManualClock(), options)[0].close()
    store, _ = recover(disk, wiring, ManualClock(), StoreOptions(container_bytes=3 << 20))
    q = queue(store)
    while len(store.journal.pool.slots()) < 4:
        store.put(q, bytes(60_000), 0)
        store.kick()
    sizes = {disk.open(name).size_bytes() for name in disk.names() if name != mark.NAME}
    assert sizes == {made} == {LogReader(disk).container_bytes}


def test_two_containers_by_default() -> None:
    """E6, E60: a new journal has two containers, or as many as the option states."""
    for options, count in ((StoreOptions(), 2), (StoreOptions(initial_containers=5), 5)):
        disk = MemoryDirectory()
        recover(disk, MemoryWiring(), ManualClock(), options)
        assert len(disk.names()) == 1 + count


@pytest.mark.parametrize("buffers", [1, 3, 10, 0])
def test_flushes_are_deferred_until_so_many_blocks_wait(buffers: int) -> None:
    """E61: puts are not written one by one; a lower limit writes earlier, and 0 only on request."""
    disk = MemoryDirectory()
    store, _ = recover(disk, MemoryWiring(), ManualClock(), StoreOptions(max_write_buffers=buffers))
    q = queue(store)
    writes: list[int] = []
    sealed = store.journal.writer.sealed
    disk.on_operation = lambda operation: writes.append(len(sealed)) if "write 0" in operation else None
    for _ in range(3 * max(buffers, 10) * 16):
        store.put(q, bytes(60_000), 0)
        assert buffers == 0 or len(sealed) <= buffers
    assert bool(writes) == (buffers > 0)
    assert not writes or writes[0] >= buffers - 1  # none earlier than necessary
    assert StoreOptions().max_write_buffers == 10
