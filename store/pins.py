"""What of the log is needed: by slot, the bytes of live records, and the records that end others still in the log.

A slot is *needed* while it holds a live record, or one that ends a record in another slot of the log: were the ending
forgotten first, recovery would take the other for live. A copy made by relocation ends the original likewise.

What is let go is counted down only once the record that says so is durable: `fallen` gives it out to be held back.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ..journal.record import HEAD_BYTES


class Pins:
    """The account of a log's slots. One thread at a time."""

    def __init__(self, container_bytes: int) -> None:
        self.live: dict[int, int] = {}
        """Slot to the bytes of live records in it, as of what is durable."""
        self.live_bytes = 0
        """The sum."""
        self.ends: dict[int, dict[int, int]] = {}
        """Slot to the other slots it holds ends of records in, and about how many."""
        self.superseded: dict[int, set[int]] = {}
        """Slot to the slots it holds copies of records from."""
        self.changed_ends: set[int] = set()
        """Slots whose ends changed since the last checkpoint looked."""
        self._ended_in: dict[int, set[int]] = {}  # the other way round
        self._fallen: dict[int, int] = {}
        self._container_bytes = container_bytes

    # ---- as records are appended ----------------------------------------------------------------------------------

    def hold(self, lsn: int, size_bytes: int) -> None:
        """There is a live record at *lsn*, or several of so many bytes in its slot."""
        slot = lsn // self._container_bytes
        self.live[slot] = self.live.get(slot, 0) + size_bytes
        self.live_bytes += size_bytes

    def let_go(self, lsn: int, size_bytes: int) -> None:
        """The record at *lsn* is live no more, by a record that is not durable yet."""
        slot = lsn // self._container_bytes
        self._fallen[slot] = self._fallen.get(slot, 0) + size_bytes

    def end(self, lsn: int, ended_lsn: int) -> None:
        """The record at *lsn* ends what the one at *ended_lsn* said."""
        slot, ended = lsn // self._container_bytes, ended_lsn // self._container_bytes
        if slot != ended:
            self._add_end(slot, ended, 1)

    def end_once(self, lsn: int, ended_lsn: int) -> None:
        """The same of a record that ends many: each slot that it ends some in counts for one."""
        slot, ended = lsn // self._container_bytes, ended_lsn // self._container_bytes
        if slot != ended and ended not in self.ends.get(slot, ()):
            self._add_end(slot, ended, 1)

    def end_whole(self, lsn: int, ended_lsn: int, size_bytes: int) -> None:
        """The record at *lsn* ends the one at *ended_lsn*, which is then live no more: `end` and `let_go`."""
        slot, ended = lsn // self._container_bytes, ended_lsn // self._container_bytes
        fallen = self._fallen
        fallen[ended] = fallen.get(ended, 0) + size_bytes
        if slot != ended:
            ends = self.ends.get(slot)
            if ends is not None and ended in ends:
                ends[ended] += 1
            else:
                self._add_end(slot, ended, 1)

    def end_run(self, slot: int, ended: int, count: int, size_bytes: int) -> None:
        """The same for so many records in *slot* that end records in the slot *ended*, of so many bytes together."""
        self._fallen[ended] = self._fallen.get(ended, 0) + size_bytes
        if slot != ended:
            self._add_end(slot, ended, count)

    def end_all(self, lsn: int, ended_lsns: npt.NDArray[np.uint64]) -> None:
        """The same for several records in the slot of *lsn*."""
        slot = lsn // self._container_bytes
        found, counts = np.unique(ended_lsns // np.uint64(self._container_bytes), return_counts=True)
        for ended, count in zip(found.tolist(), counts.tolist(), strict=True):
            if slot != ended:
                self._add_end(slot, ended, count)

    def supersede(self, lsn: int, source_lsn: int) -> None:
        """The record at *lsn* is a copy of the one at *source_lsn* and takes its place."""
        self.end(lsn, source_lsn)
        slot, source = lsn // self._container_bytes, source_lsn // self._container_bytes
        self.superseded.setdefault(slot, set()).add(source)

    def supersede_all(self, lsn: int, sources: npt.NDArray[np.uint64]) -> None:
        """The same for several records in the slot of *lsn*."""
        self.end_all(lsn, sources)
        slots = np.unique(sources // np.uint64(self._container_bytes)).tolist()
        self.superseded.setdefault(lsn // self._container_bytes, set()).update(slots)

    def _add_end(self, slot: int, ended: int, count: int) -> None:
        ends = self.ends.get(slot)
        if ends is None:
            ends = self.ends[slot] = {}
        if ended in ends:
            ends[ended] += count
        else:
            ends[ended] = count
            self.changed_ends.add(slot)
            self._ended_in.setdefault(ended, set()).add(slot)

    # ---- as they become durable -----------------------------------------------------------------------------------

    def fallen(self) -> dict[int, int]:
        """Slot to bytes of what was let go since the last call: for `drop`, when what says so is durable."""
        fallen, self._fallen = self._fallen, {}
        return fallen

    def drop(self, fallen: dict[int, int]) -> None:
        for slot, size_bytes in fallen.items():
            left = self.live[slot] - size_bytes
            self.live_bytes -= size_bytes
            if left:
                self.live[slot] = left
            else:
                del self.live[slot]

    def is_needed(self, slot: int) -> bool:
        return slot in self.live or slot in self.ends

    def cost(self, slot: int) -> int:
        """How many bytes relocation has to copy out of *slot*."""
        ends = self.ends.get(slot)
        return self.live.get(slot, 0) + (HEAD_BYTES * sum(ends.values()) if ends else 0)

    def retired(self, slots: Iterable[int]) -> list[int]:
        """*slots* are no longer part of the log; the slots that perhaps are not needed any more because of that."""
        perhaps: set[int] = set()
        for slot in slots:
            self.forget_ends(slot)
            self.superseded.pop(slot, None)
            for other in self._ended_in.pop(slot, ()):
                self.changed_ends.add(other)
                ends = self.ends[other]
                del ends[slot]
                if not ends:
                    del self.ends[other]
                    perhaps.add(other)
        return sorted(perhaps)

    def forget_ends(self, slot: int) -> None:
        """Other records say again what the ones in *slot* say of others."""
        for ended in self.ends.pop(slot, ()):
            self.changed_ends.add(slot)
            self._ended_in[ended].discard(slot)

    def restore_ends(self, slot: int, ends: dict[int, int], superseded: set[int]) -> None:
        """Put back what a checkpoint knows of *slot*."""
        for ended, count in ends.items():
            self._add_end(slot, ended, count)
        if superseded:
            self.superseded[slot] = superseded

    def begin(self, slots: Iterable[int], records: Iterable[tuple[int, int]]) -> None:
        """Recovery is through: the log is *slots*, and *records* (LSN and bytes) are what lives in it."""
        self._fallen = {}
        self.live = {}
        self.live_bytes = 0
        for lsn, size_bytes in records:
            self.hold(lsn, size_bytes)
        self.live = {slot: size_bytes for slot, size_bytes in self.live.items() if size_bytes}
        here = set(slots)
        self.retired({*self._ended_in, *self.ends} - here)
