"""Containers that are open for reading. A few stay open, and a file is closed only when its last reader releases it.

Threads: the owner's lock is held for every call, and not while a file is read.
"""

from __future__ import annotations

from collections import OrderedDict

from ...base.disk.seam import File

_KEEP = 32


class Reading:
    """A file that is open for reading. The last user to release it closes it."""

    __slots__ = ("file", "retired", "users")

    def __init__(self, file: File) -> None:
        self.file = file
        self.users = 0
        self.retired = False
        """True if the file may not be acquired again."""

    def retire(self) -> None:
        self.retired = True
        if not self.users:
            self.file.close()

    def let_go(self) -> None:
        self.users -= 1
        if self.retired and not self.users:
            self.file.close()


class OpenFiles:
    """The files that are kept open, by slot, the latest used last."""

    def __init__(self) -> None:
        self._readings: OrderedDict[int, Reading] = OrderedDict()

    def borrow(self, slot: int) -> Reading | None:
        """Return the file of *slot* if it is open; the caller releases it."""
        reading = self._readings.get(slot)
        if reading is not None:
            self._readings.move_to_end(slot)
            reading.users += 1
        return reading

    def lend(self, slot: int, file: File) -> Reading:
        """Keep *file*, which was opened for *slot*; as `borrow`. The one that was not used for longest goes."""
        reading = self._readings[slot] = Reading(file)
        reading.users = 1
        if len(self._readings) > _KEEP:
            self._readings.popitem(last=False)[1].retire()
        return reading

    def forget(self, slot: int) -> None:
        """Close the file of *slot*, whose container no longer holds it."""
        if slot in self._readings:
            self._readings.pop(slot).retire()

    def forget_all(self) -> None:
        for reading in self._readings.values():
            reading.retire()
        self._readings.clear()
