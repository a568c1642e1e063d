"""The process that a broker starts for exports, and that ends with it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from cairnmq.columns.journal import open_journal
from cairnmq.export.exporting import Asked, export
from cairnmq.store.bookmarks import read_bookmark

from ..process import BrokerProcess, broker
from ..sidecars.test_with_a_broker import fill, has_ended, keeper_of, sealed, until
from .tables import expected, rows_in


def come_to(target: Path) -> int:
    """The LSN that it has come to."""
    try:
        runs = json.loads((target / "_cairnmq" / "state.json").read_text())["exported"]
    except FileNotFoundError:
        return 0
    return int(runs[-1][1]) if runs else 0


def serve(store: Path, target: Path, end: signal.Signals) -> None:
    with broker(store, "--port", "0", "--export-to", str(target), "--export-every", "1s") as running:
        assert running.wait_for("exporting to (.*)")[1] == str(target)
        child = keeper_of(running, "export")
        fill(running, 25)
        until(lambda: come_to(target) > max(sealed(store), default=0) > 0)
        until(lambda: (held := read_bookmark(str(store), "export")) is not None and held.lsn == come_to(target))
        running.stop(end)
        until(lambda: has_ended(child))


def test_it_exports_what_is_sealed_and_loses_nothing(tmp_path: Path) -> None:
    """A bookmark keeps what is not exported yet; a broker that is killed takes the process along."""
    store, target = tmp_path / "store", tmp_path / "target"
    for end in (signal.SIGKILL, signal.SIGTERM):
        serve(store, target, end)
    export(str(store), str(target), Asked())
    assert json.loads((target / "_cairnmq" / "state.json").read_text())["exported"][0][0] == 0
    log = open_journal(str(store))
    found = rows_in(target, "parquet")
    assert [row for row in found if row["lsn"] >= log.log.first_lsn] == expected(log)


def test_it_waits_where_it_can_not_export(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "other.txt").touch()
    with broker(tmp_path / "store", "--export-to", str(target), "--export-every", "1s") as running:
        running.wait_for(r"exports wait: .*not empty \('other.txt' is in it\), and no export; name another directory")
        (target / "other.txt").unlink()
        fill(running, 15)
        running.wait_for(rf"\d+ records exported to {target}, which has come to LSN \d+")
        assert running.stop() == 0


@pytest.mark.parametrize("options", [("--store", "memory"), ("--store", "sql")])
def test_stores_without_a_journal(tmp_path: Path, options: tuple[str, ...]) -> None:
    running = BrokerProcess(tmp_path / "store", "--export-to", str(tmp_path / "target"), *options)
    assert running.wait() == 1
    assert f"--export-to: a store of kind {options[1]} has no journal; leave it out" in "\n".join(running.lines)
