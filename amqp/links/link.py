"""A link of an engine: plain data that the engine fills and the terminal empties."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ..native.proton_ffi import Pointer
from .link_state import TABLE, LinkAction, LinkEvent, LinkState
from .long_send import Sending
from .resume_state import ResumeState
from .stream_cursor import StreamCursor
from .values import DEFAULT_PRIORITY, Content, Error, Fragment, Outcome


class Acquired(NamedTuple):
    """A message on its way to a client that is acquired in a transaction."""

    content: bytes | Content | StreamCursor
    state: bytes
    """The transactional state that its transfers carry, as an encoded list."""


_NO_OUTBOX: deque[Any] = deque(maxlen=0)
"""The outbox of all links on which only the peer sends: an empty deque per link would take 760 bytes."""


class Link:
    """One link. *sender* is this side's view: True when messages go out on it."""

    __slots__ = (
        "acquiring", "awaiting_peer_settle", "beyond", "capped", "channel", "closed", "coordinator",
        "credit", "deferred_credit", "drain_due", "error", "excess_messages", "given_back", "grown_bytes", "handle",
        "has_source", "inbox", "is_locally_initiated", "is_paused", "name", "on_sent", "outbox", "outcomes",
        "partials", "pn", "presettled", "priority", "provisional", "resuming", "revoked_credit", "routed", "runs",
        "sender", "sending", "sent", "sent_limit", "session", "settles_second", "spent", "state", "touched",
        "transaction", "unsettled",
    )  # fmt: skip

    def __init__(
        self, pn: Pointer, session: Pointer, name: str, *, sender: bool, state: LinkState = LinkState.PLANNED
    ) -> None:
        self.state = state
        """Changed by `move` only."""
        self.pn = pn
        self.session = session
        self.name = name
        self.sender = sender
        self.closed = False
        """True in state `CLOSED`: the link and its deliveries must not be used any more."""
        self.error: Error | None = None
        """The error that closed it, if any: the peer's, or one of this side."""
        self.routed: Callable[[Pointer], None] | None = None
        """For a part of a link route: called with deliveries that the peer settles second (C60)."""
        self.is_paused = False
        """Arriving messages stay in proton, because the link is held; or they are discarded, because it is `closed`."""
        self.has_source = False
        """True if its attach has a source, which proton does not show if it has no address."""
        self.presettled = False
        self.priority = DEFAULT_PRIORITY
        self.settles_second = False
        """For an incoming link: this side settles a delivery after the peer has (receiver-settle-mode second)."""
        self.awaiting_peer_settle: dict[Pointer, None] = {}
        """Deliveries whose outcome such a link's peer has received, and that it has not settled.

        No set, as an empty one takes 216 bytes.
        """
        self.credit = 0
        """On an incoming link: messages that the peer may send, beyond those that were read. Any thread may read it."""
        self.deferred_credit = 0
        """Credit that is granted when the peer settles them."""
        self.coordinator = False
        """True for a link that controls transactions."""
        self.resuming: ResumeState | None = None
        """State of a link that may resume."""
        self.touched = False
        self.channel: Any = None
        """The terminal's own."""
        self.inbox: list[Fragment] = []
        self.grown_bytes = 0
        """The received size of the message that is arriving in pieces."""
        self.partials = 0
        """The number of its pieces received so far."""
        self.beyond = 0
        """Credit of a drain beyond what a capped link may have, which is not reported to the driver."""
        self.capped = False
        """The peer requests more than it may have unsettled."""
        self.transaction = b""
        """The transactional state of the last transfer; empty without a transaction."""
        self.runs: list[tuple[int, bytes]] = []
        """The positions in `inbox` at which the transaction changes, each with the new transactional state."""
        self.acquiring: list[tuple[bytes, int, bool]] = []
        """Transactions named by flows: an ID, empty for none, and the `credit_limit` up to which it applies."""
        self.sent_limit = -1
        """The limit of messages that was last reported to the driver; -1 for a drain, or if none was reported yet."""
        self.outcomes: list[Outcome] = []
        self.provisional: list[tuple[bytes, Outcome]] = []
        """Outcomes in transactions: the ID of the transaction, and the outcome of the delivery with its commit."""
        self.unsettled: dict[Pointer, Any] = {}
        self.outbox: deque[tuple[Any, bytes | Content | StreamCursor | Acquired]] = deque() if sender else _NO_OUTBOX
        self.sending: Sending | None = None
        """The long message on its way out."""
        self.sent = 0
        """Deliveries begun."""
        self.on_sent: tuple[int, Callable[[], None]] | None = None
        """An action that is posted to the core when `sent` reaches that number."""
        self.handle: int | None = None
        """The handle of this side, once its attach is written; recorded for links on which it sends."""
        self.is_locally_initiated = False
        """This side sent the first attach."""
        self.revoked_credit = 0
        """Credit that this side granted and revoked; messages for it may be in flight.

        Negative for messages that arrived without credit.
        """
        self.excess_messages = 0
        """Messages that arrived beyond the credit that this side grants now."""
        self.given_back = 0
        """Credit that drains gave back to the peer."""
        self.spent = 0
        """Credit that the driver counts as returned. Less is, if the peer withdraws its request."""
        self.drain_due: int | None = None
        """Credit to add to `spent` when all waiting messages are sent; None without a drain to answer."""

    def move(self, event: LinkEvent) -> tuple[LinkAction, ...]:
        """Enter the state that follows *event*; return the actions of the transition."""
        self.state, actions = TABLE[self.state][event]
        if self.state is LinkState.CLOSED:
            self.closed = self.is_paused = True
        return actions

    def lose(self) -> None:
        """Close the link: its connection is over."""
        self.move(LinkEvent.LOST)

    def unsent(self) -> list[Any]:
        """The tags of everything forwarded that the peer has not settled, in order."""
        half_sent = [self.sending.tag] if self.sending is not None else []
        return [*self.unsettled.values(), *half_sent, *(tag for tag, _ in self.outbox)]
