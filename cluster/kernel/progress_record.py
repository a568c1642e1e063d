"""The progress record (mark): the cluster of a store and its progress in it, written behind the events of each step.

It is a message on a store queue of its own, `$cluster`: each step that applied events puts a new one and dequeues the
one before. The journal keeps its order, so after a crash a store that has the record also has the effects of all events
before it (rule 17). `synced` is false from before a member's messages are dropped until it has those of the others: no
member may use such a store as a source.

`received` contains, by sender, the last batch that was applied here, also in earlier memberships whose messages may
be here. A member that has applied all of these batches lacks nothing of this store except what was dequeued since.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from ...base.clock import Clock
from ...base.errors import CairnError
from ...store.contract.interface import MessageStore
from ..group.member_id import MemberId
from .commit_tracker import CommitTracker

NAME = "$cluster"


class Standing(NamedTuple):
    """The progress of a store: the store with the greater one is ahead (rule 5)."""

    synced: bool = False
    epoch: int = 0
    """The number of the founding of the cluster; rises each time."""
    view: int = 0
    """The number of the last configuration with a majority, in that epoch."""
    position: int = 0
    """The position below which all events are applied."""


class ProgressRecord:
    """The record of this store. Core only."""

    def __init__(self, store: MessageStore, clock: Clock, commits: CommitTracker) -> None:
        self._store = store
        self._clock = clock
        self._commits = commits
        self._queue_id = 0
        self._message_id = 0
        self.cluster = ""
        """The ID of the cluster; empty before the first one."""
        self.standing = Standing()
        self.received_before: dict[MemberId, int] | None = {}
        """The last batches of earlier memberships; None if unknown."""

    def read(self, queue_id: int) -> None:
        """Reads the record from the queue *queue_id* of the store."""
        self._queue_id = queue_id
        ids = self._store.messages().get(queue_id)
        if not ids:
            return
        self._message_id = ids[-1]
        try:
            found = json.loads(self._store.load_piece(self._message_id, 0))
            self.cluster = found["cluster"]
            self.standing = Standing(*[found[name] for name in Standing._fields])
            received = found.get("heard")  # records of older versions have none
            self.received_before = None if received is None else dict_of(received)
        except (ValueError, TypeError, KeyError) as error:
            raise CairnError(f"queue {NAME}", f"its message is not a valid progress record: {error}") from error
        for message_id in ids[:-1]:
            self._store.dequeue(message_id, queue_id, self._clock.wall_us())

    def received(self) -> list[tuple[MemberId, int]] | None:
        """Returns the last batches of all memberships, as they are stored and multicast; None if unknown."""
        before = self.received_before
        return None if before is None else [*(before | self._commits.begun()).items()]

    def membership_ends(self) -> None:
        """Keeps the batches of the present membership as those of an earlier one."""
        if self.received_before is not None:
            self.received_before |= self._commits.begun()

    def move(self, position: int) -> None:
        self.write(self.standing._replace(position=position))

    def write(self, standing: Standing) -> None:
        self.standing = standing
        now_us = self._clock.wall_us()
        about = {"cluster": self.cluster, **standing._asdict(), "heard": self.received()}
        content = json.dumps(about).encode()
        before = self._message_id
        self._message_id, _ = self._store.put(self._queue_id, content, now_us)
        if before:
            self._store.dequeue(before, self._queue_id, now_us)


def dict_of(rows: Iterable[tuple[Iterable[int], int]]) -> dict[MemberId, int]:
    return {MemberId(*member): number for member, number in rows}
