"""The mark: how far this store has followed which cluster, written behind the events of each step.

It is a message on a store queue of its own, `$cluster`: put anew with each step that did something, and the one before
it taken off. The journal keeps its order, so whoever finds the mark after a crash finds all that was done before it
(rule 17). `synced` is false from before a member's messages are dropped until it has those of the others: such a
store is nobody's to learn from.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ..base.clock import Clock
from ..base.errors import CairnError
from ..store.interface import MessageStore

NAME = "$cluster"


class Standing(NamedTuple):
    """Whose store is ahead: the greater one is (rule 5)."""

    synced: bool = False
    epoch: int = 0
    """Rises each time a cluster is founded."""
    view: int = 0
    """Of the last configuration that held a majority, within that."""
    position: int = 0
    """Events below it are done."""


class Mark:
    """This store's. Core only."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._queue_id = 0
        self._message_id = 0
        self.cluster = ""
        """The id of the cluster; empty for none yet."""
        self.standing = Standing()

    def read(self, queue_id: int) -> None:
        """What the queue *queue_id* of the store says."""
        self._queue_id = queue_id
        ids = self._store.messages().get(queue_id)
        if not ids:
            return
        self._message_id = ids[-1]
        try:
            found = json.loads(self._store.load_piece(self._message_id, 0))
            self.cluster = found["cluster"]
            self.standing = Standing(*[found[name] for name in Standing._fields])
        except (ValueError, TypeError, KeyError) as error:
            raise CairnError(f"queue {NAME}", f"its message is no mark of a cluster: {error}") from error
        for message_id in ids[:-1]:
            self._store.dequeue(message_id, queue_id, self._clock.wall_us())

    def move(self, position: int) -> None:
        self.write(self.standing._replace(position=position))

    def write(self, standing: Standing) -> None:
        self.standing = standing
        now_us = self._clock.wall_us()
        content = json.dumps({"cluster": self.cluster, **standing._asdict()}).encode()
        before = self._message_id
        self._message_id, _ = self._store.put(self._queue_id, content, now_us)
        if before:
            self._store.dequeue(before, self._queue_id, now_us)


