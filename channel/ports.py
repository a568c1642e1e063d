"""The interface between a terminal and a driver (AMQ RFC005), a batch at a time.

A *channel* is one link. Its *terminal* end is the worker's: it speaks AMQP. Its *driver* end is the core's: it decides.
All words but `lookup` are asynchronous (F20): a terminal's words reach the driver as actions of the core, a driver's
words reach the terminal as work of its connection, each in the order they were said. Nothing is copied (F24): a
fragment is passed on as the bytes it was read into.

RFC005's words, and the methods here:

| RFC005 | at the terminal (`TerminalEnd`) | at the driver (`DriverEnd`) |
|---|---|---|
| open | `opened` | `Drivers.open` |
| post | `confirm`, `release`, `reject` answer it | `receive`, `receive_in`, `receive_resuming` |
| request | `drained` answers it | `request`, `acquire_in` |
| forward | `forward`, `forward_in` | |
| confirm | `settle` answers it | `outcomes`, `outcomes_in` |
| failure | `failure` | |
| close | | `close` |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..amqp.links.attach import Attach as Attach
from ..amqp.links.resume_state import Arrival as Arrival
from ..amqp.links.resume_state import Claims as Claims
from ..amqp.links.resume_state import KeptLink as KeptLink
from ..amqp.links.resume_state import Resumable as Resumable
from ..amqp.links.stream_cursor import StreamCursor as StreamCursor
from ..amqp.links.values import ABORTED as ABORTED
from ..amqp.links.values import MORE as MORE
from ..amqp.links.values import SETTLED as SETTLED
from ..amqp.links.values import Answer as Answer
from ..amqp.links.values import Content as Content
from ..amqp.links.values import Error as Error
from ..amqp.links.values import Fragment as Fragment
from ..amqp.links.values import Gone as Gone
from ..amqp.links.values import Outcome as Outcome
from ..amqp.links.values import Terminus as Terminus

Delivery = Any
"""A terminal's handle of an incoming or outgoing delivery; the driver only hands it back."""

Forward = tuple[Any, bytes | Content | StreamCursor]
"""A message on its way to a client: the driver's tag, which comes back with the outcome, and the content."""


NOT_ACQUIRED = "amqp:not-implemented", "messages are not acquired in transactions on this link, only settled in them"
"""The error of a link whose flow names a transaction, where its driver is no `AcquiringEnd`."""


class Open(NamedTuple):
    """A client's wish for a channel."""

    to_client: bool
    """The client wants to receive."""
    terminus: Terminus = Terminus()
    """The terminus that the client requests on this side."""
    presettled: bool = False
    """Messages to the client are settled as they are sent: at most once."""
    connection: object = None
    """The connection of the channel; nodes made for a channel are deleted with it."""
    link_name: str = ""
    container: str = ""
    """The client's AMQP container ID: with the link's name it identifies a durable subscription."""
    user: str = ""
    """The user that the client is authenticated as; empty for an anonymous one."""
    target: str | None = None
    """The target address that the client gave a link to itself."""
    claims: Claims | None = None
    """Unsettled deliveries that the client claims of a link that it resumes, now or later; None of other links."""
    session: int = 0
    """Which session of the connection it is on, from 1 on."""
    attach: Attach | None = None
    """The complete attach, where `Drivers.is_routed` is true; else None."""
    relayed: bool = False
    """True if the broker itself attached the link at another container, which checks who sent its messages."""


class DriverEnd(Protocol):
    """The core's end of a channel. Called on the core only."""

    def receive(self, fragments: Sequence[Fragment]) -> None:
        """Receive messages, or pieces of them, from the client: RFC005 calls this *post* (F6 to F9)."""

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        """Enqueue messages in the transaction that the client of *connection* knows as *txn_id*."""

    def request(self, limit: int, drain: bool) -> None:
        """The client wants messages up to the *limit*-th of this channel (F10); with *drain*, now or never."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Apply the client's outcomes of forwarded messages (F22)."""

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """Note the client's outcomes of forwarded messages, to be applied when their transactions are committed."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """The channel is gone (F5). *returned*: tags of messages without an outcome; *lost*: nobody said goodbye.

        *for_good*: the client closed the link, and so gave up what was made for it; else it only went away, and what
        is to outlast the link waits for it to come back. Said again for messages that crossed with it.
        """


@runtime_checkable
class AcquiringEnd(DriverEnd, Protocol):
    """The core's end of a channel on which messages can be handed out in a transaction. Called on the core only."""

    def acquire_in(self, connection: object, txn_id: bytes, limit: int, drain: bool) -> None:
        """As `request`. What is handed out from now on is in that transaction until its discharge; in none if empty."""


class ResumingEnd(Protocol):
    """The additional interface of a driver whose channel was opened with `KeptLink` state. Called on the core only."""

    def receive_resuming(self, arrivals: Sequence[Arrival]) -> None:
        """Receive messages as `receive` does, with their tags and resumption."""

    def receive_resuming_in(self, connection: object, txn_id: bytes, arrivals: Sequence[Arrival]) -> None:
        """Receive messages as `receive_in` does, with their tags and resumption."""

    def forget(self, tag: bytes) -> None:
        """The client has settled the delivery of that tag."""


@runtime_checkable
class RoutedEnd(DriverEnd, Protocol):
    """The additional interface of a driver whose link is part of a longer one. Called on the core only."""

    def drained(self, given_back: int) -> None:
        """The peer, which sends, has nothing more for that much credit."""

    def settled(self, delivery: Delivery) -> None:
        """Handle that the sending peer has settled a delivery whose outcome it received."""


class ConnectionEnd(Protocol):
    """The worker's end of a connection, for who looks at it from outside its channels."""

    name: str
    """The address of the client, as host:port."""
    certified: str
    """The user that the client's certificate names; empty for none."""
    certificate: bytes
    """The client's certificate, in DER; empty if it has shown none."""

    @property
    def container(self) -> str:
        """The client's container id. Any thread."""

    @property
    def user(self) -> str:
        """Return the user that the client is authenticated as. Any thread, once it has opened the connection."""

    def expel(self, description: str, *, elsewhere: bool = False) -> None:
        """Close the connection with `amqp:connection:forced`. Called on the core; done later, on the worker.

        *elsewhere*: other brokers may serve this client; it is told of those that are known.
        """


class OutwardEnd(ConnectionEnd, Protocol):
    """The worker's end of a connection that the broker has opened to another container."""

    def attach(
        self, asked: Attach, driver: DriverEnd, answered: Callable[[Attach], None], *, sends: bool, priority: int = 4
    ) -> AttachedEnd:
        """Ask for a link on which this side *sends* or receives (C42). Called on the core; done later, on the worker.

        *answered* is done on the core with what the peer says. That it refuses, or that the connection is gone,
        *driver* hears as the end of the channel. A `RoutedEnd` is told more.
        """


class TerminalEnd(Protocol):
    """The worker's end of a channel. Called on the core; the work is done later, on the worker."""

    driver: DriverEnd | None
    """The driver that the channel was opened with; None before that. Any thread."""

    @property
    def error(self) -> Error | None:
        """Why the peer ended the link, once it has. Any thread."""

    def opened_as(self, driver: RoutedEnd, found: Attach) -> None:
        """The channel is open, and part of a longer one (C60): it is answered as another container has answered."""

    def ask(self, credit: int, *, drain: bool) -> None:
        """Change the number of messages that may be posted by *credit*, also downwards; *drain* requests them now."""

    def leave(self, error: Error | None, *, for_good: bool) -> None:
        """End the link as another container did."""

    def opened(
        self,
        driver: DriverEnd,
        address: str | None,
        credit: int,
        *,
        filters: bytes = b"",
        found: Terminus | None = None,
        kept: KeptLink | None = None,
    ) -> None:
        """The channel is open; *address* if a node was made for it; *credit* messages may be posted.

        *filters* is the encoded set of those that are applied; *found* what a client is told that asked, without a
        source, what there was under the link's name. *kept*: the link resumes, and this is unsettled here.
        """

    def failure(self, condition: str, description: str) -> None:
        """The channel can't be opened, or not go on: close it with that AMQP error."""

    def confirm(self, deliveries: Sequence[Delivery], credit: int) -> None:
        """Posted messages are stored, or need no storing: settle them as accepted, and give back the credit."""

    def release(self, deliveries: Sequence[Delivery], credit: int) -> None:
        """Settle posted messages that want no outcome, and give back the credit."""

    def hand_back(self, deliveries: Sequence[Delivery], credit: int) -> None:
        """Settle posted messages as released, because they have no receiver now, and return the credit."""

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        """Posted messages are refused, with that AMQP error."""

    def refuse_relayed(self, delivery: Delivery, condition: str, description: str, *, is_settled: bool) -> None:
        """Refuse a message of a link to the anonymous terminus, with an error that names its delivery-tag.

        Rejects it if its sender awaits an outcome and its source offers `rejected`; otherwise closes the link.
        """

    def tell(self, answers: Sequence[Answer], credit: int) -> None:
        """Settle posted messages with the outcomes of their receivers."""

    def hold(self) -> None:
        """Read nothing more from this client's link, until `go_on`: the session's window makes it wait."""

    def go_on(self) -> None:
        """Read on from the client's link."""

    def more(self) -> None:
        """Of a message that was forwarded while it still came in, more has come, or its end, or it was aborted."""

    def grant(self, credit: int) -> None:
        """Grant credit for more messages that was not returned with the messages it was spent on."""

    def forward(self, messages: Sequence[Forward]) -> None:
        """Send these to the client."""

    def forward_in(self, txn_id: bytes, messages: Sequence[Forward]) -> None:
        """Send these to the client, and tell that they are acquired in that transaction."""

    def recall(self, tags: Collection[Any], done: Callable[[], None]) -> None:
        """Take forwarded messages back: what the client has of them is released.

        *done* is posted to the core: nothing more is heard of them, but what was on its way there already.
        """

    def forward_resuming(self, messages: Sequence[Resumable]) -> None:
        """Send messages on a resumable channel, with tags, and whether each is resumed."""

    def drained(self, spent: int) -> None:
        """Return the client's credit: nothing more is available. *spent* is that credit, as the driver counts."""

    def settle(self, deliveries: Sequence[tuple[Delivery, int]]) -> None:
        """The outcomes the client gave are durable: settle with them."""

    def declared(self, delivery: Delivery, txn_id: bytes, credit: int) -> None:
        """A transaction was begun: settle the request for it with its id, and give back the credit."""

    def accept_in(self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int) -> None:
        """Posted messages are accepted if the transaction is committed: settle them so, and give back the credit."""

    def reject_in(
        self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int, condition: str, description: str
    ) -> None:
        """Posted messages are refused, and their transaction with them."""

    def settle_in(self, deliveries: Sequence[tuple[Delivery, int, Any]], done: Callable[[], None]) -> None:
        """The outcomes the client gave in a transaction are durable: settle with them where the client has not.

        Each comes with its tag. *done* is posted to the core: nothing more is heard of these deliveries.
        """


class AttachedEnd(TerminalEnd, Protocol):
    """The end of a channel whose link this side attaches; `opened` connects it with a driver after the answer."""

    on_refusal: Callable[[int], None] | None
    """If there is one: a message is rejected only for what is wrong with it. What there is no room or no place for is
    handed back, and this gets its credit: to grant it at once would bring the same message again. The core's."""


class Timer(Protocol):
    """Actions of the core at a time."""

    @property
    def due_s(self) -> float:
        """When `run` is to be called, in the clock's monotonic seconds. Any thread."""

    def run(self) -> None:
        """Do the due actions. On the core."""


class Drivers(Protocol):
    """The source of drivers for terminals (F1). Called on the core, but for `why_not_in`."""

    @property
    def scheduler(self) -> Timer: ...

    def is_manager(self, user: str) -> bool:
        """Return whether connections are reserved for *user*, who may make changes by management. Any thread."""

    def why_not_in(self, user: str) -> str:
        """Why *user* may not connect; empty if they may. Any thread."""

    def core_share(self, user: str) -> int:
        """The weight of *user* where users wait for one another. Any thread."""

    def most_connections(self, user: str) -> int:
        """Return the number of connections in the quota of *user*; 0 for the general limit. Any thread."""

    def resumes(self, user: str, container: str) -> bool:
        """Return whether state is kept for links of that AMQP container ID. Any thread."""

    def is_routed(self, address: str | None) -> bool:
        """Return whether a link to that address may lead to another container. Any thread."""

    def open(self, wish: Open, terminal: TerminalEnd) -> None:
        """Answered by `opened` or `failure`, at once or later."""

    def link_closed(self, terminal: TerminalEnd) -> None:
        """Handle that a link for which `open` was called is closed, after its driver if it got one."""

    def connection_opened(self, connection: ConnectionEnd) -> None:
        """A client has opened AMQP on *connection*."""

    def session_begun(self, connection: object, number: int) -> None:
        """The client has begun a session, the *number*-th of its connection."""

    def session_ended(self, connection: object, number: int) -> None:
        """Handle that a session has ended, with all links on it."""

    def connection_closed(self, connection: object) -> None:
        """Handle that *connection* is closed, with all its channels."""

    def connected(self, name: str, connection: OutwardEnd) -> None:
        """The connector *name* has opened a connection."""

    def disconnected(self, name: str, connection: object, why: str) -> None:
        """Handle that the connector *name* has no connection, or could not open one; *why* is fit for the log."""

    def when_answered(self, action: Callable[[], None]) -> None:
        """Do *action* once all that was posted so far is durable and its confirmation noted down."""

    def held_up(self, then: Callable[[], None]) -> bool:
        """Return whether long messages should pause so that small ones need not (F27). If so, *then* is called later.

        By then they may go on.
        """
