"""The node `$management`: an endpoint on the core itself, reached as any other address is (router guide C14, C18).

Requests come on links to it, or through the anonymous relay. A response goes to the request's reply-to, which is

* the target's address of a link of the same connection whose source is `$management`;
* missing, or `$management`: the last such link;
* else a node, which must be there already: one that the client had made for its replies, mostly.

A request whose response could go nowhere is refused, and nothing is done. What takes long is done in steps, between
which the core does what others want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..amqp.codec import Malformed
from ..broker.access import SEND
from ..broker.connections import Connection, Link
from ..broker.direct import Direct
from ..broker.queue import Queue
from ..channel.words import ABORTED, MORE, SETTLED, Fragment, Open, Outcome, TerminalEnd
from .call import Call, WhyNot
from .entity import Type
from .replies import MOST_WAITING_BYTES, Receiver, put
from .request import MAX_REQUEST_BYTES, Envelope, envelope, shown

if TYPE_CHECKING:
    from ..broker.broker import Broker

ADDRESS = "$management"
CREDIT = 64
"""Requests that a link may have unanswered."""
TOO_LONG = "amqp:link:message-size-exceeded", f"a request has up to {MAX_REQUEST_BYTES} bytes"
Reply = Callable[[bytes], None]


class Management:
    """The node. Core only."""

    def __init__(self, broker: Broker, types: Iterable[Type], why_not: WhyNot, do: Callable[[Call], None]) -> None:
        self.broker = broker
        self.types = {type.name: type for type in types}
        self.why_not = why_not
        self._do = do
        self._receivers: dict[Connection, dict[Receiver, str]] = {}

    def open(self, wish: Open, terminal: TerminalEnd) -> None:
        """A link to the node, or from it."""
        link = self.broker.connections.links.get(terminal)
        if link is None or wish.terminus.browse:
            terminal.failure("amqp:not-allowed", f"{ADDRESS} can't be used so")
        elif not wish.to_client:
            terminal.opened(Requests(self, terminal), None, CREDIT)
        else:
            there = self._receivers.setdefault(link.connection, {})

            def gone(receiver: Receiver) -> None:
                if there.pop(receiver, None) is not None and not there:
                    del self._receivers[link.connection]

            receiver = Receiver(terminal, gone)
            there[receiver] = wish.target or ""
            terminal.opened(receiver, None, 0)

    def post(self, fragments: Sequence[Fragment], terminal: TerminalEnd) -> None:
        """Requests, whole messages. Each gives its credit back when it is answered."""
        for delivery, content, flags in fragments:
            refusal = self._take(content, terminal, bool(flags & SETTLED), delivery)
            if refusal is not None:
                terminal.reject((delivery,), 1, *refusal)

    def _take(self, content: bytes, terminal: TerminalEnd, settled: bool, delivery: Any) -> tuple[str, str] | None:
        """Why the request is not taken; None if it is."""
        link = self.broker.connections.links.get(terminal)
        if link is None:  # it crossed with the end of its link
            return "amqp:not-allowed", "the link is gone"
        if len(content) > MAX_REQUEST_BYTES:
            return TOO_LONG
        try:
            asked = envelope(content)
        except Malformed as error:
            return "amqp:decode-error", str(error)
        reply = self._way_back(link, asked)
        if isinstance(reply, str):
            return "amqp:precondition-failed", reply
        if settled:
            terminal.release((delivery,), 0)
        else:
            terminal.confirm((delivery,), 0)
        Call(self, link, asked, reply, lambda: terminal.grant(1)).run(content, self._do)
        return None

    def _way_back(self, link: Link, asked: Envelope) -> Reply | str:
        """How the response gets to its place, or why it can't."""
        to = asked.reply_to or ADDRESS
        receivers = self._receivers.get(link.connection, {})
        found = next((one for one in reversed(receivers) if to in (ADDRESS, receivers[one])), None)
        if found is not None:
            if found.waiting_bytes > MOST_WAITING_BYTES:
                return "too many responses wait for credit"
            return found.reply
        if to == ADDRESS:
            return f"there is no reply-to, and no link that receives from {ADDRESS}"
        place = self.broker.place_of(to)
        if isinstance(place, Direct):
            return f"nothing is kept at {shown(to)}, so no response can wait there"
        if place is None:
            return f"there is no node {shown(to)} for the response"
        if not isinstance(place, Queue) or place.owner is not link.wish.connection:
            why = self.why_not(link.wish.user, SEND, place.name)
            if why:
                return why
        return lambda content: put(self.broker, place, content)


class Requests:
    """The driver of a link to the node: whole messages go on, long ones are gathered first."""

    def __init__(self, node: Management, terminal: TerminalEnd) -> None:
        self.terminal = terminal
        self._node = node
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def post(self, fragments: Sequence[Fragment]) -> None:
        for delivery, data, flags in fragments:
            if flags & ABORTED:
                self._pieces, self._size_bytes = [], 0
                self.terminal.release((delivery,), 1)
                continue
            self._size_bytes += len(data)
            if self._size_bytes <= MAX_REQUEST_BYTES:
                self._pieces.append(data)
            else:
                self._pieces.clear()
            if flags & MORE:
                continue
            size_bytes, pieces = self._size_bytes, self._pieces
            self._pieces, self._size_bytes = [], 0
            if size_bytes > MAX_REQUEST_BYTES:
                self.terminal.reject((delivery,), 1, *TOO_LONG)
            else:
                self._node.post([(delivery, b"".join(pieces), flags)], self.terminal)

    def post_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        self.terminal.failure("amqp:not-allowed", "requests take part in no transaction")

    def request(self, limit: int, drain: bool) -> None:
        """A client that sends wants nothing."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing was forwarded, so nothing is answered."""

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """The same."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._pieces.clear()
