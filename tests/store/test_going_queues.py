"""Tests of a queue whose deletion a crash interrupts: recovery completes it after any step (checklist E53 to E55).

SQL records the deletion first, which makes it final; then the journal deletes the messages, and SQL removes its record.
Messages of queues that SQL does not know at all are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from cairnmq.base.errors import SqlUnreachable
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.contract.wiring_rows import BindingRow, QueueRow
from cairnmq.store.journaled.store import JournalStore
from tests.harness.store.stores import NOW_US, SIZE, Disk, come_to_rest, put, queue, shown

MESSAGES = 40


def destroy(store: JournalStore, queue_id: int) -> Iterator[str]:
    """Destroy a queue, and yield the name of each step after it is done."""
    answers: list[Exception | None] = []
    store.begin_destroy_queue(queue_id, answers.append)
    yield "final in SQL"
    for message_id in shown(store)[queue_id]:
        store.dequeue(message_id, queue_id, NOW_US)
        yield "a message off the queue"
    store.kick()
    yield "durable in the journal"
    store.finish_destroy_queue(queue_id, answers.append)
    assert answers == [None, None]
    yield "forgotten"


def check(disk: Disk, keep: list[int], expunged: Callable[[int], bool]) -> None:
    """Check that recovery of *disk* completes the deletion of queue 2, and that the state stays the same."""
    store, report = disk.open()
    assert shown(store) == {1: keep}
    assert report.homeless == {}
    assert expunged(sum(report.expunged.values()))
    assert [row.id for row in store.queues()] == [1]
    assert disk.wiring.rows().going == []
    new = queue(store, "going")
    assert new > 2
    store.close()
    again, report = disk.open()
    assert shown(again) == {1: keep}
    assert (report.expunged, report.homeless, report.messages) == ({}, {}, len(keep))
    again.close()


def filled() -> tuple[Disk, JournalStore, list[int]]:
    disk = Disk()
    store, _ = disk.open()
    keep_id, going_id = queue(store, "keep"), queue(store, "going")
    assert (keep_id, going_id) == (1, 2)
    exchange = disk.wiring.create_exchange("x", "fanout")
    for queue_id in (keep_id, going_id):
        disk.wiring.bind(BindingRow(exchange.id, queue_id, ""))
    for _ in range(MESSAGES):
        put(store, going_id)
    keep = [put(store, keep_id) for _ in range(3)]
    shared = store.stage(b"on both", NOW_US)
    store.append_content(shared, b"", NOW_US, last=True)
    for queue_id in (keep_id, going_id):
        store.enqueue(shared, queue_id, NOW_US)
    store.kick()
    return disk, store, [*keep, shared]


@pytest.mark.parametrize("power", [True, False])
def test_a_crash_at_any_step(power: bool) -> None:  # E53, E55
    steps = MESSAGES + 4
    for crash_after in range(steps):
        disk, store, keep = filled()
        *_, step = islice(destroy(store, 2), crash_after + 1)
        disk.files = disk.files.after_power_cut([]) if power else disk.files.after_kill()
        store.journal.abandon()
        if step in ("durable in the journal", "forgotten"):
            check(disk, keep, lambda count: count == 0)
        else:
            check(disk, keep, lambda count: count == MESSAGES + 1)


def test_a_crash_at_any_step_of_the_recovery_that_finishes_it() -> None:  # E55
    disk, store, keep = filled()
    next(destroy(store, 2))
    disk.files = disk.files.after_kill()
    store.journal.abandon()
    held: list[tuple[MemoryDirectory, object]] = []
    disk.files.on_operation = lambda _: held.append((disk.files.after_power_cut([]), disk.wiring.hold()))
    again, _ = disk.open()
    assert len(held) > 3
    for files, sql in held:
        crashed = Disk()
        crashed.files = files
        crashed.wiring.put_back(sql)
        check(crashed, keep, lambda count: count in (0, MESSAGES + 1))
    again.close()


def test_it_is_told() -> None:  # E3
    disk, store, _ = filled()
    next(destroy(store, 2))
    store.close()
    _, report = disk.open()
    [line] = [line for line in report.lines() if "delet" in line]
    assert line == "deleted 41 messages of queue 'going', which was being deleted when the broker stopped"


def test_the_log_goes_on_behind_them() -> None:  # E54
    disk, store, keep = filled()
    for message_id in keep:
        store.dequeue(message_id, 1, NOW_US)
    while len(store.journal.extent.slots) < 4:
        store.put(2, bytes(60_000), NOW_US)
        store.kick()
    next(destroy(store, 2))
    store.close()
    again, _ = disk.open()
    come_to_rest(again)
    again.close()
    assert disk.base_lsn() >= 3 * SIZE


def test_sql_that_goes_away_meanwhile_does_not_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, store, keep = filled()
    next(destroy(store, 2))
    store.close()

    def fails(queue_id: int) -> None:
        raise SqlUnreachable("memory", "gone")

    with monkeypatch.context() as patch:
        patch.setattr(disk.wiring, "finish_destroy_queue", fails)
        again, report = disk.open()
    assert shown(again) == {1: keep}
    assert report.expunged == {"going": MESSAGES + 1}
    assert report.homeless == {}
    assert disk.wiring.rows().going == [QueueRow(2, "going")]
    again.close()
    check(disk, keep, lambda count: count == 0)


@pytest.mark.parametrize("commits", [True, False])
def test_what_a_prepared_transaction_holds_waits_for_its_outcome(commits: bool) -> None:  # E53, E39
    disk, store, keep = filled()
    taken = shown(store)[2][0]
    prepared = store.transactions.begin(NOW_US, xid=b"xid")
    prepared.dequeue(taken, 2, NOW_US)
    prepared.enqueue(keep[0], 2, NOW_US)
    prepared.prepare(NOW_US)
    next(destroy(store, 2))
    store.close()
    for expunged in ({"going": MESSAGES}, {}):
        again, report = disk.open()
        assert (report.expunged, report.homeless) == (expunged, {})
        assert shown(again) == {1: keep, 2: [taken]}
        assert disk.wiring.rows().going == [QueueRow(2, "going")]
        if expunged:
            again.close()
    prepared = again.transactions.of(b"xid")
    if commits:
        prepared.commit(NOW_US)
    else:
        prepared.rollback(NOW_US)
    again.close()
    check(disk, keep, lambda count: count == 1)


def test_what_sql_lost_is_kept_and_its_id_is_given_to_nobody() -> None:
    """SQL is restored from a copy without the queue, and so without a record of its deletion."""
    disk = Disk()
    store, _ = disk.open()
    older = disk.wiring.hold()
    lost = queue(store, "lost")
    kept = [put(store, lost) for _ in range(3)]
    store.close()
    disk.wiring.put_back(older)
    for _ in range(2):
        again, report = disk.open()
        assert (report.homeless, report.expunged) == ({lost: 3}, {})
        assert shown(again) == {lost: kept}
        again.close()
    again, _ = disk.open()
    assert queue(again, "lost") > lost
    again.close()
    final: tuple[JournalStore, RecoveryReport] = disk.open()
    assert final[1].homeless == {lost: 3}


def test_a_deletion_that_an_older_copy_of_sql_does_not_know_leaves_an_empty_queue() -> None:
    disk, store, keep = filled()
    older = disk.wiring.hold()
    for _ in destroy(store, 2):
        pass
    store.close()
    disk.wiring.put_back(older)
    again, report = disk.open()
    assert shown(again) == {1: keep}
    assert (report.homeless, report.expunged) == ({}, {})
    assert [row.name for row in again.queues()] == ["keep", "going"]
    again.close()
