"""Answers to flows that ask for an echo: the state of a session, or of a link (2.7.4).

Proton has the state and no function that sends it. But it writes a flow of a session when its incoming capacity is set,
even to the value that it has, and names a receiving link in it if that is the only link that changed. So all output is
taken from proton first. Proton never names a sending link there; its fields are added to the flow of the session:

| field | value |
|---|---|
| handle | read from the attach of this side |
| link-credit | proton's credit, and the messages that proton has not written yet |
| delivery-count | where the peer's last flow ends the credit, less the credit that is left |
| available | not set: only the core knows the length of a queue |
| drain | as the peer said |

Requests for the same state have one answer.
"""

from __future__ import annotations

from ..codec import decode, encode
from ..codec.types import Uint
from ..frames.frame_fields import ATTACH, FLOW, HEADER_BYTES, frame_like, read
from ..frames.peer_links import Channel, Half
from ..frames.resume_transport import TakenOutput
from ..links import credit as crediting
from ..links.link import Link
from ..links.link_state import UNANSWERED
from ..native.proton_ffi import Pointer, lib

_CODE_AT, _FIELDS_AT = 10, 11
"""Offsets in a frame as proton writes it."""
_SESSION_FIELDS = 4
_WRAP = 1 << 32

Echoing = dict[Half | Channel, Channel]


class Echoes:
    """The answers of one connection."""

    def __init__(self, taken: TakenOutput) -> None:
        self.due: Echoing = {}
        """To be answered when the connection writes next."""
        self._taken = taken

    def take(self, asked: Echoing, most: int) -> int:
        """Move up to *most* requests that can be answered from *asked* to those that are due; return their number."""
        ready = [key for key, channel in asked.items() if _is_ready(key, channel)][: max(0, most)]
        for key in ready:
            self.due[key] = asked.pop(key)
        return len(ready)

    def is_any_ready(self, asked: Echoing) -> bool:
        """True if a request can be answered."""
        return any(_is_ready(key, channel) for key, channel in asked.items())

    def forget(self, session: Pointer) -> None:
        """The session is freed."""
        self.due = {key: channel for key, channel in self.due.items() if channel.session != session}

    def answer(self) -> None:
        """Write the flows that are due, after all output of proton."""
        due, self.due = self.due, {}
        for key, channel in due.items():
            link = key.link if isinstance(key, Half) else None
            if channel.session is None or channel.is_ended or (link is not None and link.closed):
                continue
            self._answer(channel.session, link, key.limit if isinstance(key, Half) else None)

    def _answer(self, session: Pointer, link: Link | None, limit: int | None) -> None:
        if link is not None and not link.sender:
            crediting.mend(link)
        self._taken.take()
        if link is not None and not link.sender:
            lib.pn_link_flow(link.pn, 0)
        lib.pn_session_set_incoming_capacity(session, lib.pn_session_get_incoming_capacity(session))
        flow = self._taken.read()
        if link is not None and link.sender and flow[_CODE_AT : _CODE_AT + 1] == bytes((FLOW,)):
            flow = _with_link(flow, link, limit or 0)
        self._taken.add(flow)


def _is_ready(key: Half | Channel, channel: Channel) -> bool:
    """Return True if this side has begun the session and attached the link; earlier there is no state to send."""
    if channel.session is None or not isinstance(key, Half):
        return channel.session is not None
    link = key.link
    return link is not None and link.state not in UNANSWERED


def _with_link(frame: bytes, link: Link, limit: int) -> bytes:
    """A flow of a session, with the state of a link of it on which this side sends."""
    if link.handle is None:
        return frame
    left = int(lib.pn_link_credit(link.pn)) + int(lib.pn_link_queued(link.pn))
    fields = (
        encode.value(Uint(link.handle)),
        encode.value(Uint((limit - left) % _WRAP)),
        encode.value(Uint(max(left, 0))),
        encode.NULL,
        encode.boolean(bool(lib.pn_link_get_drain(link.pn))),
    )
    return frame_like(frame, FLOW, [*read(frame, _FIELDS_AT).raw[:_SESSION_FIELDS], *fields])


def handle_of_attach(frames: bytes) -> int | None:
    """The handle in the last attach among *frames*, as proton writes them; None if there is no attach."""
    at, handle = 0, None
    while at + _CODE_AT < len(frames):
        if frames[at : at + 4] == b"AMQP":
            at += HEADER_BYTES
            continue
        size = int.from_bytes(frames[at : at + 4])
        if frames[at + _CODE_AT] == ATTACH:
            found = decode.complete(read(frames[at : at + size], _FIELDS_AT).raw[1])
            handle = found if isinstance(found, int) else None
        at += max(size, HEADER_BYTES)
    return handle
