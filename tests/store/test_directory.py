"""Tests of the store directory: one process locks it, its files are the owner's, other directories are unchanged."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cairnmq.base.clock import SystemClock
from cairnmq.base.errors import CairnError, DiskError, ForeignStore, StoreInUse
from cairnmq.recovery.recover import open_store
from cairnmq.store import open_store as open_library
from cairnmq.store.journaled.directory import StoreDirectory


def tree(path: Path) -> dict[str, bytes | None]:
    """Return the bytes of every file, and None for directories."""
    return {str(found.relative_to(path)): None if found.is_dir() else found.read_bytes() for found in path.rglob("*")}


def test_a_second_lock_is_refused_and_names_the_process(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    first = StoreDirectory(path)
    with pytest.raises(StoreInUse, match=re.escape(f"{path}: another program has it open (process {os.getpid()})")):
        StoreDirectory(path)
    first.close()
    first.close()
    StoreDirectory(path).close()


def test_another_process_is_named(tmp_path: Path) -> None:
    """The error names the process that holds the lock, and a kill of that process releases it."""
    path = str(tmp_path / "store")
    code = f"""
import os
from cairnmq.store import open_store as open_library
from cairnmq.store.journaled.directory import StoreDirectory
held = StoreDirectory({path!r})
print("held", flush=True)
input()
os.kill(os.getpid(), 9)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "held\n"
        before = tree(Path(path))
        with pytest.raises(StoreInUse, match=rf"\(process {process.pid}\)"):
            open_store(path, SystemClock())
        assert tree(Path(path)) == before
        process.stdin.write("\n")
        process.stdin.flush()
        process.wait()
    StoreDirectory(path).close()


@pytest.mark.parametrize("names", [["precious.txt"], ["data/x"], ["lock", "other"], ["journal/x", "precious.txt"]])
def test_a_foreign_directory_is_refused_and_untouched(tmp_path: Path, names: list[str]) -> None:
    path = tmp_path / "data"
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"precious")
    before, mode = tree(path), os.stat(path).st_mode
    with pytest.raises(ForeignStore, match="not a CairnMQ store, and not empty"):
        open_store(str(path), SystemClock())
    assert (tree(path), os.stat(path).st_mode) == (before, mode)


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    store, report = open_store(str(tmp_path), SystemClock())
    assert report.created
    store.close()
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "journal", "lock", "wiring.sqlite"]


def test_a_store_with_files_of_somebody_else_in_it_is_a_store(tmp_path: Path) -> None:
    open_store(str(tmp_path), SystemClock())[0].close()
    (tmp_path / "README").write_text("mine")
    open_store(str(tmp_path), SystemClock())[0].close()
    assert (tmp_path / "README").read_text() == "mine"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_are_the_owners_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store, _ = open_store(str(tmp_path / "store"), SystemClock())
        rows: list[object] = []
        store.create_queue("q", rows.append)
        store.put(1, b"content", 1)
        store.close()
    finally:
        os.umask(before)
    modes = {
        str(found.relative_to(tmp_path)): (found.is_dir(), stat.S_IMODE(found.stat().st_mode))
        for found in tmp_path.rglob("*")
    }
    assert len(modes) >= 6
    assert {mode for is_directory, mode in modes.values() if is_directory} == {0o700}
    assert {mode for is_directory, mode in modes.values() if not is_directory} == {0o600}


def test_a_place_that_can_not_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DiskError):
        StoreDirectory(str(tmp_path / "file"))
    with pytest.raises(DiskError):
        StoreDirectory(str(tmp_path / "file" / "store"))
    with pytest.raises(CairnError):
        StoreDirectory("/proc/nothing")


def test_a_store_that_failed_to_open_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "wiring.sqlite").write_bytes(b"garbage" * 1000)
    for _ in range(2):
        with pytest.raises(ForeignStore):
            open_store(str(tmp_path), SystemClock())


@pytest.mark.parametrize("kind", ["journal", "sql"])
def test_logins_that_are_left_of_a_store_do_not_refuse_a_new_one(tmp_path: Path, kind: str) -> None:
    """An operator who removes the contents of a store may leave the file of its broker."""
    (tmp_path / "trusted-logins").write_bytes(b"")
    open_library(str(tmp_path), kind).close()
