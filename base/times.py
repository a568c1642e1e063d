"""Times as text, also those that no calendar has: clients and damaged files may hold any number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

LEAST_US, MOST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond of the years 1 to 9999, UTC, since 1970."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(time_us: int, *, timespec: str = "microseconds") -> str:
    """Return a time in microseconds since 1970 in the format of RFC 3339, or `@` and the number in other years."""
    if not LEAST_US <= time_us <= MOST_US:
        return f"@{time_us}"
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec=timespec).replace("+00:00", "Z")
