"""The live set of a log, and orphans: records of messages without a beginning. Both follow from lifetimes.

Jobs could join these out of records, messages and places; that takes Spark thirty times as long as numpy.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...journal.format.record import HEAD_BYTES, Flag, RecordType
from ..lifetimes.lifetimes import HOW, STATES, Lifetimes, states_of
from ..lifetimes.record_tables import RecordTables, content_records
from ..scan.number_sets import Flags, Longs, first_of_each, is_in, last_of_each, unique
from .records import SCHEMA as RECORDS
from .records import Names, names_of_types, times
from .views import nullable

LIVE_SET = pa.schema([
    ("container", pa.int64()), ("records", pa.int64()), ("bytes", pa.int64()), ("messages", pa.int64()),
    ("queue_ids", pa.list_(pa.int64())),
])  # fmt: skip
"""The columns of the live set: per container, the records of messages that are on queues or in doubt.

A container has one row for each range of messages that is read at once; sum over all rows of a container.

records    that hold these messages now: of copies the newest
bytes      of these, with their heads of 64 bytes
messages   of which they are
queue_ids  the queues that these messages are on
"""
ORPHANS = pa.schema(
    [
        RECORDS.field(name)
        for name in ("lsn", "type", "flags", "moved", "message_id", "txn_id", "queue_id", "queue", "time", "extra")
    ]
)
"""The enqueue, dequeue and delete records of messages that have no Start record, as the view `records` has them."""
_ALIVE = (STATES.index("queued"), STATES.index("in doubt"))
_ON_QUEUE = HOW.index(None)


def live_set_table(
    facts: RecordTables, lifetimes: Lifetimes, chosen: Flags, end_lsn: int, container_bytes: int
) -> pa.Table:
    """The view `live_set`, of those messages in *lifetimes* that are *chosen*, as of *end_lsn*."""
    alive = lifetimes.messages.id[chosen & np.isin(states_of(lifetimes).state, _ALIVE)]
    facts = facts.where((facts.lsn < end_lsn) & is_in(facts.message_id, alive))
    stays = np.flatnonzero((lifetimes.places.how == _ON_QUEUE) & is_in(lifetimes.places.message_id, alive))
    on_message, on_queue = lifetimes.places.message_id[stays], lifetimes.places.queue_id[stays]
    puts = _given(facts.of_type(RecordType.ENQUEUE), on_message, on_queue, lifetimes.places.position[stays])
    some = [content_records(facts), puts]
    lsns = np.concatenate([one.lsn for one in some])
    message_ids = np.concatenate([one.message_id for one in some])
    sizes = np.concatenate([one.size for one in some]).astype(np.int64) + HEAD_BYTES
    containers = lsns - lsns % container_bytes
    ids = unique(containers)
    whose = np.searchsorted(ids, containers)
    size = np.zeros(len(ids), np.int64)
    np.add.at(size, whose, sizes)
    once = first_of_each(message_ids, containers)
    of_containers, of_messages = whose[once], message_ids[once]
    queue_ids, offsets = _queues(of_containers, of_messages, on_message, on_queue, len(ids))
    arrays = [
        pa.array(ids), pa.array(np.bincount(whose, minlength=len(ids))), pa.array(size),
        pa.array(np.bincount(of_containers, minlength=len(ids))),
        pa.ListArray.from_arrays(pa.array(offsets), pa.array(queue_ids)),
    ]  # fmt: skip
    return pa.Table.from_arrays(arrays, schema=LIVE_SET)


def _given(puts: RecordTables, message_ids: Longs, queue_ids: Longs, positions: Longs) -> RecordTables:
    """Return the newest record that adds each of these places, except Start records."""
    puts = puts.where(~puts.has(Flag.PREPARED))
    if not len(puts.lsn):
        return puts
    many = len(message_ids)
    given = np.where(puts.extra != 0, puts.extra, puts.lsn)
    keys = tuple(
        np.concatenate(pair)
        for pair in ((message_ids, puts.message_id), (queue_ids, puts.queue_id), (positions, given))
    )
    last = last_of_each(*keys)  # a place stands before the records that give it, and these in the order of LSNs
    first = first_of_each(*keys)
    return puts.at(np.sort(last[(first < many) & (last >= many)] - many))


def _queues(
    containers: Longs, message_ids: Longs, on_message: Longs, on_queue: Longs, count: int
) -> tuple[Longs, npt.NDArray[np.int32]]:
    """For each of *count* containers the different queues that its messages are on, and where those of each begin.

    *on_message*, *on_queue*: which messages are on which queues, in the order of messages.
    """
    first, end = (np.searchsorted(on_message, message_ids, side) for side in ("left", "right"))
    many = end - first
    at = np.repeat(first - (np.cumsum(many) - many), many) + np.arange(int(many.sum()))
    whose, queue_ids = np.repeat(containers, many), on_queue[at]
    if len(whose):  # most consecutive ones are equal
        new = np.r_[True, (whose[1:] != whose[:-1]) | (queue_ids[1:] != queue_ids[:-1])]
        whose, queue_ids = whose[new], queue_ids[new]
    once = first_of_each(whose, queue_ids)
    return queue_ids[once], np.searchsorted(whose[once], np.arange(count + 1)).astype(np.int32)


def orphans_table(
    facts: RecordTables, lifetimes: Lifetimes, chosen: Flags, end_lsn: int, names: Mapping[int, str]
) -> pa.Table:
    """The view `orphan_records`, of those *facts* that are *chosen*, as of *end_lsn*."""
    is_kind = np.isin(facts.type, (int(RecordType.ENQUEUE), int(RecordType.DEQUEUE), int(RecordType.DELETE)))
    some = facts.where(chosen & is_kind & (facts.lsn < end_lsn) & ~is_in(facts.message_id, lifetimes.messages.id))
    arrays = [
        pa.array(some.lsn), names_of_types(some.type), pa.array(some.flags.astype(np.int32)),
        pa.array(some.has(Flag.MOVED)),
        *(nullable(values, values == 0) for values in (some.message_id, some.txn_id, some.queue_id)),
        Names(names).of(some.queue_id), times(some.time_us), nullable(some.extra, some.extra == 0),
    ]  # fmt: skip
    return pa.Table.from_arrays(arrays, schema=ORPHANS)
