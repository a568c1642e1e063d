"""Tests of damage: it hides only the records it hits, is reported with its place, and is corrupt if it was durable."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis.strategies import integers

if TYPE_CHECKING:
    from tests.tools.conftest import Dump, Store


def test_a_flipped_byte_in_the_middle_is_corrupt_and_all_else_is_shown(store: Store, dump: Dump) -> None:
    lsns = store.put_flushed(*[b"x" * 1000] * 10)
    block = store.blocks()[5]
    store.flip(lsns[4] + 500)
    result = dump(store.path, "--json")
    assert result.lsns == [576, *lsns[:4], *lsns[5:]]
    assert result.damage == [{
        "kind": "corrupt", "first_lsn": block.lsn, "end_lsn": block.end_lsn,
        "size_bytes": block.end_lsn - block.lsn, "file": "00000001.cairn", "reason": "checksum fails over 1128 bytes",
    }]  # fmt: skip
    assert list(result.objects[5]) == ["damage"]  # the damage is listed in its place
    assert result.status == 1
    assert result.err.count("\n") == 1
    assert f"1 place corrupt, 1536 bytes, the first at LSN {block.lsn}" in result.err

    people = dump(store.path)
    assert re.match(rf" *{block.lsn}  \*\* corrupt \*\* .*00000001.cairn.*checksum fails", people.lines[5])
    assert (len(people.lines), people.status) == (11, 1)


def test_a_torn_tail_is_no_corruption(store: Store, dump: Dump) -> None:
    lsns = store.put_flushed(b"a", b"b", b"x" * 5000)
    store.journal.abandon()
    last = store.blocks()[-1]
    store.overwrite(last.lsn + 1024, bytes(last.end_lsn - last.lsn - 1024))  # the last sectors were not written
    result = dump(store.path, "--json")
    assert result.lsns == [576, *lsns[:2]]
    assert [(found["kind"], found["first_lsn"]) for found in result.damage] == [("torn", last.lsn)]
    assert result.status == 0
    assert "1 place torn" in result.err
    assert "** torn **" in dump(store.path).lines[-1]


def test_the_same_tail_is_corrupt_once_the_mark_claims_it(store: Store, dump: Dump) -> None:
    lsns = store.put_flushed(b"a", b"b", b"x" * 5000)
    store.journal.close()
    last = store.blocks()[-1]
    store.overwrite(last.lsn + 1024, bytes(last.end_lsn - last.lsn - 1024))
    for path in (store.path, store.file_of(last.lsn)):  # a single container is judged by the mark in its directory, too
        result = dump(path, "--json")
        assert result.lsns == [576, *lsns[:2]]
        assert [(found["kind"], found["first_lsn"], found["end_lsn"]) for found in result.damage] == [
            ("corrupt", last.lsn, last.end_lsn)
        ]
        assert result.status == 1


@pytest.mark.parametrize("cut", ["in a block", "between blocks"])
def test_a_container_cut_short_is_shown_up_to_there(store: Store, dump: Dump, cut: str) -> None:
    lsns = store.put_flushed(b"a", b"b", b"x" * 5000)
    store.journal.abandon()
    last = store.blocks()[-1]
    path = store.file_of(last.lsn)
    with open(path, "r+b") as file:
        file.truncate(last.lsn + (1024 if cut == "in a block" else 0))
    for given_path in (store.path, path):
        result = dump(given_path, "--json")
        assert result.lsns == [576, *lsns[:2]]
        assert [found["kind"] for found in result.damage] == (["torn"] if cut == "in a block" else [])
        assert result.status == 0
        assert f"00000001.cairn: it has {path.stat().st_size} bytes, a container has 524288" in result.err


def test_blocks_are_shown_though_the_head_of_their_container_is_lost(store: Store, dump: Dump) -> None:
    lsns = store.fill(3)
    second = store.journal.container_bytes
    path = store.file_of(second)
    for broken in (b"\xff", b"\xff" * 512, bytes(512)):
        with open(path, "r+b") as file:
            file.seek(20)
            file.write(broken[:492])
        result = dump(store.path, "--json")
        assert result.lsns == [576, *lsns]
        assert [(found["kind"], found["first_lsn"], found["end_lsn"], found["file"]) for found in result.damage] == [
            ("corrupt", second, second + 512, path.name)
        ]
        place = next(number for number, found in enumerate(result.objects) if "damage" in found)
        assert result.objects[place - 1]["lsn"] < second < result.objects[place + 1]["lsn"]
        assert result.status == 1
        assert dump(store.path, "--json", "--to-lsn", second).status == 0


def test_a_lost_container_is_told_and_the_others_are_shown(store: Store, dump: Dump) -> None:
    lsns = store.fill(3)
    size = store.journal.container_bytes
    store.file_of(size).unlink()
    result = dump(store.path, "--json")
    assert result.lsns == [576, *(lsn for lsn in lsns if lsn // size != 1)]
    assert [found["kind"] for found in result.damage] == ["corrupt"]
    first, end = result.damage[0]["first_lsn"], result.damage[0]["end_lsn"]
    assert first <= size + 512 < 2 * size <= end
    assert result.status == 1


def test_without_a_whole_mark_the_containers_are_still_shown(store: Store, dump: Dump) -> None:
    lsns = store.fill(2)
    mark = store.journal_path / "log.mark"
    mark.write_bytes(bytes(mark.stat().st_size))
    broken = dump(store.path, "--json")
    assert broken.lsns == [576, *lsns]
    assert [(found["kind"], found["file"]) for found in broken.damage] == [("corrupt", "log.mark")]
    assert broken.status == 1
    mark.unlink()
    lost = dump(store.path, "--json")
    assert (lost.lsns, lost.damage, lost.status) == ([576, *lsns], [], 0)
    assert "no log.mark" in lost.err


def test_damage_outside_the_range_is_not_told(store: Store, dump: Dump) -> None:
    lsns = store.put_flushed(*[b"x"] * 6)
    store.flip(lsns[2] + 64)
    assert dump(store.path, "--from-lsn", lsns[3]).status == 0
    assert dump(store.path, "--to-lsn", lsns[2] - 64).status == 0
    assert dump(store.path, "--to-lsn", lsns[2]).status == 1
    filtered = dump(store.path, "--json", "--type", "dequeue")
    assert (filtered.lsns, len(filtered.damage), filtered.status) == ([], 1, 1)  # the damaged record may be a dequeue


def test_summary_tells_the_damage(store: Store, dump: Dump) -> None:
    lsns = store.put_flushed(*[b"x"] * 6)
    store.flip(lsns[2] + 64)
    result = dump(store.path, "--json", "--summary")
    summary = result.objects[0]["summary"]
    assert (summary["records"], summary["corrupt"], summary["torn"]) == (6, 1, 0)
    assert summary["damage"] == dump(store.path, "--json").damage
    assert result.status == 1
    text = dump(store.path, "--summary").out
    assert f"corrupt at LSN {lsns[2] - 64}: 00000001.cairn: 512 bytes" in text
    assert "no damage" not in text


@settings(max_examples=60)
@given(integers(0, 3 * 512 + 2 * 1536 - 1))
@example(0)  # the container header
@example(8)  # the format of the container header
@example(512)  # the first block
def test_no_flipped_byte_goes_unnoticed_or_hides_another_block(store: Store, dump: Dump, at: int) -> None:
    if len(store.record_lsns()) == 1:
        store.put_flushed(b"a", b"x" * 1300, b"y" * 1300, b"end")
    complete = store.record_lsns()
    blocks = store.blocks()
    hit = [block for block in blocks if block.lsn <= at < block.lsn + block.head.size_bytes]
    padding = at >= 512 and not hit
    unused_head_bytes = range(80, 512)
    store.flip(at)
    try:
        result = dump(store.path, "--json")
        lost = {block.record_lsn(number) for block in hit for number in range(block.head.records)}
        assert result.lsns == [lsn for lsn in complete if lsn not in lost]
        if padding or at in unused_head_bytes:
            assert (result.damage, result.status) == ([], 0)
        else:
            assert [found["kind"] for found in result.damage] == ["corrupt"]
            assert result.damage[0]["first_lsn"] <= at < result.damage[0]["end_lsn"]
            assert result.status == 1
    finally:
        with open(store.journal_path / "00000001.cairn", "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 0xFF]))
