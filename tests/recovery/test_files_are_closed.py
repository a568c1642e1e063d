"""Tests that no file of a store stays open after its end or a failed start, so it can be unmounted or tried again."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from cairnmq.base.clock import SystemClock
from cairnmq.base.disk.real import RealDirectory, RealFile
from cairnmq.base.errors import CairnError, DiskError
from cairnmq.journal.write.open import MIN_CONTAINER_BYTES
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.store import JournalStore
from tests.harness.store.stores import queue

OPTIONS = StoreOptions(container_bytes=MIN_CONTAINER_BYTES)


def open_below(place: Path) -> list[str]:
    """Return the files below *place* that this process has open."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(name for name in names if name.startswith(str(place)))


class Fail:
    """A patch that fails the *number*th call that changes the disk, and all later ones; syncs are skipped."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.calls = 0
        self._number = number
        for owner, names in ((RealFile, ("write_at", "sync")), (RealDirectory, ("create", "rename", "sync"))):
            for name in names:
                self._wrap(patch, owner, name)

    def _wrap(self, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        real = getattr(owner, name)

        def call(file: object, *args: object) -> object:
            self.calls += 1
            if self.calls >= self._number:
                raise DiskError(name, "Input/output error")
            return None if name == "sync" else real(file, *args)

        patch.setattr(owner, name, call)


def opened(path: Path) -> JournalStore:
    return open_store(str(path), SystemClock(), OPTIONS)[0]


def use(path: Path) -> None:
    """Open the store, leave an incomplete message, complete ones and a second container, and close it."""
    store = opened(path)
    try:
        q = queue(store)
        store.stage(b"half", 1)
        for _ in range(10):
            store.put(q, bytes(60_000), 1)
            store.kick()
    finally:
        store.close()


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "old"])
def test_an_error_at_any_call_leaves_nothing_open(is_new: bool, tmp_path: Path) -> None:
    used = tmp_path / "used"
    use(used)
    for number in range(1, 200):
        place = tmp_path / str(number)
        if not is_new:
            shutil.copytree(used, place)
        with pytest.MonkeyPatch.context() as patch:
            fail = Fail(patch, number)
            with suppress(CairnError):
                use(place)
            assert open_below(place) == []
            if fail.calls < number:
                break
    assert number > 20


def test_a_store_that_is_refused_is_not_held_open(tmp_path: Path) -> None:
    use(tmp_path)
    (tmp_path / "journal" / "log.mark").write_bytes(bytes(8192))
    with pytest.raises(CairnError):
        opened(tmp_path)
    assert open_below(tmp_path) == []


def test_an_opening_tells_what_the_disk_said(tmp_path: Path) -> None:
    """At every call, the error is that of the disk, not the advice to restart a broker that does not run yet."""
    used = tmp_path / "used"
    use(used)
    told = []
    for number in range(1, 200):
        place = tmp_path / str(number)
        shutil.copytree(used, place)
        with pytest.MonkeyPatch.context() as patch:
            Fail(patch, number)
            try:
                store = opened(place)
            except CairnError as error:
                told.append(error)
                continue
        store.close()
        break
    assert len(told) > 5
    assert {type(error) for error in told} == {DiskError}
