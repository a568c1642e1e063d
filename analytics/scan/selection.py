"""Selections of records: ranges of LSNs and time, types, queues, messages. A criterion that is not given admits all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...base.errors import CairnError
from ...journal.format.record import RecordType, type_name
from ...store.contract.layout import id_in
from .number_sets import Flags, Longs, is_among
from .scanner import Window

_MOST_LSN = (1 << 63) - 1
_MOST_US = (1 << 64) - 1
_MOST_LISTED = 10
"""The maximum number of queues that an error names."""
TYPES = {type_name(kind): int(kind) for kind in RecordType}
"""The names of record types, to their numbers."""


@dataclass(frozen=True)
class Selection:
    """A selection of records. An empty tuple admits all."""

    start_lsn: int = 0
    end_lsn: int | None = None
    """The first LSN that is not meant."""
    start_us: int | None = None
    end_us: int | None = None
    """The first microsecond since 1970 that is not meant."""
    types: tuple[int, ...] = ()
    queue_ids: tuple[int, ...] = ()
    message_ids: tuple[int, ...] = ()

    @cached_property
    def ordered_ids(self) -> Longs:
        """The message ids, ascending."""
        return np.sort(np.array([one for one in self.message_ids if one <= _MOST_LSN], np.int64))

    @property
    def is_range(self) -> bool:
        """Return whether nothing but the range of LSNs selects."""
        has_times = self.start_us is not None or self.end_us is not None
        return not (self.types or self.queue_ids or self.message_ids or has_times)

    def overlaps(self, first_lsn: int, end_lsn: int) -> bool:
        """Return whether the range of LSNs has a part in common with that from *first_lsn* to before *end_lsn*."""
        return end_lsn > self.start_lsn and (self.end_lsn is None or first_lsn < self.end_lsn)

    def chosen(self, table: Window) -> Longs | None:
        """The numbers of the records of *table* that are selected; None for all."""
        found: Longs | None = None
        if self.start_lsn > table.lsn or (self.end_lsn is not None and self.end_lsn < table.end_lsn):
            end_lsn = table.end_lsn if self.end_lsn is None else self.end_lsn
            found = np.arange(*np.searchsorted(table.lsns, (min(self.start_lsn, _MOST_LSN), min(end_lsn, _MOST_LSN))))
        for field, is_selected in self._tests():
            values = table.heads[field] if found is None else table.heads[field][found]
            those = np.flatnonzero(is_selected(values))
            found = those if found is None else found[those]
        return found

    def _tests(self) -> Iterator[tuple[str, Callable[[npt.NDArray[Any]], Flags]]]:
        """Fields of the head, each with the test of its values."""
        if self.types:
            yield "type", lambda values: np.isin(values, np.array(self.types, np.uint8))
        if self.queue_ids:
            yield "queue_id", lambda values: np.isin(values, np.array(self.queue_ids, np.uint64))
        if self.message_ids:
            yield "message_id", lambda values: is_among(values.view(np.int64), self.ordered_ids)
        if self.start_us is not None:
            start_us = np.uint64(min(max(self.start_us, 0), _MOST_US))
            yield "time_us", lambda values: values >= start_us
        if self.end_us is not None:
            end_us = np.uint64(min(max(self.end_us, 0), _MOST_US))
            yield "time_us", lambda values: values < end_us


_RANGE = ("start", "end")
_TAKEN: dict[str, tuple[str, ...]] = {
    "records": (*_RANGE, "types", "queues"), "messages": (*_RANGE, "queues"), "places": (*_RANGE, "queues"),
    "orphan_records": (*_RANGE, "queues"), "live_set": (*_RANGE, "queues"), "transactions": _RANGE,
    "containers": _RANGE, "queues": ("end", "queues"), "wiring": (),
}  # fmt: skip
"""The criteria of a selection that each view applies."""
_REMEDIES = {
    "queues": "leave it out; the views messages and places take a range",
    "wiring": "leave it out: the wiring has no history",
    "transactions": "leave it out; the views places and records take queues",
    "containers": "leave it out; the views records and live_set take queues",
}


def refusal(view: str, criterion: str) -> tuple[str, str] | None:
    """The reason and the remedy if *view* can't apply *criterion* (start, end, types or queues); None if it can."""
    if criterion in _TAKEN[view]:
        return None
    reason = f"the view {view} can't be selected by it"
    if view == "queues" and criterion == "start":
        reason = "the view queues counts everything up to one point in time, and has no beginning"
    elif view == "wiring":
        reason = "the view wiring is what SQL holds now"
    return reason, _REMEDIES.get(view, "leave it out, or use the view records")


def check_selection(view: str, selection: Selection) -> None:
    """Raises `CairnError` for a criterion that *view* does not apply: no view ignores one."""
    given = {
        "start": selection.start_lsn or selection.start_us is not None,
        "end": selection.end_lsn is not None or selection.end_us is not None,
        "types": selection.types, "queues": selection.queue_ids,
    }  # fmt: skip
    for criterion, is_given in given.items():
        found = refusal(view, criterion) if is_given else None
        if found is not None:
            raise CairnError(f"selection by {criterion}", *found)


def types_named(names: list[str]) -> tuple[int, ...]:
    """The numbers of record types by their names. Raises `CairnError` for a name that there is not."""
    for name in names:
        if name not in TYPES:
            raise CairnError(f"type {name!r}", "unknown record type", f"one of {', '.join(TYPES)}")
    return tuple(TYPES[name] for name in names)


def queue_ids_named(wanted: Iterable[str], names: Mapping[int, str], place: str) -> tuple[int, ...]:
    """The ids of the queues that *wanted* gives by name or by id, ascending; a name takes precedence.

    *names*: id to name. Raises `CairnError` for one that is neither, *place* with `{}` for the queue.
    """
    ids = {name: number for number, name in names.items()}
    found = set()
    for queue in wanted:
        number = ids.get(queue, id_in(queue))
        if number is None:
            own_last = sorted(ids, key=lambda name: (name.startswith("$"), name))
            listed = ", ".join(own_last[:_MOST_LISTED]) + (", ..." if len(ids) > _MOST_LISTED else "")
            remedy = f"known are {listed}; or give its number" if ids else "no names are known here; give its number"
            raise CairnError(place.format(queue), "no queue has this name", remedy)
        found.add(number)
    return tuple(sorted(found))
