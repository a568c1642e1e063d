"""Tests that the in-memory disk loses exactly what a power cut may lose, up to all of it."""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st

from cairnmq.base.testing.memory_disk import MemoryDirectory

NAMES = ["a", "b", "c"]
Step = tuple[str, str, int, int]
"""Operation, file name, offset or index of a second name, and number of bytes."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "sync", "create", "rename", "unlink", "sync directory"]),
        st.sampled_from(NAMES),
        st.integers(0, 3000),
        st.integers(1, 2000),
    ),
    max_size=25,
)
SECTORS = st.sampled_from([512, 4096])
SEEDS = st.integers(0, 2**32)


def do(directory: MemoryDirectory, step: Step, fill: int) -> str:
    """Perform one step if possible, and return the name of the file that it wrote or synced."""
    action, name, number, size_bytes = step
    if action == "sync directory":
        directory.sync()
    elif action == "create":
        if name not in directory.names():
            directory.create(name)
    elif name not in directory.names():
        return ""
    elif action == "rename":
        directory.rename(name, NAMES[number % len(NAMES)])
    elif action == "unlink":
        directory.unlink(name)
    else:
        file = directory.open(name, writable=True)
        if action == "write":
            file.write_at(number, bytes([fill]) * size_bytes)
        else:
            file.sync()
        return name
    return ""


def run(steps: list[Step], sector_bytes: int = 512) -> MemoryDirectory:
    directory = MemoryDirectory(sector_bytes=sector_bytes)
    for name in NAMES[:2]:
        directory.create(name)
    directory.sync()
    for count, step in enumerate(steps):
        do(directory, step, count + 1)
    return directory


def content(directory: MemoryDirectory, name: str) -> bytes:
    return directory.open(name).read_at(0, 1 << 20)


def state(directory: MemoryDirectory) -> dict[str, bytes]:
    return {name: content(directory, name) for name in directory.names()}


def sectors_of(data: bytes, sector_bytes: int, size: int) -> list[bytes]:
    padded = data[:size].ljust(size, b"\0")
    return [padded[at : at + sector_bytes] for at in range(0, size, sector_bytes)]


@given(steps=STEPS, seed=SEEDS, sector_bytes=SECTORS)
def test_each_sector_is_whole_and_not_older_than_the_last_sync(steps: list[Step], seed: int, sector_bytes: int) -> None:
    """Each sector after a power cut has its content as of the last sync or after one of the writes since."""
    directory = MemoryDirectory(sector_bytes=sector_bytes)
    directory.create("a")
    directory.sync()
    possible = [b""]
    for count, step in enumerate(steps):
        if step[0] in ("write", "sync"):
            written = do(directory, (step[0], "a", *step[2:]), count + 1)
            possible = [*possible, content(directory, written)] if step[0] == "write" else possible[-1:]
    survived = content(directory.after_power_cut(random.Random(seed)), "a")
    assert len(survived) in {len(data) for data in possible}
    choices = [sectors_of(data, sector_bytes, len(survived)) for data in possible]
    for index, sector in enumerate(sectors_of(survived, sector_bytes, len(survived))):
        assert sector in [choice[index] for choice in choices]


@given(steps=STEPS, seed=SEEDS)
def test_what_was_synced_survives(steps: list[Step], seed: int) -> None:
    directory = run(steps)
    for name in directory.names():
        directory.open(name).sync()
    directory.sync()
    assert directory.pending() == []
    assert state(directory.after_power_cut(random.Random(seed))) == state(directory)
    assert state(directory.after_power_cut([])) == state(directory)


@given(steps=STEPS, sector_bytes=SECTORS)
def test_a_power_cut_can_take_all_or_nothing_that_is_pending(steps: list[Step], sector_bytes: int) -> None:
    directory = run(steps, sector_bytes)
    assert state(directory.after_power_cut(directory.pending())) == state(directory)
    assert state(directory.after_power_cut(lambda item: True)) == state(directory)
    assert state(directory.after_power_cut(lambda item: True, ordered=True)) == state(directory)
    assert directory.after_power_cut([]).names() == directory.after_power_cut(lambda item: False).names()


@given(steps=STEPS, seed=SEEDS)
def test_after_a_power_cut_nothing_is_pending(steps: list[Step], seed: int) -> None:
    cut = run(steps).after_power_cut(random.Random(seed))
    assert cut.pending() == []
    assert state(cut.after_power_cut([])) == state(cut)


@given(steps=STEPS, seed=SEEDS, sector_bytes=SECTORS)
def test_a_kill_keeps_everything_and_what_is_pending(steps: list[Step], seed: int, sector_bytes: int) -> None:
    directory = run(steps, sector_bytes)
    killed = directory.after_kill()
    assert state(killed) == state(directory)
    assert killed.pending() == directory.pending()
    expected = directory.after_power_cut(random.Random(seed))
    assert state(killed.after_power_cut(random.Random(seed))) == state(expected)


@given(before=STEPS, here=STEPS, there=STEPS, seed=SEEDS, kill=st.booleans())
def test_copies_are_independent(before: list[Step], here: list[Step], there: list[Step], seed: int, kill: bool) -> None:
    def copy(directory: MemoryDirectory) -> MemoryDirectory:
        return directory.after_kill() if kill else directory.after_power_cut(random.Random(seed))

    directory, alone, source = run(before), copy(run(before)), run(before)
    twin = copy(directory)
    for count, step in enumerate(here):
        do(directory, step, 100 + count)
        do(source, step, 100 + count)
    for count, step in enumerate(there):
        do(twin, step, 200 + count)
        do(alone, step, 200 + count)
    for one, other in ((directory, source), (twin, alone)):
        assert state(one) == state(other)
        assert one.pending() == other.pending()
        assert state(one.after_power_cut([])) == state(other.after_power_cut([]))


@given(steps=STEPS, seed=SEEDS)
def test_names_survive_as_a_prefix_when_ordered(steps: list[Step], seed: int) -> None:
    """After an ordered power cut, a prefix of the name changes survives; unique synced contents identify files."""
    directory = MemoryDirectory()
    past = [state(directory)]
    for count, step in enumerate(steps):
        action, name = step[:2]
        if action in ("write", "create"):
            if name not in directory.names():
                file = directory.create(name)
                file.write_at(0, b"%d" % count)
                file.sync()
        else:
            do(directory, step, count)
        past = [state(directory)] if action == "sync directory" else [*past, state(directory)]
    assert state(directory.after_power_cut(random.Random(seed), ordered=True)) in past


@given(steps=STEPS, seed=SEEDS)
@example([("rename", "a", 2, 1), ("rename", "c", 1, 1)], 3)
def test_a_file_has_one_name_whatever_survives(steps: list[Step], seed: int) -> None:
    cut = run(steps).after_power_cut(random.Random(seed))
    for name in cut.names():
        cut.open(name, writable=True).write_at(0, name.encode())
    assert [content(cut, name)[:1].decode() for name in cut.names()] == cut.names()


@given(steps=STEPS, keep=st.sets(st.integers(0, 40)), sector_bytes=SECTORS)
def test_junk_fills_just_the_lost_sectors(steps: list[Step], keep: set[int], sector_bytes: int) -> None:
    writes = [(action, "a", at, size_bytes) for action, _, at, size_bytes in steps if action in ("write", "sync")]
    directory = run([("write", "a", 0, 6000), *writes], sector_bytes)
    pending = directory.pending()
    kept = {item for count, item in enumerate(pending) if count in keep or item.kind == "size"}
    lost = {item.at for item in pending if item.kind == "sector"} - {item.at for item in kept if item.kind == "sector"}
    clean = content(directory.after_power_cut(kept), "a")
    filled = content(directory.after_power_cut(kept, junk=lambda *_: b"\xee" * sector_bytes), "a")
    assert len(filled) == len(clean)
    for index in range(-(-len(clean) // sector_bytes)):
        sector = slice(index * sector_bytes, (index + 1) * sector_bytes)
        assert filled[sector] == (b"\xee" * len(clean[sector]) if index in lost else clean[sector])


@given(steps=STEPS, seed=SEEDS, kill=st.booleans(), sector_bytes=SECTORS)
def test_a_copy_goes_on_as_a_disk_of_its_own(steps: list[Step], seed: int, kill: bool, sector_bytes: int) -> None:
    directory = run(steps, sector_bytes)
    copy = directory.after_kill() if kill else directory.after_power_cut(random.Random(seed))
    before, pending = state(copy), copy.pending()
    copy.create("new").write_at(0, bytes(sector_bytes))
    assert state(copy) == before | {"new": bytes(sector_bytes)}
    added = [(item.kind, item.name) for item in copy.pending() if item not in pending]
    assert added == [("create", "new"), ("sector", "new"), ("size", "new")]
    assert copy.pending()[: len(pending)] == pending


def test_chance_takes_few_or_many() -> None:
    directory = MemoryDirectory()
    directory.create("a").write_at(0, b"x" * 512 * 100)
    directory.sync()
    cuts = [directory.after_power_cut(random.Random(seed)) for seed in range(200)]
    survived = [content(cut, "a").count(b"x") // 512 for cut in cuts if content(cut, "a")]
    assert min(survived) < 20
    assert max(survived) > 80
