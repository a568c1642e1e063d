"""Fixtures of a store with a real journal, and of the command that runs on it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.cli.main import main
from cairnmq.journal.format.block import Block
from cairnmq.journal.format.record import Flag, RecordType
from cairnmq.journal.read.scanner import Damage, LogReader
from cairnmq.journal.write.journal import OWN_LSN, Journal
from cairnmq.journal.write.open import format_log, open_log
from cairnmq.store.wiring.wiring import Wiring

START_S = 1_700_000_000.25
"""2023-11-14T22:13:20.250000Z"""


class Store:
    """A store directory whose journal is written record by record."""

    def __init__(self, path: Path, container_bytes: int = 512 << 10, log: int = 7) -> None:
        self.path = path
        self.journal_path = path / "journal"
        self.journal_path.mkdir(parents=True)
        self.directory = RealDirectory(str(self.journal_path))
        self.clock = ManualClock(START_S)
        self.uuid = UUID(int=log << 64)
        format_log(self.directory, container_bytes, self.uuid, self.clock.wall_us())
        self.journal = self._open()

    def _open(self) -> Journal:
        return open_log(self.directory, self.clock, visit=lambda _: None)[0]

    def reopen(self) -> None:
        self.journal.abandon()
        self.journal = self._open()

    def name_queues(self, *names: str) -> None:
        wiring = Wiring.open(str(self.path / "wiring.sqlite"))
        wiring.identify(self.uuid)
        for name in names:
            wiring.create_queue(name)
        wiring.close()

    def put(self, payload: bytes, queue_id: int = 1) -> int:
        return self.journal.append(
            RecordType.START, payload, flags=Flag.ENQUEUE, message_id=OWN_LSN, queue_id=queue_id,
            time_us=self.clock.wall_us(),
        )  # fmt: skip

    def take(self, message_id: int, queue_id: int = 1) -> int:
        return self.journal.append(
            RecordType.DEQUEUE, flags=Flag.DELETE, message_id=message_id, undo_prev=message_id, queue_id=queue_id,
            time_us=self.clock.wall_us(),
        )  # fmt: skip

    def put_flushed(self, *payloads: bytes) -> list[int]:
        """Append messages, each in a block of its own, and return their LSNs."""
        lsns = []
        for payload in payloads:
            lsns.append(self.put(payload))
            self.journal.flush()
        return lsns

    def fill(self, containers: int) -> list[int]:
        """Append messages of 60,000 bytes, one per block, until *containers* more are begun; return their LSNs."""
        begun = len(self.journal.pool.slots())
        lsns: list[int] = []
        while len(self.journal.pool.slots()) < begun + containers:
            lsns += self.put_flushed(b"%020d" % len(lsns) * 3000)
        return lsns

    def file_of(self, lsn: int) -> Path:
        for slot, head in LogReader(self.directory).heads.by_slot.items():
            if slot == lsn // self.journal.container_bytes:
                return self.journal_path / f"{head.number:08d}.cairn"
        raise KeyError(lsn)

    def overwrite(self, lsn: int, data: bytes) -> None:
        with open(self.file_of(lsn), "r+b") as file:
            file.seek(lsn % self.journal.container_bytes)
            file.write(data)

    def flip(self, lsn: int) -> None:
        """Invert the bits of the byte at *lsn*."""
        with open(self.file_of(lsn), "rb") as file:
            file.seek(lsn % self.journal.container_bytes)
            byte = file.read(1)[0]
        self.overwrite(lsn, bytes([byte ^ 0xFF]))

    def blocks(self) -> list[Block]:
        found = list(LogReader(self.directory).scan())
        assert not [damage for damage in found if isinstance(damage, Damage)]
        return [block for block in found if isinstance(block, Block)]

    def record_lsns(self) -> list[int]:
        return [block.record_lsn(number) for block in self.blocks() for number in range(block.head.records)]


class Result(NamedTuple):
    """The output of the command, and its exit status."""

    out: str
    err: str
    status: int

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [found for found in self.objects if "lsn" in found]

    @property
    def lsns(self) -> list[int]:
        return [found["lsn"] for found in self.records]

    @property
    def damage(self) -> list[dict[str, Any]]:
        return [found["damage"] for found in self.objects if "damage" in found]


Dump = Callable[..., Result]


@pytest.fixture
def dump(command: Dump) -> Dump:
    """Return a function that runs `cairnmq dump` with the given arguments, in this process."""
    return partial(command, "dump")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dump:
    """Return a function that runs `cairnmq` with the given arguments, in this process."""

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["cairnmq", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit:
            main()
        out, err = capsys.readouterr()
        return Result(out, err, int(exit.value.code or 0))

    return run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty store, which is a journal with one log-open record."""
    return Store(tmp_path / "store")


@pytest.fixture
def snapshot() -> Callable[[Path], dict[str, tuple[int, bytes]]]:
    """Return a function that maps each path of a directory tree to its modification time and its bytes."""

    def take(path: Path) -> dict[str, tuple[int, bytes]]:
        files = [path, *(Path(root) / name for root, dirs, names in os.walk(path) for name in (*dirs, *names))]
        return {str(file): (file.stat().st_mtime_ns, file.read_bytes() if file.is_file() else b"") for file in files}

    return take
