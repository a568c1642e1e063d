"""Which records are meant: a range of LSNs, times, types, queues, messages; what is not given admits all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..base.errors import CairnError
from ..journal.block import BLOCK_HEAD_BYTES, Block
from ..journal.record import HEAD, HEAD_BYTES, RecordType, type_name
from .lines import Cache, Row, acquired_in, label_of_kind

_QUEUES_LISTED = 10
_TIME = 10
"""Which field of a head that is."""


@dataclass
class Selection:
    """An empty set admits all."""

    from_lsn: int = 0
    end_lsn: int | None = None
    """The first LSN that is not meant."""
    types: frozenset[str] = frozenset()
    """Names as `lines.label` gives them. One part names a fused type too: `enqueue` means `start+enqueue` as well."""
    queue_ids: frozenset[int] = frozenset()
    message_ids: frozenset[int] = frozenset()
    since_us: int | None = None
    until_us: int | None = None
    """Records of times from the one to the other, both included; a relocated one has the time of what it copies."""
    _kinds: Cache[int, bool] = field(init=False)

    def __post_init__(self) -> None:
        self._kinds = Cache(self._admits_kind)

    @property
    def all_in_range(self) -> bool:
        """Whether nothing but the range selects."""
        times = self.since_us is not None or self.until_us is not None
        return not (self.types or self.queue_ids or self.message_ids or times)

    def overlaps(self, first_lsn: int, end_lsn: int) -> bool:
        return end_lsn > self.from_lsn and (self.end_lsn is None or first_lsn < self.end_lsn)

    def rows(self, block: Block) -> list[Row]:
        """The records of *block* that are meant."""
        count = block.head.records
        first = block.head.lsn + BLOCK_HEAD_BYTES
        end = first + count * HEAD_BYTES
        rows: list[Row] = list(
            zip(range(first, end, HEAD_BYTES), HEAD.iter_unpack(block.body[: count * HEAD_BYTES]), strict=True)
        )
        if first < self.from_lsn or (self.end_lsn is not None and end > self.end_lsn):
            rows = [row for row in rows if self.overlaps(row[0], row[0] + 1)]
        if self.since_us is not None:
            rows = [row for row in rows if row[1][_TIME] >= self.since_us]
        if self.until_us is not None:
            rows = [row for row in rows if row[1][_TIME] <= self.until_us]
        if self.queue_ids:
            rows = [row for row in rows if row[1][8] in self.queue_ids]
        if self.message_ids:
            rows = [row for row in rows if row[1][7] in self.message_ids or self._hands_out(block, row)]
        if self.types:
            rows = [row for row in rows if self._kinds[row[1][0] | row[1][1] << 8]]
        return rows

    def _hands_out(self, block: Block, row: Row) -> bool:
        """Whether it says who was handed one of the messages."""
        type, place, size, extra = row[1][0], row[1][3], row[1][4], row[1][11]
        found = acquired_in(block, place, size, extra) if type == RecordType.ACQUIRE else None
        return found is not None and not self.message_ids.isdisjoint(found.message_ids)

    def _admits_kind(self, kind: int) -> bool:
        name = label_of_kind(kind)
        return name in self.types or not self.types.isdisjoint(name.split("+"))


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


def queue_ids(wanted: Iterable[str], names: dict[int, str]) -> frozenset[int]:
    """The ids of the queues that *wanted* gives by name or by number; a name goes before a number."""
    ids = {name: number for number, name in names.items()}
    found = set()
    for queue in wanted:
        if queue in ids:
            found.add(ids[queue])
        elif queue.isdecimal():
            found.add(int(queue))
        else:
            listed = ", ".join(sorted(ids)[:_QUEUES_LISTED]) + (", ..." if len(ids) > _QUEUES_LISTED else "")
            remedy = f"known are {listed}; or give its number" if ids else "no names are known here; give its number"
            raise CairnError(f"--queue {queue}", "no queue has this name", remedy)
    return frozenset(found)
