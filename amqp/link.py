"""A link of an engine: plain data that the engine fills and the terminal empties."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .proton import Pointer

if TYPE_CHECKING:
    from .cursor import Cursor
    from .outgoing import Sending
    from .resuming import Resuming

DEFAULT_PRIORITY = 4
"""Of 0 to 9; links of a connection on which messages go out are served highest first (router guide C46)."""
MORE = 1
SETTLED = 2
ABORTED = 4
"""Flags of a fragment: the message goes on; the sender wants no outcome; it takes the message back."""

Fragment = tuple[Pointer, bytes, int]
"""What one transfer brought: the delivery, bytes of the message, and flags."""


class Gone(Exception):
    """The message was taken away while a copy of it was being read: the copy is not wanted any more."""


class Content(Protocol):
    """A message too long to be handled as one piece of bytes. Any thread."""

    @property
    def pieces(self) -> int: ...

    def piece(self, number: int) -> bytes:
        """Raises `Gone`."""
        ...


class Error(NamedTuple):
    """An AMQP error as a receiver gave it; *info* is an encoded map."""

    condition: str
    description: str
    info: bytes = b""


class Outcome(NamedTuple):
    """What a receiver said of a delivery."""

    delivery: Pointer
    """The delivery if it still waits to be settled by this side, else None."""
    tag: Any
    """What was given in the outbox with it."""
    state: int
    failed: bool = False
    undeliverable: bool = False
    error: Error | None = None
    """Of a rejection."""
    annotations: bytes = b""
    """Of a modification, as an encoded map."""


class Answer(NamedTuple):
    """What a sender is told of a delivery: the outcome that its receivers gave."""

    delivery: Pointer
    state: int
    failed: bool = False
    undeliverable: bool = False
    error: Error | None = None
    annotations: bytes = b""
    settled: bool = True
    """Else it is only told: the rest of the message is still to come."""


class Terminus(NamedTuple):
    """What a remote attach asks for, read from the terminus on this side of the link."""

    address: str | None = None
    dynamic: bool = False
    """A node is to be made for this link."""
    browse: bool = False
    """Messages are only looked at (distribution mode `copy`)."""
    coordinator: bool = False
    """The link controls transactions."""
    absent: bool = False
    """There is no terminus: of a target, each message names its own; of a source, the link asks what there was."""
    durability: int = 0
    """0: none of it lasts; 1: its configuration; 2: its unsettled state, too."""
    expiry: str = "session-end"
    """When it is given up after the link went: `link-detach`, `session-end`, `connection-close` or `never`."""
    timeout_s: int = 0
    """How long after that."""
    capabilities: tuple[str, ...] = ()
    filters: bytes = b""
    """The filter set as an encoded map; empty if there is none."""
    properties: bytes = b""
    """Of a dynamic node, as an encoded map; empty if there are none."""

    @property
    def lasts(self) -> bool:
        """Whether something of it is to be there when its link is not."""
        return self.durability > 0 or self.expiry == "never"


class Acquired(NamedTuple):
    """A message on its way to a client that is acquired in a transaction."""

    content: bytes | Content | Cursor
    state: bytes
    """What its transfers tell of that, an encoded list."""


class Link:
    """One link. *sender* is this side's view: True when messages go out on it."""

    __slots__ = (
        "acquiring",
        "asked",
        "capped",
        "channel",
        "closed",
        "coordinator",
        "deaf",
        "drain_due",
        "error",
        "given_back",
        "grown_bytes",
        "inbox",
        "name",
        "outbox",
        "outcomes",
        "owed",
        "partials",
        "pn",
        "presettled",
        "priority",
        "provisional",
        "resuming",
        "routed",
        "runs",
        "sender",
        "sending",
        "sent",
        "session",
        "settles_second",
        "spent",
        "taken_back",
        "told",
        "touched",
        "transaction",
        "unsettled",
        "unwanted",
    )

    def __init__(self, pn: Pointer, session: Pointer, name: str, *, sender: bool) -> None:
        self.pn = pn
        self.session = session
        self.name = name
        self.sender = sender
        self.closed = False
        """The link is gone: nothing may be done on it or its deliveries any more."""
        self.error: Error | None = None
        """Why it went, once it is gone and if there was an error: the peer's, or one of this side's."""
        self.routed: Callable[[Pointer], None] | None = None
        """Of a link that is part of a longer one: hears of deliveries that the peer settles second (C60)."""
        self.deaf = False
        """What comes is not looked at: the link is `closed`, or held, and then it stays in proton."""
        self.presettled = False
        self.priority = DEFAULT_PRIORITY
        self.settles_second = False
        """Of an incoming link: this side settles a delivery after the peer has (receiver-settle-mode second)."""
        self.told: set[Pointer] = set()
        """Deliveries that such a link's peer was told the outcome of, and has not settled."""
        self.owed = 0
        """Credit that is given back when it has."""
        self.coordinator = False
        """It controls transactions."""
        self.resuming: Resuming | None = None
        """What is kept for it if it may resume."""
        self.touched = False
        self.channel: Any = None
        """The terminal's own."""
        self.inbox: list[Fragment] = []
        self.grown_bytes = 0
        """Of the message that is arriving in pieces."""
        self.partials = 0
        """How many pieces of it there were."""
        self.capped = False
        """The peer wants more than it may have unsettled."""
        self.transaction = b""
        """The transactional state that the last transfer came with; empty if it was for no transaction."""
        self.runs: list[tuple[int, bytes]] = []
        """Where in `inbox` what came begins to be for another transaction, and that state."""
        self.acquiring: list[tuple[bytes, int, bool]] = []
        """What flows said of acquiring in transactions: an id, empty for none, and up to where, as `credit_limit`."""
        self.outcomes: list[Outcome] = []
        self.provisional: list[tuple[bytes, Outcome]] = []
        """Outcomes in transactions: the transaction's id, and what is to become of the delivery with its commit."""
        self.unsettled: dict[Pointer, Any] = {}
        self.outbox: deque[tuple[Any, bytes | Content | Cursor | Acquired]] = deque()
        self.sending: Sending | None = None
        """The long message on its way out."""
        self.sent = 0
        """Deliveries begun."""
        self.asked = False
        """This side has asked for it."""
        self.taken_back = 0
        """Credit that this side gave and wants back: what was sent for it may have crossed with that.

        Less than nothing: so many messages came that were never asked for.
        """
        self.unwanted = 0
        """How many messages more came than this side wants now."""
        self.given_back = 0
        """Credit that drains gave back to the peer."""
        self.spent = 0
        """Credit that the driver takes for given back. Less is, if the peer takes its wish back meanwhile."""
        self.drain_due: int | None = None
        """What to add to `spent` when all that waits was sent; None if there is no drain to answer."""

    def unsent(self) -> list[Any]:
        """The tags of everything forwarded that the peer has not settled, in order."""
        half_sent = [self.sending.tag] if self.sending is not None else []
        return [*self.unsettled.values(), *half_sent, *(tag for tag, _ in self.outbox)]
