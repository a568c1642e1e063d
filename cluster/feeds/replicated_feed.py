"""Feeds a downstream at another site with a replicated queue; the downstream can continue at any other member.

A message is identified by its position, which is equal on all members. A place is the epoch of the cluster and the
number behind an event, so any member understands the place that a downstream reports. Each member can determine what
the downstream lacks without having fed it before. It compares with the messages on the queue at a *cut*, the position
of an event that this member multicasts for it:

* Messages of the downstream that are not on the queue at the cut are removed there.
* Messages behind the last position of the downstream are sent.
* Later changes of the queue follow (`watch`).

Nothing is sent before it is safe, so no member can ever lack a message of the downstream; and the cut follows all that
was safe when the downstream asked.

A small difference is sent as one step, so the downstream moves from one consistent state of the queue to another.
Otherwise messages are sent first, in several steps, and removals last: in between the copy is not consistent, but lacks
no message that is on the queue, and is marked as incomplete.

If a message was dequeued before it could be read, all changes up to its dequeue form one step. Core only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from uuid import uuid4

from ...amqp.ports import TerminalEnd
from ...broker.federation.upstream_link import DownstreamLink, ReplicaPosition
from ...broker.federation.upstream_states import UpstreamEvent, UpstreamState
from ...broker.federation.wire_format import (
    BETWEEN,
    COMPLETE,
    END,
    TIME,
    Head,
    Keep,
    Line,
    Purge,
    Take,
    encode,
    message,
)
from ..kernel import events
from ..kernel.context import MemberContext
from ..kernel.local_messages import LocalEvent
from ..kernel.phases import SYNCHRONIZED
from ..replication.change_watch import ChangeWatch, WatchedChange, ranges
from ..replication.replica import Replica
from ..replication.standing_messages import standing_messages
from .feed_step import FeedPart, LoadedPart

log = logging.getLogger(__name__)

EPOCH_SHIFT = 40
"""The number of bits by which the epoch is shifted in a place; the rest is a number of events."""
BATCH_MESSAGES, BATCH_BYTES = 256, 256 << 10
"""The limits of one part of the messages at the cut; a step has several parts."""
STEP_MESSAGES, STEP_BYTES = 1024, 1 << 20
"""The limits of later changes in one step, which are exceeded only if a step cannot end before."""
ONE_STEP_BYTES = 1 << 20
"""The largest initial backlog of a downstream that is sent in one step."""
RANGES_EACH, TAKES_EACH = 2048, 4096
"""The maximum numbers of ranges and of positions in one event."""
MOST_KEPT = 1 << 14
"""The maximum number of kept ranges that a purge sends as one event."""


class ReplicatedFeed(DownstreamLink):
    """The driver of a link to a downstream."""

    def __init__(
        self,
        ended: Callable[[DownstreamLink], None],
        context: MemberContext,
        replicas: Mapping[str, Replica],
        replica: Replica,
        said: ReplicaPosition,
        terminal: TerminalEnd,
        on_end: Callable[[], object],
        number: int,
    ) -> None:
        name = f"follow-{said.follower}"
        super().__init__(context.timers, ended, terminal, replica.queue, name, said.place)
        self._context = context
        self._replicas = replicas
        self._on_end = on_end
        self._replica = replica
        self._number = number
        self._line = said.line
        self._after = said.after if said.line else 0
        """The last position of the messages that were sent."""
        self._place = said.place
        """The place up to which all was sent."""
        self._watch: ChangeWatch | None = None
        """The watch of later changes; None before the cut."""
        self._is_begun = False
        self._begins: list[bytes] = []
        """Events that precede all others."""
        self._todo: deque[tuple[int, int]] = deque()
        """The messages at the cut that are still to be sent: positions and IDs."""
        self._keeps: list[bytes] | None = None
        """Events that remove what was dequeued before the cut; None when they have been sent."""
        self._cut = WatchedChange(0, 0)
        self._owed: set[int] = set()
        """Positions of messages that were dequeued before they could be read."""
        self._part: FeedPart | None = None
        """The part that is being sent."""
        self._is_open = False
        """True while a step has begun and not ended."""
        self._open_bytes = 0

    # ---- the cut ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Multicasts the event whose position is the cut."""
        about = events.control("followed", queue=self.queue.name, line=uuid4().hex, number=self._number)
        self._context.broadcaster.send(about, LocalEvent(self._cut_is_safe))

    def cut(self, position: int) -> None:
        """Records the cut: its event was delivered, and all before it is applied here."""
        replica = self._replica
        place = self._placed(position + 1)
        if self._phase is UpstreamState.OVER:
            return
        if self._replicas.get(replica.name) is not replica or self._context.state.phase != SYNCHRONIZED:
            self.fail("amqp:not-found", f"there is no queue {replica.name!r}")
            return
        if self._line not in ("", replica.line) or self.place > place or self._after > replica.last:
            reason = f"queue {replica.name!r}: it is not the queue that was followed, or all members were restarted"
            self.fail("amqp:not-found", f"unsent records were reclaimed: {reason}; resynchronize")
            return
        if not self._line:
            self._begins = [encode(Line(replica.line))]
            self._line = replica.line
        replica.queue.order.release_all()
        found = standing_messages(replica, replica.last, self._context.locals.unheard().get(replica.queue, ()))
        self._todo = deque(
            (todo.position, todo.message_id)
            for _, todo in sorted(found.items())
            if todo.position > self._after and todo.message_id
        )
        there = ranges(position for position in found if position <= self._after)
        self._keeps = [*_keeps(there, self._after)] if self._after else []
        self._cut = WatchedChange(position + 1, self._context.clock.wall_us(), purged=replica.last)
        self._owed.clear()
        self._watch = ChangeWatch(self._context.commits, self._context.clock, self.go_on)
        self._watch.safe = position + 1
        replica.watches.append(self._watch)

    def _cut_is_safe(self) -> None:
        if self._watch is None:
            return
        self._handle(UpstreamEvent.PREPARED)
        if not self._is_begun:
            self._is_begun = True
            self._begin()
            about = {"event": "federation.downstream-up", "queue": self.queue.name}
            log.info("queue %s: copied from position %d (%s)", self.queue.name, self.place, self.follower, extra=about)
        self.go_on()

    def _cut_anew(self) -> None:
        """Requests a new cut after the watch overflowed, to compare the sent messages with the queue again."""
        self._leave()
        self._handle(UpstreamEvent.CUT_AGAIN)
        self.begin()

    def _leave(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.is_over = True
            if watch in self._replica.watches:
                self._replica.watches.remove(watch)

    def _placed(self, place: int) -> int:
        return (self._context.state.epoch << EPOCH_SHIFT) + place

    # ---- sending ---------------------------------------------------------------------------------------------------

    @property
    def behind_messages(self) -> int:
        return len(self._todo) + (0 if self._watch is None else self._watch.noted)

    def go_on(self) -> None:
        room = self._limit - self._forwarded
        if self._phase is not UpstreamState.READY or room <= 0:
            return
        if self._part is None:
            self._part = self._next()
        part = self._part
        if part is not None:
            self._handle(UpstreamEvent.READ)
            self._context.reader.ask(partial(part.take, room), self._taken)

    def _taken(self, taken: LoadedPart) -> None:
        self._handle(UpstreamEvent.PART_READ)
        part = self._part
        if self._phase is UpstreamState.OVER or part is None:
            return
        self._forward(taken.messages)
        if taken.error is not None:
            self.fail("amqp:internal-error", str(taken.error))
            return
        if taken.is_over:
            self._part = None
            self._owed.update(part.removed)
            self._open_bytes += part.sent_bytes
            self._is_open = not part.head.flags & END or bool(part.removed)
            if not self._is_open:
                self._open_bytes = 0
                self._place = part.head.place
        self.go_on()

    def _next(self) -> FeedPart | None:
        """Returns the next part that is safe, or None."""
        watch = self._watch
        if watch is None or self._context.commits.has_missed():
            return None
        if watch.is_full and self._keeps is None:
            self._cut_anew()
            return None
        if self._keeps is not None:
            return self._next_standing()
        units = [*self._gathered(watch)]
        return self._part_of(units) if units else None

    def _next_standing(self) -> FeedPart:
        """Returns the next part of the messages that stood at the cut."""
        batch: list[tuple[int, int]] = []
        size_bytes = 0
        while self._todo and len(batch) < BATCH_MESSAGES and size_bytes < BATCH_BYTES:
            batch.append(self._todo.popleft())
            size_bytes += self._context.store.size_of(batch[-1][1])
        others, self._begins = self._begins, []
        flags = 0
        if batch:
            self._after = batch[-1][0]
        if not self._todo:
            assert self._keeps is not None
            others += self._keeps
            self._keeps = None
            self._after = max(self._after, self._cut.purged)
            flags = END | COMPLETE
        elif self._open_bytes > ONE_STEP_BYTES:
            flags = END | BETWEEN
        return self._made(batch, others, flags, self._cut)

    def _gathered(self, watch: ChangeWatch) -> Iterator[WatchedChange]:
        """Yields the changes of the next step: a limited number, or as many as are needed until no message is owed."""
        store, size, size_bytes = self._context.store, 0, 0
        while watch.units and watch.units[0].place <= watch.safe:
            if (size >= STEP_MESSAGES or size_bytes >= STEP_BYTES) and not self._owed:
                return
            if watch.units[0].purged and size and not self._owed:
                return
            unit = watch.next()
            yield unit
            size += len(unit.puts) + len(unit.takes) + 1
            size_bytes += sum([store.size_of(message_id) for _, message_id in unit.puts])
            for _, positions in unit.takes:
                self._owed.difference_update(positions)
            if unit.purged:
                self._owed = {one for one in self._owed if one > unit.purged or _is_in(unit, one)}
                if not self._owed:
                    return

    def _part_of(self, units: list[WatchedChange]) -> FeedPart:
        last = units[-1]
        puts: dict[int, int] = {}
        others: list[bytes] = []
        for unit in units:
            for reason, positions in unit.takes:
                there = [position for position in positions if not puts.pop(position, 0)]
                others += [encode(Take(reason, there[at : at + TAKES_EACH])) for at in range(0, len(there), TAKES_EACH)]
            if unit.purged:
                puts = {one: message_id for one, message_id in puts.items() if _is_in(unit, one)}
                if len(units) == 1 and not self._is_open and len(unit.kept) < MOST_KEPT:
                    others.append(encode(Purge([one for begin, end in unit.kept for one in range(begin, end + 1)])))
                else:
                    others += _keeps(unit.kept, unit.purged)
            puts.update(unit.puts)
        self._after = max(self._after, *[position for unit in units for position, _ in unit.puts[-1:]], 0)
        return self._made([*puts.items()], others, 0 if self._owed else END | COMPLETE, last)

    def _made(self, puts: list[tuple[int, int]], others: list[bytes], flags: int, last: WatchedChange) -> FeedPart:
        head = Head(flags, max(self._placed(last.place), self._place), self._after, last.time_us)
        return FeedPart(self._context.store, puts, others, head)

    def _idle_message(self) -> bytes | None:
        watch = self._watch
        if self._phase is not UpstreamState.READY or self._part is not None or self._is_open:
            return None
        if watch is None or watch.units or watch.is_full or self._keeps is not None:
            self.go_on()
            return None
        return message(Head(TIME, self._place, self._after, self._context.clock.wall_us()), ())

    # ---- the end ---------------------------------------------------------------------------------------------------

    def fail(self, condition: str, reason: str) -> None:
        """Ends the feed: this member cannot serve it any more."""
        if self._phase is not UpstreamState.OVER:
            self._end()
            self.terminal.failure(condition, reason)
            about = {"event": "federation.downstream-down", "queue": self.queue.name}
            log.warning("queue %s: no longer copied to %s: %s", self.queue.name, self.follower, reason, extra=about)

    def _end(self) -> None:
        super()._end()
        self._leave()
        self._on_end()


def _is_in(unit: WatchedChange, position: int) -> bool:
    return any(begin <= position <= end for begin, end in unit.kept)


def _keeps(there: list[tuple[int, int]], last: int) -> Iterator[bytes]:
    """Yields events that remove all positions up to *last* except those *there*, each for a range of positions."""
    first = 0
    for at in range(0, len(there), RANGES_EACH):
        some = there[at : at + RANGES_EACH]
        end = last if at + RANGES_EACH >= len(there) else some[-1][1]
        yield encode(Keep(first, end, some))
        first = end + 1
    if not there:
        yield encode(Keep(0, last, ()))
