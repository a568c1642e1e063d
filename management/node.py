"""The node `$management`: an endpoint on the core itself, reached like any other address (router guide C14, C18).

Requests arrive on links to it, or through the anonymous relay. A response goes to the request's reply-to, which is

* the target's address of a link of the same connection whose source is `$management`;
* missing, or `$management`: the last such link;
* else an existing node, such as a queue that the client created for its replies.

A request whose response has no destination is refused, and nothing is done. Long operations are done in steps, between
which the core serves other clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..amqp.codec.primitives import Malformed
from ..amqp.ports import ABORTED, MORE, SETTLED, Delivery, Fragment, Open, TerminalEnd
from ..broker.kernel.connections import ClientLink, Connection
from ..broker.kernel.context import CoreContext
from ..broker.kernel.idle_driver import IdleDriver
from ..broker.nodes.access_control import SEND
from ..broker.nodes.replication_port import Members
from ..broker.nodes.targets import keeps_messages, owner_of
from .protocol.call import Call, CallServices
from .protocol.replies import Receiver, put
from .protocol.request import MAX_REQUEST_BYTES, Envelope, envelope, shown
from .protocol.turns import Turns

ADDRESS = "$management"
CREDIT = 64
"""Requests that a link may have unanswered."""
Reply = Callable[[bytes], None]


@dataclass(eq=False, repr=False)
class Management:
    """The node. Core only."""

    _core: CoreContext
    _services: CallServices
    _members: Members
    _do: Callable[[Call], None]

    def __post_init__(self) -> None:
        self._connections, self._resolver = self._services.connections, self._services.resolver
        self._receivers: dict[Connection, dict[Receiver, str]] = {}
        self.background = self._core.background
        self.turns = Turns(self.background)

    def open(self, attach: Open, terminal: TerminalEnd) -> None:
        """Open a link to the node, or from it."""
        link = self._connections.links.get(terminal)
        if link is None or attach.terminus.browse:
            terminal.failure("amqp:not-allowed", f"{ADDRESS} can't be browsed; use a consuming link")
        elif not attach.to_client:
            terminal.opened(Requests(self, terminal, attach.user), None, CREDIT)
        else:
            there = self._receivers.setdefault(link.connection, {})

            def ended(receiver: Receiver) -> None:
                if there.pop(receiver, None) is not None and not there:
                    del self._receivers[link.connection]

            requester = partial(self.turns.of, link.connection, attach.user)
            receiver = Receiver(terminal, ended, lambda change_bytes: requester().note_waiting(change_bytes))
            there[receiver] = attach.target or ""
            terminal.opened(receiver, None, 0)

    def handle(self, fragments: Sequence[Fragment], terminal: TerminalEnd) -> None:
        """Handle requests, as complete messages. Each returns its credit when it is answered."""
        for delivery, content, flags in fragments:
            refusal = self._take(content, terminal, bool(flags & SETTLED), delivery)
            if refusal is not None:
                terminal.reject((delivery,), 1, *refusal)

    def _take(self, content: bytes, terminal: TerminalEnd, settled: bool, delivery: Any) -> tuple[str, str] | None:
        """Take a request; return the error if it is refused."""
        link = self._connections.links.get(terminal)
        if link is None:  # it was in flight when its link ended
            return "amqp:not-allowed", "the link was closed"
        if len(content) > MAX_REQUEST_BYTES:
            return "amqp:link:message-size-exceeded", f"a request has up to {MAX_REQUEST_BYTES} bytes"
        try:
            asked = envelope(content)
        except Malformed as error:
            return "amqp:decode-error", str(error)
        reply = self._way_back(link, asked)
        if isinstance(reply, str):
            return "amqp:precondition-failed", reply
        requester = self.turns.of(link.connection, link.attach.user)
        if reason := requester.refusal(len(content)):
            return "amqp:resource-limit-exceeded", reason
        if settled:
            terminal.release((delivery,), 0)
        else:
            terminal.confirm((delivery,), 0)

        def done() -> None:
            terminal.grant(1)
            requester.ended()

        call = Call(self._services, link, asked, reply, done)
        requester.submit(len(content), partial(call.run, content, self._do))
        return None

    def _way_back(self, link: ClientLink, asked: Envelope) -> Reply | str:
        """Return the reply path for the response, or the reason for which it has none."""
        to = asked.reply_to or ADDRESS
        receivers = self._receivers.get(link.connection, {})
        found = next((one for one in reversed(receivers) if to in (ADDRESS, receivers[one])), None)
        if found is not None:
            return found.reply
        if to == ADDRESS:
            return f"there is no reply-to, and no link that receives from {ADDRESS}"
        place = self._resolver.place_of(to)
        if place is None:
            return f"there is no node {shown(to)} for the response"
        if not keeps_messages(place):
            return f"messages are not stored at {shown(to)}, so it can't hold a response"
        if owner_of(place) is not link.attach.connection:
            reason = self._services.denial_reason(link.attach.user, SEND, place.name)
            if reason:
                return reason
        return lambda content: put(self._resolver.nodes.exchanges, self._core.commits, self._members, place, content)


class Requests(IdleDriver):
    """The driver of a link to the node: passes on complete messages, and gathers long ones first.

    Decoding a request is work, too: requests beyond the time of a step wait for a later one. The link's credit limits
    them.
    """

    def __init__(self, node: Management, terminal: TerminalEnd, user: str) -> None:
        self.terminal = terminal
        self._node = node
        self._user = user
        self._waiting: deque[Fragment] = deque()
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def receive(self, fragments: Sequence[Fragment]) -> None:
        is_waiting = bool(self._waiting)
        self._waiting.extend(fragments)
        if not is_waiting:
            self._take()

    def _take(self) -> None:
        """Take one, and others as long as there is time."""
        background = self._node.background
        while self._waiting:
            self._take_one(*self._waiting.popleft())
            if self._waiting and not background.has_time():
                background.put_off(self._take, self._user)
                return

    def _take_one(self, delivery: Delivery, data: bytes, flags: int) -> None:
        if flags & ABORTED:
            self._pieces, self._size_bytes = [], 0
            self.terminal.release((delivery,), 1)
            return
        if self._size_bytes <= MAX_REQUEST_BYTES:  # the node refuses a longer one
            self._pieces.append(data)
            self._size_bytes += len(data)
        if not flags & MORE:
            content = b"".join(self._pieces)
            self._pieces, self._size_bytes = [], 0
            self._node.handle([(delivery, content, flags)], self.terminal)

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        self.terminal.failure("amqp:not-allowed", "requests take part in no transaction; send them outside of it")

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        while self._waiting:  # requests count though their link is closed, as they did before
            self._take_one(*self._waiting.popleft())
        self._pieces.clear()
