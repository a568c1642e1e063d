"""Tests of every file of a store with every kind of damage: the broker refuses and reports the loss, or loses nothing.

A refusal changes no byte and is one line: the container, the LSNs, the loss, the reason, the remedy. A refused
store can be salvaged: all complete messages, and none that was visibly dequeued. Damage to a file that contains no part
of the log does not stop a broker.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.errors import CairnError, CorruptJournal, DiskError
from cairnmq.base.testing.faulty_disk import DiskCall, Fault, FaultyDirectory
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.journal.format import container
from cairnmq.recovery.recover import open_store, recover
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.wiring.wiring import Wiring
from cairnmq.tools.repair.salvage import salvage
from tests.harness.recovery.damaged import (
    CONTAINER_BYTES,
    MEMORY,
    OnQueues,
    Whole,
    check_salvaged,
    open_and_show,
    shown_by,
    tree,
    with_holes,
)
from tests.harness.thorough import amount

OLDEST, BEFORE_THE_HOLE, BEHIND_THE_HOLE, NEWEST = 0, 1, 4, 5
SLOTS = (OLDEST, BEFORE_THE_HOLE, BEHIND_THE_HOLE, NEWEST)
SALVAGED = {"salvaged-1": "orders", "salvaged-2": "bills"}


@dataclass
class Stores:
    complete: Whole
    older: Path
    other: Path


@pytest.fixture(scope="module")
def stores() -> Iterator[Stores]:
    """Create a store, an older copy of it, and another store."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        older, other = Path(place) / "older", Path(place) / "other"
        complete = with_holes(Path(place) / "store", older)
        assert tuple(complete.container_of) == SLOTS
        assert (complete.holes, bool(complete.free)) == ([2], True)
        with_holes(other)
        yield Stores(complete, older, other)


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as path:
        yield Path(path)


# ---- kinds of damage ------------------------------------------------------------------------------------------------

Damage = Callable[[Path, Stores], None]
"""A function that damages a file in a copy of the store."""


def cut_to(size: int) -> Damage:
    return lambda file, _: os.truncate(file, size)


def extended(file: Path, _: Stores) -> None:
    with file.open("ab") as open_file:
        open_file.write(b"more" * 1000)


def overwritten(at: int, data: bytes) -> Damage:
    def damage(file: Path, _: Stores) -> None:
        with file.open("r+b") as open_file:
            open_file.seek(at)
            open_file.write(data)

    return damage


def zeroed(file: Path, _: Stores) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def removed(file: Path, _: Stores) -> None:
    shutil.rmtree(file) if file.is_dir() else file.unlink()


def renamed(file: Path, _: Stores) -> None:
    file.rename(file.with_name("00000077.cairn"))


def duplicated(file: Path, _: Stores) -> None:
    shutil.copy(file, file.with_name("00000077.cairn"))


def swapped(file: Path, stores: Stores) -> None:
    names = [file.with_name(name) for name in (*stores.complete.container_of.values(), *stores.complete.free)]
    other = names[names.index(file) - 1]
    file.rename(file.with_name("between"))
    other.rename(file)
    file.with_name("between").rename(other)


def of_store(which: str) -> Damage:
    def damage(file: Path, stores: Stores) -> None:
        source = getattr(stores, which)
        found = next(path for path in (source / file.name, source / "journal" / file.name) if path.exists())
        removed(file, stores)
        shutil.copytree(found, file) if found.is_dir() else shutil.copy(found, file)

    return damage


def directory(file: Path, stores: Stores) -> None:
    removed(file, stores)
    file.mkdir()


def pipe(file: Path, stores: Stores) -> None:
    removed(file, stores)
    os.mkfifo(file)


def a_file(file: Path, stores: Stores) -> None:
    removed(file, stores)
    file.write_bytes(b"a file")


def dangling(file: Path, stores: Stores) -> None:
    removed(file, stores)
    file.symlink_to("nowhere")


class Kind(NamedTuple):
    """A kind of damage, and its effect on a container that is part of the log."""

    damage: Damage
    opens: bool = False
    """True if the broker starts with all messages."""
    harmless: bool = False
    """True if a salvage loses nothing, as all bytes are still there."""


CONTAINER: dict[str, Kind] = {
    "cut to nothing": Kind(cut_to(0)),
    "cut in its head": Kind(cut_to(300)),
    "cut in the middle": Kind(cut_to(100_000)),
    "cut by a sector": Kind(cut_to(CONTAINER_BYTES - 512), harmless=True),
    "extended": Kind(extended, harmless=True),
    "zeroed": Kind(zeroed),
    "head zeroed": Kind(overwritten(0, bytes(512)), harmless=True),
    "head rotten": Kind(overwritten(24, b"rot"), opens=True, harmless=True),
    "block rotten": Kind(overwritten(1500, b"rot")),
    "filled with junk": Kind(overwritten(0, b"CNCTCNBK" * (CONTAINER_BYTES // 8))),
    "gone": Kind(removed),
    "renamed": Kind(renamed, harmless=True),
    "duplicated": Kind(duplicated, opens=True, harmless=True),
    "swapped with another": Kind(swapped, harmless=True),
    "of another store": Kind(of_store("other")),
    "an older copy": Kind(of_store("older")),
    "a directory": Kind(directory),
    "a pipe": Kind(pipe),
    "a dangling link": Kind(dangling),
}


def refused(path: Path) -> CairnError:
    """Check twice that the store at *path* does not open and is not changed; return the error."""
    before = tree(path)
    for _ in range(2):
        with pytest.raises(CairnError) as raised:
            open_store(str(path), ManualClock())
        assert tree(path) == before
    assert "\n" not in str(raised.value)
    assert raised.value.remedy
    return raised.value


def check_salvage(path: Path, stores: Stores, touched: Callable[[int], bool]) -> None:
    """Salvage the store at *path* without changing it, and check the result with `check_salvaged`."""
    before = tree(path)
    target = path.parent / "new"
    report = salvage(str(path), str(target), ManualClock(), lambda what, done, total: None)
    assert tree(path) == before
    shown = {SALVAGED.get(name, name): contents for name, contents in open_and_show(target).items()}
    report.queue_names = {number: SALVAGED.get(name, name) for number, name in report.queue_names.items()}
    check_salvaged(stores.complete, shown, report, touched)


@pytest.mark.parametrize("slot", SLOTS[-amount("CAIRN_SLOTS", 4, 1) :])
@pytest.mark.parametrize("name", CONTAINER)
def test_a_container_of_the_log(stores: Stores, place: Path, slot: int, name: str) -> None:
    complete, kind = stores.complete, CONTAINER[name]
    path = Path(shutil.copytree(complete.path, place / "store"))
    file = complete.container_of[slot]
    kind.damage(path / "journal" / file, stores)
    same = (path / "journal" / file).is_file() and (path / "journal" / file).read_bytes() == (
        complete.journal / file
    ).read_bytes()
    if not same and not kind.opens:
        error = refused(path)
        if isinstance(error, CorruptJournal):
            assert re.search(r"LSN \d+ to \d+ was durable and can't be read", str(error))
            assert re.search(r"unreadable|every message is complete", str(error))
            assert name == "gone" or file in str(error)
            assert error.place in (str(path / "journal"), str(path / "journal" / file))
        else:
            assert (name, file in str(error)) == ("a dangling link", True)
        assert "salvage" in str(error)
    check_salvage(path, stores, lambda lsn: not kind.harmless and not same and lsn // CONTAINER_BYTES == slot)
    if same or kind.opens:
        assert open_and_show(path) == complete.shown


def test_the_verdict_in_full(stores: Stores, place: Path) -> None:
    """The error separates certain losses from possible ones."""
    complete = stores.complete
    path = Path(shutil.copytree(complete.path, place / "store"))
    journal = path / "journal"
    content = complete.shown["bills"][-1]
    [lsn] = complete.needed[content]
    name, first, end, block_lsn = complete.block_of(lsn)
    overwritten(end - 5, b"rot")(journal / name, stores)
    following = next(found[3] for found in complete.blocks if found[3] > block_lsn)
    remedy = (
        "nothing was changed; `cairnmq salvage` recovers complete messages, `cairnmq dump` lists them; or restore from "
        "a backup"
    )
    reason = f"checksum fails over {end - first} bytes"
    assert str(refused(path)) == (
        f"{journal}/{name}: LSN {block_lsn} to {following} was durable and can't be read ({reason}); "
        f"message {lsn} on queue bills: 1 unreadable; {remedy}"
    )
    overwritten(first, bytes(end - first))(journal / name, stores)
    older = sum(complete.ids[found] < lsn for contents in complete.shown.values() for found in contents)
    records = (following - block_lsn - 64) // 64
    assert str(refused(path)) == (
        f"{journal}/{name}: LSN {block_lsn} to {following} was durable and can't be read (nothing was written there); "
        f"messages {block_lsn} to {following}: at most {records} unreadable; "
        f"at most {older} dequeues may be lost: those messages may come back; {remedy}"
    )


@pytest.mark.parametrize("name", [name for name in CONTAINER if name != "swapped with another"])
def test_a_free_container_may_be_anything(stores: Stores, place: Path, name: str) -> None:
    """A dangling link is the exception: its target may be the newest part of the log."""
    path = Path(shutil.copytree(stores.complete.path, place / "store"))
    file = path / "journal" / stores.complete.free[0]
    CONTAINER[name].damage(file, stores)
    check_salvage(path, stores, lambda lsn: False)
    if name == "a dangling link":
        assert file.name in str(refused(path))
    else:
        assert open_and_show(path) == stores.complete.shown


OTHERS: dict[tuple[str, str], tuple[Damage, str]] = {
    ("log.mark", "cut to nothing"): (cut_to(0), "no intact copy"),
    ("log.mark", "cut to one place"): (cut_to(4096), ""),
    ("log.mark", "extended"): (extended, ""),
    ("log.mark", "zeroed"): (zeroed, "no intact copy"),
    ("log.mark", "gone"): (removed, "log.mark: missing"),
    ("log.mark", "of another store"): (of_store("other"), "the journal is of store"),
    ("log.mark", "an older copy"): (of_store("older"), ""),
    ("log.mark", "a directory"): (directory, "not a regular file"),
    ("log.mark", "a pipe"): (pipe, "not a regular file"),
    ("log.mark", "a dangling link"): (dangling, "No such file"),
    ("wiring.sqlite", "cut to nothing"): (cut_to(0), "the wiring is missing"),
    ("wiring.sqlite", "cut in the middle"): (cut_to(5000), "not a wiring database|malformed"),
    ("wiring.sqlite", "extended"): (extended, ""),
    ("wiring.sqlite", "zeroed"): (zeroed, "not a wiring database|not a database"),
    ("wiring.sqlite", "gone"): (removed, "the wiring is missing"),
    ("wiring.sqlite", "of another store"): (of_store("other"), "the journal is of store"),
    ("wiring.sqlite", "an older copy"): (of_store("older"), ""),
    ("wiring.sqlite", "a directory"): (directory, "not a regular file|unable to open|wiring is missing"),
    ("wiring.sqlite", "a pipe"): (pipe, "the wiring is missing"),
    ("wiring.sqlite", "a dangling link"): (dangling, "the wiring is missing"),
    ("journal", "gone"): (removed, "the journal is missing"),
    ("journal", "a file"): (a_file, "the journal is missing"),
    ("journal", "a pipe"): (pipe, "the journal is missing"),
    ("journal", "a dangling link"): (dangling, "the journal is missing"),
    ("journal", "empty"): (directory, "the journal is missing"),
    ("journal", "of another store"): (of_store("other"), "the journal is of store"),
}


@pytest.mark.parametrize(("file", "name"), OTHERS)
def test_the_other_files(stores: Stores, place: Path, file: str, name: str) -> None:
    path = Path(shutil.copytree(stores.complete.path, place / "store"))
    damage, reason = OTHERS[file, name]
    damage(path / "journal" / file if file == "log.mark" else path / file, stores)
    is_lost = file == "journal" and name != "of another store"  # the other store has the same messages
    check_salvage(path, stores, lambda lsn: is_lost)
    if reason:
        assert re.search(reason, str(refused(path)))
    else:
        assert open_and_show(path) == stores.complete.shown


@pytest.mark.parametrize("damage", [directory, pipe, dangling])
def test_the_lock(stores: Stores, place: Path, damage: Damage) -> None:
    """The store does not open, without waiting; also for a symbolic link, which would create a file elsewhere."""
    path = Path(shutil.copytree(stores.complete.path, place / "store"))
    damage(path / "lock", stores)
    assert "lock: " in str(refused(path))


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_a_container_that_may_not_be_read(stores: Stores, slot: int, code: int, place: Path) -> None:
    """Unreadable data may be intact: opening fails with the file name, and shows everything once it can be read."""
    path = Path(shutil.copytree(stores.complete.path, place / "store"))
    name = stores.complete.container_of[slot]
    before = tree(path)

    def deny(call: DiskCall) -> Fault | None:
        return Fault(code) if call.kind == "open" and call.name == name else None

    wiring = Wiring.open(str(path / "wiring.sqlite"))
    with pytest.raises(DiskError, match=f"{name}.*failed.*salvage"):
        recover(FaultyDirectory(RealDirectory(str(path / "journal")), deny), wiring, ManualClock(), StoreOptions())
    wiring.close()
    assert tree(path) == before
    assert open_and_show(path) == stores.complete.shown


def test_two_containers_with_one_slot(stores: Stores, place: Path) -> None:
    """The container of the later incarnation counts, whatever its name; the other is reported and not changed."""
    path = Path(shutil.copytree(stores.complete.path, place / "store"))
    store, _ = open_store(str(path), ManualClock())
    store.put(1, b"the last one", 1)
    store.close()
    expected = {**stores.complete.shown, "orders": [*stores.complete.shown["orders"], b"the last one"]}
    files = sorted((path / "journal").glob("*.cairn"))
    heads = {file: container.decode_head(file.read_bytes()[:512], file.name) for file in files}
    newest = max(heads, key=lambda file: heads[file].slot_lsn)
    for number in (0, 77):
        twin = path / "journal" / container.file_name(number)
        head = heads[newest]._replace(number=number, incarnation=heads[newest].incarnation - 1)
        twin.write_bytes(container.encode_head(head).ljust(CONTAINER_BYTES, b"\0"))
        data = twin.read_bytes()
        again, report = open_store(str(path), ManualClock())
        assert shown_by(again) == expected
        assert any(twin.name in remark and newest.name in remark for remark in report.log.remarks)
        again.close()
        assert twin.read_bytes() == data
        twin.unlink()


@settings(max_examples=60)
@given(
    st.integers(0, 9),
    st.sampled_from(["cut", "extend", "overwrite"]),
    st.integers(0, 1 << 20),
    st.binary(min_size=1, max_size=40),
)
@example(0, "cut", 1, b"x")
def test_any_single_damage_is_refused_or_costs_nothing(
    stores: Stores, which: int, kind: str, at: int, data: bytes
) -> None:
    complete = stores.complete
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        path = Path(shutil.copytree(complete.path, Path(place) / "store"))
        files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "lock")
        file = files[which % len(files)]
        size = file.stat().st_size
        if kind == "cut":
            os.truncate(file, at % size)
        else:
            overwritten(size if kind == "extend" else at % size, data)(file, stores)
        before = tree(path)
        try:
            shown: OnQueues | None = open_and_show(path)
        except CairnError:
            shown = None
        if shown is None:
            assert tree(path) == before
            assert file.name in str(refused(path))
        elif file.name == "wiring.sqlite":  # names have no checksum
            assert sorted(shown.values()) == sorted(complete.shown.values())
        else:
            assert shown == complete.shown
        salvage(str(path), str(Path(place) / "new"), ManualClock(), lambda what, done, total: None)
