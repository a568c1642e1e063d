"""Tests of the lock on a store: nothing an operator does to the files of a running program leads to two writers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cairnmq.base.errors import CairnError, StoreInUse
from cairnmq.store import open_store

DEADLINE_S = 120.0
KINDS = ["journal", "sql"]
WRITER = """
import sys
from cairnmq.store import open_store
store = open_store(sys.argv[1], sys.argv[2])
queue, number = store.queue("q"), 0
try:
    while True:
        queue.put(b"%d" % number).result()
        print(number, flush=True)
        number += 1
except Exception as error:
    print("stopped:", type(error).__name__, error, flush=True)
"""
PARENT = """
import os, sys, time
from cairnmq.store import open_store
store = open_store(sys.argv[1], sys.argv[2])
store.queue("q").put(b"0").result()
child = os.fork()
if not child:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
os.kill(os.getpid(), 9)
"""


class Writer:
    """A program that stores messages until it can't."""

    def __init__(self, store: Path, kind: str) -> None:
        command = [sys.executable, "-c", WRITER, str(store), kind]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.confirmed: set[bytes] = set()
        self.end = ""
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                if line.strip().isdecimal():
                    self.confirmed.add(line.strip().encode())
                else:
                    self.end += line
                self._changed.notify_all()

    def wait_for_more(self) -> None:
        with self._changed:
            target = len(self.confirmed) + 20
            assert self._changed.wait_for(lambda: len(self.confirmed) >= target or self.end, DEADLINE_S)
            assert not self.end, self.end

    def wait_for_end(self) -> str:
        self.process.wait(DEADLINE_S)
        self._thread.join()
        return self.end


@contextmanager
def writing(store: Path, kind: str) -> Iterator[Writer]:
    writer = Writer(store, kind)
    try:
        writer.wait_for_more()
        yield writer
    finally:
        writer.process.send_signal(signal.SIGCONT)
        writer.process.kill()
        writer.wait_for_end()


def content(store: Path, kind: str) -> set[bytes]:
    with open_store(str(store), kind) as opened:
        return set(opened.queue("q").peek())


def move(path: Path) -> None:
    path.rename(path.with_suffix(".aside"))


def swap(path: Path) -> None:
    """Move a file aside, and put a copy in its place."""
    move(path)
    shutil.copy2(path.with_suffix(".aside"), path)


def move_back(path: Path) -> None:
    path.with_suffix(".aside").replace(path)


def nothing(store: Path) -> None:
    """The store has all of its content."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("action", "repair"), [
    (lambda store: (store / "lock").unlink(), nothing),
    (lambda store: swap(store / "lock"), nothing),
    (lambda store: (store / "lock").rename(store / "stale-lock"), nothing),
    (lambda store: swap(contents(store)), lambda store: move_back(contents(store))),
    (lambda store: move(contents(store)), lambda store: move_back(contents(store))),
], ids=["rm lock", "mv, cp lock", "mv lock", "mv, cp contents", "mv contents"])  # fmt: skip
def test_writer_stops_when_a_file_of_the_lock_is_not_in_its_place(
    tmp_path: Path, kind: str, action: Callable[[Path], object], repair: Callable[[Path], object]
) -> None:
    """S1. Nobody else gets the store before, and all that was confirmed is there after."""
    store = tmp_path / "store"
    with writing(store, kind) as writer:
        writer.process.send_signal(signal.SIGSTOP)  # the store is not free while its program can't notice anything
        action(store)
        with pytest.raises(CairnError):
            open_store(str(store), kind)
        writer.process.send_signal(signal.SIGCONT)
        assert "removed" in writer.wait_for_end()
        repair(store)
        assert writer.confirmed <= content(store, kind)


def contents(store: Path) -> Path:
    """Return the file that the writer would go on writing to."""
    return store / "journal" / "log.mark" if (store / "journal").exists() else store / "store.sqlite"


def test_writer_stops_when_the_wiring_was_replaced(tmp_path: Path) -> None:
    """S1. The queues that are created from then on would not exist after the next start."""
    store = tmp_path / "store"
    with writing(store, "journal") as writer:
        swap(store / "wiring.sqlite")
        assert "wiring.sqlite: it was removed" in writer.wait_for_end()
        assert writer.confirmed <= content(store, "journal")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["moved and copied back", "moved", "removed"])
def test_a_store_that_took_the_place_of_another_has_one_writer(tmp_path: Path, kind: str, how: str) -> None:
    """S1. The old program may not even be able to run meanwhile."""
    store, aside = tmp_path / "store", tmp_path / "aside"
    with writing(store, kind) as writer:
        writer.process.send_signal(signal.SIGSTOP)
        if how == "removed":
            shutil.rmtree(store)
        else:
            store.rename(aside)
        if how == "moved and copied back":
            shutil.copytree(aside, store)
        with open_store(str(store), kind) as opened:
            before = set(opened.queue("q").peek())
            for number in range(50):
                opened.queue("q").put(b"new %d" % number).result()
            writer.process.send_signal(signal.SIGCONT)
            assert "removed" in writer.wait_for_end()
            for number in range(50, 100):
                opened.queue("q").put(b"new %d" % number).result()
        assert content(store, kind) == before | {b"new %d" % number for number in range(100)}
        if how != "removed":
            assert writer.confirmed <= content(aside, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hard_linked_copy_is_the_same_store(tmp_path: Path, kind: str) -> None:
    """S1. Two programs would write to the same files, even with a lock file for each."""
    store, copy = tmp_path / "store", tmp_path / "copy"
    with writing(store, kind) as writer:
        writer.process.send_signal(signal.SIGSTOP)
        subprocess.run(["cp", "-al", str(store), str(copy)], check=True)
        writer.process.send_signal(signal.SIGCONT)
        for _ in range(2):
            with pytest.raises(StoreInUse):
                open_store(str(copy), kind)
            (copy / "lock").unlink(missing_ok=True)
        writer.wait_for_more()


@pytest.mark.parametrize("kind", KINDS)
def test_a_child_does_not_keep_the_store_of_its_dead_parent(tmp_path: Path, kind: str) -> None:
    """T5."""
    store = tmp_path / "store"
    command = [sys.executable, "-c", PARENT, str(store), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.wait(DEADLINE_S)
        os.kill(child, 0)
        assert content(store, kind) == {b"0"}
