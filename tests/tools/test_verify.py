"""Tests of `cairnmq verify`: its findings, their places and the exit status; it never writes."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from cairnmq.base.clock import SystemClock
from cairnmq.base.errors import CairnError
from cairnmq.journal.format.block import CRC, Block
from cairnmq.journal.format.record import HEAD, HEAD_BYTES
from cairnmq.recovery.recover import open_store
from cairnmq.store import open_store as open_library
from cairnmq.store.contract.options import StoreOptions
from cairnmq.tools.verify.store_check import verify_store
from cairnmq.tools.verify.verdicts import VerifyReport

from .conftest import Dump, Store

Snapshot = Callable[[Path], dict[str, tuple[int, bytes]]]


@pytest.fixture
def lived(tmp_path: Path) -> Path:
    """Create a store with messages, transactions, a purge, and a checkpoint, and close it."""
    path = tmp_path / "lived"
    with open_library(str(path)) as store:
        orders, done = store.queue("orders"), store.queue("done")
        for number in range(200):
            orders.put(b"%d" % number * 500).result()
        for _ in range(50):
            with store.transaction() as both:
                message = both.take(orders)
                assert message is not None
                both.put(done, message.content)
        done.purge().result()
        done.put(bytes(200_000)).result()
        prepared = store.transaction(xid=b"one")
        prepared.put(orders, b"in doubt")
        prepared.prepare().result()
    return path


def findings(found: Any, kind: str = "corrupt") -> list[dict[str, Any]]:
    return [one for one in json.loads(found.out)["findings"] if one["kind"] == kind]


def test_a_healthy_store(lived: Path, command: Dump, snapshot: Snapshot) -> None:
    before = snapshot(lived)
    found = command("verify", lived, "--json")
    told = json.loads(found.out)
    assert (found.status, told["corrupt"], told["torn"], told["complete"]) == (0, 0, 0, True), told
    assert told["messages"] == 152
    assert {"records", "references", "checkpoint", "SQL"} <= set(told["checked"])
    assert snapshot(lived) == before
    shown = command("verify", lived)
    assert shown.status == 0
    assert shown.lines[-1] == "all is well"


def test_a_backup_and_a_journal_alone(lived: Path, tmp_path: Path, command: Dump) -> None:
    assert command("backup", lived, tmp_path / "backup").status == 0
    assert command("verify", tmp_path / "backup").lines[-1] == "all is well"
    assert command("verify", lived / "journal").lines[-1] == "all is well"


def test_what_a_payload_costs(store: Store, command: Dump) -> None:
    store.name_queues("orders")
    first, second, _ = store.put_flushed(b"a" * 600, b"b" * 600, b"c" * 600)
    store.journal.close()
    store.flip(second + 64)
    found = command("verify", store.path, "--json")
    assert found.status == 1
    [one] = findings(found)
    assert one["first_lsn"] <= second < one["end_lsn"]
    assert one["lost"] == "1 message of queue orders"
    assert "salvage" in one["remedy"]
    assert first not in range(one["first_lsn"], one["end_lsn"])


def rewrite(store: Store, block: Block, change: Callable[[bytearray], None]) -> None:
    """Change a block, and update its checksum, as a defect in the writer would do."""
    with open(store.file_of(block.lsn), "r+b") as file:
        file.seek(block.lsn % store.journal.container_bytes)
        data = bytearray(file.read(block.head.size_bytes))
        change(data)
        CRC.pack_into(data, 0, crc32c(memoryview(data)[4:]))
        file.seek(block.lsn % store.journal.container_bytes)
        file.write(data)


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [("undo_prev", 77, "which is not its message"), ("extra", "other", "what it ends"), ("message_id", "other", "")],
)
def test_a_reference_that_is_wrong_though_every_checksum_fits(
    store: Store, command: Dump, field: str, value: object, what: str
) -> None:
    store.name_queues("orders")
    first, other = store.put_flushed(b"a", b"b")
    taken = store.take(first)
    store.journal.close()
    block = next(found for found in store.blocks() if found.lsn < taken < found.end_lsn)
    names = ("type", "flags", "number", "place", "size", "crc32c", "undo_prev", "message_id", "queue_id", "txn_id",
             "time_us", "extra")  # fmt: skip

    def change(data: bytearray) -> None:
        at = taken - block.lsn
        fields = dict(zip(names, HEAD.unpack_from(data, at), strict=True))
        fields[field] = other if value == "other" else value
        HEAD.pack_into(data, at, *fields.values())

    rewrite(store, block, change)
    found = command("verify", store.path, "--json")
    assert found.status == 1
    assert all(one["first_lsn"] == taken for one in findings(found))
    assert any(what in one["what"] for one in findings(found))


def test_a_payload_that_was_wrong_before_its_block_was_made(store: Store, command: Dump) -> None:
    store.name_queues("orders")
    [lsn] = store.put_flushed(b"payload")
    store.journal.close()
    block = next(found for found in store.blocks() if found.lsn < lsn < found.end_lsn)

    def change(data: bytearray) -> None:
        data[lsn - block.lsn + HEAD_BYTES * block.head.records] ^= 1

    rewrite(store, block, change)
    [one] = findings(command("verify", store.path, "--json"))
    assert (one["first_lsn"], one["lost"]) == (lsn, f"message {lsn}")


def test_a_container_that_is_gone_or_cut_or_of_another_size(lived: Path, tmp_path: Path, command: Dump) -> None:
    for number, size_bytes in enumerate((None, 5000, 2 << 20)):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(lived, copy)
        file = copy / "journal" / "00000001.cairn"
        file.unlink() if size_bytes is None else os.truncate(file, size_bytes)
        found = command("verify", copy, "--json")
        assert (found.status, bool(findings(found))) == (1, True), number


def test_sql_that_does_not_belong_to_the_journal(lived: Path, tmp_path: Path, command: Dump) -> None:
    with closing(sqlite3.connect(lived / "wiring.sqlite")) as sql:
        sql.execute("DELETE FROM queue WHERE name = 'orders'")
        sql.commit()
    [one] = findings(command("verify", lived, "--json"))
    assert "151 messages" in one["what"] or "150 messages" in one["what"]
    with open_library(str(tmp_path / "other")) as other:
        other.queue("orders")
    shutil.copy(tmp_path / "other" / "wiring.sqlite", lived / "wiring.sqlite")
    [one] = findings(command("verify", lived, "--json"))
    assert "it is of store" in one["what"]
    (lived / "wiring.sqlite").write_bytes(b"nonsense" * 1000)
    [one] = findings(command("verify", lived, "--json"))
    assert one["place"] == "wiring.sqlite"


def test_the_mark(lived: Path, command: Dump) -> None:
    mark = bytearray((lived / "journal" / "log.mark").read_bytes())
    mark[20] ^= 1
    (lived / "journal" / "log.mark").write_bytes(mark)
    found = command("verify", lived, "--json")
    assert (found.status, len(findings(found, "torn"))) == (0, 1)  # a power cut may leave a torn tail
    (lived / "journal" / "log.mark").unlink()
    found = command("verify", lived, "--json")
    assert found.status == 1
    assert findings(found)[0]["place"] == "log.mark"


def test_what_is_no_store(tmp_path: Path, command: Dump) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        found = command("verify", path)
        assert (found.status, found.out) == (2, "")
        assert found.err.startswith("cairnmq: ")
        assert len(found.err.splitlines()) == 1
    what_to_name = "name a store directory, its journal directory, an archive, or container files"
    assert found.err == f"cairnmq: {tmp_path}/nowhere: no such directory; {what_to_name}\n"
    (tmp_path / "file").touch()
    found = command("verify", tmp_path / "file")
    assert (found.status, found.err) == (2, f"cairnmq: {tmp_path}/file: not a directory; {what_to_name}\n")
    with open_library(str(tmp_path / "sql"), "sql"):
        pass
    assert "all in SQL" in command("verify", tmp_path / "sql").err


def test_a_newer_format(store: Store, command: Dump) -> None:
    [lsn] = store.put_flushed(b"payload")
    store.journal.close()
    block = next(found for found in store.blocks() if found.lsn < lsn < found.end_lsn)
    rewrite(store, block, lambda data: data.__setitem__(lsn - block.lsn, 99))
    found = command("verify", store.path)
    assert found.status == 2
    assert "use the CairnMQ version that wrote it" in found.err


def test_the_archive(tmp_path: Path, command: Dump) -> None:
    path, archive = tmp_path / "archived", tmp_path / "archive"
    options = StoreOptions(container_bytes=512 << 10, archive_dir=str(archive))
    with open_library(str(path), options=options) as library:
        queue = library.queue("orders")
        for _ in range(40):
            queue.put(bytes(60_000)).result()
            message = queue.take()
            assert message is not None
            message.accept().result()
    files = sorted(archive.iterdir())
    assert files
    assert command("verify", path, "--archive-dir", archive).lines[-1] == "all is well"
    data = bytearray(files[0].read_bytes())
    data[2000] ^= 1
    files[0].unlink()  # not the container of the same number
    files[0].write_bytes(data)
    found = command("verify", path, "--archive-dir", archive, "--json")
    assert found.status == 1
    assert [one["place"] for one in findings(found)] == [files[0].name]


def test_archive_of_two_stores_of_one_origin(tmp_path: Path, command: Dump) -> None:
    """S5. Either store reports that containers in its archive are not of its history."""
    stores, archives = [tmp_path / "one", tmp_path / "two"], [tmp_path / "archive-one", tmp_path / "archive-two"]
    small = StoreOptions(container_bytes=512 << 10)
    with open_library(str(stores[0]), options=small) as library:
        library.queue("orders").put(b"origin").result()
    shutil.copytree(stores[0], stores[1])
    for number, (store, archive) in enumerate(zip(stores, archives, strict=True)):
        options = StoreOptions(container_bytes=512 << 10, archive_dir=str(archive))
        with open_library(str(store), options=options) as library:
            for _ in range(40):
                library.queue("orders").put(bytes(50_000 + 7_000 * number)).result()
                library.queue("orders").purge().result()
        assert command("verify", store, "--archive-dir", archive).lines[-1] == "all is well"
    names = sorted({path.name for path in archives[0].iterdir()} & {path.name for path in archives[1].iterdir()})
    assert len(names) > 1
    shutil.copy2(archives[1] / names[-1], archives[0] / names[-1])
    found = command("verify", stores[0], "--archive-dir", archives[0], "--json")
    assert found.status == 1
    assert any("not of the history of" in one["what"] for one in findings(found))


def test_beside_a_writer_that_recycles_relocates_and_takes_checkpoints(tmp_path: Path) -> None:
    """A verification at any time finds no corruption."""
    path = str(tmp_path / "live")
    options = StoreOptions(container_bytes=512 << 10, checkpoint_bytes=1 << 20)
    store, _ = open_store(path, SystemClock(), options)
    made: list[Any] = []
    store.create_queue("orders", made.append)
    store.run_inline(store.became_durable)
    store.kick()
    while not made:
        store.kick()
    stop = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            waiting: list[int] = []
            number = 0
            while not stop.is_set():
                ids, _ = store.put_all(made[0].id, [b"%09d" % number * 300] * 20, 1)
                waiting += ids
                number += 1
                kept = waiting[::37]  # a few stay for long, so that compaction empties their containers
                taken, waiting = ([one for one in waiting[:-200] if one not in kept], kept + waiting[-200:])
                store.dequeue_all(taken, made[0].id, 1)
                waiting = [one for one in dict.fromkeys(waiting) if one not in set(taken)][-2000:]
                store.kick()
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        rounds = 0
        assert store.checkpointing is not None
        while (rounds < 12 or store.relocation.emptied < 5 or not store.checkpointing.taken) and not failed:
            report = VerifyReport(path)
            verify_store(report, lambda *_: None)
            assert not [one for one in report.verdicts if one.kind == "corrupt"], report.verdicts
            rounds += 1
    finally:
        stop.set()
        writer.join()
    assert not failed
    store.close()


def test_it_is_interrupted(lived: Path, command: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    """The findings so far are reported, and marked as incomplete."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cairnmq.tools.verify.verify.References.finish", interrupt)
    found = command("verify", lived, "--json")
    assert (found.status, json.loads(found.out)["complete"]) == (130, False)
    assert "interrupted" in found.err


def test_errors_are_of_the_kind_that_can_be_explained(tmp_path: Path) -> None:
    with pytest.raises(CairnError):
        verify_store(VerifyReport(str(tmp_path / "nowhere")), lambda *_: None)
