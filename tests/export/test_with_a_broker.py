"""Tests of the export process of a broker, which ends with the broker."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.analytics.export.exporter import export
from cairnmq.analytics.export.sources import ExportRequest
from cairnmq.analytics.views.journal import open_journal
from cairnmq.store.journaled.retention_leases import read_bookmark
from tests.harness.export.tables import KINDS, all_of, expected, rows_in
from tests.harness.process import DEADLINE_S, BrokerProcess, broker
from tests.harness.sidecars.keepers import fill, has_ended, keeper_of, sealed, until


def serve(store: Path, target: Path, end: signal.Signals, *options: str) -> None:
    """Run a broker until its bookmark includes all sealed containers; end the broker with the signal *end*."""
    with broker(store, "--port", "0", "--export-to", str(target), "--export-every", "1s", *options) as running:
        assert running.wait_for("exporting to (.*)")[1] == str(target)
        child = keeper_of(running, "export")
        fill(running, 25)
        until(lambda: (held := read_bookmark(str(store), "export")) is not None and held.lsn > max(sealed(store)) > 0)
        running.stop(end)
        until(lambda: has_ended(child))


@pytest.mark.parametrize("kind", KINDS)
def test_it_exports_what_is_sealed_and_loses_nothing(tmp_path: Path, kind: str) -> None:
    """A bookmark retains records that are not exported yet, and the export process ends with a killed broker.

    The format is specified only once, as an existing target keeps its format.
    """
    store, target = tmp_path / "store", tmp_path / "target"
    for end, options in ((signal.SIGKILL, ("--export-format", kind)), (signal.SIGTERM, ())):
        serve(store, target, end, *options)
    done = export(str(store), str(target), ExportRequest())
    assert done.runs[0][0] == 0
    journal = open_journal(str(store))
    found = rows_in(target, kind)
    assert len({row["lsn"] for row in found}) == len(found)
    assert [row for row in found if row["lsn"] >= journal.log.first_lsn] == expected(journal)


@pytest.mark.parametrize("kind", KINDS)
def test_behind_an_archive_it_needs_no_bookmark(tmp_path: Path, kind: str) -> None:
    """Records that left the log, even before the first export, are exported from the archive without a bookmark."""
    store, archive, target = (tmp_path / name for name in ("store", "archive", "target"))
    archive.mkdir()
    kept = ("--archive-dir", str(archive))
    with broker(store, "--port", "0", *kept) as running:
        pass_through(running, 25)
        until(lambda: any(archive.glob("*.cairn")))
        running.stop()
    options = ("--export-to", str(target), "--export-every", "1s", "--export-format", kind)
    with broker(store, "--port", "0", *kept, *options) as running:
        pass_through(running, 25)
        running.wait_for(rf"\d+ records exported to {target}, up to LSN \d+")
        assert read_bookmark(str(store), "export") is None
        running.stop()
    export(str(store), str(target), ExportRequest(archive=str(archive)))
    assert rows_in(target, kind) == all_of(store, archive)


def pass_through(running: BrokerProcess, count: int) -> None:
    """Send and receive *count* messages, so that their containers leave the log."""
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    sender, receiver = connection.create_sender("orders"), connection.create_receiver("orders")
    for _ in range(count):
        sender.send(Message(body=b"x" * 100_000, durable=True))
        receiver.receive()
        receiver.accept()
    connection.close()


def test_it_waits_where_it_can_not_export(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "other.txt").touch()
    with broker(tmp_path / "store", "--export-to", str(target), "--export-every", "1s") as running:
        reason = r".*not empty \('other.txt' is in it\), and no export; name another directory"
        running.wait_for(f"exports are interrupted: {reason}")
        (target / "other.txt").unlink()
        fill(running, 15)
        running.wait_for(rf"\d+ records exported to {target}, up to LSN \d+")
        assert running.stop() == 0


@pytest.mark.parametrize("options", [("--store", "memory"), ("--store", "sql")])
def test_stores_without_a_journal(tmp_path: Path, options: tuple[str, ...]) -> None:
    running = BrokerProcess(tmp_path / "store", "--export-to", str(tmp_path / "target"), *options)
    assert running.wait() == 2
    assert f"--export-to: a store of kind {options[1]} has no journal; leave it out" in "\n".join(running.lines)
