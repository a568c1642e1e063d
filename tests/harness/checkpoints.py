"""A checkpoint file in memory, which can restore its content after each commit, and whose commits can fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cairnmq.store.checkpoint.checkpoint_file import BadCheckpoint, Entry


class MemoryCheckpoint:
    """A checkpoint whose commits are either durable at once or have no effect."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] | None = None
        self.commits: list[dict[bytes, bytes]] = []
        """The entries after each commit, oldest first."""
        self.fails = False

    def load(self) -> dict[bytes, bytes]:
        if self.entries is None:
            raise BadCheckpoint("there is none")
        return dict(self.entries)

    def commit(self, changes: Mapping[bytes, bytes | None], last: Callable[[int], Entry], *, clear: bool) -> None:
        if self.fails:
            raise BadCheckpoint("it can't be written (no space left)")
        entries = {} if clear or self.entries is None else dict(self.entries)
        for key, value in changes.items():
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value
        key, value = last(len(entries))
        entries[key] = value
        self.entries = entries
        self.commits.append(entries)

    def discard(self) -> None:
        self.entries = None
        self.commits.clear()
