"""The progress record (mark): the cluster of a store and its progress in it, written behind the events of each step.

It is a message on a store queue of its own, `$cluster`: put anew with each step that did something, and the one before
it taken off. The journal keeps its order, so whoever finds the mark after a crash finds all that was done before it
(rule 17). `synced` is false from before a member's messages are dropped until it has those of the others: such a
store is nobody's to learn from.

`heard` has, by sender, the last batch of events that was done here, also in earlier memberships whose messages may
still be here. Who has done all of these batches, too, lacks nothing of this store but what was dequeued since.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...base.clock import Clock
from ...base.errors import CairnError
from ...store.contract.interface import MessageStore
from ..group.member_id import MemberId

NAME = "$cluster"


class Standing(NamedTuple):
    """The progress of a store: the store with the greater one is ahead (rule 5)."""

    synced: bool = False
    epoch: int = 0
    """Rises each time a cluster is founded."""
    view: int = 0
    """Of the last configuration that held a majority, within that."""
    position: int = 0
    """Events below it are done."""


class ProgressRecord:
    """The record of this store. Core only."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._queue_id = 0
        self._message_id = 0
        self.cluster = ""
        """The id of the cluster; empty for none yet."""
        self.standing = Standing()
        self.heard_now: Callable[[], dict[MemberId, int]] = dict
        """What was heard in the present membership."""
        self.heard_before: dict[MemberId, int] | None = {}
        """What was heard in earlier ones; None if that is not known."""

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
            heard = found.get("heard")  # marks of before have none
            self.heard_before = None if heard is None else dict_of(heard)
        except (ValueError, TypeError, KeyError) as error:
            raise CairnError(f"queue {NAME}", f"its message is no valid progress record: {error}") from error
        for message_id in ids[:-1]:
            self._store.dequeue(message_id, queue_id, self._clock.wall_us())

    def heard(self) -> dict[MemberId, int] | None:
        """Up to now."""
        return None if self.heard_before is None else {**self.heard_before, **self.heard_now()}

    def membership_ends(self) -> None:
        """Keeps the batches of the present membership as those of an earlier one."""
        self.heard_before = self.heard()

    def begins_anew(self) -> None:
        """Forgets earlier batches: this store has what all have at this place, and nothing else."""
        self.heard_before = {}

    def move(self, position: int) -> None:
        self.write(self.standing._replace(position=position))

    def write(self, standing: Standing) -> None:
        self.standing = standing
        now_us = self._clock.wall_us()
        heard = self.heard()
        about = {"cluster": self.cluster, **standing._asdict(), "heard": None if heard is None else rows_of(heard)}
        content = json.dumps(about).encode()
        before = self._message_id
        self._message_id, _ = self._store.put(self._queue_id, content, now_us)
        if before:
            self._store.dequeue(before, self._queue_id, now_us)


def rows_of(heard: dict[MemberId, int]) -> list[tuple[MemberId, int]]:
    """As it is written, and said."""
    return [*heard.items()]


def dict_of(rows: Iterable[tuple[Iterable[int], int]]) -> dict[MemberId, int]:
    return {MemberId(*member): number for member, number in rows}
