"""A link of an engine: plain data that the engine fills and the terminal empties."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

from ..codec.header import with_format
from ..codec.primitives import Cut, Malformed
from ..native.proton_ffi import Pointer
from .link_state import TABLE, LinkAction, LinkEvent, LinkState
from .long_send import Sending
from .resume_state import ResumeState
from .stream_cursor import StreamCursor
from .values import DEFAULT_PRIORITY, Content, Error, Fragment, Outcome, Terminus


class Acquired(NamedTuple):
    """A message on its way to a client that is acquired in a transaction."""

    content: bytes | Content | StreamCursor
    state: bytes
    """The transactional state that its transfers carry, as an encoded list."""


MOST_CUT_BYTES = 64 << 10
"""Bytes of a cut header that are kept; each further frame would copy them."""
_NO_OUTBOX: deque[Any] = deque(maxlen=0)
"""The outbox of all links on which only the peer sends: an empty deque per link would take 760 bytes."""

_NO_TERMINUS = Terminus()
_NO_FORMATS: dict[bytes, int] = {}
"""The formats of a link before its peer has attached it."""


@dataclass(eq=False, slots=True)
class Link:
    """One link. *sender* is this side's view: True when messages go out on it."""

    pn: Pointer
    session: Pointer
    name: str
    _: KW_ONLY
    sender: bool
    state: LinkState = LinkState.PLANNED
    """Changed by `move` only."""
    closed: bool = False
    """True in state `CLOSED`: the link and its deliveries must not be used any more."""
    error: Error | None = None
    """The error that closed it, if any: the peer's, or one of this side."""
    routed: Callable[[Pointer], None] | None = None
    """For a part of a link route: called with deliveries that the peer settles second (C60)."""
    is_paused: bool = False
    """Arriving messages stay in proton, because the link is held; or they are discarded, because it is `closed`."""
    asked: Terminus = _NO_TERMINUS
    """The terminus that its peer requests at this side: it is read as the attach comes, and outlasts the session."""
    far_address: str | None = None
    """The address that the peer gave its own end of a link to it; None of a link from it."""
    is_forwarded: bool = False
    """Another container answers the attach."""
    has_source: bool = False
    """True if its attach has a source, which proton does not show if it has no address."""
    presettled: bool = False
    priority: int = DEFAULT_PRIORITY
    settles_second: bool = False
    """For an incoming link: this side settles a delivery after the peer has (receiver-settle-mode second)."""
    awaiting_peer_settle: dict[Pointer, None] = field(default_factory=dict)
    """Deliveries whose outcome such a link's peer has received, and that it has not settled.

    No set, as an empty one takes 216 bytes.
    """
    credit: int = 0
    """On an incoming link: messages that the peer may send, beyond those that were read. Any thread may read it."""
    deferred_credit: int = 0
    """Credit that is granted when the peer settles them."""
    coordinator: bool = False
    """True for a link that controls transactions."""
    resuming: ResumeState | None = None
    """State of a link that may resume."""
    touched: bool = False
    channel: Any = None
    """The terminal's own."""
    inbox: list[Fragment] = field(default_factory=list)
    formats: dict[bytes, int] = field(default_factory=lambda: _NO_FORMATS)
    """Message-formats other than 0, by the tags of deliveries of which nothing was read yet; `FrameCheck` adds them."""
    cut_head: bytes = b""
    """The beginning of such a delivery, up to a cut in its header."""
    grown_bytes: int = 0
    """The received size of the message that is arriving in pieces."""
    partials: int = 0
    """The number of its pieces received so far."""
    beyond: int = 0
    """Credit of a drain beyond what a capped link may have, which is not reported to the driver."""
    capped: bool = False
    """The peer requests more than it may have unsettled."""
    transaction: bytes = b""
    """The transactional state of the last transfer; empty without a transaction."""
    runs: list[tuple[int, bytes]] = field(default_factory=list)
    """The positions in `inbox` at which the transaction changes, each with the new transactional state."""
    acquiring: list[tuple[bytes, int, bool]] = field(default_factory=list)
    """Transactions named by flows: an ID, empty for none, and the `credit_limit` up to which it applies."""
    sent_limit: int = -1
    """The limit of messages that was last reported to the driver; -1 for a drain, or if none was reported yet."""
    outcomes: list[Outcome] = field(default_factory=list)
    provisional: list[tuple[bytes, Outcome]] = field(default_factory=list)
    """Outcomes in transactions: the ID of the transaction, and the outcome of the delivery with its commit."""
    unsettled: dict[Pointer, Any] = field(default_factory=dict)
    outbox: deque[tuple[Any, bytes | Content | StreamCursor | Acquired]] = field(init=False)
    sending: Sending | None = None
    """The long message on its way out."""
    sent: int = 0
    """Deliveries begun."""
    on_sent: tuple[int, Callable[[], None]] | None = None
    """An action that is posted to the core when `sent` reaches that number."""
    handle: int | None = None
    """The handle of this side, once its attach is written; recorded for links on which it sends."""
    is_locally_initiated: bool = False
    """This side sent the first attach."""
    revoked_credit: int = 0
    """Credit that this side granted and revoked; messages for it may be in flight.

    Negative for messages that arrived without credit.
    """
    excess_messages: int = 0
    """Messages that arrived beyond the credit that this side grants now."""
    given_back: int = 0
    """Credit that drains gave back to the peer."""
    spent: int = 0
    """Credit that the driver counts as returned. Less is, if the peer withdraws its request."""
    drain_due: int | None = None
    """Credit to add to `spent` when all waiting messages are sent; None without a drain to answer."""

    def __post_init__(self) -> None:
        self.outbox = deque() if self.sender else _NO_OUTBOX

    def move(self, event: LinkEvent) -> tuple[LinkAction, ...]:
        """Enter the state that follows *event*; return the actions of the transition."""
        self.state, actions = TABLE[self.state][event]
        if self.state is LinkState.CLOSED:
            self.closed = self.is_paused = True
        return actions

    def formatted(self, tag: bytes, data: bytes, *, has_more: bool) -> bytes:
        """Return the first bytes of the delivery with the format of its transfer; none if its header is cut off."""
        message_format = self.formats.get(tag)
        if message_format is None:
            return data
        data, self.cut_head = self.cut_head + data, b""
        try:
            data = with_format(data, message_format)
        except Malformed as error:  # it is refused later, like any message that can't be read
            if isinstance(error, Cut) and has_more and len(data) <= MOST_CUT_BYTES:
                self.cut_head = data
                return b""
        del self.formats[tag]
        return data

    def lose(self) -> None:
        """Close the link: its connection is over."""
        self.move(LinkEvent.LOST)

    @property
    def has_unsent(self) -> bool:
        """Return whether messages wait to be sent."""
        return bool(self.outbox) or self.sending is not None

    def unsent(self) -> list[Any]:
        """The tags of everything forwarded that the peer has not settled, in order."""
        half_sent = [self.sending.tag] if self.sending is not None else []
        return [*self.unsettled.values(), *half_sent, *(tag for tag, _ in self.outbox)]
