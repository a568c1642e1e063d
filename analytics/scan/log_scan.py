"""Scans of the pieces of a log, wherever their containers are by the time they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...base.errors import CorruptJournal
from ...journal.format.record import Flag
from .files import Log, LogPiece, find_again
from .scanner import Damaged, Heads, Reclaimed, Scanner, Window, no_payloads
from .selection import Selection


@dataclass(frozen=True, kw_only=True)
class ScanOptions:
    """Handling of damage, and of containers that are reclaimed during a scan."""

    verify: bool = False
    """Check the checksum of each block."""
    permissive: bool = False
    """Skip unreadable ranges, and count them; otherwise `CorruptJournal` is raised."""
    lose: bool = False
    """Skip ranges that are reclaimed while they are read; otherwise `Reclaimed` is raised."""


def scanner_of(log: Log, how: ScanOptions, needs_payloads: Callable[[Heads], bool]) -> Scanner:
    """The scanner for `scan_piece`; *needs_payloads* as `Scanner` takes it."""
    return Scanner(log.container_bytes, log.log_id, needs_payloads, verify=how.verify)


def scan_piece(log: Log, piece: LogPiece, how: ScanOptions, scanner: Scanner) -> Iterator[Window | Damaged]:
    """Scan *piece*, wherever its container is by now."""
    at = 0
    for _ in range(3):
        try:
            for found in scanner.scan(piece, at):
                if isinstance(found, Damaged) and not how.permissive:
                    raise CorruptJournal(
                        found.path, f"LSN {found.first_lsn} to {found.end_lsn} can't be read ({found.reason})",
                        "read it with mode=PERMISSIVE to leave that out; `cairnmq dump` shows the readable part",
                        found.first_lsn, found.end_lsn,
                    )  # fmt: skip
                yield found
                at = found.end_lsn
            return
        except Reclaimed as error:
            again = find_again(log, piece.slot_lsn)
            if again is None:
                if how.lose:
                    return
                raise Reclaimed(piece.path, error.lsn) from error
            last = piece.last_lsn or again.last_lsn
            piece = replace(again, last_lsn=last, end_lsn=piece.end_lsn, reach_lsn=piece.reach_lsn)
    raise Reclaimed(piece.path, at or piece.slot_lsn)


def first_original(log: Log, selection: Selection, how: ScanOptions) -> int | None:
    """Return the LSN of the first record of *selection* that is not a copy; None without one."""
    scanner = scanner_of(log, how, no_payloads)
    for piece in log.between(selection.start_lsn, log.durable_lsn):
        for window in scan_piece(log, piece, how, scanner):
            if isinstance(window, Damaged):
                continue
            chosen = selection.chosen(window)
            heads, lsns = (window.heads, window.lsns) if chosen is None else (window.heads[chosen], window.lsns[chosen])
            originals = np.flatnonzero(heads["flags"] & Flag.MOVED == 0)
            if len(originals):
                return int(lsns[originals[0]])
    return None


def first_lsn_since(log: Log, time_us: int, how: ScanOptions) -> int | None:
    """Return the LSN of the first record, except copies, of that time or later; None without one.

    The records of a container were appended before the next container was begun, so few containers are read.
    """
    begun = [piece.slot_lsn for piece in log.pieces if 0 < piece.begun_us < time_us]
    return first_original(log, Selection(max(begun, default=log.first_lsn), start_us=time_us), how)
