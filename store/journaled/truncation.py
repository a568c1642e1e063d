"""Description of an incomplete history, which tools and readers add to every answer over such a log."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.times import time_text

_REMEDY = "use --archive-dir to keep them"


def truncation_words(first_lsn: int, begun_us: int, reclaimed: Sequence[tuple[int, int]]) -> str:
    """Return a description of the missing parts of a history; empty if it is complete.

    *first_lsn*: the start of the history, and *begun_us* its time, 0 if unknown. *reclaimed*: the missing ranges behind
    it.
    """
    if not first_lsn and not reclaimed:
        return ""
    size = sum(end - first for first, end in reclaimed)
    if not first_lsn:
        return (
            f"history has gaps: {size} bytes between LSN {reclaimed[0][0]} and {reclaimed[-1][1]} were reclaimed; "
            f"records there are missing; {_REMEDY}"
        )
    when = f" ({time_text(begun_us, timespec='seconds')})" if begun_us else ""
    gaps = f", and {size} bytes behind that are missing" if size else ""
    return f"history begins at LSN {first_lsn}{when}{gaps}; earlier records were reclaimed; {_REMEDY}"

