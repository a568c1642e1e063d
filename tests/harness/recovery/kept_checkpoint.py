"""The checkpoint in the exploration: the one that a crash may leave, and those that other causes may leave.

A commit is atomic and durable when it returns, so a crash leaves the newest checkpoint. But the checkpoint is a cache,
and recovery must not depend on it: one that is missing, stale, corrupt or of another log must do no harm either.

    (nothing)  the newest
    s3         the one after commit number 3
    none       no checkpoint
    r5         the newest, with a bit flipped in entry number 5
    other      the newest, with the UUID of another log
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from cairnmq.store.checkpoint import checkpoint
from cairnmq.store.checkpoint.checkpoint import Meta
from cairnmq.store.checkpoint.checkpoint_file import BadCheckpoint, Entry, sealed
from tests.harness.checkpoints import MemoryCheckpoint

Entries = dict[bytes, bytes]
NEWEST = ""


class WatchedCheckpoint(MemoryCheckpoint):
    """A checkpoint file in memory that reports its commits, as moments of a world."""

    def __init__(self, kept: Kept | None = None) -> None:
        super().__init__()
        if kept is not None:
            self.entries, self.commits = kept.entries, list(kept.commits)
        self.on_commit: Callable[[str], None] = lambda what: None

    def commit(self, changes: Mapping[bytes, bytes | None], last: Callable[[int], Entry], *, clear: bool) -> None:
        super().commit(changes, last, clear=clear)
        self.on_commit("commit of a checkpoint")

    def kept(self) -> Kept:
        return Kept(self.entries, tuple(self.commits))


class Kept(NamedTuple):
    """The entries of the checkpoint at a moment, and those after each commit."""

    entries: Entries | None
    commits: tuple[Entries, ...]

    def drawn(self, rng: random.Random) -> str:
        """Return the name of a checkpoint that may be left: usually the newest."""
        if not self.commits or rng.random() < 0.7:
            return NEWEST
        newest = len(self.commits) - 1
        stale = f"s{newest - min(newest, int(rng.expovariate(0.3)))}"  # the log continues behind the late ones only
        if self.entries is None:
            return stale
        return rng.choice((stale, stale, "none", "other", f"r{rng.randrange(len(self.entries))}"))

    def named(self, name: str) -> Kept:
        """Return this state with the checkpoint called *name*."""
        if name == NEWEST:
            return self
        entries = self.entries
        if name == "none":
            entries = None
        elif name == "other":
            assert entries is not None
            entries = of_another_log(entries)
        elif name.startswith("s"):
            entries = self.commits[int(name[1:])]
        elif name.startswith("r"):
            assert entries is not None
            key = sorted(entries)[int(name[1:])]
            entries = flipped(entries, key, len(entries[key]) // 2, 1)
        return self._replace(entries=entries)

    def fingerprint(self) -> int:
        return hash(None if self.entries is None else frozenset(self.entries.items()))


NOTHING = Kept(None, ())
"""The store has no checkpoint."""


def flipped(entries: Entries, key: bytes, at: int, bit: int) -> Entries:
    value = bytearray(entries[key])
    value[at] ^= 1 << bit
    return entries | {key: bytes(value)}


def of_another_log(entries: Entries) -> Entries:
    rest = dict(entries)
    try:
        meta: Meta = checkpoint.meta_of(rest)
    except BadCheckpoint:
        return entries  # already corrupt
    meta.log_uuid = UUID(int=meta.log_uuid.int ^ 1)
    return rest | {checkpoint.META: sealed(checkpoint.META, meta.encode(len(rest)))}
