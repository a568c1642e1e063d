"""Bit flips in a store at rest, each in a separate copy, and the verdict on each."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from cairnmq.base.errors import CairnError, CorruptJournal
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.block import BLOCK_HEAD_BYTES, Block
from cairnmq.journal.format.container import HEAD, file_number
from cairnmq.journal.format.log_mark import PLACES
from cairnmq.journal.format.record import HEAD_BYTES
from cairnmq.journal.read.scanner import LogReader
from cairnmq.recovery.damage_survey import survey
from cairnmq.recovery.recover import recover
from tests.harness.recovery.checker import Broken, Shown, content_of, messages_in, shown_by
from tests.harness.recovery.kept_checkpoint import WatchedCheckpoint, flipped
from tests.harness.recovery.steps import Step
from tests.harness.recovery.workload import Life
from tests.harness.recovery.world import World

NOT_USED = "in the checkpoint: everything is shown as before"
Place = tuple[str, int]
HEAD_OF_A_FILE_BYTES = HEAD.size + 16
BESIDE = "refused, but what the block gave back is named: nothing claims the block as yet"
REFUSED, HARMLESS, CUT = "refused, the LSNs named", "harmless: everything is shown as before", "cut, unclaimed as yet"


def ranges_named(error: CorruptJournal) -> list[tuple[int, int]]:
    """Return the LSN ranges in *error*. Rot in the only block that records a hole names the hole, too."""
    return [(int(first), int(end)) for first, end in re.findall(r"LSN (\d+) to (\d+)", str(error))]


@dataclass
class Verdicts:
    """Faults by verdict. A fault, one bit of one byte of one disk, counts once."""

    found: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0

    def add(self, other: Verdicts) -> None:
        self.found += other.found
        self.cpu_s += other.cpu_s

    def lines(self) -> Iterator[str]:
        yield f"bit rot: {self.found.total():,} bits flipped one by one, 0 silent, in {self.cpu_s:.0f} s of CPU"
        for verdict, count in sorted(self.found.items()):
            yield f"  {count:>13,}  {verdict}"


class Rot:
    """A set of bit flips in *world*, at rest, with the recovery after each."""

    def __init__(self, world: World) -> None:
        self.moment = world.now("rest")
        self.options = world.options
        self.wiring = world.wiring
        self.wiring.on_commit = lambda what: None
        self.verdicts = Verdicts()
        reader = LogReader(self.moment.disk)
        self.blocks = [found for found in reader.scan() if isinstance(found, Block)]
        self.size = reader.container_bytes
        self.slots = {f"{head.number:08d}.cairn": slot for slot, head in reader.heads.by_slot.items()}
        self.claimed_lsn = reader.durable_lsn
        self.expected = self.recovered(self.moment.disk.after_kill())
        self._done: set[tuple[str, int, int]] = set()

    def recovered(self, disk: MemoryDirectory, file: WatchedCheckpoint | None = None) -> tuple[Shown, dict[int, bytes]]:
        self.wiring.put_back(self.moment.sql)
        store, _ = recover(disk, self.wiring, ManualClock(), self.options, checkpoint=file)
        shown = shown_by(store)
        return shown, {number: content_of(store, number) for number in messages_in(shown)}

    def block_at(self, name: str, at: int) -> Block | None:
        """Return the live block whose checksum covers the byte, if any."""
        lsn = self.slots.get(name, -1) * self.size + at
        return next((found for found in self.blocks if 0 <= lsn - found.lsn < found.head.size_bytes), None)

    def flip(self, name: str, at: int, bit: int) -> None:
        """Flip a bit of a file, recover, and count the verdict."""
        if (name, at, bit) in self._done:
            return
        self._done.add((name, at, bit))
        disk = self.moment.disk.after_kill()
        file = disk.open(name, writable=True)
        file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 1 << bit]))
        self.verdicts.found[self._verdict(disk, name, at, bit)] += 1

    def flip_in_checkpoint(self, key: bytes, at: int, bit: int) -> None:
        """Flip a bit in an entry of the checkpoint, and check that recovery shows the same: it is a cache."""
        name = f"entry {key.hex()} of the checkpoint"
        if (name, at, bit) in self._done:
            return
        self._done.add((name, at, bit))
        kept = self.moment.kept
        assert kept.entries is not None
        rotten = kept._replace(entries=flipped(kept.entries, key, at, bit))
        if self.recovered(self.moment.disk.after_kill(), WatchedCheckpoint(rotten)) != self.expected:
            raise Broken("I11", f"{name} byte {at} bit {bit}: the store is another")
        self.verdicts.found[NOT_USED] += 1

    def in_checkpoint(self, count: int, rng: random.Random) -> None:
        entries = self.moment.kept.entries or {}
        for _ in range(count if entries else 0):
            key = rng.choice(sorted(entries))
            self.flip_in_checkpoint(key, rng.randrange(len(entries[key])), rng.randrange(8))

    def _verdict(self, disk: MemoryDirectory, name: str, at: int, bit: int) -> str:
        hit = self.block_at(name, at)
        try:
            found = self.recovered(disk)
        except CorruptJournal as error:
            named = ranges_named(error)
            if re.search(r"LSN \d+ to \d+ \([^)]*\), \d+ more", str(error)):  # surveys and salvage report them all
                named += [(gap.finding.first_lsn, gap.finding.end_lsn) for gap in survey(disk).gaps]
            if hit is not None and any(first <= hit.lsn < end for first, end in named):
                return REFUSED
            if hit is None or hit.lsn < self.claimed_lsn:
                raise Broken("I11", f"{name} byte {at} bit {bit}: the wrong place is named: {error}") from error
            return BESIDE
        except CairnError as error:
            raise Broken("I11", f"{name} byte {at} bit {bit}: no LSNs are named: {error}") from error
        if found == self.expected:
            return HARMLESS
        if hit is not None and hit.lsn >= self.claimed_lsn and self.is_cut(found, hit.lsn):
            return CUT
        raise Broken("I11", f"{name} byte {at} bit {bit}: nothing was said, and the store is another")

    def is_cut(self, found: tuple[Shown, dict[int, bytes]], lsn: int) -> bool:
        shown, contents = found
        return shown == self.moment.past.shown(lsn) and all(
            contents[number] == self.expected[1][number] for number in contents if number in self.expected[1]
        )

    def every_head(self) -> Iterator[Place]:
        """Yield each byte of the mark, of container and block headers, and of the first record headers of blocks."""
        for name in self.moment.disk.names():
            places = PLACES if file_number(name) is None else (0,)
            yield from ((name, place + at) for place in places for at in range(HEAD_OF_A_FILE_BYTES))
        names = {slot: name for name, slot in self.slots.items()}
        for found in self.blocks:
            slot, start = divmod(found.lsn, self.size)
            heads = BLOCK_HEAD_BYTES + HEAD_BYTES * min(found.head.records, 4)
            yield from ((names[slot], start + at) for at in range(heads))

    def anywhere(self, count: int, rng: random.Random) -> Iterator[Place]:
        disk = self.moment.disk
        for _ in range(count):
            name = rng.choice(disk.names())
            yield name, rng.randrange(disk.open(name).size_bytes())

    def in_blocks(self, count: int, rng: random.Random) -> Iterator[Place]:
        names = {slot: name for name, slot in self.slots.items()}
        for _ in range(count if self.blocks else 0):
            found = rng.choice(self.blocks)
            slot, start = divmod(found.lsn, self.size)
            yield names[slot], start + rng.randrange(found.head.size_bytes)

    def all(self, places: Iterable[Place], rng: random.Random) -> None:
        for name, at in places:
            self.flip(name, at, rng.randrange(8))


ENDS: dict[str, Step] = {"close": World.close, "idle": World.idle, "kill": World.kill}
FAULTS_PER_SHARD = 5_000


def rot(seed: int, number: int, end: str, faults: int = FAULTS_PER_SHARD) -> Verdicts:
    """Run a shard: a small life that ends with *end*, then *faults* bit flips, about half of them in headers."""
    begun_s = time.process_time()
    rng = random.Random(f"rot {seed} {number}")
    life = Life.drawn(rng, number)
    found = Rot(life.live(life.begun(rng), ENDS[end]))
    heads = list(found.every_head())
    sources: list[Callable[[], Iterable[Place]]] = [
        lambda: rng.choices(heads, k=100), lambda: found.in_blocks(80, rng), lambda: found.anywhere(20, rng)
    ]  # fmt: skip
    try:
        while found.verdicts.found.total() < faults:
            for source in sources:
                found.all(source(), rng)
            found.in_checkpoint(20, rng)
    except Broken as error:
        error.add_note(f"seed {seed}, shard {number}, after {end}")
        raise
    if end != "kill" and found.verdicts.found[CUT]:
        raise Broken("I11", f"seed {seed}, shard {number}: rot was taken for a torn write after {end}")
    found.verdicts.cpu_s = time.process_time() - begun_s
    return found.verdicts
