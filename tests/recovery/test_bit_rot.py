"""I11: a flipped byte is noticed, or it does no harm. It never changes what is delivered, and nothing silently goes.

Noticed means that the store refuses to open and names the LSNs. The one exception: blocks that were written last, and
that no later block and no mark claims yet. Rot there looks like a torn write, and is cut. The mark is written when the
log falls idle for 0.2 s, and at the close, so after these there is no exception.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest

from cairnmq.base.errors import CairnError, CorruptJournal
from cairnmq.disk.memory import MemoryDirectory
from cairnmq.journal import block
from cairnmq.journal.block import Block
from cairnmq.journal.container import file_number
from cairnmq.journal.reader import LogReader
from cairnmq.journal.record import HEAD_BYTES
from cairnmq.recovery.recover import recover

from .checker import Broken, Shown, content_of, shown_by
from .explorer import OPTIONS, SCALE, MemoryWiring, World, workload

Place = tuple[str, int]


class Rot:
    """A store at rest whose bytes are flipped one by one, each in a copy of its own."""

    def __init__(self, world: World) -> None:
        self.moment = world.now("rest")
        self.wiring = MemoryWiring()
        self.wiring.put_back(self.moment.sql)
        reader = LogReader(self.moment.disk)
        self.blocks = [found for found in reader.scan() if isinstance(found, Block)]
        self.base_lsn, self.size = reader.base_lsn, reader.container_bytes
        self.slots = {f"{head.number:08d}.cairn": slot for slot, head in reader.heads.items()}
        self.claimed_lsn = reader.durable_lsn
        self.expected = self.recovered(self.moment.disk)
        self.outcomes = Counter[str]()

    def recovered(self, disk: MemoryDirectory) -> tuple[Shown, dict[int, bytes]]:
        store, _ = recover(disk.after_kill(), self.wiring, World(disk.after_kill()).clock, OPTIONS)
        shown = shown_by(store)
        return shown, {number: content_of(store, number) for ids in shown.values() for number in ids}

    def block_at(self, name: str, at: int) -> Block | None:
        """The live block that the byte belongs to, if it is covered by its checksum."""
        lsn = self.slots.get(name, -1) * self.size + at
        return next((found for found in self.blocks if 0 <= lsn - found.lsn < found.head.size_bytes), None)

    def flip(self, name: str, at: int, mask: int) -> None:
        """Flip bits of a byte, recover, and judge."""
        disk = self.moment.disk.after_kill()
        file = disk.open(name, writable=True)
        file.write_at(at, bytes([file.read_at(at, 1)[0] ^ mask]))
        hit = self.block_at(name, at)
        try:
            found = self.recovered(disk)
        except CorruptJournal as error:
            if hit is None or not error.first_lsn <= hit.lsn < error.end_lsn:
                raise Broken("I11", f"{name} {at}: the wrong place is named: {error}") from error
            self.outcomes["refused"] += 1
            return
        except CairnError as error:
            raise Broken("I11", f"{name} {at}: no LSNs are named: {error}") from error
        if found == self.expected:
            self.outcomes["harmless"] += 1
        elif hit is not None and hit.lsn >= self.claimed_lsn and self.is_cut(found, hit.lsn):
            self.outcomes["cut, unclaimed"] += 1
        else:
            raise Broken("I11", f"{name} {at} ^ {mask}: nothing was said, and the store is another")

    def is_cut(self, found: tuple[Shown, dict[int, bytes]], lsn: int) -> bool:
        shown, contents = found
        return shown == self.moment.past().shown(lsn) and all(
            contents[number] == self.expected[1][number] for number in contents if number in self.expected[1]
        )

    def every_head(self) -> Iterator[Place]:
        """Each byte of the mark, of the container heads, of the block heads and of the record heads."""
        for name in self.moment.disk.names():
            if file_number(name) is None:
                yield from ((name, place + at) for place in (0, 4096) for at in range(96))
            else:
                yield from ((name, at) for at in range(96))
        names = {slot: name for name, slot in self.slots.items()}
        for found in self.blocks:
            slot, start = divmod(found.lsn, self.size)
            yield from ((names[slot], start + at) for at in range(64 + HEAD_BYTES * min(found.head.records, 4)))

    def anywhere(self, count: int, rng: random.Random) -> Iterator[Place]:
        disk = self.moment.disk
        for _ in range(count):
            name = rng.choice(disk.names())
            yield name, rng.randrange(disk.open(name).size_bytes())

    def in_blocks(self, count: int, rng: random.Random) -> Iterator[Place]:
        names = {slot: name for name, slot in self.slots.items()}
        for _ in range(count):
            found = rng.choice(self.blocks)
            slot, start = divmod(found.lsn, self.size)
            yield names[slot], start + rng.randrange(found.head.size_bytes)

    def all(self, places: Iterable[Place], rng: random.Random) -> None:
        for name, at in places:
            self.flip(name, at, 1 << rng.randrange(8))


@pytest.fixture(scope="module")
def totals(tell: Callable[[str], None]) -> Iterator[Counter[str]]:
    begun_s = time.process_time()
    totals = Counter[str]()
    yield totals
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(totals.items()))
    tell(f"bit rot: {totals.total()} bytes flipped: {told}; in {time.process_time() - begun_s:.1f} s of CPU")


def small(end: Callable[[World], None]) -> Rot:
    """A few blocks in two lives, and then *end*."""
    world = World(MemoryDirectory())
    world.open()
    a, b = world.queue("a"), world.queue("b")
    world.put(a, 100)
    world.kick()
    first = world.put(b, 1000)
    world.kick()
    world.close()
    world.open()
    world.put_in_pieces([a, b], 70_000, 40_000)
    world.kick()
    world.take(b, first)
    world.kick()
    for _ in range(3):
        world.put(a, 10)
        world.put(b, 20)
        world.kick()
    end(world)
    return Rot(world)


def long(world: World) -> World:
    workload(world)
    return world


def check(rot: Rot, places: Iterable[Place], totals: Counter[str]) -> None:
    rot.all(places, random.Random(5))
    totals.update(rot.outcomes)


@pytest.mark.parametrize("end", [World.close, World.idle])
def test_rot_after_a_close_or_when_idle(totals: Counter[str], end: Callable[[World], None]) -> None:
    """No exception."""
    rot = small(end)
    rng = random.Random(1)
    every = [*rot.every_head(), *rot.in_blocks(600, rng), *rot.anywhere(100, rng)]
    check(rot, every if SCALE >= 4 else rng.sample(every, round(len(every) * SCALE / 4)), totals)
    assert rot.outcomes["refused"] > 100
    assert rot.outcomes["cut, unclaimed"] == 0


def test_rot_after_a_kill(totals: Counter[str]) -> None:
    """Only the last group is unclaimed: what rots before it is noticed."""
    rot = small(lambda world: None)
    rng = random.Random(2)
    every = [*rot.every_head(), *rot.in_blocks(600, rng)]
    check(rot, every if SCALE >= 4 else rng.sample(every, round(len(every) * SCALE / 4)), totals)
    assert rot.outcomes["refused"] > 100
    assert 0 < rot.outcomes["cut, unclaimed"] < rot.outcomes["refused"] / 4
    assert len([found for found in rot.blocks if found.lsn >= rot.claimed_lsn]) == 1


def test_rot_in_a_log_with_recycled_containers(totals: Counter[str]) -> None:
    """Rot in what is dead is harmless."""
    rot = Rot(long(World(MemoryDirectory())))
    rng = random.Random(3)
    check(rot, [*rot.anywhere(round(150 * SCALE), rng), *rot.in_blocks(round(150 * SCALE), rng)], totals)
    assert rot.outcomes["cut, unclaimed"] == 0


# ---- it can fail ----------------------------------------------------------------------------------------------------


def test_a_reader_that_ignores_checksums_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(view: memoryview, lsn: int, log_id: int) -> Block:
        head = block.peek(view, lsn, log_id)
        return Block(head, view[block.BLOCK_HEAD_BYTES : head.size_bytes])

    rot = small(World.close)
    monkeypatch.setattr(block, "decode", decode)
    with pytest.raises(Broken):
        rot.all(rot.in_blocks(200, random.Random(4)), random.Random(5))


def test_a_reader_that_takes_all_damage_for_torn_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = LogReader._damage

    def torn(self: LogReader, *args: object) -> object:
        damage = real(self, *args)  # type: ignore[arg-type]
        return damage and type(damage)(damage.first_lsn, damage.end_lsn, damage.why, True)

    rot = small(World.close)
    monkeypatch.setattr(LogReader, "_damage", torn)
    with pytest.raises(Broken, match="nothing was said"):
        rot.all(rot.in_blocks(200, random.Random(4)), random.Random(5))
