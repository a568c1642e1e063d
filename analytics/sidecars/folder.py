"""The directory of a log's sidecars: which there are, which stand for several, how many may stay.

A log of a terabyte has a million containers, so sidecars are *compacted*: sixteen that follow one another become one,
sixteen of these again one, up to a size. The new one is complete before the old ones go. After a crash between the two
both are there, and the longer one counts.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from uuid import UUID

from ...base.disk.real import RealDirectory
from ...base.errors import CairnError, ForeignStore
from .sidecar import HALF, HELD, SUFFIX, Sidecar, Torn, merge, read

NAME = "sidecars"
"""The name of the directory in the store."""
TOGETHER = 16
"""The number of sidecars that are merged into one."""
MOST_BYTES = 64 << 20
"""A file that would be longer than this is not made of others."""


HELD_S = 3600.0
"""The time for which a merged sidecar is kept for readers that have opened it."""


class Folder:
    """The directory of sidecars. One process at a time may change it; any may read."""

    def __init__(self, path: str, log_uuid: UUID | None, *, create: bool = False, passes_others: bool = False) -> None:
        """Look at what is there. Raises `ForeignStore` if sidecars of another log than *log_uuid* are.

        Without that they may be of any log, but of one. *passes_others*: they are remarks.
        """
        self.path = path
        self.sidecars: list[Sidecar] = []
        """The valid sidecars in the order of LSNs."""
        self.remarks: list[str] = []
        """The descriptions of files that can't be used."""
        self._surplus: list[str] = []
        if create:
            RealDirectory(path, create=True)
        elif not os.path.isdir(path):
            return
        found = []
        for name in sorted(os.listdir(path)):
            file = os.path.join(path, name)
            if name.endswith(SUFFIX + HALF):
                self._surplus.append(file)
            if not name.endswith(SUFFIX):
                continue
            try:
                sidecar = read(file)
            except CairnError as error:
                if os.path.exists(file):  # else it was compacted since
                    self.remarks.append(str(error))
                    self._surplus += [file] * isinstance(error, Torn)
                continue
            log_uuid = log_uuid or UUID(sidecar.log_uuid)
            if sidecar.log_uuid != log_uuid.hex:
                other = ForeignStore(file, f"a sidecar of another log, {sidecar.log_uuid}", "name another directory")
                if not passes_others:
                    raise other
                self.remarks.append(str(other))
                continue
            found.append(sidecar)
        end_lsn = 0
        for sidecar in sorted(found, key=lambda one: (one.first_lsn, -one.end_lsn)):
            if sidecar.end_lsn <= end_lsn:
                self._surplus.append(sidecar.path)
                continue
            self.sidecars.append(sidecar)
            end_lsn = sidecar.end_lsn

    @property
    def containers(self) -> set[int]:
        """The LSNs of the first bytes of all containers that there is a sidecar of."""
        return {summary.container for sidecar in self.sidecars for summary in sidecar.summaries}

    @property
    def size_bytes(self) -> int:
        return sum(sidecar.size_bytes for sidecar in self.sidecars)

    # ---- for the process that keeps it -----------------------------------------------------------------------------

    def tidy(self) -> None:
        """Remove the temporary files of a crash."""
        for path in self._surplus:
            _remove(path)
        self._surplus = []

    def add(self, sidecar: Sidecar) -> None:
        """Add a new sidecar, which may be older than others."""
        self.sidecars.append(sidecar)
        self.sidecars.sort(key=lambda one: one.first_lsn)

    def compact(self) -> bool:
        """Make one file of sixteen, if there are such; whether there were."""
        run: list[Sidecar] = []
        for sidecar in self.sidecars:
            if run and _size(run[0]) != _size(sidecar):
                run = []
            run.append(sidecar)
            if len(run) == TOGETHER and sum(one.size_bytes for one in run) <= MOST_BYTES:
                merged = merge(run, self.path)
                self.sidecars = [one for one in self.sidecars if one not in run]
                self.add(merged)
                for part in run:
                    _remove(part.path)
                return True
            if len(run) == TOGETHER:
                run = run[1:]
        return False

    def limit(self, most_bytes: int) -> list[Sidecar]:
        """Remove the oldest sidecars until at most *most_bytes* are left; return the removed ones."""
        removed = []
        while self.sidecars and self.size_bytes > most_bytes:
            oldest = self.sidecars.pop(0)
            _remove(oldest.path)
            removed.append(oldest)
        return removed

    def let_go(self) -> None:
        """Remove the second names of sidecars that were merged long ago."""
        names = {os.path.basename(one.path) for one in self.sidecars}
        with suppress(OSError), os.scandir(os.path.join(self.path, HELD)) as held:
            for one in held:  # its ctime is when it lost the first name
                if one.name not in names and time.time() - one.stat().st_ctime > HELD_S:
                    _remove(one.path)


def _size(sidecar: Sidecar) -> int:
    """The number of times that sixteen files became one in it."""
    size = 0
    while len(sidecar.summaries) >= TOGETHER ** (size + 1):
        size += 1
    return size


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
