"""The checkpoint in the exploration: which one a crash may leave, and which one anybody else may.

A commit is atomic and durable when it returns, so a crash leaves the newest one. But the checkpoint is a cache, and
what is shown must not depend on it: so one that is missing, stale, rotten or of another life must do no harm either.

    (nothing)  the newest
    s3         the one after the commit number 3
    none       there is none
    r5         the newest, with a bit flipped in the entry number 5
    other      it says that it is of another log
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
    """One whose commits are moments of a world."""

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
    """What is there at a moment, and what was there after each commit."""

    entries: Entries | None
    commits: tuple[Entries, ...]

    def drawn(self, rng: random.Random) -> str:
        """The name of one that may be there: nearly always the newest."""
        if not self.commits or rng.random() < 0.7:
            return NEWEST
        newest = len(self.commits) - 1
        stale = f"s{newest - min(newest, int(rng.expovariate(0.3)))}"  # the log goes on behind the late ones only
        if self.entries is None:
            return stale
        return rng.choice((stale, stale, "none", "other", f"r{rng.randrange(len(self.entries))}"))

    def named(self, name: str) -> Kept:
        """What is there if it is the one of that name."""
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
        return entries  # it is rotten already
    meta.log_uuid = UUID(int=meta.log_uuid.int ^ 1)
    return rest | {checkpoint.META: sealed(checkpoint.META, meta.encode(len(rest)))}
