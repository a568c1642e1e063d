"""Tests that the faulty disk fails exactly the configured calls, with the errors of a real disk."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.disk.seam import Directory
from cairnmq.base.errors import CannotLink, DiskError, DiskFull
from cairnmq.base.testing.faulty_disk import DiskCall, Fault, FaultyDirectory, Kind, Plan, ever_after, once
from cairnmq.base.testing.memory_disk import MemoryDirectory

IO_ERROR, FULL = Fault(errno.EIO), Fault(errno.ENOSPC)
KINDS: list[Kind] = ["list", "read", "write", "sync", "create", "open", "rename", "link", "sync_names", "unlink"]


Attempt = Callable[[], object]


def one_call_of_each_kind(directory: Directory) -> list[Attempt]:
    """Return independent calls in the order of `KINDS`. Opening the file is call 1; these are calls 2 to 11."""
    file = directory.open("a", writable=True)
    return [
        directory.names,
        partial(file.read_at, 0, 8),
        partial(file.write_at, 0, b"ABCDEFGH"),
        file.sync,
        partial(directory.create, "new"),
        partial(directory.open, "a"),
        partial(directory.rename, "b", "c"),
        partial(directory.link, "a", elsewhere(directory), "a"),
        directory.sync,
        partial(directory.unlink, "d"),
    ]


def elsewhere(directory: Directory) -> Directory:
    """Return another directory on the same disk."""
    assert isinstance(directory, FaultyDirectory)
    assert isinstance(directory.inner, MemoryDirectory)
    return FaultyDirectory(directory.inner.beside("/elsewhere"))


def prepare(directory: Directory) -> None:
    for name in ("a", "b", "d"):
        directory.create(name).write_at(0, b"abcdefgh")


def failed(attempts: list[Attempt]) -> list[type[DiskError] | None]:
    """Make each attempt and return the type of its error, or None for a success."""
    errors: list[type[DiskError] | None] = []
    for attempt in attempts:
        try:
            attempt()
        except DiskError as error:
            errors.append(type(error))
        else:
            errors.append(None)
    return errors


def faulty(plan: Plan | None = None) -> FaultyDirectory:
    inner = MemoryDirectory()
    prepare(inner)
    return FaultyDirectory(inner, plan)


def content(directory: Directory, name: str) -> bytes:
    return directory.open(name).read_at(0, 1000)


def test_every_call_is_numbered() -> None:
    directory = faulty()
    assert failed(one_call_of_each_kind(directory)) == [None] * len(KINDS)
    assert [call.kind for call in directory.calls] == ["open", *KINDS]
    assert [call.number for call in directory.calls] == list(range(1, len(KINDS) + 2))
    assert directory.calls[3] == DiskCall(4, "write", "a", 0, 8)


@given(target=st.integers(2, 1 + len(KINDS)), full=st.booleans(), forever=st.booleans())
def test_the_planned_calls_fail_and_no_other(target: int, full: bool, forever: bool) -> None:
    plan = (ever_after if forever else once)(target, FULL if full else IO_ERROR)
    errors = failed(one_call_of_each_kind(faulty(plan)))
    for number, error in enumerate(errors, 2):
        if number == target or (forever and number > target):
            assert error is (DiskFull if full else DiskError)
        else:
            assert error is None


def test_a_failed_change_of_names_did_nothing() -> None:
    directory = faulty(lambda call: IO_ERROR if call.kind in ("create", "rename", "link", "unlink") else None)
    assert failed(one_call_of_each_kind(directory)).count(DiskError) == 4
    assert directory.names() == ["a", "b", "d"]
    assert elsewhere(directory).names() == []


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_a_disk_can_refuse_second_names(code: int) -> None:
    directory = faulty(lambda call: Fault(code) if call.kind == "link" else None)
    with pytest.raises(CannotLink):
        directory.link("a", elsewhere(directory), "a")


def test_a_failed_sync_of_the_directory_leaves_names_pending() -> None:
    directory = faulty(lambda call: IO_ERROR if call.kind == "sync_names" else None)
    assert failed([directory.sync]) == [DiskError]
    assert isinstance(directory.inner, MemoryDirectory)
    assert directory.inner.after_power_cut([]).names() == []


@pytest.mark.parametrize("kind", KINDS)
def test_ever_after_can_be_confined_to_kinds(kind: Kind) -> None:
    errors = failed(one_call_of_each_kind(faulty(ever_after(2, FULL, {kind}))))
    assert errors == [DiskFull if other == kind else None for other in KINDS]


@given(data=st.binary(max_size=100), share=st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_a_short_write_wrote_a_prefix(data: bytes, share: float) -> None:
    directory = FaultyDirectory(MemoryDirectory(), once(2, Fault(errno.ENOSPC, share)))
    file = directory.create("a")
    with pytest.raises(DiskFull):
        file.write_at(0, data)
    assert content(directory, "a") == data[: int(len(data) * share)]
    file.write_at(0, data)
    assert content(directory, "a") == data


def test_after_a_failed_sync_a_good_one_proves_nothing() -> None:
    inner = MemoryDirectory()
    directory = FaultyDirectory(inner, once(3, IO_ERROR))
    file = directory.create("a")
    file.write_at(0, b"abc")
    with pytest.raises(DiskError):
        file.sync()
    file.sync()
    directory.sync()
    assert content(directory, "a") == b"abc"
    assert content(inner.after_power_cut([]), "a") == bytes(3)


def test_what_is_read_past_the_page_cache_is_what_was_synced() -> None:
    """After a failed sync, "abc" is in the page cache only; a copy of the disk is not affected by `forget`."""
    inner = MemoryDirectory()
    directory = FaultyDirectory(inner, once(3, IO_ERROR))
    file = directory.create("a")
    file.write_at(0, b"abc")
    with pytest.raises(DiskError):
        file.sync()
    file.write_at(512, b"later")
    other = inner.after_kill()
    file.forget()
    assert content(directory, "a") == bytes(512) + b"later"
    assert content(other, "a") == b"abc" + bytes(509) + b"later"
    file.write_at(0, b"again")
    file.sync()
    directory.sync()
    assert content(inner.after_power_cut([]), "a") == b"again" + bytes(507) + b"later"


def test_the_plan_can_be_exchanged() -> None:
    directory = faulty(ever_after(1, FULL))
    with pytest.raises(DiskFull):
        directory.create("x")
    directory.plan = None
    directory.create("x")


def test_it_raises_what_the_real_disk_raises(tmp_path: Path) -> None:
    """A simulated full device raises the same error and remedy as a real one."""
    directory = FaultyDirectory(RealDirectory(str(tmp_path)), once(2, FULL))
    with pytest.raises(DiskFull) as planned:
        directory.create("a").write_at(0, b"x")
    with pytest.raises(DiskFull) as real:
        RealDirectory("/dev").open("full", writable=True).write_at(0, b"x")
    assert planned.value.remedy == real.value.remedy
    assert planned.value.place == str(tmp_path / "a")
    assert "No space left on device" in planned.value.reason
    assert "No space left on device" in real.value.reason
