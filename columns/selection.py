"""Which records are meant: ranges of LSNs and time, types, queues, messages. What is not given admits all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.errors import CairnError
from ..journal.record import Flag, RecordType, type_name
from .ordering import Flags, Longs, is_among
from .scanning import Window

TYPES = {type_name(kind): int(kind) for kind in RecordType}
"""What a record type is called, to its number."""


@dataclass(frozen=True)
class Selection:
    """An empty tuple admits all."""

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
        return np.sort(np.array(self.message_ids, np.int64))

    def chosen(self, window: Window) -> Longs | None:
        """The numbers of the records of *window* that are meant; None for all."""
        found: Longs | None = None
        if self.start_lsn > window.lsn or (self.end_lsn is not None and self.end_lsn < window.end_lsn):
            end_lsn = window.end_lsn if self.end_lsn is None else self.end_lsn
            found = np.arange(*np.searchsorted(window.lsns, (self.start_lsn, end_lsn)))
        for field, is_meant in self._tests():
            values = window.heads[field] if found is None else window.heads[field][found]
            those = np.flatnonzero(is_meant(values))
            found = those if found is None else found[those]
        return found

    def _tests(self) -> Iterator[tuple[str, Callable[[npt.NDArray[Any]], Flags]]]:
        """A field of the head, and what its values are to pass."""
        if self.types:
            yield "type", lambda values: np.isin(values, np.array(self.types, np.uint8))
        if self.queue_ids:
            yield "queue_id", lambda values: np.isin(values, np.array(self.queue_ids, np.uint64))
        if self.message_ids:
            yield "message_id", lambda values: is_among(values.view(np.int64), self.ordered_ids)
        if self.start_us is not None:
            start_us = np.uint64(max(self.start_us, 0))
            yield "time_us", lambda values: values >= start_us
        if self.end_us is not None:
            end_us = np.uint64(max(self.end_us, 0))
            yield "time_us", lambda values: values < end_us


def types_named(names: list[str]) -> tuple[int, ...]:
    """The numbers of record types by their names. Raises `CairnError` for a name that there is not."""
    for name in names:
        if name not in TYPES:
            raise CairnError(f"type {name!r}", "there is no such record type", f"one of {', '.join(TYPES)}")
    return tuple(TYPES[name] for name in names)


FLAGS = {"enqueue": Flag.ENQUEUE, "delete": Flag.DELETE, "more": Flag.MORE, "moved": Flag.MOVED,
         "prepared": Flag.PREPARED}  # fmt: skip
"""What a flag is called."""
