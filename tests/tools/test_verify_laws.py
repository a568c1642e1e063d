"""Properties of verify: it reports no corruption after any crash, and finds each wrong byte that was durable."""

from __future__ import annotations

import random
from functools import cache
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.disk.seam import SECTOR_BYTES, Directory
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.block import Block, padded
from cairnmq.journal.read.scanner import LogReader
from cairnmq.store.checkpoint import checkpoint
from cairnmq.store.checkpoint.checkpoint_file import CheckpointFile, sealed
from cairnmq.store.wiring.rescue import Rescued
from cairnmq.tools.verify.verdicts import Verdict, VerifyReport
from cairnmq.tools.verify.verify import Verify
from tests.harness.recovery.kept_checkpoint import Kept, WatchedCheckpoint, flipped
from tests.harness.recovery.rot import ENDS
from tests.harness.recovery.shards import begin
from tests.harness.recovery.states import Crash
from tests.harness.recovery.workload import Life
from tests.harness.recovery.world import Moment, World

QUIET = settings(max_examples=200)


def verdicts(disk: Directory, world: World, moment: Moment, kept: Kept | None = None) -> list[Verdict]:
    world.wiring.on_commit = lambda what: None
    world.wiring.put_back(moment.sql)
    report = VerifyReport("store")
    uuid, _ = world.wiring.identify(UUID(int=0))
    rescued = Rescued(uuid, world.wiring.rows(), "")
    file: CheckpointFile | None = WatchedCheckpoint(moment.kept if kept is None else kept)
    Verify(report, disk, lambda: rescued, file, lambda *_: None).run()
    return report.verdicts


def corrupt(found: list[Verdict]) -> list[Verdict]:
    return [verdict for verdict in found if verdict.kind == "corrupt"]


@cache
def lived(number: int) -> World:
    return begin(11, number)[1]


@QUIET
@given(number=st.integers(0, 11), data=st.data())
def test_nothing_is_found_in_what_a_crash_may_leave(number: int, data: st.DataObject) -> None:
    """A power cut, a kill or junk at any time of a scenario with compaction, purges and crashes is not corruption."""
    world = lived(number)
    moments = [one for one in world.moments if "log.mark" in one.disk.names()]
    moment = moments[data.draw(st.integers(0, len(moments) - 1))]
    crash = Crash(moment, data.draw(st.sampled_from(["cut", "cut", "kill", "junk"])))
    disk = crash.disk(crash.any(random.Random(data.draw(st.integers(0, 1 << 30)))))
    if "log.mark" not in disk.names():  # the power failed before the store was created
        return
    assert corrupt(verdicts(disk, world, moment)) == []


@cache
def at_rest(number: int, end: str) -> tuple[World, Moment, list[Block], LogReader]:
    rng = random.Random(f"verify {number}")
    life = Life.drawn(rng, number)
    world = life.live(life.begun(rng), ENDS[end])
    moment = world.now("rest")
    reader = LogReader(moment.disk)
    return world, moment, [found for found in reader.scan() if isinstance(found, Block)], reader


def flip(disk: MemoryDirectory, name: str, at: int, bit: int) -> None:
    file = disk.open(name, writable=True)
    file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 1 << bit]))


@QUIET
@given(number=st.integers(0, 7), end=st.sampled_from(["close", "idle"]), data=st.data())
def test_no_flipped_byte_is_overlooked(number: int, end: str, data: st.DataObject) -> None:
    """A flipped byte is found in each durable block, including its padding, and in the container headers of the log."""
    world, moment, blocks, reader = at_rest(number, end)
    claimed = [found for found in blocks if found.end_lsn <= reader.durable_lsn]
    assert claimed
    block = claimed[data.draw(st.integers(0, len(claimed) - 1))]
    begin, size = block.lsn, padded(block.head.size_bytes)
    if data.draw(st.integers(0, 5)) == 0:
        begin, size = block.lsn - block.lsn % reader.container_bytes, SECTOR_BYTES
    lsn = begin + data.draw(st.integers(0, size - 1))
    disk = moment.disk.after_kill()
    slot, offset = divmod(lsn, reader.container_bytes)
    flip(disk, f"{reader.heads.by_slot[slot].number:08d}.cairn", offset, data.draw(st.integers(0, 7)))
    found = corrupt(verdicts(disk, world, moment))
    assert any(verdict.first_lsn <= lsn < verdict.end_lsn for verdict in found), (lsn, found)


@QUIET
@given(number=st.integers(0, 7), data=st.data())
def test_no_flipped_byte_of_a_checkpoint_is_overlooked(number: int, data: st.DataObject) -> None:
    world, moment, _, _ = at_rest(number, "close")
    entries = moment.kept.entries
    if not entries:
        return
    key = data.draw(st.sampled_from(sorted(entries)))
    at = data.draw(st.integers(0, len(entries[key]) - 1))
    kept = moment.kept._replace(entries=flipped(entries, key, at, data.draw(st.integers(0, 7))))
    assert [one.place for one in corrupt(verdicts(moment.disk.after_kill(), world, moment, kept))] == ["checkpoint"]


@QUIET
@given(number=st.integers(0, 7), data=st.data())
def test_a_checkpoint_that_forgets_something_is_found(number: int, data: st.DataObject) -> None:
    """A checkpoint that lacks a page is found, although all its checksums are valid."""
    world, moment, _, _ = at_rest(number, "close")
    entries = moment.kept.entries
    pages = [key for key in entries or () if key[:1] in (b"p", b"o")]
    if entries is None or not pages:
        return
    key = data.draw(st.sampled_from(pages))
    rest = dict(entries)
    meta = checkpoint.meta_of(rest)
    del rest[key]
    kept = moment.kept._replace(entries=rest | {checkpoint.META: sealed(checkpoint.META, meta.encode(len(rest)))})
    assert corrupt(verdicts(moment.disk.after_kill(), world, moment, kept))
