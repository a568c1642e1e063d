"""Senders to passthrough addresses: drivers of channels on which a client sends.

A message in pieces is forwarded from its first piece on (C30). Content that the slowest receiver has not taken is held
in memory. Beyond `AHEAD_BYTES` for one sender its link is held: it is not read any more, so the session's window
closes, and the client waits. Core only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...amqp.codec.primitives import Malformed
from ...amqp.codec.user_id_check import NotTheSender, Walk, condition_of, vouch
from ...amqp.ports import ABORTED, MORE, SETTLED, Answer, Delivery, Error, Fragment, TerminalEnd
from ..kernel.context import CoreContext
from ..kernel.memory_budget import ENTRY_BYTES, NO_MEMORY
from ..links.context import LinkContext
from .address import PassthroughAddress, PassthroughTable, finish
from .delivery import ACCEPTANCE, ForwardedDelivery, StreamingMessage, UnstoredDriver

AHEAD_BYTES = 1 << 20
"""Bytes that a sender may be ahead of the slowest receiver of its messages."""
LEAST_AHEAD_BYTES = 64 << 10
"""Bytes that a sender may be ahead when no memory is left."""
SESSION_WINDOW_BYTES = 4 << 20
"""The session window if there are such addresses: the bytes that a client may send beyond that before it waits."""


class PassthroughSender(UnstoredDriver):
    """A producer that forwards complete messages and reports their outcomes to the client."""

    def __init__(self, core: CoreContext) -> None:
        """`terminal` is set after the construction."""
        self.closed = False
        self._memory = core.memory

    def routable_again(self) -> None:
        """Resume, since the address has a receiver again."""

    def forward_to(self, place: PassthroughAddress, fragments: Sequence[Fragment]) -> None:
        """Forward complete messages to the receivers of *place*."""
        if self._memory.free_bytes <= 0:
            deliveries = [fragment[0] for fragment in fragments]
            credit = self._credit(len(deliveries))
            self.terminal.reject(deliveries, credit, "amqp:resource-limit-exceeded", NO_MEMORY)
            return
        passages: list[tuple[ForwardedDelivery, bytes]] = []
        taken_bytes = 0
        for delivery, content, flags in fragments:
            size_bytes = len(content) + ENTRY_BYTES
            taken_bytes += size_bytes
            passages.append((ForwardedDelivery(self, delivery, size_bytes, settled=bool(flags & SETTLED)), content))
        self._memory.used_bytes += taken_bytes
        place.distribute(passages)

    def finish(self, passages: Sequence[ForwardedDelivery]) -> None:
        """Report the outcomes of *passages*, which are final now."""
        freed_bytes = 0
        over: list[ForwardedDelivery] = []
        for passage in passages:
            passage.done = True
            freed_bytes += passage.size_bytes
            if passage.arriving is None or passage.arriving.ended:
                over.append(passage)
            elif not self.closed:
                self.terminal.tell([passage.outcome_for_sender(settled=False)], 0)
        self._memory.used_bytes -= freed_bytes
        if over and not self.closed:
            self._answer(over)

    def _answer(self, passages: Sequence[ForwardedDelivery]) -> None:
        accepted: list[Delivery] = []
        unwanted: list[Delivery] = []
        reported: list[Answer] = []
        for passage in passages:
            if passage.settled:
                unwanted.append(passage.delivery)
            elif passage.was_accepted:
                accepted.append(passage.delivery)
            else:
                reported.append(passage.outcome_for_sender())
        if accepted:
            self.terminal.confirm(accepted, self._credit(len(accepted)))
        if unwanted:
            self.terminal.release(unwanted, self._credit(len(unwanted)))
        if reported:
            self.terminal.tell(reported, self._credit(len(reported)))


class StreamingSender(PassthroughSender):
    """A producer that also forwards messages in pieces, from their first piece on."""

    def __init__(self, core: CoreContext) -> None:
        super().__init__(core)
        self._post = core.post
        self._current: ForwardedDelivery | None = None
        """The message that is arriving in pieces."""
        self._wrong: Error | None = None
        """The error with which the message that is arriving is refused at its end."""
        self._streams: list[StreamingMessage] = []
        """Messages that arrived in pieces and that not all receivers have read to the end."""
        self._ahead_bytes = 0
        """The bytes ahead of the receivers, as counted in the memory budget."""
        self._held = False

    def _begin(self, passage: ForwardedDelivery, place: PassthroughAddress) -> None:
        """Begin a message for *place*."""
        self._current = passage
        passage.arriving = StreamingMessage(place.take_back, lambda: self._post(self._look))
        self._memory.used_bytes += ENTRY_BYTES
        self._streams.append(passage.arriving)
        place.distribute([(passage, None)])

    def _append(self, passage: ForwardedDelivery, data: bytes, flags: int) -> None:
        """Write the next piece of the current message. The last one ends it, with the error if it is refused."""
        arriving, last = passage.arriving, not flags & MORE
        assert arriving is not None
        if not passage.done:
            arriving.write(data, last=last)
            arriving.wake()
        if last:
            arriving.ended = True
            self._current = None
            passage.settled = bool(flags & SETTLED)
            if self._wrong is not None:
                self._refuse(passage.delivery)
            elif passage.done:
                self._answer((passage,))
            else:
                self._all_came(passage, arriving)

    def _all_came(self, passage: ForwardedDelivery, arriving: StreamingMessage) -> None:
        """Accept a complete message for receivers that give no outcome: presettled, or without one if it is settled."""
        takers = [one for one in arriving.copies.values() if one is not None]
        over = [one for one in takers if one.presettled or (passage.settled and not one.tells_of_settled)]
        received = [passage.hear(ACCEPTANCE) for one in over]
        if any(received):
            finish((passage,))

    def _refuse(self, delivery: Delivery) -> None:
        """Refuse the message that has arrived completely, with the error found in it."""
        wrong, self._wrong = self._wrong, None
        assert wrong is not None
        self.terminal.reject((delivery,), self._credit(1), *wrong[:2])

    def _take_back(self, delivery: Delivery) -> None:
        """End the current message, which its sender aborted."""
        passage, self._current, self._wrong = self._current, None, None
        if passage is not None:
            self._abort(passage)
        self.terminal.release((delivery,), self._credit(1))

    def _end_current(self) -> None:
        """Withdraw the message that is incomplete when the link closes."""
        if self._current is not None:
            self._abort(self._current)
        self._memory.used_bytes -= self._ahead_bytes
        self._ahead_bytes = 0

    def _abort(self, passage: ForwardedDelivery) -> None:
        """Withdraw the current message, unless it has an outcome."""
        if passage.done:
            return
        passage.done = True
        self._memory.used_bytes -= passage.size_bytes
        arriving = passage.arriving
        assert arriving is not None
        arriving.take_back(passage)
        for receiver in arriving.copies.values():
            if receiver is not None:
                receiver.taken_back()
        arriving.abort()
        self._streams.remove(arriving)

    def _look(self) -> None:
        """Hold the link if its messages are too far ahead of the receivers, and resume it otherwise."""
        if self.closed:
            return
        most_bytes = AHEAD_BYTES if self._memory.free_bytes > 0 else LEAST_AHEAD_BYTES
        held = self._count() > (most_bytes // 2 if self._held else most_bytes)
        while held:
            behind = [stream.is_behind() for stream in self._streams]  # each of them must report
            if any(behind):
                break
            held = self._count() > most_bytes // 2  # they have taken everything meanwhile
        if held != self._held:
            self._held = held
            if held:
                self.terminal.hold()
            else:
                self.terminal.go_on()
        if not held:
            for stream in self._streams:
                if stream.ended:  # no other event triggers the next check
                    stream.tell_when_read()

    def _count(self) -> int:
        """Return the bytes by which messages are ahead of the receivers, and count them in the memory budget."""
        self._streams = [one for one in self._streams if one.backlog_bytes or not one.ended]
        ahead_bytes = sum(one.backlog_bytes for one in self._streams)
        self._memory.used_bytes += ahead_bytes - self._ahead_bytes
        self._ahead_bytes = ahead_bytes
        return ahead_bytes


class PassthroughProducer(StreamingSender):
    """The driver of a link on which a client sends to one address."""

    def __init__(
        self,
        links: LinkContext,
        addresses: PassthroughTable,
        terminal: TerminalEnd,
        place: PassthroughAddress,
        *,
        user: str,
        credit: int,
    ) -> None:
        super().__init__(links.core)
        self.terminal = terminal
        self._addresses = addresses
        self._place = place
        self._user = user
        self._vouch = links.vouches
        self._transactions = links.transactions
        self._owed = 0
        """Credit for when there is a receiver."""
        self._walk: Walk | None = None
        addresses.use(place)
        place.senders[self] = None
        self.first_credit = self._credit(credit)

    def receive(self, fragments: Sequence[Fragment]) -> None:
        complete: list[Fragment] = []
        for fragment in fragments:
            if not fragment[2] & (MORE | ABORTED) and self._current is None:
                complete.append(fragment)
                continue
            if complete:
                self._put_complete(complete)
                complete = []
            self._grow(*fragment)
        if complete:
            self._put_complete(complete)
        if self._streams or self._held:
            self._look()

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """Close the sender: forward complete messages without their outcomes, and withdraw a partial one."""
        self.closed = True
        self._end_current()
        self._place.senders.pop(self, None)
        self._addresses.look_whether_over(self._place)

    def routable_again(self) -> None:
        owed, self._owed = self._owed, 0
        if owed:
            self.terminal.grant(owed)

    def _credit(self, wanted: int) -> int:
        if self._place.routable:
            return wanted
        self._owed += wanted
        return 0

    def _put_complete(self, fragments: list[Fragment]) -> None:
        if self._vouch:
            fragments = [fragment for fragment in fragments if self._is_from_user(fragment)]
        if fragments:
            self.forward_to(self._place, fragments)

    def _is_from_user(self, fragment: Fragment) -> bool:
        try:
            vouch(fragment[1], self._user)
        except (NotTheSender, Malformed) as error:
            self.terminal.reject((fragment[0],), self._credit(1), *condition_of(error))
            return False
        return True

    def _grow(self, delivery: Delivery, data: bytes, flags: int) -> None:
        if flags & ABORTED:
            self._take_back(delivery)
            return
        if self._current is None:
            self._walk = Walk(self._user) if self._vouch else None
            self._begin(ForwardedDelivery(self, delivery, ENTRY_BYTES, settled=False), self._place)
        passage = self._current
        assert passage is not None
        if self._walk is not None:
            self._walk_on(passage, self._walk, data, last=not flags & MORE)
        self._append(passage, data, flags)

    def _walk_on(self, passage: ForwardedDelivery, walk: Walk, data: bytes, *, last: bool) -> None:
        """Check the next piece; if it becomes invalid, receivers abort their parts of the message."""
        try:
            walk.feed(data, last=last)
        except (NotTheSender, Malformed) as error:
            self._walk, self._wrong = None, Error(*condition_of(error))
            self._abort(passage)
