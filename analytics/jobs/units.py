"""Sizes, durations and axes of them as people read them."""

from __future__ import annotations

import math
from typing import NamedTuple

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DURATIONS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_ROUND_S = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 86_400, 864_000, 8_640_000, 86_400_000)
_MOST_TICKS = 6


class Ticks(NamedTuple):
    """Values on an axis, and their texts."""

    values: list[float]
    texts: list[str]


def size_text(size_bytes: float) -> str:
    """Bytes in the largest unit of which there is at least one."""
    number, unit = float(size_bytes), 0
    while round(abs(number), 1 if unit else 0) >= 1024 and unit < len(_SIZES) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.{min(unit, 1)}f}".removesuffix(".0") + f" {_SIZES[unit]}"


def duration_text(seconds: float) -> str:
    """A duration in its two largest units; below a second in milliseconds or microseconds."""
    if seconds < 0:
        return f"-{duration_text(-seconds)}"
    if seconds < 60:
        seconds = float(f"{seconds:.3g}")  # before the unit is chosen: 0.9999 s is 1 s, and not 1e+03 ms
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us" if seconds else "0 s"
    if seconds < 60:
        return f"{seconds:.3g} s"
    left, reported = round(seconds), []
    for unit, size in _DURATIONS:
        if left >= size:
            reported.append(f"{left // size} {unit}")
            left %= size
        elif reported:
            break
    return " ".join(reported[:2])


def size_ticks(most: float, least: float = 0) -> Ticks:
    """Return the ticks of a linear axis from 0 to *most*; or of a logarithmic one from *least*, if that is above 0."""
    if least > 0:
        first, last = math.floor(math.log2(least) / 5), math.ceil(math.log2(max(most, least)) / 5)
        stride = -(-(last - first + 1) // _MOST_TICKS)
        values = [2.0 ** (5 * power) for power in range(first, last + 1, stride)]
    else:
        step = 2.0 ** max(0, math.ceil(math.log2(max(most, 1) / _MOST_TICKS)))
        values = [step * number for number in range(_MOST_TICKS + 1) if step * number <= most * 1.1]
    return Ticks(values, [size_text(value) for value in values])


def duration_ticks(least_s: float, most_s: float) -> Ticks:
    """Return the ticks of a logarithmic axis of durations."""
    values = [one for one in _ROUND_S if least_s / 10 <= one <= most_s * 10]
    return Ticks(values, [duration_text(one) for one in values])
