"""Moves of messages from a queue to an address, each in a transaction of its own: a crash leaves it in one of the two.

A move is an ordinary consumer of the queue, and takes turns with others; in a cluster, another member may lead the
queue. Messages are moved in the time slices of background work, in turns of the requesting user. A move ends when its
queue is deleted, and when the connection of the requester is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...base.errors import CairnError, MessageLocked
from ...broker.contents.paging import turn_page
from ...broker.kernel.context import CoreContext
from ...broker.kernel.memory_budget import ENTRY_BYTES
from ...broker.messages.entry import Entry
from ...broker.nodes.access_control import MANAGE, RECEIVE, SEND, Forbidden
from ...broker.nodes.resolver import Resolver
from ...broker.nodes.targets import AddressTarget
from ...broker.queues.queue import Queue
from ...broker.transactions.dead_letters import Returns
from ...store.contract.dequeue_reason import DequeueReason
from ..protocol.call import Call
from ..protocol.entity import Operation, Type
from ..protocol.request import BAD_REQUEST, CONFLICT, FORBIDDEN, NOT_FOUND, Refusal, flag, number, shown, text

MOST_POSITIONS = 1000
AT_ONCE = 64
"""Messages that a move has acquired, and not moved yet."""


@dataclass(frozen=True, slots=True)
class MoveOperations:
    """The operations MOVE and DISCARD of queues, and the services that they use. Core only."""

    core: CoreContext
    resolver: Resolver
    returns: Returns
    when_answered: Callable[[Callable[[], None]], None]
    """Does something when all that was done before is safe at all members of a cluster."""

    def add_to(self, queues: Type) -> None:
        move = Operation(
            "MOVE", ("to", "count", "positions", "create"),
            "Moves the messages that are on the queue at the start, or the first `count` of them, to the address `to`; "
            "`moved` is their number. A missing address is created on first use, or is status 404 with `create` false. "
            "`positions` selects up to 1000 messages, and excludes `count`; 409 for a replicated queue. "
            "A `count` of 0 with `create` false only checks the request, and is not audited. "
            "Messages that the target does not accept, or that a consumer or a transaction holds, stay. "
            "Ends early if the requester's connection closes.",
            partial(self._move, queues),
        )  # fmt: skip
        discard = Operation(
            "DISCARD", ("positions",),
            "Removes the messages at up to 1000 `positions`; `discarded` is their number. 409 for a replicated queue. "
            "Messages that a consumer or a transaction holds stay.",
            partial(self._discard, queues),
        )  # fmt: skip
        queues.add(move)
        queues.add(discard)

    def _discard(self, of: Type, call: Call) -> None:
        asked = call.asked()
        queue: Queue = of.wanted(call, MANAGE)
        positions = positions_in(asked)
        if positions is None:
            raise Refusal(BAD_REQUEST, "positions is missing; send a list of numbers")
        _check_contents(queue, is_selection=True)
        _Mover(self, call, queue, None, len(positions), positions).begin()

    def _move(self, of: Type, call: Call) -> None:
        asked = call.asked()
        to, may_create = text(asked, "to"), flag(asked, "create", True)
        most = number(asked, "count", 1 << 62, 1 << 62)
        call.is_change = most > 0 or may_create
        queue: Queue = of.wanted(call, RECEIVE)
        call.check_address(SEND, to)
        positions = positions_in(asked)
        if positions is not None and asked.get("count") is not None:
            raise Refusal(BAD_REQUEST, "count and positions exclude each other: send one of them")
        _check_contents(queue, is_selection=positions is not None)
        if queue.policy.exclusive and queue.taker_count:
            raise Refusal(CONFLICT, f"the queue {queue.name!r} has a consumer, and may have only one; close it")

        def found(place: AddressTarget | Exception) -> None:
            if isinstance(place, Forbidden):
                raise Refusal(FORBIDDEN, str(place))
            if isinstance(place, LookupError):
                raise Refusal(NOT_FOUND, str(place.args[0]))
            if isinstance(place, Exception):
                call.failed(place)
            elif place is queue:
                raise Refusal(BAD_REQUEST, "the messages are already in that queue; use another target")
            else:
                _Mover(self, call, queue, place, min(most, queue.messages), positions).begin()

        attach = call.link.attach
        then = call.then(found)
        self.resolver.find(to, then, user=attach.user, connection=attach.connection, may_create=may_create)


def positions_in(asked: Mapping[str, Any]) -> deque[int] | None:
    """Return the `positions` of a request, in order; None without them. Raises `Refusal`."""
    given = asked.get("positions")
    if given is None:
        return None
    is_valid = isinstance(given, list) and len(given) <= MOST_POSITIONS
    if not is_valid or not all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in given):
        raise Refusal(BAD_REQUEST, f"positions is to be a list of at most {MOST_POSITIONS} numbers from 1 on")
    return deque(sorted(set(given)))


def _check_contents(queue: Queue, *, is_selection: bool) -> None:
    """Raise `Refusal` for a queue whose messages can't be moved, or selected by position."""
    if queue.name.startswith("$"):  # not every message on those is AMQP
        raise Refusal(BAD_REQUEST, f"{shown(queue.name)} is the broker's own; use another queue")
    if is_selection and queue.order.finds_by_position:
        reason = f"messages of the replicated queue {shown(queue.name)} can't be selected; use MOVE with a count"
        raise Refusal(CONFLICT, reason)


@dataclass(eq=False, repr=False)
class _Mover:
    """A move of messages, which uses the place of a consumer."""

    _services: MoveOperations
    _call: Call
    _queue: Queue
    _place: AddressTarget | None
    """None to remove the messages."""
    _left: int
    """The number of messages that are not acquired yet."""
    _positions: deque[int] | None
    """The positions of the messages; None for the first ones."""

    def __post_init__(self) -> None:
        self.terminal = self
        self._core = self._services.core
        self._moved = 0
        self._removing = 0
        """Removed messages whose records are not durable yet."""
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
        if self._turning or self._ended or self._positions is not None:
            return 0
        return min(AT_ONCE - len(self._mine), self._left)

    def take(self, entries: list[Entry]) -> None:
        self.unsettled.update(dict.fromkeys(entries))
        self._mine.extend(entries)
        self._left -= len(entries)
        self._turn()

    def dispatched(self) -> None:
        if self._queue.contents.order.is_reading_for(self):
            return
        self._queue.draining.pop(self, None)
        if not self._mine and not self._turning:
            self._end()

    def _ask(self) -> None:
        """Request the next messages; they arrive now, or when they have been read."""
        if self._ended:
            return
        if self._positions is not None:
            self._select(self._positions)
            return
        if self._left <= 0:
            self._end()
            return
        self._queue.draining[self] = None
        self._core.schedule_dispatch(self._queue)

    def _select(self, positions: deque[int]) -> None:
        """Look for the message at the next position, or end."""
        if positions:
            user, looked = self._call.link.attach.user, partial(self._looked, positions[0])
            turn_page(self._core.background, self._queue.contents, positions.popleft() - 1, 1, user, looked)
        else:
            self._end()

    def _looked(self, position: int, entries: list[Entry]) -> None:
        """Acquire the message at *position*, which is the first of *entries*, or in the backlog, or not available."""
        contents = self._queue.contents
        backlog = contents.backlog
        entry = entries[0] if entries and entries[0].position == position else None
        if entry is None and backlog.count and position >= max(backlog.first, contents.reader.end):
            page = backlog.page(position - 1, 1)
            if page.ids and page.first == position:
                entry = page.held.get(position) or Entry(page.ids[0], position, None, ENTRY_BYTES)
        if entry is not None and not self._ended and not entry.is_dequeued and contents.is_timely(entry):
            found = contents.take_out(entry)
            if found is not None:
                self.take([found])
                return
        self._turn()

    def _turn(self) -> None:
        """Schedule the next step of the move, in background time."""
        if not self._turning:
            self._turning = True
            self._core.background.put_off(self._step, self._call.link.attach.user)

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
            if entry.is_dequeued:
                self._done()
            elif self._place is None:
                self._remove(entry)
            elif entry.content is None:
                self._turning = True
                self._core.loader.load_complete([entry.message_id], self._loaded)
                return
            else:
                self._move(entry.complete())
        self._ask()

    def _remove(self, entry: Entry) -> None:
        self._done()
        self._moved += 1
        self._removing += 1
        self._queue.order.take([entry], DequeueReason.NOT_RECORDED, self._removed)

    def _removed(self) -> None:
        self._removing -= 1
        if self._ended and not self._removing:
            self._answer(None)

    def _loaded(self, contents: list[bytes | CairnError]) -> None:
        content = contents[0]
        self._turning = False
        if self._mine and not self._ended:
            if isinstance(content, bytes):
                self._move(content)
            elif not self._mine[0].is_dequeued:
                self._queue.contents.put_aside(self._done(), content)
        self._step()

    def _move(self, content: bytes) -> None:
        entry = self._mine[0]
        if entry.is_dequeued:
            self._done()
            return
        marked = entry.marked(content, 0)
        assert isinstance(marked, bytes)
        assert self._place is not None
        try:
            lsn = self._services.returns.move(self._queue, entry, self._place, marked, self._refused)
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
        queue = self._queue
        for entry in self.cut_off():
            queue.order.release(entry, False)
        self._core.schedule_dispatch(queue)
        queue.order.release_all()
        queue.order.not_consuming()
        if self._removing:
            return  # `_removed` answers
        self._core.commits.when_durable(self._lsn, self._services.when_answered, partial(self._answer, error))

    def cut_off(self) -> list[Entry]:
        """Abort the move: the member has lost its cluster, and the messages are not its own any more."""
        self._ended = True
        self._queue.draining.pop(self, None)
        if self in self._queue.consumers:
            self._queue.consumers.remove(self)
        self._mine.clear()
        held, self.unsettled = self.unsettled, {}
        return [entry for entry in held if not entry.is_dequeued]

    def _answer(self, error: CairnError | None) -> None:
        self._call.messages = self._moved
        if error is not None:
            self._call.failed(error, {"moved": self._moved})
        else:
            self._call.answer({"discarded" if self._place is None else "moved": self._moved})

    def failure(self, condition: str, description: str) -> None:
        """End the move: the queue was deleted."""
        self._end()
