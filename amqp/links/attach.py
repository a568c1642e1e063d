"""An attach as its peer said it, as plain values: what is passed on to another container whole (router guide C42, C60).

Proton shows no capabilities of a link itself, only those of its termini, so these are all that is passed on.
"""

from __future__ import annotations

from typing import NamedTuple

from ..codec import decode
from ..codec.primitives import Malformed
from ..native import proton_ffi as proton
from ..native.proton_ffi import Pointer, lib, text
from .link import Link
from .values import DEFAULT_PRIORITY

ABSENT = int(lib.PN_UNSPECIFIED)
SOURCE, TARGET = int(lib.PN_SOURCE), int(lib.PN_TARGET)
UNSETTLED, SETTLED, MIXED = int(lib.PN_SND_UNSETTLED), int(lib.PN_SND_SETTLED), int(lib.PN_SND_MIXED)
FIRST, SECOND = int(lib.PN_RCV_FIRST), int(lib.PN_RCV_SECOND)
PRIORITY = "cairnmq:priority"
"""The property of an attach: 0 to 9, highest first (router guide C46)."""
WITH_SESSION, NEVER = int(lib.PN_EXPIRE_WITH_SESSION), int(lib.PN_EXPIRE_NEVER)


class End(NamedTuple):
    """A terminus; numbers as proton has them, and what is of any type encoded, empty if it is not there."""

    kind: int = ABSENT
    address: str | None = None
    durability: int = 0
    expiry: int = WITH_SESSION
    timeout_s: int = 0
    dynamic: bool = False
    mode: int = 0
    properties: bytes = b""
    capabilities: bytes = b""
    outcomes: bytes = b""
    filters: bytes = b""

    @property
    def lasts(self) -> bool:
        """Return whether the node keeps any state of the terminus after its link."""
        return self.expiry == NEVER or self.durability > 0


class Attach(NamedTuple):
    """All of it that proton shows."""

    name: str
    source: End
    target: End
    snd_settle_mode: int = MIXED
    rcv_settle_mode: int = FIRST
    max_message_bytes: int = 0
    """The maximum size of a message; 0 for no limit."""
    properties: bytes = b""
    """The properties of the link, as an encoded map."""


def said_by_peer(link: Link) -> Attach:
    """Return the attach that the peer of *link* sent."""
    pn = link.pn
    return Attach(
        link.name,
        _read(lib.pn_link_remote_source(pn)),
        _read(lib.pn_link_remote_target(pn)),
        int(lib.pn_link_remote_snd_settle_mode(pn)),
        int(lib.pn_link_remote_rcv_settle_mode(pn)),
        int(lib.pn_link_remote_max_message_size(pn)),
        proton.encoded(properties) if (properties := lib.pn_link_remote_properties(pn)) else b"",
    )


def asks_to_last(link: Link) -> bool:
    """Return whether the side that opened *link* asks for state of the other side's terminus to outlive the link."""
    pn = link.pn
    if link.is_locally_initiated:
        return _read(lib.pn_link_target(pn) if link.sender else lib.pn_link_source(pn)).lasts
    return _read(lib.pn_link_remote_source(pn) if link.sender else lib.pn_link_remote_target(pn)).lasts


def asked_priority(properties: Pointer) -> int:
    """Return the priority that the *properties* of an attach request.

    An invalid value counts as none. A number outside 0 to 9 counts as the nearer end.
    """
    raw = proton.encoded(properties) if properties else b""
    if not raw:
        return DEFAULT_PRIORITY
    try:
        found, _ = decode.value(raw)
    except Malformed:
        return DEFAULT_PRIORITY
    asked = found.get(PRIORITY) if isinstance(found, dict) else None
    return min(max(asked, 0), 9) if isinstance(asked, int) else DEFAULT_PRIORITY


def say(link: Link, asked: Attach) -> None:
    """Write *asked* into this side of *link*, which is not open yet."""
    pn = link.pn
    _write(lib.pn_link_source(pn), asked.source)
    _write(lib.pn_link_target(pn), asked.target)
    lib.pn_link_set_snd_settle_mode(pn, asked.snd_settle_mode)
    lib.pn_link_set_rcv_settle_mode(pn, asked.rcv_settle_mode)
    lib.pn_link_set_max_message_size(pn, asked.max_message_bytes)
    if asked.properties:
        proton.put_encoded(lib.pn_link_properties(pn), asked.properties)


def _read(terminus: Pointer) -> End:
    return End(
        int(lib.pn_terminus_get_type(terminus)),
        text(lib.pn_terminus_get_address(terminus)),
        int(lib.pn_terminus_get_durability(terminus)),
        int(lib.pn_terminus_get_expiry_policy(terminus)),
        int(lib.pn_terminus_get_timeout(terminus)),
        bool(lib.pn_terminus_is_dynamic(terminus)),
        int(lib.pn_terminus_get_distribution_mode(terminus)),
        proton.encoded(lib.pn_terminus_properties(terminus)),
        proton.encoded(lib.pn_terminus_capabilities(terminus)),
        proton.encoded(lib.pn_terminus_outcomes(terminus)),
        proton.encoded(lib.pn_terminus_filter(terminus)),
    )


def _write(terminus: Pointer, end: End) -> None:
    lib.pn_terminus_set_type(terminus, end.kind)
    if end.kind == ABSENT:
        return
    lib.pn_terminus_set_address(terminus, proton.NULL if end.address is None else end.address.encode())
    lib.pn_terminus_set_durability(terminus, end.durability)
    lib.pn_terminus_set_expiry_policy(terminus, end.expiry)
    lib.pn_terminus_set_timeout(terminus, end.timeout_s)
    lib.pn_terminus_set_dynamic(terminus, end.dynamic)
    lib.pn_terminus_set_distribution_mode(terminus, end.mode)
    proton.put_encoded(lib.pn_terminus_properties(terminus), end.properties)
    proton.put_encoded(lib.pn_terminus_capabilities(terminus), end.capabilities)
    proton.put_encoded(lib.pn_terminus_outcomes(terminus), end.outcomes)
    proton.put_encoded(lib.pn_terminus_filter(terminus), end.filters)
