"""Moving messages from a queue to an address, each in a transaction of its own: a crash leaves it in one of the two.

Who moves is a consumer of the queue like others, and takes its turn with them; in a cluster, too, where the queue may
be another member's just now.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from ..base.errors import CairnError, MessageLocked
from ..broker.access import RECEIVE, SEND, Forbidden
from ..broker.broker import Broker
from ..broker.entry import Entry
from ..broker.places import Place
from ..broker.queue import Queue
from .call import Call
from .entity import Operation, Type
from .request import BAD_REQUEST, CONFLICT, FORBIDDEN, NOT_FOUND, Refusal, number, only, shown, text

AT_ONCE = 64
"""Messages moved in one step of the core."""


class Moving:
    """The operation MOVE of queues. Core only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operation(self, of: Type) -> Operation:
        return Operation(
            "MOVE", ("to", "count"),
            "Its messages to the address `to`, those that were on it when that began, or the first `count` of them; "
            "`moved` tells how many it were. What nobody wants there stays, and what a transaction takes.",
            partial(self._move, of),
        )  # fmt: skip

    def _move(self, of: Type, call: Call) -> None:
        asked = call.request.map()
        only(asked, "to", "count")
        to = text(asked, "to")
        most = number(asked, "count", 1 << 62, 1 << 62)
        queue: Queue = of.wanted(call, RECEIVE)
        call.check_address(SEND, to)
        if queue.name.startswith("$"):  # not all that is on those is AMQP
            raise Refusal(BAD_REQUEST, f"{shown(queue.name)} is the broker's own")
        if queue.policy.exclusive and queue.taker_count:
            raise Refusal(CONFLICT, f"the queue {queue.name!r} has a consumer, and may have only one")

        def found(place: Place | Exception) -> None:
            if isinstance(place, Forbidden):
                raise Refusal(FORBIDDEN, str(place))
            if isinstance(place, LookupError):
                raise Refusal(NOT_FOUND, str(place.args[0]))
            if isinstance(place, Exception):
                call.failed(place)
            elif place is queue:
                raise Refusal(BAD_REQUEST, "they are there already")
            else:
                _Mover(self._broker, call, queue, place, min(most, queue.messages)).begin()

        wish = call.link.wish
        self._broker.find(to, call.then(found), user=wish.user, connection=wish.connection)


class _Mover:
    """One move, in the place of a consumer."""

    def __init__(self, broker: Broker, call: Call, queue: Queue, place: Place, most: int) -> None:
        self.terminal = self
        self._broker = broker
        self._call = call
        self._queue = queue
        self._place = place
        self._left = most
        self._moved = 0
        self._lsn = 0
        self.unsettled: dict[Entry, None] = {}
        """All that it has, as a consumer has it."""
        self._mine: deque[Entry] = deque()
        self._ended = False
        self._turning = False

    def begin(self) -> None:
        self._queue.consumers.append(self)
        if self._queue.replicated and self._broker.cluster is not None:
            self._broker.cluster.consuming(self._queue)
        self._ask()

    # ---- as a consumer --------------------------------------------------------------------------------------------

    def room(self) -> int:
        return 0 if self._turning or self._ended else min(AT_ONCE - len(self._mine), self._left)

    def take(self, entries: list[Entry]) -> None:
        self.unsettled.update(dict.fromkeys(entries))
        self._mine.extend(entries)
        self._left -= len(entries)
        self._turn()

    def handed_out(self) -> None:
        if self._queue.is_reading_for(self):
            return
        self._queue.draining.pop(self, None)
        if not self._mine and not self._turning:
            self._end()

    # ---- moving ---------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """For the next ones; what there is comes now, or when it was read."""
        if self._ended:
            return
        if self._left <= 0:
            self._end()
            return
        self._queue.draining[self] = None
        self._broker.touch(self._queue)

    def _turn(self) -> None:
        """What was taken is moved in a step of its own."""
        if not self._turning:
            self._turning = True
            self._broker.reader.next_step(self._step)

    def _step(self) -> None:
        self._turning = False
        while self._mine and not self._ended:
            entry = self._mine[0]
            if entry.gone:
                self._done()
            elif entry.content is None:
                self._turning = True
                self._broker.reader.load_whole([entry.message_id], self._loaded)
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
            lsn = self._broker.returns.move(self._queue, entry, self._place, marked, self._refused)
        except MessageLocked:
            lsn = None
        except CairnError as error:
            self._end(error)
            return
        if lsn is None:  # it goes back in the end, or it would be taken again and again
            self._mine.popleft()
            return
        self._done()
        self._lsn = max(self._lsn, lsn)
        self._moved += 1

    def _refused(self) -> None:
        """Where one was to go nothing was any more, in a cluster: it stays."""
        self._moved -= 1

    def _done(self) -> Entry:
        """The first one is its own no longer; a purge may have taken it before (`Queue.forget`)."""
        entry = self._mine.popleft()
        self.unsettled.pop(entry, None)
        return entry

    def _end(self, error: CairnError | None = None) -> None:
        """Everything that was not moved goes back; the answer goes out when the rest is durable."""
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
            if entry.gone:
                continue
            if queue.replicated:
                self._broker.order_back(queue, entry, False, _nothing)
            else:
                queue.give_back(entry)
        self._broker.touch(queue)
        if queue.replicated and self._broker.cluster is not None:
            self._broker.order_all_back()
            self._broker.cluster.not_consuming(queue)
        self._broker.line.when_durable(self._lsn, self._broker.when_answered, partial(self._answer, error))

    def cut_off(self) -> list[Entry]:
        """The member has lost its cluster: what it has is not its own any more, and nobody is there to be answered."""
        self._ended = True
        self._queue.draining.pop(self, None)
        if self in self._queue.consumers:
            self._queue.consumers.remove(self)
        self._mine.clear()
        held, self.unsettled = self.unsettled, {}
        return [entry for entry in held if not entry.gone]

    def _answer(self, error: CairnError | None) -> None:
        if error is not None:
            self._call.failed(error, {"moved": self._moved})
        else:
            self._call.answer({"moved": self._moved})

    def failure(self, condition: str, description: str) -> None:
        """The queue is gone, and there is nothing more to move."""
        self._end()


def _nothing() -> None:
    """Nobody waits for that."""
