"""A moment as a person names it: an LSN, a time, so long ago, or the end of the log."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ...base.errors import CairnError
from ...base.times import time_text

_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REMEDY = "give an LSN, a time like 2026-05-17T12:30:00Z, an age like 10m or 2h, or `end`"


class PointInTime(NamedTuple):
    """An LSN, or a time in microseconds since 1970; the end of the log if it is neither."""

    text: str
    lsn: int | None = None
    time_us: int | None = None


def parse_point_in_time(text: str, now_us: int) -> PointInTime:
    """Parse a time; without an offset it is UTC, as in the output of the tools. Raises `CairnError` for invalid text.
    """
    if text == "end":
        return PointInTime(text)
    if re.fullmatch(r"\d{1,20}", text, re.ASCII):
        if int(text) >= 1 << 64:
            raise CairnError(text, "no LSN is so high", _REMEDY)
        return PointInTime(text, lsn=int(text))
    age = re.fullmatch(r"(\d{1,9})([smhdw])", text, re.ASCII)
    if age is not None:
        return PointInTime(text, time_us=now_us - int(age[1]) * _AGES[age[2]] * 1_000_000)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise CairnError(text, "invalid point in time", _REMEDY) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return PointInTime(text, time_us=(time - _EPOCH) // timedelta(microseconds=1))


def time_of(text: str, now_us: int) -> int:
    """A time or an age in microseconds since 1970. Raises `CairnError` for an LSN, and for anything else."""
    moment = parse_point_in_time(text, now_us)
    if moment.time_us is None:
        raise CairnError(text, "invalid time", "give a time like 2026-05-17T12:30:00Z, or an age like 10m or 2h")
    return moment.time_us


def check_order(place: str, first: int | None, second: int | None) -> None:
    """Compare two LSNs or two times, which *place* names; None is no bound. Raises `CairnError` for the wrong order."""
    if first is not None and second is not None and second < first:
        raise CairnError(place, "the second point in time is before the first", "exchange them")


def time_words(time_us: int) -> str:
    """RFC 3339 with microseconds; the number where no calendar reaches."""
    return time_text(time_us)
