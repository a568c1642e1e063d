"""The quarantine: bytes that could not be salvaged, unchanged, and the report that describes them.

quarantine/report.json                      see docs/explanation/recovery.md; written last
quarantine/lsn-FIRST-END.raw                the bytes of a gap in the log, as in its container
quarantine/message-ID.content               the remains of an incomplete message, or of one whose queue is unknown
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from ...base.disk.real import RealDirectory

QUARANTINE_NAME = "quarantine"
REPORT_NAME = "report.json"
_PIECE_BYTES = 4 << 20


class Quarantine:
    """A directory that is being filled. `close` completes it."""

    def __init__(self, path: str) -> None:
        self._directory = RealDirectory(path, create=True)
        self.files: dict[str, str] = {}
        """The names of the files that were written, to their descriptions."""

    def keep_range(self, first_lsn: int, end_lsn: int, place: str, read: Callable[[int, int], bytes]) -> None:
        """Write the bytes of a range that can't be read as blocks; *read* gives the raw bytes of a range."""
        pieces = (read(at, min(at + _PIECE_BYTES, end_lsn)) for at in range(first_lsn, end_lsn, _PIECE_BYTES))
        self.keep(f"lsn-{first_lsn}-{end_lsn}.raw", pieces, f"LSN {first_lsn} to {end_lsn} of {place}")

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
                self.files[name] = what
        finally:
            if file is not None:
                file.close()

    def close(self, report: str) -> None:
        self.keep(REPORT_NAME, [report.encode()], "the report")
        self._directory.sync()


def is_complete(path: str) -> bool:
    """Return whether the salvage that filled the quarantine at *path* got to its end."""
    return os.path.isfile(os.path.join(path, REPORT_NAME))
