"""The interface between a terminal and a driver (AMQ RFC005), a batch at a time.

A *channel* is one link. Its *terminal* end belongs to the worker, which speaks AMQP. Its *driver* end belongs to the
core, which decides.

All calls except `lookup` are asynchronous (F20): calls of a terminal reach the driver as actions of the core, calls of
a driver reach the terminal as work of its connection, in the order of the calls. Nothing is copied (F24): a fragment is
passed on as the bytes that were read.

The terms of RFC005, and the methods here:

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

from .links.attach import Attach as Attach
from .links.resume_state import Arrival as Arrival
from .links.resume_state import Claims as Claims
from .links.resume_state import KeptLink as KeptLink
from .links.resume_state import Resumable as Resumable
from .links.stream_cursor import StreamCursor as StreamCursor
from .links.values import ABORTED as ABORTED
from .links.values import MORE as MORE
from .links.values import SETTLED as SETTLED
from .links.values import Answer as Answer
from .links.values import Content as Content
from .links.values import ContentRemoved as ContentRemoved
from .links.values import Error as Error
from .links.values import Fragment as Fragment
from .links.values import Outcome as Outcome
from .links.values import Terminus as Terminus

Delivery = Any
"""A terminal's handle of an incoming or outgoing delivery; the driver only returns it."""

Forward = tuple[Any, bytes | Content | StreamCursor]
"""A message to a client: the driver's tag, which comes back with the outcome, and the content."""


NOT_ACQUIRED = "amqp:not-implemented", "messages are not acquired in transactions on this link, only settled in them"
"""The error of a link whose flow names a transaction, where its driver is no `AcquiringEnd`."""


class Open(NamedTuple):
    """A client's request to open a channel."""

    to_client: bool
    """True if the client receives."""
    terminus: Terminus = Terminus()
    """The terminus that the client requests on this side."""
    presettled: bool = False
    """True if messages to the client are settled when they are sent: at most once."""
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
    """The number of the channel's session on its connection, from 1."""
    attach: Attach | None = None
    """The complete attach, where `Drivers.is_routed` is true; else None."""
    may_create: bool = True
    """False if the address must lead to a node that exists."""
    relayed: bool = False
    """True if the broker itself attached the link at another container, which checks who sent its messages."""


IDLE = "idle for "
"""The beginning of the reason why a connection ended whose client sent nothing for too long."""


class DriverEnd(Protocol):
    """The core's end of a channel. Called on the core only."""

    def receive(self, fragments: Sequence[Fragment]) -> None:
        """Receive messages, or pieces of them, from the client: RFC005 calls this *post* (F6 to F9)."""

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        """Enqueue messages in the transaction that the client of *connection* knows as *txn_id*."""

    def request(self, limit: int, drain: bool) -> None:
        """Set the limit of messages for the client to *limit*, counted on this channel (F10); *drain* does not wait."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Apply the client's outcomes of forwarded messages (F22)."""

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """Note the client's outcomes of forwarded messages, to be applied when their transactions are committed."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """Handle that the channel is closed (F5). *returned*: tags without an outcome; *lost*: no detach was received.

        *for_good*: the client closed the link, which deletes the nodes made for it; else it only detached, and a
        durable link waits for the client to come back. The call is repeated for messages that were in flight when it
        was made.
        """


@runtime_checkable
class AcquiringEnd(DriverEnd, Protocol):
    """The core's end of a channel on which messages can be acquired in a transaction. Called on the core only."""

    def acquire_in(self, connection: object, txn_id: bytes, limit: int, drain: bool) -> None:
        """Set the limit as `request` does; dispatched messages belong to that transaction until its discharge.

        An empty *txn_id* stands for no transaction.
        """


class ResumingEnd(Protocol):
    """The additional interface of a driver whose channel was opened with a `KeptLink`. Called on the core only."""

    def receive_resuming(self, arrivals: Sequence[Arrival]) -> None:
        """Receive messages as `receive` does, with their tags and resumption."""

    def receive_resuming_in(self, connection: object, txn_id: bytes, arrivals: Sequence[Arrival]) -> None:
        """Receive messages as `receive_in` does, with their tags and resumption."""

    def forget(self, tag: bytes) -> None:
        """Handle that the client has settled the delivery of that tag."""


@runtime_checkable
class RoutedEnd(DriverEnd, Protocol):
    """The additional interface of a driver whose link is part of a longer one. Called on the core only."""

    def drained(self, given_back: int) -> None:
        """Handle that the sending peer has nothing more for that much credit."""

    def settled(self, delivery: Delivery) -> None:
        """Handle that the sending peer has settled a delivery whose outcome it received."""


class ConnectionEnd(Protocol):
    """The worker's end of a connection, as seen from outside of its channels."""

    name: str
    """The address of the client, as host:port."""
    certified: str
    """The user that the client's certificate names; empty for none."""
    certificate: bytes
    """The client's certificate, in DER; empty without one."""
    stored_key: bytes
    """The key of the password that the client proved; empty without one."""

    @property
    def container(self) -> str:
        """Return the client's AMQP container ID. Any thread."""

    @property
    def user(self) -> str:
        """Return the user that the client is authenticated as. Any thread, once it has opened the connection."""

    def idle_s(self) -> float | None:
        """Return the seconds since bytes of the client last arrived; None if unknown. Any thread."""

    def expel(self, description: str, *, elsewhere: bool = False) -> None:
        """Close the connection with `amqp:connection:forced`. Called on the core; done later, on the worker.

        *elsewhere*: other brokers may serve this client; the error lists the known ones.
        """


class OutwardEnd(ConnectionEnd, Protocol):
    """The worker's end of a connection that the broker has opened to another container."""

    def attach(
        self, asked: Attach, driver: DriverEnd, answered: Callable[[Attach], None], *, sends: bool, priority: int = 4
    ) -> AttachedEnd:
        """Request a link on which this side *sends* or receives (C42). Called on the core; done later, on the worker.

        *answered* is called on the core with the peer's attach. If the peer refuses, or the connection closes, *driver*
        gets the end of the channel. A `RoutedEnd` gets further events.
        """


class TerminalEnd(Protocol):
    """The worker's end of a channel. Called on the core; the work is done later, on the worker."""

    driver: DriverEnd | None
    """The driver that the channel was opened with; None before that. Any thread."""

    @property
    def error(self) -> Error | None:
        """The error with which the peer ended the link; None before that. Any thread."""

    @property
    def client(self) -> str:
        """Return the address and the AMQP container ID of the client, for people. Any thread."""

    @property
    def lost_reason(self) -> str:
        """Return why the connection ended, such as `idle for 60 s`; empty if that is unknown. Any thread."""

    @property
    def credit(self) -> int:
        """Return how many messages a peer that sends may send, beyond those that were read. Any thread."""

    def opened_as(self, driver: RoutedEnd, found: Attach) -> None:
        """Open the channel as part of a longer link (C60), with the answer of another container."""

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
        """Open the channel; *address* if a node was made for it; *credit* messages may be posted.

        *filters* is the encoded set of the applied filters; *found* is the answer to a client that asked, without a
        source, for the subscription of the link's name. *kept*: the link resumes, with these unsettled deliveries.
        """

    def failure(self, condition: str, description: str) -> None:
        """Close the channel with that AMQP error; it cannot be opened, or not continue."""

    def confirm(self, deliveries: Sequence[Delivery], credit: int) -> None:
        """Settle posted messages as accepted, since they are stored or need no storing, and return the credit."""

    def release(self, deliveries: Sequence[Delivery], credit: int) -> None:
        """Settle posted messages that want no outcome, and return the credit."""

    def hand_back(self, deliveries: Sequence[Delivery], credit: int) -> None:
        """Settle posted messages as released, because they have no receiver now, and return the credit."""

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        """Settle posted messages as rejected, with that AMQP error."""

    def refuse_relayed(
        self, delivery: Delivery, condition: str, description: str, *, is_settled: bool, txn_id: bytes = b""
    ) -> None:
        """Refuse a message of a link to the anonymous terminus, with an error that names its delivery-tag.

        Rejects it, in the transaction *txn_id* if given, if its sender awaits an outcome and its source offers
        `rejected`; otherwise closes the link.
        """

    def tell(self, answers: Sequence[Answer], credit: int) -> None:
        """Settle posted messages with the outcomes of their receivers."""

    def hold(self, *, for_routing: bool = False) -> None:
        """Stop reading this client's link until `go_on`: the session's window makes the client wait.

        The links of a connection that may send in transactions are read on, as a discharge must not overtake messages.
        *for_routing*: messages wait to be routed, which needs nothing from the client. Such a connection is not read,
        and neither is one on which a link with such messages was closed.
        """

    def go_on(self, *, for_routing: bool = False) -> None:
        """Resume reading the client's link, which was held for the same reason."""

    def more(self) -> None:
        """Send the next part of a message that was forwarded while it arrived: more content, its end, or its abort."""

    def grant(self, credit: int) -> None:
        """Grant credit for more messages that was not returned with the messages it was spent on."""

    def forward(self, messages: Sequence[Forward]) -> None:
        """Send messages to the client."""

    def when_sent(self, done: Callable[[], None]) -> None:
        """Post *done* to the core when the connection has taken over all messages that were forwarded before.

        One request at a time; *done* is not posted if the link is closed before.
        """

    def forward_in(self, txn_id: bytes, messages: Sequence[Forward]) -> None:
        """Send messages to the client, which are acquired in that transaction."""

    def recall(self, tags: Collection[Any], done: Callable[[], None]) -> None:
        """Recall forwarded messages: those that the client has are released.

        *done* is posted to the core: afterwards no outcome of them arrives, except those that were already in flight.
        """

    def forward_resuming(self, messages: Sequence[Resumable]) -> None:
        """Send messages on a resumable channel, with tags, and whether each is resumed."""

    def drained(self, spent: int) -> None:
        """Return the client's credit: nothing more is available. *spent* is that credit, as the driver counts."""

    def settle(self, deliveries: Sequence[tuple[Delivery, int]]) -> None:
        """Settle with the client's outcomes, which are durable."""

    def declared(self, delivery: Delivery, txn_id: bytes, credit: int) -> None:
        """Settle the request for a transaction with the ID of the new transaction, and return the credit."""

    def accept_in(self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int) -> None:
        """Settle posted messages with an outcome that applies if the transaction is committed; return the credit."""

    def reject_in(
        self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int, condition: str, description: str
    ) -> None:
        """Settle posted messages as rejected; their transaction fails, too."""

    def settle_in(self, deliveries: Sequence[tuple[Delivery, int, Any]], done: Callable[[], None]) -> None:
        """Settle with the client's outcomes in a transaction, which are durable, unless the client has settled.

        Each comes with its tag. *done* is posted to the core: afterwards nothing about these deliveries arrives.
        """


class AttachedEnd(TerminalEnd, Protocol):
    """The end of a channel whose link this side attaches; `opened` connects it with a driver after the answer."""

    on_refusal: Callable[[int], None] | None
    """The callback for the credit of messages without room or target; if set, only invalid messages are rejected.

    The others are released, and their credit is not granted at once, since the same message would come again. Set by
    the core.
    """


class Timer(Protocol):
    """Actions of the core at a time."""

    @property
    def due_s(self) -> float:
        """The time at which `run` is due, in the clock's monotonic seconds. Any thread."""

    def run(self) -> None:
        """Run the due actions. Called on the core."""


class Drivers(Protocol):
    """The source of drivers for terminals (F1). Called on the core, except for `denial_reason_in`."""

    @property
    def scheduler(self) -> Timer: ...

    def is_manager(self, user: str) -> bool:
        """Return whether connections are reserved for *user*, who may make changes by management. Any thread."""

    def denial_reason_in(self, user: str) -> str:
        """Return the reason why *user* may not connect; empty if they may. Any thread."""

    def core_share(self, user: str) -> int:
        """Return the weight of *user* when users wait for one another. Any thread."""

    def most_connections(self, user: str) -> int:
        """Return the number of connections in the quota of *user*; 0 for the general limit. Any thread."""

    def is_routed(self, address: str | None) -> bool:
        """Return whether a link to that address may lead to another container. Any thread."""

    def open(self, attach: Open, terminal: TerminalEnd) -> None:
        """Open a channel; `opened` or `failure` answers, at once or later."""

    def link_closed(self, terminal: TerminalEnd) -> None:
        """Handle that a link for which `open` was called is closed, after its driver if it got one."""

    def connection_opened(self, connection: ConnectionEnd) -> None:
        """Handle that a client has opened AMQP on *connection*."""

    def session_begun(self, connection: object, number: int) -> None:
        """Handle that the client has begun a session, the *number*-th of its connection."""

    def session_ended(self, connection: object, number: int) -> None:
        """Handle that a session has ended, with all links on it."""

    def connection_closed(self, connection: object) -> None:
        """Handle that *connection* is closed, with all its channels."""

    def connected(self, name: str, connection: OutwardEnd) -> None:
        """Handle that the connector *name* has opened a connection."""

    def disconnected(self, name: str, connection: object, reason: str) -> None:
        """Handle that the connector *name* has no connection, or could not open one; *reason* is fit for the log."""

    def when_answered(self, action: Callable[[], None]) -> None:
        """Run *action* once everything posted so far is durable and its confirmation is queued."""

    def held_up(self, then: Callable[[], None]) -> bool:
        """Return whether long messages should pause so that small ones need not (F27).

        If so, *then* is called when they may continue.
        """
