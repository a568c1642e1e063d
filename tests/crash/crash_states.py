"""Directories that a crash may leave, computed from a recording.

A kill preserves every change before it. A power cut preserves fewer:

* A prefix of the name changes (files created, renamed, removed), which includes those before a directory sync: file
  systems keep the order of such changes, but nothing is durable before the directory is synced.
* The synced content of a file, and any selection of the writes and truncations since then; of one write
  perhaps only its first sectors.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from .recording import Change, Kind

_NAMES = {Kind.CREATE, Kind.RENAME, Kind.UNLINK, Kind.MKDIR, Kind.RMDIR, Kind.LINK}
_SECTOR_BYTES = 512


class File:
    """A file: its synced content and the changes since the last sync."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.pending: list[Change] = []

    def apply(self, change: Change, keep_bytes: int | None = None) -> None:
        """Apply *change*; of a write, apply only the first *keep_bytes* if given."""
        if change.kind is Kind.TRUNCATE:
            del self.content[change.offset :]
            self.content.extend(bytes(change.offset - len(self.content)))
            return
        data = change.data[:keep_bytes]
        self.content.extend(bytes(max(0, change.offset + len(data) - len(self.content))))
        self.content[change.offset : change.offset + len(data)] = data


class State(NamedTuple):
    """Content of the disk after a crash."""

    label: str
    """The number of the change and the kind of crash, for messages of failures."""
    tree: dict[str, bytes | None]
    """Content by path relative to the root; None for a directory."""
    marks: list[str]
    """The points that the program had passed."""

    def write(self, root: Path) -> None:
        """Replace the directory *root* by the tree of this state."""
        if root.exists():
            shutil.rmtree(root)
        root.mkdir(mode=0o700)
        for path, content in sorted(self.tree.items()):
            if content is None:
                (root / path).mkdir(mode=0o700)
            else:
                descriptor = os.open(root / path, os.O_CREAT | os.O_WRONLY, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)


class Recorded:
    """A directory before a program ran, and the program's changes to it."""

    def __init__(self, root: Path) -> None:
        """Read the current content of *root*."""
        self._root = os.path.realpath(root)
        self._tree: dict[str, int | None] = {}
        self._contents: dict[int, bytes] = {}
        for place, directories, files in os.walk(self._root):
            for name in directories:
                self._tree[self._relative(os.path.join(place, name))] = None
            for name in files:
                path = os.path.join(place, name)
                inode = os.stat(path).st_ino
                self._tree[self._relative(path)] = inode
                self._contents[inode] = Path(path).read_bytes()

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._root)

    def kills(self, changes: Sequence[Change]) -> Iterator[State]:
        """Yield the states that a kill leaves, one for each change that makes a difference, and the last one."""
        for number in range(len(changes) + 1):
            if not number or changes[number - 1].kind not in (Kind.SYNC, Kind.SYNC_DIRECTORY, Kind.MARK):
                ends = number  # the marks after a change belong to it
                while ends < len(changes) and changes[ends].kind is Kind.MARK:
                    ends += 1
                yield self._state(changes[:ends], f"killed after change {number}", None)

    def power_cuts(self, changes: Sequence[Change], random: Random, samples: int) -> Iterator[State]:
        """Yield states that a power cut leaves after each change: the least that may survive, and random ones."""
        for number in range(1, len(changes) + 1):
            yield self._state(changes[:number], f"power cut after change {number}, least", Random(0), least=True)
            for sample in range(samples):
                seed = random.randrange(1 << 30)
                label = f"power cut after change {number}, sample {sample}, seed {seed}"
                yield self._state(changes[:number], label, Random(seed))

    def _state(self, changes: Sequence[Change], label: str, random: Random | None, *, least: bool = False) -> State:
        """Return the state after *changes*: all of them, or those that were synced and a selection by *random*."""
        names = [number for number, change in enumerate(changes) if change.kind in _NAMES]
        durable = max((n for n, change in enumerate(changes) if change.kind is Kind.SYNC_DIRECTORY), default=0)
        kept = len(changes)
        if random is not None:
            open_names = [number for number in names if number > durable]
            kept = open_names[0 if least else random.randrange(len(open_names))] if open_names else len(changes)
            if open_names and not least and random.random() < 0.3:
                kept = len(changes)
        tree = dict(self._tree)
        files = {inode: File(content) for inode, content in self._contents.items()}
        held: dict[str, File | None] = {path: None if i is None else files[i] for path, i in tree.items()}
        for number, change in enumerate(changes):
            if change.kind is Kind.CREATE:
                files[change.inode] = File()
            if change.kind in _NAMES and number < kept:
                self._rename(held, files, change)
            elif change.kind in (Kind.WRITE, Kind.TRUNCATE):
                if random is None:
                    files[change.inode].apply(change)
                else:
                    files[change.inode].pending.append(change)
            elif change.kind is Kind.SYNC and random is not None:
                file = files[change.inode]
                for waiting in file.pending:
                    file.apply(waiting)
                file.pending.clear()
        if random is not None and not least:
            for file in files.values():
                for waiting in file.pending:
                    if random.random() < 0.5:
                        complete = random.random() < 0.7 or waiting.kind is Kind.TRUNCATE
                        sectors = -(-len(waiting.data) // _SECTOR_BYTES)
                        file.apply(waiting, None if complete else _SECTOR_BYTES * random.randrange(sectors + 1))
        marks = [change.path for change in changes if change.kind is Kind.MARK]
        return State(label, {p: None if f is None else bytes(f.content) for p, f in held.items()}, marks)

    def _rename(self, held: dict[str, File | None], files: dict[int, File], change: Change) -> None:
        path = self._relative(change.path)
        if change.kind is Kind.CREATE:
            held[path] = files[change.inode]
        elif change.kind is Kind.MKDIR:
            held[path] = None
        elif change.kind in (Kind.UNLINK, Kind.RMDIR):
            held.pop(path, None)
        else:
            new = self._relative(change.data.decode())
            if change.kind is Kind.LINK:
                held[new] = held[path]
                return
            for name in [name for name in held if name == new or name.startswith(new + "/")]:
                del held[name]
            for name in [name for name in held if name == path or name.startswith(path + "/")]:
                held[new + name.removeprefix(path)] = held.pop(name)


def distinct(states: Iterator[State]) -> Iterator[State]:
    """Yield the states that differ from all earlier ones in content or marks."""
    seen = set()
    for state in states:
        key = hash((frozenset(state.tree.items()), tuple(state.marks)))
        if key not in seen:
            seen.add(key)
            yield state
