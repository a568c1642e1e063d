"""Tests that all implementations of the disk seam behave alike: single properties, and random sequences of calls."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.disk.seam import Directory, File
from cairnmq.base.errors import CannotLink, DiskError
from cairnmq.base.testing.faulty_disk import FaultyDirectory
from cairnmq.base.testing.memory_disk import MemoryDirectory

MAKERS: dict[str, Callable[[Path], Directory]] = {
    "real": lambda path: RealDirectory(str(path)),
    "memory": lambda path: MemoryDirectory(),
    "memory with 4 KiB sectors": lambda path: MemoryDirectory(sector_bytes=4096),
    "faulty over real": lambda path: FaultyDirectory(RealDirectory(str(path))),
    "faulty over memory": lambda path: FaultyDirectory(MemoryDirectory()),
}


@pytest.fixture(params=MAKERS)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return MAKERS[request.param](tmp_path)


T = TypeVar("T")


def beside(directory: Directory) -> Directory:
    """Return another directory on the same disk."""
    if isinstance(directory, FaultyDirectory):
        return FaultyDirectory(beside(directory.inner))
    if isinstance(directory, MemoryDirectory):
        return directory.beside(directory.path + "/beside")
    return RealDirectory(directory.path + "/beside", create=True)


def is_real(directory: Directory) -> bool:
    return isinstance(directory.inner if isinstance(directory, FaultyDirectory) else directory, RealDirectory)


def make(directory: Directory, name: str, content: bytes) -> File:
    file = directory.create(name)
    file.write_at(0, content)
    return file


def content(directory: Directory, name: str) -> bytes:
    file = directory.open(name)
    try:
        return file.read_at(0, file.size_bytes())
    finally:
        file.close()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_was_written_is_read(directory: Directory, kind: Callable[[bytes], bytes]) -> None:
    data = bytes(range(256)) * 40
    file = directory.create("a")
    file.write_at(1000, kind(data))
    assert file.name == "a"
    assert file.size_bytes() == 1000 + len(data)
    assert file.read_at(0, 1000) == bytes(1000)
    assert file.read_at(1000, len(data)) == data
    assert file.read_at(1511, 3) == data[511:514]
    assert content(directory, "a") == bytes(1000) + data


def test_forgetting_loses_nothing_that_can_still_be_written(directory: Directory) -> None:
    file = make(directory, "a", b"synced")
    file.sync()
    file.forget()
    assert content(directory, "a") == b"synced"
    file.write_at(0, b"SYN")
    file.forget()
    assert content(directory, "a") == b"SYNced"


def test_a_file_is_in_place_until_its_name_is_gone_or_anothers(directory: Directory) -> None:
    first, second, third = (make(directory, name, b"x") for name in "abc")
    assert first.is_in_place()
    assert directory.open("a").is_in_place()
    directory.unlink("a")
    assert not first.is_in_place()
    directory.create("a")
    assert not first.is_in_place()
    directory.rename("b", "d")
    assert not second.is_in_place()
    directory.rename("d", "c")
    assert not third.is_in_place()


def test_a_write_keeps_no_hold_of_the_buffer(directory: Directory) -> None:
    data = bytearray(b"x" * 1024)
    file = directory.create("a")
    file.write_at(0, data)
    data[:] = b"y" * 1024
    assert file.read_at(0, 1024) == b"x" * 1024


def test_reads_end_with_the_file(directory: Directory) -> None:
    file = make(directory, "a", b"abc")
    assert file.read_at(1, 100) == b"bc"
    assert file.read_at(3, 1) == b""
    assert file.read_at(10_000, 1) == b""


def test_writing_nothing_does_not_extend(directory: Directory) -> None:
    file = directory.create("a")
    file.write_at(100, b"")
    assert file.size_bytes() == 0


def test_names_are_sorted(directory: Directory) -> None:
    for name in ("b", "c", "a", "B"):
        directory.create(name)
    assert directory.names() == ["B", "a", "b", "c"]


def test_a_taken_name_is_not_created_again(directory: Directory) -> None:
    make(directory, "a", b"old")
    with pytest.raises(DiskError, match="File exists"):
        directory.create("a")
    assert content(directory, "a") == b"old"


def test_rename_replaces(directory: Directory) -> None:
    make(directory, "old", b"new content")
    make(directory, "new", b"replaced")
    directory.rename("old", "new")
    assert directory.names() == ["new"]
    assert content(directory, "new") == b"new content"


def test_rename_to_itself_changes_nothing(directory: Directory) -> None:
    make(directory, "a", b"abc")
    directory.rename("a", "a")
    assert content(directory, "a") == b"abc"


def test_an_open_file_outlives_its_name(directory: Directory) -> None:
    file = make(directory, "a", b"abc")
    directory.unlink("a")
    directory.sync()
    file.write_at(3, b"def")
    file.sync()
    assert file.read_at(0, 10) == b"abcdef"
    assert directory.names() == []


def test_two_openings_see_one_file(directory: Directory) -> None:
    file = make(directory, "a", b"abc")
    again = directory.open("a", writable=True)
    again.write_at(1, b"X")
    assert file.read_at(0, 10) == b"aXc"


def test_a_link_is_a_second_name_for_one_file(directory: Directory) -> None:
    other = beside(directory)
    file = make(directory, "a", b"abc")
    assert directory.link_count("a") == 1
    directory.link("a", other, "b")
    assert (directory.link_count("a"), other.link_count("b")) == (2, 2)
    file.write_at(0, b"X")
    assert content(other, "b") == b"Xbc"
    directory.unlink("a")
    directory.sync()
    assert other.names() == ["b"]
    assert other.link_count("b") == 1
    assert content(other, "b") == b"Xbc"


def test_a_link_replaces_nothing(directory: Directory) -> None:
    other = beside(directory)
    make(directory, "a", b"abc")
    make(other, "b", b"old")
    with pytest.raises(DiskError, match="File exists") as refused:
        directory.link("a", other, "b")
    assert not isinstance(refused.value, CannotLink)
    assert content(other, "b") == b"old"


def test_no_file_stands_on_two_disks(directory: Directory) -> None:
    make(directory, "a", b"abc")
    with pytest.raises(CannotLink, match="Invalid cross-device link; copy the file") as refused:
        directory.link("a", RealDirectory("/dev/shm") if is_real(directory) else MemoryDirectory(), "b")
    assert refused.value.place == directory.path + "/a"


def test_what_is_missing_is_refused(directory: Directory) -> None:
    with pytest.raises(DiskError, match=r"/a: open failed: No such file"):
        directory.open("a")
    with pytest.raises(DiskError, match=r"/a: rename to b failed: No such file"):
        directory.rename("a", "b")
    with pytest.raises(DiskError, match=r"/a: unlink failed: No such file"):
        directory.unlink("a")
    with pytest.raises(DiskError, match=r"/a: link to .*/b failed: No such file"):
        directory.link("a", beside(directory), "b")
    with pytest.raises(DiskError, match=r"/a: stat failed: No such file"):
        directory.link_count("a")


def test_a_file_opened_for_reading_is_not_written(directory: Directory) -> None:
    make(directory, "a", b"abc")
    file = directory.open("a")
    with pytest.raises(DiskError, match="write of 1 bytes at 0 failed: Bad file descriptor"):
        file.write_at(0, b"x")
    assert file.read_at(0, 10) == b"abc"


def test_negative_offsets_are_refused(directory: Directory) -> None:
    file = make(directory, "a", b"abc")
    with pytest.raises(DiskError):
        file.write_at(-1, b"x")
    with pytest.raises(DiskError):
        file.read_at(-1, 1)


def test_a_closed_file_is_refused(directory: Directory) -> None:
    file = make(directory, "a", b"abc")
    file.close()
    file.close()
    with pytest.raises(DiskError, match="Bad file descriptor"):
        file.read_at(0, 1)
    with pytest.raises(DiskError, match="Bad file descriptor"):
        file.write_at(0, b"x")


class SameAsReal(RuleBasedStateMachine):
    """A state machine that compares results and errors of random calls on all implementations."""

    some_name = st.sampled_from(["a", "b", "c"])
    some_file = st.integers(0, 30)

    def __init__(self) -> None:
        super().__init__()
        self.paths = [tempfile.TemporaryDirectory() for _ in MAKERS]
        self.directories = [make(Path(path.name)) for make, path in zip(MAKERS.values(), self.paths, strict=True)]
        self.opened: list[list[File]] = []  # for each open file, the objects of all implementations

    def teardown(self) -> None:
        for files in self.opened:
            for file in files:
                file.close()
        for path in self.paths:
            path.cleanup()

    @rule(name=some_name)
    def create(self, name: str) -> None:
        self.opened += files_of([outcome(partial(d.create, name)) for d in self.directories])

    @rule(name=some_name, writable=st.booleans())
    def open(self, name: str, writable: bool) -> None:
        outcomes = [outcome(partial(d.open, name, writable=writable)) for d in self.directories]
        self.opened += files_of(outcomes)

    @rule(old=some_name, new=some_name)
    def rename(self, old: str, new: str) -> None:
        same([outcome(partial(d.rename, old, new)) for d in self.directories])

    @rule(name=some_name)
    def unlink(self, name: str) -> None:
        same([outcome(partial(d.unlink, name)) for d in self.directories])

    @rule()
    def sync(self) -> None:
        same([outcome(d.sync) for d in self.directories])

    @precondition(lambda self: self.opened)
    @rule(which=some_file, at=st.integers(0, 9000), seed=st.binary(min_size=1, max_size=3), times=st.integers(0, 3000))
    def write(self, which: int, at: int, seed: bytes, times: int) -> None:
        files = self.opened[which % len(self.opened)]
        same([outcome(partial(file.write_at, at, seed * times)) for file in files])

    @precondition(lambda self: self.opened)
    @rule(which=some_file, at=st.integers(0, 12_000), size_bytes=st.integers(0, 9000))
    def read(self, which: int, at: int, size_bytes: int) -> None:
        files = self.opened[which % len(self.opened)]
        same([outcome(partial(file.read_at, at, size_bytes)) for file in files])

    @precondition(lambda self: self.opened)
    @rule(which=some_file)
    def sync_file(self, which: int) -> None:
        same([outcome(file.sync) for file in self.opened[which % len(self.opened)]])

    @precondition(lambda self: self.opened)
    @rule(which=some_file)
    def close(self, which: int) -> None:
        same([outcome(file.close) for file in self.opened.pop(which % len(self.opened))])

    @invariant()
    def same_files(self) -> None:
        same([[(name, content(d, name)) for name in d.names()] for d in self.directories])


def outcome(call: Callable[[], T]) -> T | str:
    try:
        return call()
    except DiskError as error:
        return error.reason


def same(outcomes: Sequence[object]) -> None:
    assert all(outcome == outcomes[0] for outcome in outcomes), outcomes


def files_of(outcomes: Sequence[File | str]) -> list[list[File]]:
    """Return a list with the file that all implementations opened, or empty if all failed for the same reason."""
    files = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    if files:
        assert len(files) == len(outcomes), outcomes
        return [files]
    same(outcomes)
    return []


SameAsReal.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestSameAsReal = SameAsReal.TestCase
