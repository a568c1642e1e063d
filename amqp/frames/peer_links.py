"""Sessions and links of a peer as the checks of its frames see them, and violations of the specification."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from ..links.attach import SECOND
from ..links.link import Link
from ..native.proton_ffi import Pointer
from .frame_fields import NULL, Performative, content_of

_ROLE, _RCV_MODE, _SOURCE, _UNSETTLED, _INCOMPLETE = 2, 4, 5, 7, 8
"""Places of fields of an attach that `Half` keeps."""


class Scope(Enum):
    """The scope that an error ends."""

    LINK = auto()
    SESSION = auto()
    CONNECTION = auto()


class Violation(Exception):
    """A frame that the specification forbids."""

    def __init__(self, scope: Scope, condition: str, description: str, *, half: Half | None = None) -> None:
        """*half*: that of the link that the violation ends."""
        super().__init__(description)
        self.scope = scope
        self.condition = condition
        self.description = description
        self.half = half
        self.replacement = b""
        """The bytes that proton receives in place of the frame."""


class Half:
    """The half of a link of the peer: the fields of its attach, and the delivery that is arriving."""

    __slots__ = (
        "format", "formats", "has_source", "in_delivery", "is_incomplete", "is_second", "limit", "link", "name",
        "performative", "refusal", "sends", "tag", "unsettled",
    )  # fmt: skip

    def __init__(self, fields: Performative) -> None:
        self.name = content_of(fields.raw[0])
        self.has_source = len(fields.raw) > _SOURCE and fields.raw[_SOURCE][0] != NULL
        self.sends = not fields.number(_ROLE)
        self.is_second = fields.number(_RCV_MODE) == SECOND
        self.unsettled = fields.raw[_UNSETTLED] if len(fields.raw) > _UNSETTLED else b""
        """The encoded map of its unsettled deliveries; the engine removes it when it processes the attach."""
        self.is_incomplete = fields.is_set(_INCOMPLETE)
        """True if the map does not list all unsettled deliveries."""
        self.link: Link | None = None
        """The link of the engine; None until the engine has processed the attach."""
        self.refusal: Violation | None = None
        """The violation for which the link is refused when the engine processes the attach."""
        self.limit: int | None = None
        """The delivery-count that ends its credit, as its last flow has it; None before the first echo."""
        self.in_delivery = False
        """True if the last delivery is incomplete."""
        self.performative = b""
        """The frame of that delivery's last transfer that was decoded, from behind its size up to the payload."""
        self.format = 0
        self.formats: dict[bytes, int] = {}
        """See `Link.formats`, which this is."""
        self.tag = b""


@dataclass(eq=False, slots=True)
class Channel:
    """A session that the peer has begun on a channel, by the handles that it attached."""

    is_answer: bool = False
    """True if the begin answers a session of this side."""
    handles: dict[int, Half] = field(default_factory=dict)
    names: set[tuple[bytes, bool]] = field(default_factory=set)
    """Name and direction of each attached half."""
    session: Pointer | None = None
    """The session of the engine; None until the engine has processed the begin."""
    is_ended: bool = False
    """True if this side has ended the session: frames are discarded until the peer's end (2.5.6)."""
