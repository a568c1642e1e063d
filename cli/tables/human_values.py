"""Values of attributes as people read them, by the unit in the name of the attribute."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from ...base.printable import printable, printable_json
from ...base.times import time_text

TIMES_MS = ("since", "due")
"""Attributes of times without a unit in their name, in milliseconds since 1970."""
_IDENTIFIERS = ("identity", "id", "number", "position", "node", "process", "incarnation", "port", "slot", "place")
_STATE_STYLES = {"full": "bold red", "no consumers": "yellow", "growing": "yellow", "paused": "cyan"}
_SIZE_NAMES = ("bytes", "size")
_UNITS_S = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6}


def human(name: str, value: Any) -> str:
    """Return the value of the attribute *name* for a table, with control characters escaped.

    Sizes, durations and times are read from the last word of the name: `held-bytes`, `idle-seconds`, `time-us`.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and math.isfinite(value):
        return _number(name.replace("_", "-"), value)
    if isinstance(value, Mapping):
        return ", ".join(f"{printable(str(key))}={human(str(key), one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(human(name, one) for one in value)
    return printable(str(value))


def style_of(name: str, value: Any) -> str:
    """Return the style in which a table shows the value of the attribute *name*; empty for most."""
    if name == "state":
        return _STATE_STYLES.get(str(value), "")
    return "bold red" if name == "alarms" and value else ""


def raw(value: Any) -> str:
    """Return a value as in JSON, texts without quotes; control characters are escaped."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) else printable_json(json.dumps(value, ensure_ascii=False))


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units."""
    from ...tools.inspect.format_text import age_text

    if 0 < abs(seconds) < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"-{age_text(-seconds)}" if seconds < 0 else age_text(seconds)


def _number(name: str, value: float) -> str:
    from ...tools.inspect.format_text import size_text

    last = name.rpartition("-")[2]
    if name in TIMES_MS:
        return time_text(int(value * 1000), timespec="seconds")
    if name.endswith("time-us"):
        return time_text(int(value), timespec="milliseconds")
    if last in _SIZE_NAMES:
        return size_text(value)
    if last in _UNITS_S:
        return duration_text(value * _UNITS_S[last])
    if name in _IDENTIFIERS or last in ("lsn", "id") or name == "version":
        return str(value)
    if last == "ratio":
        return f"{value:.0%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
