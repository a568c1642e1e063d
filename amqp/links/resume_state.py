"""Link endpoints that resume: what the engine keeps for one, beside its `Link` (part 2, 2.6.13).

A link resumes if the client asks for a terminus at the broker whose unsettled state lasts (durability 2), and for
receiver-settle-mode second. In the other mode a receiver settles before its partner has received the outcome, and
afterwards no state of either side shows whether it had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..codec import decode, encode
from ..codec.primitives import NAMES, Malformed
from ..codec.types import Described
from ..native.proton_ffi import MODIFIED, Pointer, ffi, lib
from .values import Content, Fragment

_MOST_MAP_ENTRIES = 1 << 16

Arrival = tuple[Fragment, bytes, bool]
"""A fragment, the tag of its delivery, and whether the client resumes the delivery."""


class Claims(NamedTuple):
    """The deliveries that a client reports as unsettled at its end of a link."""

    states: dict[bytes, int]
    """Tags to the codes of states, 0 for none; empty once they were compared."""
    complete: bool
    """The client has settled, or never received, all deliveries that are not in `states`."""
    failures: Mapping[bytes, tuple[bool, bool]] = {}
    """For modified deliveries: whether the delivery failed, and is undeliverable there."""


class KeptLink(NamedTuple):
    """The deliveries that the broker reports as unsettled at its own end of a link."""

    states: Mapping[bytes, int]
    expires_s: int
    """Seconds that the state is kept after the link has ended, if not forever."""


class Resumable(NamedTuple):
    """A message on its way to a client that may resume it."""

    entry: Any
    """The driver's tag, which comes back with the outcome."""
    content: bytes | Content
    tag: bytes
    """The delivery's, on the wire."""
    is_resumed: bool
    """The client has something of it."""


UNKNOWN = Claims({}, False)
"""The claims of an attach whose unsettled map is malformed."""


@dataclass(eq=False, slots=True)
class ResumeState:
    """The state of one link that may resume."""

    claims: Claims
    resumed: set[bytes] = field(default_factory=set)
    """The tags of incoming deliveries with the flag `resume`, until they are complete."""
    arrivals: list[tuple[bytes, bool]] = field(default_factory=list)
    """Tag, and whether it was resumed, of each fragment in the link's inbox."""
    departures: deque[tuple[bytes, bool]] = field(default_factory=deque)
    """Tag, and whether it is resumed, of each message in the link's outbox."""
    holds_back: bool = False
    """The client does not have the complete list of unsettled deliveries, so no new message may be sent."""
    tags: dict[Pointer, bytes] = field(default_factory=dict)
    """The tags of the deliveries that the client has not settled."""
    on_settled: Callable[[bytes], None] | None = None
    """Called with the tags that the client settles; None if no component keeps them."""

    def settled(self, delivery: Pointer) -> None:
        """The client has settled *delivery*."""
        tag = self.tags.pop(delivery, None)
        if tag is not None and self.on_settled is not None:
            self.on_settled(tag)


def tag_of(delivery: Pointer) -> bytes:
    tag = lib.pn_delivery_tag(delivery)
    return bytes(ffi.unpack(tag.start, tag.size)) if tag.size else b""


def claims_in(unsettled: bytes, *, is_incomplete: bool) -> Claims:
    """Return the claims of an attach with this encoded map, which may be empty; `UNKNOWN` if it is malformed."""
    try:
        found = decode.value(unsettled, plain=True)[0] if unsettled else None
    except Malformed:
        return UNKNOWN
    states: dict[bytes, int] = {}
    failures: dict[bytes, tuple[bool, bool]] = {}
    for tag, state in (found or {}).items():
        if len(states) == _MOST_MAP_ENTRIES or not isinstance(tag, bytes):
            is_incomplete = True
            break
        states[tag] = state_code(state)
        if states[tag] == MODIFIED and isinstance(state.value, list):
            failed, undeliverable = [*state.value, None, None][:2]
            failures[tag] = failed is True, undeliverable is True
    return Claims(states, not is_incomplete, failures)


def state_code(state: Any) -> int:
    """Return the code of a delivery state in an unsettled map; 0 for none, or an unknown one."""
    if not isinstance(state, Described):
        return 0
    code = NAMES.get(state.descriptor, 0) if isinstance(state.descriptor, str) else state.descriptor
    return code if isinstance(code, int) else 0


def encoded_state(code: int) -> bytes:
    """An outcome without fields, or null."""
    return encode.described(code, b"\x45") if code else encode.NULL
