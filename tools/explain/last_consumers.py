"""The last consumers of messages, where a broker records acquisitions (`store.acquisitions`).

The log does not record that a message was requeued: the consumer in the result may still hold the message, or may have
released it. A broker that starts dispatches all messages again, so earlier acquisitions do not count.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from ...journal.format.block import ACQUISITIONS, Block
from ...journal.format.record import RecordType
from ..history.heads_only import HeadsReader
from ..inspect.journal_check import Progress, byte_counter
from ..inspect.lines import acquired_in
from .overview import StoreOverview

_ABOUT_CONSUMERS = (RecordType.LOG_OPEN, RecordType.ACQUIRE)


class LastConsumer(NamedTuple):
    """A consumer that was handed a message."""

    container: str
    """The container id of its client."""
    link: str
    lsn: int
    time_us: int


def last_consumers(
    overview: StoreOverview, message_ids: Collection[int], progress: Progress
) -> dict[int, LastConsumer]:
    """Return the last consumer of each message that was acquired since the broker started.

    Empty, without reading the log, if the newest block shows that acquisitions are not recorded.
    """
    slots, size = overview.reader.slots, overview.reader.container_bytes
    if not message_ids or not slots or not overview.flags & ACQUISITIONS:
        return {}
    found: dict[int, LastConsumer] = {}
    wanted = set(message_ids)
    reader = HeadsReader(overview.reader.directory, known=overview.reader.heads, also=(RecordType.ACQUIRE,))
    add = byte_counter("looking for consumers", len(slots) * size, progress)
    for block in reader.scan(min(wanted)):
        if not isinstance(block, Block):
            continue
        add(block.end_lsn - block.lsn)
        chosen = np.flatnonzero(np.isin(block.table()["type"], _ABOUT_CONSUMERS))
        heads = block.heads() if len(chosen) else []
        for number in chosen.tolist():
            head = heads[number]
            if head.type == RecordType.LOG_OPEN:
                found.clear()
                continue
            if (taken := acquired_in(block, head)) is not None:
                taker = LastConsumer(taken.container, taken.link, block.record_lsn(number), head.time_us)
                found |= dict.fromkeys(wanted.intersection(taken.message_ids), taker)
    return found
