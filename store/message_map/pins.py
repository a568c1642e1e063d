"""Accounts for the parts of the log that are needed: per slot, the bytes of live records, and the tombstones.

A *tombstone* ends a record in another slot of the log. A slot is needed while it holds a live record or a tombstone:
without the tombstone, recovery would take the ended record for live. A copy that relocation makes is a tombstone of the
original.

A record that is ended is counted down only when the record that ends it is durable: `take_pending` returns such bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ...journal.format.record import HEAD_BYTES


class Pins:
    """The account of a log's slots. One thread at a time."""

    def __init__(self, container_bytes: int) -> None:
        self.live: dict[int, int] = {}
        """Slot to the bytes of live records in it, according to durable records."""
        self.live_bytes = 0
        """The sum."""
        self.tombstones: dict[int, dict[int, int]] = {}
        """Slot to the other slots that it holds tombstones of, with about how many."""
        self.superseded: dict[int, set[int]] = {}
        """Slot to the slots it holds copies of records from."""
        self.changed_tombstones: set[int] = set()
        """Slots whose tombstones changed since the last checkpoint looked."""
        self.pending: dict[int, int] = {}
        """Slot to the bytes released since the last call of `take_pending`."""
        self._ended_in: dict[int, set[int]] = {}  # the other way round
        self._container_bytes = container_bytes

    # ---- as records are appended ----------------------------------------------------------------------------------

    def hold(self, lsn: int, size_bytes: int) -> None:
        """Note a live record at *lsn*, or several in its slot, of *size_bytes* in total."""
        slot = lsn // self._container_bytes
        self.live[slot] = self.live.get(slot, 0) + size_bytes
        self.live_bytes += size_bytes

    def release(self, lsn: int, size_bytes: int) -> None:
        """Note that the record at *lsn* was ended, by a record that is not durable yet."""
        slot = lsn // self._container_bytes
        self.pending[slot] = self.pending.get(slot, 0) + size_bytes

    def end(self, lsn: int, ended_lsn: int) -> None:
        """Note that the record at *lsn* ends the one at *ended_lsn*."""
        slot, ended = lsn // self._container_bytes, ended_lsn // self._container_bytes
        if slot != ended:
            self._add_end(slot, ended, 1)

    def end_once(self, lsn: int, ended_lsn: int) -> None:
        """Note that the record at *lsn*, which may end many, ends the one at *ended_lsn*: each slot counts once."""
        slot, ended = lsn // self._container_bytes, ended_lsn // self._container_bytes
        if slot != ended and ended not in self.tombstones.get(slot, ()):
            self._add_end(slot, ended, 1)

    def release_ended(self, lsn: int, ended_lsn: int, size_bytes: int) -> None:
        """Note that the record at *lsn* ends and releases the one at *ended_lsn*: `end` and `release` in one call."""
        slot, ended = lsn // self._container_bytes, ended_lsn // self._container_bytes
        released = self.pending
        released[ended] = released.get(ended, 0) + size_bytes
        if slot != ended:
            ends = self.tombstones.get(slot)
            if ends is not None and ended in ends:
                ends[ended] += 1
            else:
                self._add_end(slot, ended, 1)

    def end_run(self, slot: int, ended: int, count: int, size_bytes: int) -> None:
        """Note *count* records in *slot* that end and release *size_bytes* of records in the slot *ended*."""
        self.pending[ended] = self.pending.get(ended, 0) + size_bytes
        if slot != ended:
            self._add_end(slot, ended, count)

    def end_all(self, lsn: int, ended_lsns: npt.NDArray[np.uint64]) -> None:
        """Note that records in the slot of *lsn* end those at *ended_lsns*."""
        slot = lsn // self._container_bytes
        found, counts = np.unique(ended_lsns // np.uint64(self._container_bytes), return_counts=True)
        for ended, count in zip(found.tolist(), counts.tolist(), strict=True):
            if slot != ended:
                self._add_end(slot, ended, count)

    def supersede(self, lsn: int, source_lsn: int) -> None:
        """Note that the record at *lsn* is a copy of the one at *source_lsn* and replaces it."""
        self.end(lsn, source_lsn)
        slot, source = lsn // self._container_bytes, source_lsn // self._container_bytes
        self.superseded.setdefault(slot, set()).add(source)

    def supersede_all(self, lsn: int, sources: npt.NDArray[np.uint64]) -> None:
        """Note that records in the slot of *lsn* are copies that replace those at *sources*."""
        self.end_all(lsn, sources)
        slots = np.unique(sources // np.uint64(self._container_bytes)).tolist()
        self.superseded.setdefault(lsn // self._container_bytes, set()).update(slots)

    def _add_end(self, slot: int, ended: int, count: int) -> None:
        ends = self.tombstones.get(slot)
        if ends is None:
            ends = self.tombstones[slot] = {}
        if ended in ends:
            ends[ended] += count
        else:
            ends[ended] = count
            self.changed_tombstones.add(slot)
            self._ended_in.setdefault(ended, set()).add(slot)

    # ---- as they become durable -----------------------------------------------------------------------------------

    def take_pending(self) -> dict[int, int]:
        """Slot to the bytes released since the last call: for `drop`, when the releasing records are durable."""
        released, self.pending = self.pending, {}
        return released

    def drop(self, released: dict[int, int]) -> None:
        for slot, size_bytes in released.items():
            left = self.live[slot] - size_bytes
            self.live_bytes -= size_bytes
            if left:
                self.live[slot] = left
            else:
                del self.live[slot]

    def is_needed(self, slot: int) -> bool:
        return slot in self.live or slot in self.tombstones

    def cost(self, slot: int) -> int:
        """Return the bytes that compaction has to copy out of *slot*."""
        ends = self.tombstones.get(slot)
        return self.live.get(slot, 0) + (HEAD_BYTES * sum(ends.values()) if ends else 0)

    def retired(self, slots: Iterable[int]) -> list[int]:
        """*slots* are no longer part of the log; the slots that perhaps are not needed any more because of that."""
        perhaps: set[int] = set()
        for slot in slots:
            self.forget_ends(slot)
            self.superseded.pop(slot, None)
            for other in self._ended_in.pop(slot, ()):
                self.changed_tombstones.add(other)
                ends = self.tombstones[other]
                del ends[slot]
                if not ends:
                    del self.tombstones[other]
                    perhaps.add(other)
        return sorted(perhaps)

    def forget_ends(self, slot: int) -> None:
        """Remove the ends in *slot*: copies of its records repeat them."""
        for ended in self.tombstones.pop(slot, ()):
            self.changed_tombstones.add(slot)
            self._ended_in[ended].discard(slot)

    def restore_ends(self, slot: int, ends: dict[int, int], superseded: set[int]) -> None:
        """Restore the ends of *slot* from a checkpoint."""
        for ended, count in ends.items():
            self._add_end(slot, ended, count)
        if superseded:
            self.superseded[slot] = superseded

    def begin(self, slots: Iterable[int], records: Iterable[tuple[int, int]]) -> None:
        """End recovery: the log is *slots*, and *records* (LSN and bytes) are its live records."""
        self.pending = {}
        self.live = {}
        self.live_bytes = 0
        for lsn, size_bytes in records:
            self.hold(lsn, size_bytes)
        self.live = {slot: size_bytes for slot, size_bytes in self.live.items() if size_bytes}
        here = set(slots)
        self.retired({*self._ended_in, *self.tombstones} - here)
