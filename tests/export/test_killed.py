"""After any number of exports ended by SIGKILL at any point, a complete export contains each record exactly once."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from cairnmq.analytics.export.exporter import export
from cairnmq.analytics.export.sources import ExportRequest
from cairnmq.analytics.views.journal import open_journal
from tests.harness.export.tables import KINDS, SMALL, expected, fill, rows_in

_FORKING = """
import os, signal, sys
from cairnmq.analytics.export.exporter import export
from cairnmq.analytics.export.sources import ExportRequest
from cairnmq.analytics.export import {kind}

count = last = 0

def heard(event, args):
    global count
    if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.listdir", "sqlite3.connect"):
        if last is not None and args and isinstance(args[0], (str, bytes)) and {place!r} in os.fsdecode(args[0]):
            count += 1
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(heard)
for line in sys.stdin:
    store, target, last = line.split()
    last = int(last)
    if os.fork() == 0:
        export(store, target, ExportRequest(kind={kind!r}, commit_bytes={commit}))
        print(count, flush=True)
        os._exit(0)
    status = os.wait()[1]
    if status == signal.SIGKILL:
        print("killed", flush=True)
    elif status:
        sys.exit("it failed")
"""


class Exporter:
    """A runner of exports in separate processes, forked from a process that has imported all modules."""

    def __init__(self, kind: str, place: Path) -> None:
        text = _FORKING.format(kind=kind, place=str(place), commit=2 * SMALL)
        self._process = subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, store: Path, target: Path, last: int = 0) -> int | None:
        """Run an export that is killed at file operation *last*; return the number of operations, or None if killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{store} {target} {last}\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline().strip()
        assert said, "it failed"
        return None if said == "killed" else int(said)

    def end(self) -> None:
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_once(tmp_path: Path, kind: str) -> None:
    store, target = tmp_path / "store", tmp_path / "target"
    fill(store, 600)
    exporter = Exporter(kind, tmp_path)
    steps = exporter.run(store, tmp_path / "whole")
    assert steps
    rng = random.Random(kind)
    killed = 0
    for number in range(30):
        killed += exporter.run(store, target, rng.randrange(1, max(steps // 2, 2))) is None
        if number in (5, 10, 15, 20):
            fill(store, 100)
    exporter.end()
    assert killed > 5
    export(str(store), str(target), ExportRequest(kind=kind))
    log = open_journal(str(store))
    rows = expected(log)
    found = rows_in(target, kind)
    assert [row for row in found if row["lsn"] >= log.log.first_lsn] == rows
    assert len({row["lsn"] for row in found}) == len(found)
    if kind == "parquet":
        assert not list(target.rglob("*.half"))
