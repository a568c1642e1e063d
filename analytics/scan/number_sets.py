"""Sets and groups of integers, most of which are sorted already, for joins of the columns of tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def is_in(values: Longs, some: Longs) -> Flags:
    """Return whether each of *values* is among *some*: by sorting, as numpy's hashing takes ten times as long."""
    return is_among(values, some if is_ascending(some) else np.sort(some))


def is_among(values: Longs, ordered: Longs) -> Flags:
    """Return whether each of *values* is among the ascending numbers *ordered*, which are sorted once."""
    if not len(ordered) or not len(values):
        return np.zeros(len(values), bool)
    found: Flags = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return found


def is_ascending(values: Longs, *, strictly: bool = False) -> bool:
    """Return whether the values are sorted: most tables are, and the check takes a hundredth of the time of sorting."""
    later, earlier = values[1:], values[:-1]
    return bool((later > earlier if strictly else later >= earlier).all())


def unique(values: Longs) -> Longs:
    """Each once, ascending; likewise."""
    if is_ascending(values, strictly=True):
        return values
    ordered = np.sort(values)
    return ordered[np.r_[True, ordered[1:] != ordered[:-1]]] if len(ordered) else ordered


def last_of_each(*keys: Longs) -> Longs:
    """The numbers of the last of each group of equal keys, the groups in the order of these."""
    return _each(keys, last=True)


def first_of_each(*keys: Longs) -> Longs:
    """The numbers of the first of each group of equal keys, the groups in the order of these."""
    return _each(keys, last=False)


def _each(keys: tuple[Longs, ...], *, last: bool) -> Longs:
    if is_ascending(keys[0], strictly=True):
        return np.arange(len(keys[0]), dtype=np.int64)
    order = np.lexsort(keys[::-1])
    differs = np.zeros(len(order) + 1, bool)
    differs[[0, -1]] = True
    for key in keys:
        differs[1:-1] |= key[order][1:] != key[order][:-1]
    return order[differs[1:] if last else differs[:-1]]
