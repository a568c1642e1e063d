"""The quarantine: what could not be salvaged, byte for byte, and the report that says what it is.

quarantine/report.json                      see docs/explanation/recovery.md; written last
quarantine/lsn-FIRST-END.raw                the bytes of a gap in the log, as they stand in its container
quarantine/message-ID.content               what is left of a message that is not whole, or of which no queue is known
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ...base.disk.real import RealDirectory
from ...recovery.damage_survey import Survey
from .salvage_report import SalvageReport

QUARANTINE_NAME = "quarantine"
REPORT_NAME = "report.json"
_PIECE_BYTES = 4 << 20


class Quarantine:
    """A directory that is being filled. `close` completes it."""

    def __init__(self, path: str, report: SalvageReport) -> None:
        self._directory = RealDirectory(path, create=True)
        self._report = report

    def keep_gaps(self, survey: Survey) -> None:
        for gap in survey.gaps:
            first, end = gap.finding.first_lsn, gap.finding.end_lsn
            if not gap.finding.place:
                continue
            pieces = (survey.read(at, min(at + _PIECE_BYTES, end)) for at in range(first, end, _PIECE_BYTES))
            self.keep(f"lsn-{first}-{end}.raw", pieces, f"LSN {first} to {end} of {gap.finding.place}")

    def keep(self, name: str, pieces: Iterable[bytes], what: str) -> None:
        """Write *pieces* to a file, none if they are empty."""
        file = None
        at = 0
        try:
            for piece in filter(None, pieces):
                file = file or self._directory.create(name)
                file.write_at(at, piece)
                at += len(piece)
            if file is not None:
                file.sync()
                self._report.files[name] = what
        finally:
            if file is not None:
                file.close()

    def close(self, report: str) -> None:
        self.keep(REPORT_NAME, [report.encode()], "the report")
        self._directory.sync()


def is_complete(path: str) -> bool:
    """Return whether the salvage that filled the quarantine at *path* got to its end."""
    return os.path.isfile(os.path.join(path, REPORT_NAME))
