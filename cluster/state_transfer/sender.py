"""Sends a joining member the messages from before its cut, from the back of each queue to its front (D18).

The messages are listed at the cut, on the core, which does nothing else meanwhile: 1.7 us and 145 bytes of memory for
each message that is only on disk, 235 bytes at most (0033). Contents are read when they are sent, by another thread.
The joining member itself receives all later events about these messages, so nothing blocks after the cut, and messages
that were dequeued meanwhile are omitted. Batches (update_front) of all queues alternate, and the next one is sent only
when no other event waits to be sent, so that regular traffic has priority.

If the joining member has messages of a queue, digests are sent first, and then the contents that its answers request
(`kept_messages`). A queue is complete when all digests are answered, and all lacking messages are sent. Core only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ...base.errors import CairnError
from ..group.group_events import Configuration
from ..group.member_id import MemberId
from ..kernel import events
from ..kernel.context import MemberContext
from ..kernel.control_messages import ControlMessage
from ..kernel.phases import SYNCHRONIZED
from ..kernel.progress_record import dict_of
from ..nodes.cluster_nodes import ClusterNodes
from ..replication.ownership_handler import QueueOwnerHandler
from ..replication.replica import Replica
from ..replication.standing_messages import StandingMessage, standing_messages
from .kept_messages import digest_of, read_digests

log = logging.getLogger(__name__)

PROGRESS_S = 10.0
"""The interval between log entries about transfers to other members."""
BATCH_MESSAGES = 1024
BATCH_BYTES = 48 << 10
DIGEST_MESSAGES = 1024
MOST_UNANSWERED = 8
"""The maximum number of unanswered batches of digests per queue."""
AHEAD_BYTES = 256 << 10
"""The transfer pauses while more bytes than this are in flight in the group."""


def donor_for(synced: Iterable[MemberId], newcomer: MemberId) -> MemberId | None:
    """Returns the next synced member in the ring of nodes after the joining one."""
    able = sorted(member for member in synced if member != newcomer)
    return next((member for member in able if member.node > newcomer.node), able[0] if able else None)


class _Queue:
    """The messages of one queue that are still to be sent to one joining member."""

    def __init__(
        self, to: MemberId, update: int, replica: Replica, todo: list[StandingMessage], *, is_compared: bool
    ) -> None:
        """*is_compared*: the joining member has messages of this queue."""
        self.to = to
        self.is_compared = is_compared
        self.number = 0
        """The number of the last batch of digests."""
        self.asked: dict[int, list[StandingMessage]] = {}
        """The unanswered batches of digests, by number."""
        self.lacking: list[StandingMessage] = []
        """Messages to send in full; the next one is at the end of the list."""
        self.update = update
        self.replica = replica
        self.todo = todo
        """Messages to process; the next one is at the end of the list."""

    @property
    def left(self) -> int:
        """The number of messages that were neither sent nor matched."""
        return len(self.todo) + len(self.lacking) + sum([len(asked) for asked in [*self.asked.values()]])

    @property
    def waits(self) -> bool:
        """Returns whether nothing can be sent before an answer arrives."""
        return not self.lacking and bool(self.asked) and (not self.todo or len(self.asked) >= MOST_UNANSWERED)


class TransferSender:
    """The transfers from this member to joining ones."""

    def __init__(self, context: MemberContext, owners: QueueOwnerHandler, nodes: ClusterNodes) -> None:
        self._context = context
        self._owners = owners
        self._nodes = nodes
        self._queues: deque[_Queue] = deque()
        self._reading = False
        self._begun: dict[MemberId, int] = {}
        """The number of messages to send at the cut, by joining member."""
        self._logged_s = 0.0
        self.brought = 0
        """The number of messages that were sent since the broker started."""

    @property
    def left(self) -> int:
        """The number of messages that are still to be sent. Any thread."""
        return sum([queue.left for queue in [*self._queues]])

    def share(self, to: MemberId) -> float | None:
        """Returns the part of the transfer to *to* that was sent, from 0 to 1; None without one. Any thread."""
        left = [queue.left for queue in [*self._queues] if queue.to == to]
        complete = self._begun.get(to, 0)
        return 1 - sum(left) / complete if left and complete else None

    def _log_progress(self) -> None:
        now_s = self._context.clock.monotonic_s()
        if now_s - self._logged_s < PROGRESS_S:
            return
        self._logged_s = now_s
        for to in {queue.to for queue in self._queues}:
            complete = self._begun.get(to, 0)
            left = sum(queue.left for queue in self._queues if queue.to == to)
            done = f"{complete - left:,} of {complete:,}"
            about = {"event": "cluster.transfer-progress"}
            log.info("cluster %s: %s messages sent to node %d", self._context.state.name, done, to.node, extra=about)

    @property
    def is_busy(self) -> bool:
        return bool(self._queues)

    def stop(self) -> None:
        """Stops all transfers."""
        self._queues.clear()

    def members_changed(self, config: Configuration) -> None:
        """Stops the transfers to members that left."""
        self._queues = deque(queue for queue in self._queues if queue.to in config.members)

    def invite(self, newcomer: MemberId) -> None:
        """Invites the member, which reported its standing, to request a transfer, if this member is its donor."""
        state = self._context.state
        if state.phase == SYNCHRONIZED and donor_for(state.synced, newcomer) == state.me:
            record, clock_us = self._context.record, self._context.clock.wall_us()
            self._context.broadcaster.send_control(
                "follow", to=newcomer, clock_us=clock_us, cluster=record.cluster, epoch=record.standing.epoch
            )

    def serve(self, to: MemberId, update: int, about: Mapping[str, Any]) -> None:
        """Starts a transfer to *to*, which is at its cut at this position.

        *about*: `queues`, which another donor began, with their cuts, or None; `kept`, the queues of which *to* has
        messages; `received`, the last batches that *to* has applied, or None if unknown.
        """
        replicas = self._owners.replicas
        unfinished, kept = about["queues"], {*about["kept"]}
        self._queues = deque(queue for queue in self._queues if queue.to != to)
        if unfinished is None:
            received = about["heard"]
            knows = received is not None and self._context.commits.knows(dict_of(received))
            self._send_snapshot(to, update, knows=knows)
            unfinished = {name: replica.last for name, replica in replicas.items()}
        self._context.release_all()
        unheard = self._context.locals.unheard()
        self._begun[to], self._logged_s = 0, self._context.clock.monotonic_s()
        for name, last in unfinished.items():
            if name in replicas:
                replica = replicas[name]
                standing = standing_messages(replica, last, unheard.get(replica.queue, ()))
                todo = [standing[position] for position in sorted(standing)]
                self._queues.append(_Queue(to, update, replica, todo, is_compared=name in kept))
                self._begun[to] += len(todo)
        text, started = "cluster %s: sending %d messages to node %d", {"event": "cluster.transfer-started"}
        log.info(text, self._context.state.name, self._begun[to], to.node, extra=started)

    def _send_snapshot(self, to: MemberId, update: int, *, knows: bool) -> None:
        state, commits = self._context.state, self._context.commits
        replicas = self._owners.replicas.values()
        all_limits = {replica.name: limits for replica in replicas if (limits := replica.queue.limits) is not None}
        remembering = {name: limits.duplicates for name, limits in all_limits.items() if limits.duplicates is not None}
        queues: list[Any] = [
            (
                replica.name,
                replica.first,
                replica.last,
                replica.owner,
                list(replica.interested),
                list(replica.acquired.items()),
                (replica.purged_below, list(replica.kept)),
            )
            for replica in replicas
        ]
        self._context.broadcaster.send_control(
            "snapshot", to=to, update=update, epoch=self._context.record.standing.epoch,
            wiring=self._nodes.snapshot([replica.queue for replica in replicas]), queues=queues,
            past=self._owners.past, heard=[*commits.known().items()], knows=knows, synced=list(state.synced),
            floors=list(commits.floors.items()), messages=sum(replica.queue.messages for replica in replicas),
            lines={replica.name: replica.line for replica in replicas if replica.line},
            remembered={name: _reported(ids.all()) for name, ids in remembering.items()},
            transient={name: _reported(ids.transient()) for name, ids in remembering.items()},
        )  # fmt: skip

    def resume(self) -> None:
        """Reads and sends the next batch, if nothing waits to be sent."""
        if self._reading or not self._queues or self._context.group.in_flight_bytes > AHEAD_BYTES:
            return
        queue = self._next()
        if queue is None or queue.to not in self._context.commits.acks:
            return
        if not (queue.todo or queue.asked or queue.lacking):
            broadcaster = self._context.broadcaster
            broadcaster.send_control("update-done", to=queue.to, update=queue.update, queue=queue.replica.name)
            return
        self._queues.append(queue)
        if queue.is_compared and not queue.lacking:
            self._digest(queue)
            return
        # with the contents in memory, which may be dropped while others are read
        batch = [(todo, self._content(todo)) for todo in self._batch(queue)]
        if not batch:
            return
        wanted = [todo.message_id for todo, content in batch if not content]
        if not wanted:
            self._say(queue, batch, ())
            return
        self._reading = True
        self._context.reader.load_complete(wanted, partial(self._say, queue, batch))

    def lacking(self, message: ControlMessage) -> None:
        """Queues the messages that *to* lacks, as it answered digests."""
        to, _, about = message
        for queue in self._queues:
            if (queue.to, queue.update, queue.replica.name) == (to, about["update"], about["queue"]):
                wanted = {*about["positions"]}
                queue.lacking += [todo for todo in queue.asked.pop(about["number"], ()) if todo.position in wanted]

    def _next(self) -> _Queue | None:
        """Removes and returns the next queue in turn for which something can be sent."""
        for _ in range(len(self._queues)):
            queue = self._queues.popleft()
            if not queue.waits:
                return queue
            self._queues.append(queue)
        return None

    def _digest(self, queue: _Queue) -> None:
        """Sends the digests of the next messages of *queue*."""
        batch: list[StandingMessage] = []
        contents: dict[int, bytes] = {}
        while queue.todo and len(batch) < DIGEST_MESSAGES:
            todo = queue.todo.pop()
            if todo.message_id and not self._context.store.holds(todo.message_id):
                continue  # it was dequeued meanwhile
            if not todo.message_id:
                queue.lacking.append(todo)
                continue
            batch.append(todo)
            if (content := self._content(todo)) is not None:
                contents[todo.message_id] = content
        if not batch:
            return
        store = self._context.store
        wanted = sorted(todo.message_id for todo in batch if todo.message_id not in contents)

        def load() -> dict[int, bytes]:
            found = {message_id: digest_of(content) for message_id, content in contents.items()}
            return found | {one.message_id: one.digest for one in read_digests(store, wanted)}

        self._reading = True
        self._context.reader.ask(load, partial(self._say_digests, queue, batch))

    def _say_digests(self, queue: _Queue, listed: list[StandingMessage], found: Mapping[int, bytes]) -> None:
        self._reading = False
        batch = [todo for todo in listed if todo.message_id in found]
        if not batch or queue not in self._queues:
            return
        queue.number += 1
        queue.asked[queue.number] = batch
        self._log_progress()
        self._context.broadcaster.send(
            events.digests(
                queue.update, queue.number, queue.replica.name, [todo.position for todo in batch],
                [todo.failures for todo in batch], [found[todo.message_id] for todo in batch],
            )
        )

    def _batch(self, queue: _Queue) -> list[StandingMessage]:
        """Returns the next messages of *queue* to send in full, without those that were dequeued."""
        store = self._context.store
        todos = queue.lacking if queue.is_compared else queue.todo
        batch: list[StandingMessage] = []
        size = 0
        while todos and len(batch) < BATCH_MESSAGES and size < BATCH_BYTES:
            todo = todos.pop()
            if todo.entry is not None and todo.entry.is_dequeued:
                continue
            if todo.message_id:
                if not store.holds(todo.message_id):
                    continue
                size += store.size_of(todo.message_id)
            else:
                size += todo.entry.held_bytes if todo.entry is not None else 0
            batch.append(todo)
        return batch

    def _content(self, todo: StandingMessage) -> bytes | None:
        entry = todo.entry
        return None if entry is None or entry.content is None else entry.complete()

    def _say(
        self, queue: _Queue, batch: Sequence[tuple[StandingMessage, bytes | None]], loaded: Iterable[bytes | CairnError]
    ) -> None:
        """Sends the messages of *batch*, each with its content in memory, or else with the next one of *loaded*.

        An error in place of a content: the message was dequeued meanwhile.
        """
        self._reading, contents = False, iter(loaded)
        there = [(todo, found) for todo, held in batch if isinstance(found := held or next(contents), bytes)]
        if not there or queue not in self._queues:
            return
        self.brought += len(there)
        self._log_progress()
        self._context.broadcaster.send(
            events.update_front(
                queue.update, queue.replica.name, [todo.position for todo, _ in there],
                [todo.failures for todo, _ in there], [(content, bool(todo.message_id)) for todo, content in there],
            )
        )


def _reported(keys: Iterable[bytes]) -> list[str]:
    return [key.decode("latin-1") for key in keys]
