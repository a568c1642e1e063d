"""Moves of messages from a queue to an address, each in a transaction of its own: a crash leaves it in one of the two.

A move is an ordinary consumer of the queue, and takes turns with others; in a cluster, another member may lead the
queue. Messages are moved in the time slices of background work, in turns of the requesting user. A move ends when its
queue is deleted, and when the connection of the requester is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ...base.errors import CairnError, MessageLocked
from ...broker.kernel.context import CoreContext
from ...broker.messages.entry import Entry
from ...broker.nodes.access_control import RECEIVE, SEND, Forbidden
from ...broker.nodes.resolver import Resolver
from ...broker.nodes.targets import AddressTarget
from ...broker.queues.queue import Queue
from ...broker.transactions.dead_letters import Returns
from ..protocol.call import Call
from ..protocol.entity import Operation, Type
from ..protocol.request import BAD_REQUEST, CONFLICT, FORBIDDEN, NOT_FOUND, Refusal, number, only, shown, text

AT_ONCE = 64
"""Messages that a move has acquired, and not moved yet."""


@dataclass(frozen=True, slots=True)
class MoverContext:
    """The services that moves of messages use."""

    core: CoreContext
    resolver: Resolver
    returns: Returns
    when_answered: Callable[[Callable[[], None]], None]
    """Does something when all that was done before is safe at all members of a cluster."""


class MoveOperation:
    """The operation MOVE of queues. Core only."""

    def __init__(self, mover: MoverContext) -> None:
        self._mover = mover

    def operation(self, of: Type) -> Operation:
        return Operation(
            "MOVE", ("to", "count"),
            "Moves the messages that are on the queue at the start, or the first `count` of them, to the address `to`; "
            "`moved` is their number. Messages that the target does not accept, or that a transaction holds, stay. "
            "Ends early if the requester's connection closes.",
            partial(self._move, of),
        )  # fmt: skip

    def _move(self, of: Type, call: Call) -> None:
        asked = call.request.map()
        only(asked, "to", "count")
        to = text(asked, "to")
        most = number(asked, "count", 1 << 62, 1 << 62)
        queue: Queue = of.wanted(call, RECEIVE)
        call.check_address(SEND, to)
        if queue.name.startswith("$"):  # not every message on those is AMQP
            raise Refusal(BAD_REQUEST, f"{shown(queue.name)} is the broker's own")
        if queue.policy.exclusive and queue.taker_count:
            raise Refusal(CONFLICT, f"the queue {queue.name!r} has a consumer, and may have only one")

        def found(place: AddressTarget | Exception) -> None:
            if isinstance(place, Forbidden):
                raise Refusal(FORBIDDEN, str(place))
            if isinstance(place, LookupError):
                raise Refusal(NOT_FOUND, str(place.args[0]))
            if isinstance(place, Exception):
                call.failed(place)
            elif place is queue:
                raise Refusal(BAD_REQUEST, "they are already there")
            else:
                _Mover(self._mover, call, queue, place, min(most, queue.messages)).begin()

        wish = call.link.wish
        self._mover.resolver.find(to, call.then(found), user=wish.user, connection=wish.connection)


class _Mover:
    """A move of messages, which uses the place of a consumer."""

    def __init__(self, context: MoverContext, call: Call, queue: Queue, place: AddressTarget, most: int) -> None:
        self.terminal = self
        self._core = context.core
        self._returns = context.returns
        self._when_answered = context.when_answered
        self._call = call
        self._queue = queue
        self._place = place
        self._left = most
        self._moved = 0
        self._lsn = 0
        self.unsettled: dict[Entry, None] = {}
        """All messages that the move has acquired, as in a consumer."""
        self._mine: deque[Entry] = deque()
        self._ended = False
        self._turning = False

    def begin(self) -> None:
        self._queue.consumers.append(self)
        self._queue.order.consuming()
        self._ask()

    def room(self) -> int:
        return 0 if self._turning or self._ended else min(AT_ONCE - len(self._mine), self._left)

    def take(self, entries: list[Entry]) -> None:
        self.unsettled.update(dict.fromkeys(entries))
        self._mine.extend(entries)
        self._left -= len(entries)
        self._turn()

    def dispatched(self) -> None:
        if self._queue.is_reading_for(self):
            return
        self._queue.draining.pop(self, None)
        if not self._mine and not self._turning:
            self._end()

    def _ask(self) -> None:
        """Request the next messages; they arrive now, or when they have been read."""
        if self._ended:
            return
        if self._left <= 0:
            self._end()
            return
        self._queue.draining[self] = None
        self._core.schedule_dispatch(self._queue)

    def _turn(self) -> None:
        """Schedule the next step of the move, in background time."""
        if not self._turning:
            self._turning = True
            self._core.background.put_off(self._step, self._call.link.wish.user)

    def _step(self) -> None:
        """Move one message, and others as long as there is time."""
        self._turning = False
        is_first = True
        while self._mine and not self._ended:
            if self._call.is_abandoned:
                self._end()
                return
            if not (is_first or self._core.background.has_time()):
                self._turn()
                return
            is_first = False
            entry = self._mine[0]
            if entry.gone:
                self._done()
            elif entry.content is None:
                self._turning = True
                self._core.loader.load_whole([entry.message_id], self._loaded)
                return
            else:
                self._move(entry.whole())
        self._ask()

    def _loaded(self, contents: list[bytes | CairnError]) -> None:
        content = contents[0]
        self._turning = False
        if self._mine and not self._ended:
            if isinstance(content, bytes):
                self._move(content)
            elif not self._mine[0].gone:
                self._queue.put_aside(self._done(), content)
        self._step()

    def _move(self, content: bytes) -> None:
        entry = self._mine[0]
        if entry.gone:
            self._done()
            return
        marked = entry.marked(content)
        assert isinstance(marked, bytes)
        try:
            lsn = self._returns.move(self._queue, entry, self._place, marked, self._refused)
        except MessageLocked:
            lsn = None
        except CairnError as error:
            self._end(error)
            return
        if lsn is None:  # it is requeued at the end, or it would be acquired again and again
            self._mine.popleft()
            return
        self._done()
        self._lsn = max(self._lsn, lsn)
        self._moved += 1

    def _refused(self) -> None:
        """Correct the count: a replicated move had no target any more, and the message stays."""
        self._moved -= 1

    def _done(self) -> Entry:
        """Release the first message; a purge may have removed it before (`Queue.forget`)."""
        entry = self._mine.popleft()
        self.unsettled.pop(entry, None)
        return entry

    def _end(self, error: CairnError | None = None) -> None:
        """Requeue all messages that were not moved; answer when the rest is durable."""
        if self._ended:
            return
        self._ended = True
        queue = self._queue
        queue.draining.pop(self, None)
        if self in queue.consumers:
            queue.consumers.remove(self)
        self._mine.clear()
        back, self.unsettled = self.unsettled, {}
        for entry in back:
            if not entry.gone:
                queue.order.release(entry, False)
        self._core.schedule_dispatch(queue)
        queue.order.release_all()
        queue.order.not_consuming()
        self._core.commits.when_durable(self._lsn, self._when_answered, partial(self._answer, error))

    def cut_off(self) -> list[Entry]:
        """Abort the move: the member has lost its cluster, and the messages are not its own any more."""
        self._ended = True
        self._queue.draining.pop(self, None)
        if self in self._queue.consumers:
            self._queue.consumers.remove(self)
        self._mine.clear()
        held, self.unsettled = self.unsettled, {}
        return [entry for entry in held if not entry.gone]

    def _answer(self, error: CairnError | None) -> None:
        self._call.messages = self._moved
        if error is not None:
            self._call.failed(error, {"moved": self._moved})
        else:
            self._call.answer({"moved": self._moved})

    def failure(self, condition: str, description: str) -> None:
        """End the move: the queue was deleted."""
        self._end()
