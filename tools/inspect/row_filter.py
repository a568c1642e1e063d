"""The records of a dump: a selection, types with their flags, and messages, also those that an acquisition lists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ...analytics.scan.number_sets import Longs, is_among
from ...analytics.scan.scanner import Window
from ...analytics.scan.selection import Selection
from ...base.errors import CairnError
from ...journal.format.block import BLOCK_HEAD_BYTES, Block
from ...journal.format.record import HEAD, HEAD_BYTES, RecordHead, RecordType, type_name
from .lines import Cache, Row, acquired_in, label_of_kind


@dataclass
class RowFilter:
    """Chooses the rows of blocks. An empty set admits all."""

    selection: Selection = Selection()
    """Ranges, queues and messages. A message selects the acquisitions that list it, too."""
    labels: frozenset[str] = frozenset()
    """Types as `lines.label` gives them. A part names a fused type too: `enqueue` selects `start+enqueue` as well."""

    def __post_init__(self) -> None:
        self._head_selection = replace(self.selection, message_ids=())
        self._kinds = Cache(self._admits_kind)

    @property
    def is_range(self) -> bool:
        """Return whether the filter restricts only the range of LSNs."""
        return self.selection.is_range and not self.labels

    def within(self, from_lsn: int, end_lsn: int | None) -> RowFilter:
        """Return a copy with another range of LSNs."""
        return RowFilter(replace(self.selection, start_lsn=from_lsn, end_lsn=end_lsn), self.labels)

    def rows(self, block: Block) -> list[Row]:
        """The records of *block* that are selected."""
        count = block.head.records
        lsns = range(block.record_lsn(0), block.record_lsn(count), HEAD_BYTES)
        chosen = self._head_selection.chosen(_window(block))
        if self.selection.message_ids:
            chosen = self._about_messages(block, chosen)
        heads: Iterable[tuple[int, ...]]
        if chosen is None:
            heads = HEAD.iter_unpack(block.body[: count * HEAD_BYTES])
            rows: list[Row] = list(zip(lsns, heads, strict=True))
        else:
            body = block.body
            rows = [(lsns[number], HEAD.unpack_from(body, number * HEAD_BYTES)) for number in chosen.tolist()]
        if self.labels:
            rows = [row for row in rows if self._kinds[row[1][0] | row[1][1] << 8]]
        return rows

    def _about_messages(self, block: Block, chosen: Longs | None) -> Longs:
        """Return those of the *chosen* records (None: of all) that concern a selected message, or list one."""
        heads = block.table() if chosen is None else block.table()[chosen]
        is_about = is_among(heads["message_id"].view(np.int64), self.selection.ordered_ids)
        for number in np.flatnonzero((heads["type"] == RecordType.ACQUIRE) & ~is_about).tolist():
            found = acquired_in(block, RecordHead._make(heads[number].tolist()))
            is_about[number] = found is not None and not set(self.selection.message_ids).isdisjoint(found.message_ids)
        those = np.flatnonzero(is_about)
        return those if chosen is None else chosen[those]

    def _admits_kind(self, kind: int) -> bool:
        name = label_of_kind(kind)
        return name in self.labels or not self.labels.isdisjoint(name.split("+"))


def _window(block: Block) -> Window:
    """The record heads of *block*, not copied."""
    body, counts = np.frombuffer(block.body, np.uint8), np.array([block.head.records])
    incarnations, end_lsn = np.array([block.head.incarnation]), block.record_lsn(block.head.records)
    return Window(body, block.lsn + BLOCK_HEAD_BYTES, np.array([block.lsn]), counts, incarnations, end_lsn)


def checked_types(names: Iterable[str]) -> frozenset[str]:
    """The names as given; `CairnError` for one that no record can have."""
    known = {type_name(number) for number in RecordType}
    chosen = frozenset(name.lower() for name in names)
    for name in sorted(chosen):
        first = name.split("+")[0]
        number = first.removeprefix("type-")
        if first not in known and not (number.isdecimal() and number != first):
            raise CairnError(f"--type {name}", "no such record type", f"there are {', '.join(sorted(known))}")
    return chosen
