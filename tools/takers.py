"""Who was handed messages last, where a broker writes that down (`store.acquisitions`).

The log does not say that a message came back to its queue: who is named may have it still, or had it. A broker that
starts offers all of them again, so what stands before that counts no more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ..journal.block import ACQUISITIONS, Block
from ..journal.record import HEAD_BYTES, RecordType
from ..store.acquisitions import decode
from .checking import Progress
from .heads_only import HeadsReader
from .sight import Sight


class Taker(NamedTuple):
    """A consumer that was handed a message."""

    container: str
    """The container id of its client."""
    link: str
    lsn: int
    time_us: int


def last_takers(sight: Sight, message_ids: Collection[int], progress: Progress) -> dict[int, Taker]:
    """The last one of each message that has one since the broker started.

    Empty, and quickly so, if the newest block tells that acquisitions are not written down.
    """
    slots, size = sight.reader.slots, sight.container_bytes
    if not message_ids or not slots or not _are_written(sight):
        return {}
    found: dict[int, Taker] = {}
    wanted = set(message_ids)
    reader = HeadsReader(sight.reader.directory, known=sight.reader, also=(RecordType.ACQUIRE,))
    total, done = len(slots) * size, 0
    for block in reader.scan(min(wanted)):
        if not isinstance(block, Block):
            continue
        done += block.end_lsn - block.lsn
        progress("looking for consumers", min(done, total), total)
        kinds = bytes(block.body[: HEAD_BYTES * block.head.records : HEAD_BYTES])
        if RecordType.LOG_OPEN not in kinds and RecordType.ACQUIRE not in kinds:
            continue
        for number, head in enumerate(block.heads()):
            if head.type == RecordType.LOG_OPEN:
                found.clear()
            elif head.type == RecordType.ACQUIRE:
                try:
                    taken = decode(bytes(block.payload(head)), head.extra)
                except ValueError:
                    continue
                lsn = block.record_lsn(number)
                taker = Taker(taken.container, taken.link, lsn, head.time_us)
                found |= dict.fromkeys(wanted.intersection(taken.message_ids), taker)
    return found


def _are_written(sight: Sight) -> bool:
    reader = HeadsReader(sight.reader.directory, known=sight.reader)
    blocks = (one for one in reader.scan(max(sight.reader.slots) * sight.container_bytes) if isinstance(one, Block))
    flags = 0
    for block in blocks:
        flags = block.head.flags
    return bool(flags & ACQUISITIONS)
