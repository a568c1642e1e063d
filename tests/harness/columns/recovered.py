"""The contents of queues as of an LSN, as found by recovery: an independent model of `QueuesView` and of the views."""

from __future__ import annotations

from cairnmq.journal.format import block
from cairnmq.journal.format.block import BLOCK_HEAD_BYTES, Block
from cairnmq.journal.format.record import HEAD_BYTES, heads_of
from cairnmq.recovery.replay import Replay
from cairnmq.store.message_map.placement import on_queues
from cairnmq.store.message_map.state import State
from cairnmq.tools.history.history import History

Queues = dict[int, list[int]]


def recovered_as_of(history: History, lsn: int) -> Queues:
    """Return queue ID to messages in order, as recovered from *history* without its records from *lsn* on."""
    log = Replay(State(history.container_bytes), "the log", history.container_bytes)
    for found in history.scan():
        if isinstance(found, Block) and found.lsn + BLOCK_HEAD_BYTES < lsn:
            log.take(_before(found, lsn, history.log.log_id))
    log.apply()
    log.reconcile(dict.fromkeys((slot for slot in history.slots if slot * history.container_bytes < lsn), 0))
    return {queue_id: list(ids) for queue_id, ids in on_queues(log.state).items() if ids}


def _before(complete: Block, lsn: int, log_id: int) -> Block:
    """Return *complete* with only its records below *lsn*."""
    head = complete.head
    count = min(head.records, -(-(lsn - complete.record_lsn(0)) // HEAD_BYTES))
    heads = complete.body[: HEAD_BYTES * count]
    size = sum(one.size for one in heads_of(heads))
    payloads = bytes(complete.body[HEAD_BYTES * head.records :][:size])
    data = block.encode(
        heads, [payloads], size, lsn=head.lsn, prev_lsn=head.prev_lsn, incarnation=head.incarnation,
        durable_lsn=head.durable_lsn, base_lsn=head.base_lsn, log_id=log_id, flags=head.flags,
    )  # fmt: skip
    return block.decode(memoryview(bytes(data)), head.lsn, log_id)
