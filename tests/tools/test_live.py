"""Tests of a dump of a live journal, which shows consecutive records without gaps and without damage."""

from __future__ import annotations

import threading
from base64 import b64decode
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from cairnmq.journal.format.block import Block
from cairnmq.recovery.salvageable import Finding
from cairnmq.tools.inspect.dump import Totals
from cairnmq.tools.inspect.dump import dump as run_dump
from cairnmq.tools.inspect.evidence import open_evidence
from cairnmq.tools.inspect.lines import JsonLines
from cairnmq.tools.inspect.row_filter import RowFilter
from tests.harness.journal.logs import advance_base, container_start

if TYPE_CHECKING:
    from tests.tools.conftest import Store


def scan_while(store: Store, at_block: int) -> Iterator[Block | None]:
    """Yield the blocks of a scan, and None before block number *at_block*, for the caller to write; fail on damage."""
    evidence = open_evidence([str(store.path)])
    for number, found in enumerate(evidence.scan()):
        assert not isinstance(found, Finding), found
        if number == at_block:
            yield None
        yield found[1]


@pytest.mark.parametrize("at_block", [0, 1, 2])
def test_the_writer_goes_on_in_the_container_that_is_read(store: Store, at_block: int) -> None:
    store.put_flushed(b"a", b"b")
    before = [block.lsn for block in store.blocks()]
    read: list[int] = []
    for block in scan_while(store, at_block):
        if block is None:
            store.put_flushed(b"c", b"d")
        else:
            read.append(block.lsn)
    after = [block.lsn for block in store.blocks()]
    assert read == after[: len(read)]
    assert len(read) >= len(before)


@pytest.mark.parametrize("at_block", [0, 1, 4, 20, 60])
@pytest.mark.parametrize("then", ["trimmed", "recycled", "recycled twice"])
def test_containers_go_while_they_are_read(store: Store, at_block: int, then: str) -> None:
    store.fill(8)
    read: list[Block] = []
    for block in scan_while(store, at_block):
        if block is None:
            for _ in range(2 if then == "recycled twice" else 1):
                advance_base(store.journal, container_start(store.journal, store.journal.next_lsn))
                store.put_flushed(b"makes it durable")
                if then != "trimmed":
                    store.fill(3)
        else:
            read.append(block)
    assert [block.lsn for block in read] == sorted({block.lsn for block in read})
    assert read[-1].lsn >= store.journal.extent.base_lsn


def test_a_container_named_by_itself_is_recycled_while_it_is_read(store: Store) -> None:
    store.fill(3)
    size = store.journal.container_bytes
    files = [store.file_of(slot * size) for slot in range(3)]
    evidence = open_evidence([str(file) for file in files])
    read: list[int] = []
    for found in evidence.scan():
        assert not isinstance(found, Finding), found
        if not read:
            advance_base(store.journal, 2 * size)
            store.put_flushed(b"makes it durable")
            store.fill(4)
            store.journal.retire([3, 4, 5])  # the last free containers are reserved for openings
            store.put_flushed(b"makes that durable")
            store.fill(3)
        read.append(found[1].lsn)
    assert {lsn // size for lsn in read} == {0, 2}  # the first was in memory, and the third is still in its file
    assert f"{files[1].name} was recycled while it was read" in evidence.remarks()


def test_dumps_while_a_thread_appends_and_recycles(store: Store) -> None:
    """Numbers in the payloads show that a dump has no stale records, and gaps only where containers were recycled."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            number, recent = 0, []
            while not stop.is_set():
                for _ in range(20):
                    recent.append(store.put(b"%09d" % number * 300))
                    number += 1
                store.journal.flush()
                recent = recent[-1000:]
                advance_base(store.journal, recent[0])
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    rounds = 0
    try:
        while (rounds < 30 or store.journal.next_lsn < 100 * store.journal.container_bytes) and not failed:
            evidence = open_evidence([str(store.path)])
            texts: list[str] = []
            totals = Totals()
            run_dump(evidence, RowFilter(), JsonLines({}, 9), texts.append, totals)
            assert not [finding for finding in totals.findings if finding.kind == "corrupt"], totals.findings
            payloads = [line.rpartition('"payload_base64":"')[2][:12] for line in "".join(texts).splitlines()]
            numbers = [int(b64decode(payload)) for payload in payloads if len(payload) == 12 and payload[0] == "M"]
            assert numbers == sorted(set(numbers))
            jumps = sum(second != first + 1 for first, second in pairwise(numbers))
            told = sum("was recycled while it was read" in remark for remark in evidence.remarks())
            assert jumps <= told
            rounds += 1
    finally:
        stop.set()
        writer.join()
    assert not failed
