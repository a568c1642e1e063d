"""Outgoing messages: moved from the outbox of a link into proton, as far as there is room.

A message that fits one frame is passed to proton as a whole. A longer one is passed a frame at a time, when proton has
sent the previous one. Proton keeps the bytes of a delivery in a ring buffer and rotates it byte by byte before each
frame, so a buffered megabyte would be rotated repeatedly. This also bounds memory and lets links take turns.

The content in proton has three bounds: for each session, because a client may keep its window closed; for the
connection, because a client may not read; for all connections of a worker, by its `Buckets`. Content that has to wait
is a reference to bytes, or to a place in the store.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import chain, product
from typing import Any

from ..codec.annotated_message import AnnotatedMessage
from ..codec.header import FORMATTED
from ..native.buffer_pool import Buckets
from ..native.proton_ffi import Pointer, ffi, lib
from .link import Acquired, Link
from .long_send import CompleteBytes, CutThroughSend, RewrittenSend, Sending
from .resume_state import ResumeState
from .stream_cursor import StreamCursor
from .transaction_state import begin
from .values import Content, ContentRemoved

ROOM_BYTES = 1 << 20
"""Bytes of a connection that may wait in proton to be sent; as many more may wait for closed session windows."""
_LEAST_ROOM_BYTES = 64 << 10
"""The minimum share of `ROOM_BYTES` that each session gets, however many sessions send."""
_HEAD_BYTES = 64
"""The overhead that each message counts for in addition to its content."""
_TRANSFER_BYTES = 128
"""More than a frame's head and transfer performative take."""
_LARGEST_PART_BYTES = 64 << 10
_DIGITS = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
"""The 64 characters of delivery tags, in their ASCII order."""
_TAG_ENDS = [int.from_bytes(bytes(pair), sys.byteorder) for pair in product(_DIGITS, repeat=2)]
"""The last two characters of delivery tags in their order, each pair as the 16-bit word that stores it."""


def _begun(delivery: Pointer, tag: Any, content: bytes | Content | StreamCursor | Acquired) -> Sending:
    if isinstance(content, Acquired):
        begin(delivery, content.state)
        content = content.content
    if isinstance(content, StreamCursor):
        return CutThroughSend(delivery, tag, content)
    if isinstance(content, AnnotatedMessage):
        return RewrittenSend(delivery, tag, content)
    return Sending(delivery, tag, CompleteBytes(content) if isinstance(content, bytes) else content)


def _tag_ends(words: Pointer) -> Iterator[list[int]]:
    """Write the first six characters of 2**12 delivery tags to *words*, and yield the last words of these tags."""
    for first in product(_DIGITS, repeat=2):
        for second in product(_DIGITS, repeat=2):
            for third in product(_DIGITS, repeat=2):
                for place, pair in enumerate((first, second, third)):
                    words[place] = int.from_bytes(bytes(pair), sys.byteorder)
                yield _TAG_ENDS


class SendQueue:
    """The outgoing side of one connection. Used by the thread that uses its engine."""

    def __init__(
        self, transport: Pointer, buckets: Buckets, send_format: Callable[[Pointer, bytes], bytes] | None = None
    ) -> None:
        """*send_format* gets a delivery and its first bytes, which name a message-format; it returns those to send."""
        self._send_format = send_format or (lambda _, content: content)
        self.blocked: dict[Link, None] = {}
        """Links with messages that wait for room in proton, the one that was served longest ago first."""
        self.ranked = False
        """The links are not all of the same priority."""
        self.held_bytes = 0
        """Bytes that proton holds, as of the last look; taken from the buckets."""
        self._shut_in_bytes = 0
        """The part of `held_bytes` that waits for closed windows."""
        self._sessions: dict[Pointer, int] = {}
        """By session: the number of links on which messages go out."""
        self._session_room_bytes = ROOM_BYTES
        self._buckets = buckets
        self.answered: list[tuple[Link, Pointer]] = []
        """Long messages whose outcome arrived before their last byte was sent."""
        self._transport = transport
        self._tag_words = ffi.new("uint16_t[4]")
        """The delivery tag: eight ASCII characters, as libraries of clients show tags as text."""
        self._tag = ffi.new("pn_delivery_tag_t *", {"size": 8, "start": ffi.cast("char *", self._tag_words)})
        self._tag_ends = chain.from_iterable(_tag_ends(self._tag_words))  # in C: no more than counting costs
        self._part_bytes = 0

    def sends_long(self) -> bool:
        """Return whether one of the links that wait is in the middle of a message."""
        return bool(self.blocked) and any(link.sending is not None for link in self.blocked)

    def pump(self, link: Link) -> bool:
        """Move messages into proton while there is room; their tags come back in their `Outcome`.

        Returns whether there is credit that the driver does not know of, for example after `ContentRemoved`. Other
        errors of reading content are propagated; the caller then calls `abort`.
        """
        if link.closed:
            return False
        room = free = self._room(link)
        if room <= 0 and link.has_unsent:
            self.blocked.setdefault(link)  # it keeps its place in the line
            return False
        self.blocked.pop(link, None)
        if link.resuming is not None:
            return self._pump_resuming(link, link.resuming)
        outbox, pn = link.outbox, link.pn
        make, put, advance, settle = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance, lib.pn_delivery_settle
        unsettled, presettled = link.unsettled, link.presettled
        part_bytes = self._part_bytes or self._learn_part_bytes()
        its_tag, tag_words, tag_ends = self._tag[0], self._tag_words, self._tag_ends
        credit_left = False
        if link.sending is not None:
            credit_left = self._send_part(link, link.sending)
        credit = lib.pn_link_credit(pn)
        while outbox and room > 0 and credit > 0 and link.sending is None:
            credit -= 1
            tag, content = outbox.popleft()
            tag_words[3] = next(tag_ends)
            delivery = make(pn, its_tag)
            if (
                type(content) is bytes
                and (size_bytes := len(content)) <= part_bytes
                and not content.startswith(FORMATTED)
            ):
                put(pn, content, size_bytes)
                advance(pn)
                link.sent += 1
                if presettled:
                    settle(delivery)
                else:
                    unsettled[delivery] = tag
                room -= size_bytes + _HEAD_BYTES
                continue
            if type(content) is AnnotatedMessage and self._send_parcel(link, delivery, tag, content):
                room -= content.size_bytes + _HEAD_BYTES
                continue
            link.sending = _begun(delivery, tag, content)
            self._take(free - room)
            credit_left |= self._send_part(link, link.sending)
            room = free = self._room(link)
        self.held_bytes += free - room
        self._buckets.free_bytes -= free - room
        if link.sending is not None or outbox or link.drain_due is not None:
            credit_left |= self._leave(link)
        return credit_left

    def _leave(self, link: Link) -> bool:
        """Have a link wait that was not pumped dry, and answer a drain on another one."""
        if link.sending is not None:
            if not link.sending.waits:
                self.blocked[link] = None
        elif link.outbox:
            if lib.pn_link_credit(link.pn) > 0:  # else the peer took back what this was for: its next flow comes first
                self.blocked[link] = None
        else:
            return self._give_back(link)
        return False

    def _pump_resuming(self, link: Link, resuming: ResumeState) -> bool:
        """Pump a link that may resume: its messages come with the tags of their deliveries."""
        self._part_bytes = self._part_bytes or self._learn_part_bytes()
        credit_left = False
        if link.sending is not None:
            credit_left = self._send_part(link, link.sending)
        while link.outbox and link.sending is None and self._room(link) > 0 and lib.pn_link_credit(link.pn) > 0:
            its_tag, is_resumed = resuming.departures[0]
            if resuming.holds_back and not is_resumed:
                return credit_left
            resuming.departures.popleft()
            entry, content = link.outbox.popleft()
            assert not isinstance(content, StreamCursor | Acquired)
            start = ffi.from_buffer("char[]", its_tag)
            tag = ffi.new("pn_delivery_tag_t *", {"size": len(its_tag), "start": start})
            delivery = lib.pn_delivery(link.pn, tag[0])
            link.sending = Sending(delivery, entry, CompleteBytes(content) if isinstance(content, bytes) else content)
            credit_left |= self._send_part(link, link.sending)
        if link.sending is not None or (link.outbox and lib.pn_link_credit(link.pn) > 0):
            self.blocked[link] = None
        elif link.drain_due is not None and not link.outbox:
            credit_left |= self._give_back(link)
        return credit_left

    def drained(self, link: Link, spent: int) -> bool:
        """There is nothing more for the peer's credit now: give it back, once all that waits was sent.

        *spent* is how much that is for the driver. True if there is credit it doesn't know of.
        """
        if link.closed:
            return False
        link.drain_due = (link.drain_due or 0) + spent
        if link.outbox or link.sending is not None:
            return False
        return self._give_back(link)

    def _give_back(self, link: Link) -> bool:
        """Return credit on a link with an empty outbox.

        Proton writes the drained credit together with other output, and discards it if it reads the next flow of the
        peer before. The output is therefore written immediately, and only if proton has no messages of the link left.
        """
        lib.pn_transport_pending(self._transport)
        if lib.pn_link_queued(link.pn):
            self.blocked[link] = None
            return False
        link.spent, link.drain_due = link.spent + (link.drain_due or 0), None
        # else the driver was asked for more meanwhile
        if lib.pn_link_credit(link.pn) - link.beyond <= link.spent - link.given_back:
            link.given_back += max(0, int(lib.pn_link_drained(link.pn)) - link.beyond)
            link.beyond = 0
            lib.pn_transport_pending(self._transport)
        return bool(lib.pn_link_credit(link.pn) > 0)

    def _send_parcel(self, link: Link, delivery: Pointer, tag: Any, parcel: AnnotatedMessage) -> bool:
        """Send a message with other annotations, if it fits one frame."""
        if parcel.on_taken is not None:
            parcel.on_taken()
        if parcel.size_bytes > self._part_bytes:
            return False
        head = self._send_format(delivery, parcel.head) if parcel.head.startswith(FORMATTED) else parcel.head
        lib.pn_link_send(link.pn, head, len(head))
        rest, skip = parcel.rest, parcel.skip
        lib.pn_link_send(link.pn, ffi.from_buffer("char[]", rest) + skip, len(rest) - skip)
        lib.pn_link_advance(link.pn)
        link.sent += 1
        if link.presettled or parcel.settled:
            lib.pn_delivery_settle(delivery)
        else:
            link.unsettled[delivery] = tag
        return True

    def abort(self, link: Link) -> None:
        """Take back the long message that is on its way out, because its content can't be read."""
        assert link.sending is not None
        lib.pn_delivery_abort(link.sending.delivery)

    def _send_part(self, link: Link, sending: Sending) -> bool:
        if lib.pn_delivery_pending(sending.delivery):
            return False
        try:
            part = sending.part(self._part_bytes)
        except ContentRemoved:
            lib.pn_delivery_abort(sending.delivery)  # costs no credit if nothing of it was sent
            link.sending = None
            link.sent += 1
            return True
        if not sending.has_begun:
            sending.has_begun = True
            if part.startswith(FORMATTED):  # an empty part would wait for proton
                part = self._send_format(sending.delivery, part) or sending.part(self._part_bytes)
        lib.pn_link_send(link.pn, part, len(part))
        self._take(len(part))
        if not sending.complete:
            return False
        link.sending = None
        lib.pn_link_advance(link.pn)
        link.sent += 1
        if link.presettled or sending.settled:
            lib.pn_delivery_settle(sending.delivery)
            return False
        link.unsettled[sending.delivery] = sending.tag
        if lib.pn_delivery_remote_state(sending.delivery) or lib.pn_delivery_settled(sending.delivery):
            self.answered.append((link, sending.delivery))
        return False

    # ---- room -----------------------------------------------------------------------------------------------------

    def _room(self, link: Link) -> int:
        """Return the number of bytes that proton may get now.

        Without a free bucket, the next part of a message goes when proton holds nothing more.
        """
        held_bytes = int(lib.pn_session_outgoing_bytes(link.session))
        waiting_bytes = self.held_bytes - self._shut_in_bytes
        free_bytes = self._buckets.free_bytes
        if free_bytes <= 0:
            return 0 if held_bytes or waiting_bytes > 0 else 1
        return min(ROOM_BYTES - waiting_bytes, self._session_room_bytes - held_bytes, free_bytes)

    def _take(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self._buckets.free_bytes -= size_bytes

    def taken(self, size_bytes: int) -> None:
        """Note that *size_bytes* have left proton; some of them were not content."""
        freed_bytes = min(size_bytes, self.held_bytes)
        self.held_bytes -= freed_bytes
        self._buckets.free_bytes += freed_bytes

    def recount(self) -> bool:
        """Proton has nothing to send: what it still holds waits for closed windows. Whether there is more room now."""
        before_bytes, self._shut_in_bytes = self.held_bytes, sum(map(lib.pn_session_outgoing_bytes, self._sessions))
        self._take(self._shut_in_bytes - before_bytes)
        return self._shut_in_bytes < before_bytes

    def give_up(self) -> None:
        """Release the room that is held for content in proton, because proton is freed."""
        self._take(-self.held_bytes)
        self._sessions.clear()

    def add_link(self, link: Link) -> None:
        """Messages will go out on it."""
        self._sessions[link.session] = self._sessions.get(link.session, 0) + 1
        self._share_room()

    def drop_link(self, link: Link) -> None:
        """Remove an ended link, and share its room among the remaining sessions."""
        self.blocked.pop(link, None)
        self._sessions[link.session] -= 1
        if not self._sessions[link.session]:
            del self._sessions[link.session]
            self._share_room()

    def _share_room(self) -> None:
        self._session_room_bytes = max(ROOM_BYTES // max(1, len(self._sessions)), _LEAST_ROOM_BYTES)

    def in_turn(self) -> list[Link]:
        """The links that wait: highest priority first, then the one served longest ago (router guide C44, C45)."""
        if self.ranked:
            return sorted(self.blocked, key=lambda link: -link.priority)
        return list(self.blocked)

    def _learn_part_bytes(self) -> int:
        """Set and return the payload bytes that fit one frame of the peer, which has opened the connection."""
        most = int(lib.pn_transport_get_remote_max_frame(self._transport)) or _LARGEST_PART_BYTES
        self._part_bytes = min(max(most, 512) - _TRANSFER_BYTES, _LARGEST_PART_BYTES)
        return self._part_bytes
