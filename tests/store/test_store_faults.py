"""Tests that the stores behave alike on a full and on a read-only disk (T4)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cairnmq.base.errors import CairnError, DiskFull, JournalFailed
from cairnmq.store import Durable, Store, open_store
from tests.harness.mounted_disk import mounted_disk

DEADLINE_S = 60.0
KINDS = ["journal", "sql"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", "size=32m,mode=0700") as place:
        yield place


def fill(disk: Path) -> None:
    """Take all the space that is left, as another program does."""
    with open(disk / "ballast", "ab", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(4096))


def put_until_full(store: Store, size_bytes: int) -> set[bytes]:
    """Put messages without waiting for them until one is refused; return those that are stored, which all are."""
    queue = store.queue("q")
    futures: dict[bytes, Durable[int]] = {}
    with suppress(DiskFull):
        while len(futures) < 100_000:
            content = b"%08d" % len(futures) + bytes(size_bytes)
            futures[content] = queue.put(content)
    assert len(futures) < 100_000
    for future in futures.values():
        future.result(timeout=DEADLINE_S)
    return set(futures)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("others", [True, False], ids=["with others", "alone"])
@pytest.mark.parametrize("size_bytes", [2_000, 50_000])
def test_messages_can_be_dequeued_on_a_full_disk(disk: Path, kind: str, others: bool, size_bytes: int) -> None:
    """T4. What was admitted is stored, more is refused, and all of it can be dequeued; then there is room again."""
    (disk / "ballast").write_bytes(bytes(8 << 20))
    with open_store(str(disk / "store"), kind) as store:
        queue = store.queue("q")
        if others:
            queue.put(b"first").result(timeout=DEADLINE_S)
            fill(disk)
        stored = {b"first"} if others else put_until_full(store, size_bytes)
        fill(disk)
        while messages := [message for _ in range(50) if (message := queue.take())]:
            stored -= {message.content for message in messages}
            queue.accept(messages).result(timeout=DEADLINE_S)
        assert not stored
        os.unlink(disk / "ballast")
        while True:  # until the store has seen it
            with suppress(DiskFull):
                queue.put(b"again").result(timeout=DEADLINE_S)
                break
    with open_store(str(disk / "store"), kind) as store:
        assert list(store.queue("q").peek()) == [b"again"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_put_in_flight_on_a_full_disk_ends(disk: Path, kind: str) -> None:
    """T4. It is stored, or fails; and the content after a start is what was confirmed at least."""
    with open_store(str(disk / "store"), kind) as store:
        queue = store.queue("q")
        queue.put(b"first").result(timeout=DEADLINE_S)
        confirmed = {b"first"}
        futures: dict[bytes, Durable[int]] = {}
        with suppress(DiskFull, JournalFailed):
            for number in range(300):
                content = b"%08d" % number + bytes(30_000)
                futures[content] = queue.put(content)
                if number == 100:
                    fill(disk)
        for content, future in futures.items():
            with suppress(CairnError):
                future.result(timeout=DEADLINE_S)
                confirmed.add(content)
        with suppress(JournalFailed):
            store.close()
        os.unlink(disk / "ballast")
    with open_store(str(disk / "store"), kind) as store:
        there = set(store.queue("q").peek())
        assert confirmed <= there <= confirmed | set(futures)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_on_a_read_only_disk_is_refused(disk: Path, kind: str) -> None:
    """T4. The error names the reason, and nothing waits for the disk to be writable."""
    open_store(str(disk / "store"), kind).close()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(CairnError, match="read-only"):
        open_store(str(disk / "store"), kind)
