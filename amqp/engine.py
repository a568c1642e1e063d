"""One AMQP connection over proton's engine: bytes in, events out; no socket, no thread, no clock.

`push` feeds what arrived, `process` digests it: rare events come back as a list, the frequent ones (transfers and
outcomes) are gathered on their links, so that a terminal handles a whole read at once. `output`/`consumed` hand out
what is to be sent. One thread at a time, but it may change from call to call.

Proton frees nothing by itself here: pointers of a link are dead once it is `closed`, all of them after `free`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from . import proton, settling, transactional
from .along import ReadAlong, WriteAlong
from .buckets import Buckets
from .link import ABORTED, DEFAULT_PRIORITY, MORE, SETTLED, Error, Link, Outcome, Terminus
from .outgoing import Outgoing
from .priorities import asked_priority
from .proton import ACCEPTED, MODIFIED, NULL, RECEIVED, REJECTED, Pointer, ffi, lib, text
from .resuming import UNKNOWN, Kept, Resuming, encoded_state, may_resume, tag_of
from .transactions import TRANSACTIONAL

CAPABILITIES = ("ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY")
"""What is offered to every client that opens a connection."""

MOST_CREDIT = (1 << 31) - 1

_DELIVERY = int(lib.PN_DELIVERY)
_EXPIRIES = {
    int(lib.PN_EXPIRE_WITH_LINK): "link-detach",
    int(lib.PN_EXPIRE_WITH_SESSION): "session-end",
    int(lib.PN_EXPIRE_WITH_CONNECTION): "connection-close",
    int(lib.PN_EXPIRE_NEVER): "never",
}


class Kind(Enum):
    """The rare events."""

    OPENED = auto()
    ATTACHED = auto()
    FLOW = auto()
    DETACHED = auto()
    CLOSED = auto()


class Event(NamedTuple):
    """*link* is None for events of the connection; *text* the peer's or proton's error, if any."""

    kind: Kind
    link: Link | None = None
    text: str = ""
    closed: bool = False
    """On DETACHED: the peer closed the link, and so gave up its terminus; else the link only went away."""


class Limits(NamedTuple):
    """What a connection may ask of the broker; see `security` defaults."""

    max_frame_bytes: int = 64 << 10
    max_message_bytes: int = 256 << 20
    channel_max: int = 255
    idle_timeout_ms: int = 60_000
    max_links: int = 1024
    max_unsettled: int = 100_000
    """Messages that one link to the client may have without an outcome."""
    max_transfers: int = 1 << 20
    """Frames, or reads with a part of one, that one message may come in."""
    session_window_bytes: int = 64 << 20
    """What a client may send before it hears of more room. Proton counts it in frames of the largest size, so it also
    is how many small messages may be under way, and enforces it. It takes no memory: what came is taken out at once.
    """


class Engine:
    """Proton's connection and transport, driven through C functions."""

    def __init__(self, container_id: str, limits: Limits, buckets: Buckets) -> None:
        self.links: dict[Pointer, Link] = {}
        self.touched: list[Link] = []
        """Links with something in their `inbox`, `outcomes` or `provisional`; the terminal empties it."""
        self.transactional = False
        """There was a link to the coordinator, so there may be transactional states."""
        self._take: Callable[[Link, Pointer], None] = self._transfer
        self._plain_take: Callable[[Link, Pointer], None] = self._transfer
        """What takes transfers on links that don't resume."""
        self.resumes: Callable[[str], bool] = _nobody
        """Whether a container has links here that resume; asked when the connection is opened."""
        self._limits = limits
        self._events: list[Event] = []
        self.has_long = False
        """Since `push`: a part of a message came that more of is to come of."""
        self.container = ""
        """The peer's container id, once it has opened the connection."""
        self.desired: tuple[str, ...] = ()
        """The capabilities that it desires."""
        self._open_seen = False
        self._closed_seen = False
        self._sessions = 0
        self._input_ended = False
        self._connection = lib.pn_connection()
        self._collector = lib.pn_collector()
        self._transport = lib.pn_transport()
        lib.pn_connection_set_container(self._connection, container_id.encode())
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_max_frame(self._transport, limits.max_frame_bytes)
        lib.pn_transport_set_channel_max(self._transport, limits.channel_max)
        lib.pn_transport_set_idle_timeout(self._transport, limits.idle_timeout_ms)
        lib.pn_transport_bind(self._transport, self._connection)
        self._buffer = ffi.new("char[]", limits.max_frame_bytes)
        self._buffer_bytes = limits.max_frame_bytes
        self._out = bytearray(limits.max_frame_bytes)
        self._out_pointer = ffi.from_buffer("char[]", self._out)
        self._read_along: ReadAlong | None = ReadAlong(self._transport, limits.max_frame_bytes, is_new=True)
        """Until the connection is opened, and on one with links that resume."""
        self._write_along: WriteAlong | None = None
        """On such a one."""
        self.outgoing = Outgoing(self._transport, buckets)
        self.asked = 0
        """How often the peer asked for something that takes an answer, since it took all answers last."""
        self._handlers: dict[int, Callable[[Pointer], None]] = {
            int(lib.PN_CONNECTION_REMOTE_OPEN): self._on_open,
            int(lib.PN_CONNECTION_REMOTE_CLOSE): self._on_close,
            int(lib.PN_SESSION_REMOTE_OPEN): self._on_begin,
            int(lib.PN_SESSION_REMOTE_CLOSE): self._on_end,
            int(lib.PN_LINK_REMOTE_OPEN): self._on_attach,
            int(lib.PN_LINK_REMOTE_CLOSE): self._on_detach,
            int(lib.PN_LINK_REMOTE_DETACH): self._on_detach,
            int(lib.PN_LINK_FLOW): self._on_flow,
            int(lib.PN_TRANSPORT_ERROR): self._on_transport_error,
            int(lib.PN_TRANSPORT_TAIL_CLOSED): self._on_tail_closed,
            int(lib.PN_TRANSPORT_CLOSED): self._on_transport_closed,
        }

    # ---- bytes ----------------------------------------------------------------------------------------------------

    def push(self, data: bytes | memoryview) -> None:
        """Feed bytes that arrived. Call `process` afterwards."""
        self.has_long = False
        if self._read_along is not None:
            self._read_along.push(data, self._push)
        else:
            self._push(data)

    def _push(self, data: bytes | memoryview) -> None:
        size = len(data)
        pointer = ffi.from_buffer("char[]", data)
        done = 0
        while done < size:
            taken = lib.pn_transport_push(self._transport, pointer + done, size - done)
            if taken < 0:
                return  # proton reads nothing more; an event tells why
            done += taken
            if not taken:
                self._digest()

    def push_end(self) -> None:
        """The peer sends nothing more."""
        self._input_ended = True
        lib.pn_transport_close_tail(self._transport)

    def output(self) -> memoryview:
        """The next bytes to send, empty if there are none now. Valid until the next call of anything."""
        if self._write_along is not None:
            data = self._write_along.output()
            self.asked = self.asked if data else 0
            return data
        pending = lib.pn_transport_pending(self._transport)
        if pending <= 0:
            self.asked = 0
            return memoryview(b"")
        size = lib.pn_transport_peek(self._transport, self._out_pointer, min(pending, len(self._out)))
        return memoryview(self._out)[: max(size, 0)]

    def consumed(self, size_bytes: int) -> None:
        """So much of `output` was sent."""
        if self._write_along is None:
            lib.pn_transport_pop(self._transport, size_bytes)
        else:
            self._write_along.consumed(size_bytes)
        if self.outgoing.held_bytes:
            self.outgoing.taken(size_bytes)

    def _go_along(self) -> None:
        """There are links that resume on this connection: from now on what proton leaves out is read and written."""
        if self._read_along is None:
            self._read_along = ReadAlong(self._transport, self._limits.max_frame_bytes, is_new=False)
        if self._write_along is None:
            self._write_along = WriteAlong(self._transport, self._limits.max_frame_bytes)
            self._plain_take, self._take = self._take, self._transfer_resuming

    def peer_is_done(self) -> bool:
        """Whether the peer has said that it sends nothing more."""
        return self._input_ended or bool(lib.pn_connection_state(self._connection) & proton.REMOTE_CLOSED)

    def output_ended(self) -> bool:
        """Whether nothing will ever be sent again."""
        waits = self._write_along is not None and self._write_along.is_waiting()
        return not waits and bool(lib.pn_transport_pending(self._transport) < 0)

    def tick(self, now_ms: int) -> int:
        """Let time pass: heartbeats and the peer's time-out. When to call again, 0 for never."""
        return int(lib.pn_transport_tick(self._transport, now_ms))

    # ---- events ---------------------------------------------------------------------------------------------------

    def process(self) -> list[Event]:
        """Digest everything; the rare events in order. See `touched` for the frequent ones."""
        self._digest()
        events, self._events = self._events, []
        return events

    def _touch(self, link: Link) -> None:
        if not link.touched:
            link.touched = True
            self.touched.append(link)

    def _digest(self) -> None:
        while self.outgoing.answered:
            early, its_delivery = self.outgoing.answered.pop()
            if not early.closed:
                self._outcome(early, its_delivery)
                self._touch(early)
        collector, peek, pop = self._collector, lib.pn_collector_peek, lib.pn_collector_pop
        type_of, delivery_of, link_of = lib.pn_event_type, lib.pn_event_delivery, lib.pn_delivery_link
        owner_is_sender = lib.pn_link_is_sender
        links, handlers, take = self.links, self._handlers, self._take
        pn_link: Pointer = NULL
        link: Link | None = None
        while True:
            event = peek(collector)
            if not event:
                return
            kind = type_of(event)
            if kind == _DELIVERY:
                delivery = delivery_of(event)
                owner = link_of(delivery)
                if owner != pn_link:
                    pn_link, link = owner, links.get(owner)
                if link is not None and not link.deaf:
                    if link.sender:
                        self._outcome(link, delivery)
                    else:
                        take(link, delivery)
                    if not link.touched:
                        self._touch(link)
                elif link is not None and not link.closed:
                    if link.settles_second and lib.pn_delivery_settled(delivery):
                        settling.answered(link, delivery)
                elif not owner_is_sender(owner):
                    self._discard(owner, delivery)
            else:
                handler = handlers.get(kind)
                if handler is not None:
                    handler(event)
                    pn_link = NULL
            pop(collector)

    def _discard(self, pn: Pointer, delivery: Pointer) -> None:
        """What still comes on a link that was closed would stay in proton, and its session's window would close."""
        while lib.pn_delivery_readable(delivery) and lib.pn_link_recv(pn, self._buffer, self._buffer_bytes) > 0:
            pass
        if not lib.pn_delivery_partial(delivery):
            lib.pn_delivery_settle(delivery)

    def _transfer(self, link: Link, delivery: Pointer) -> None:
        if not lib.pn_delivery_readable(delivery):
            if link.settles_second and lib.pn_delivery_settled(delivery):
                settling.answered(link, delivery)
            return  # the sender settled a delivery that was read before
        size = lib.pn_delivery_pending(delivery)
        flags = MORE if lib.pn_delivery_partial(delivery) else 0
        if lib.pn_delivery_aborted(delivery):
            flags = ABORTED | SETTLED
            data = b""
        elif size:
            if size > self._buffer_bytes:
                self._buffer = ffi.new("char[]", size)
                self._buffer_bytes = size
            size = lib.pn_link_recv(link.pn, self._buffer, size)
            data = ffi.unpack(self._buffer, size) if size > 0 else b""
        elif flags:
            self._count_partial(link)
            return
        else:
            data = b""
        if link.grown_bytes + size > self._limits.max_message_bytes:
            most = self._limits.max_message_bytes
            self.close_link(link, "amqp:link:message-size-exceeded", f"messages have up to {most} bytes here")
            return
        if flags & MORE:
            self.has_long = True
            link.grown_bytes += size
            if not self._count_partial(link):
                return
        else:
            if link.partials:
                link.partials = link.grown_bytes = 0
            lib.pn_link_advance(link.pn)
            if link.presettled or lib.pn_delivery_settled(delivery):
                flags |= SETTLED
        link.inbox.append((delivery, data, flags))

    def _count_partial(self, link: Link) -> bool:
        """A part of a message came; False if there were too many (A6), and the link is closed."""
        link.partials += 1
        if link.partials <= self._limits.max_transfers:
            return True
        most = self._limits.max_transfers
        self.close_link(link, "amqp:resource-limit-exceeded", f"a message may come in {most} frames here")
        return False

    def _transfer_in(self, link: Link, delivery: Pointer) -> None:
        """The same, and note which transaction it is for."""
        number = len(link.inbox)
        self._transfer(link, delivery)
        if number < len(link.inbox):
            transactional.note_transfer(link, delivery, number, self._buffer)

    def _transfer_resuming(self, link: Link, delivery: Pointer) -> None:
        """The same, and note its tag if *link* may resume."""
        resuming = link.resuming
        if resuming is None:
            self._plain_take(link, delivery)
            return
        tag, number = tag_of(delivery), len(link.inbox)
        self._plain_take(link, delivery)
        if number == len(link.inbox) or self._read_along is None or self._write_along is None:
            return
        flags = link.inbox[-1][2]
        resumed = self._read_along.frames.is_resumed(link.name, tag)
        if not resumed and (link.name, True) in self._write_along.frames.incomplete:
            link.inbox.pop()
            self.close_link(link, "amqp:not-allowed", "not all that is unsettled was told: nothing new may be sent yet")
            return
        if not flags & MORE:
            self._read_along.frames.is_whole(link.name, tag)
            if not flags & SETTLED:
                resuming.tags[delivery] = tag
        resuming.arrivals.append((tag, resumed))

    def _outcome(self, link: Link, delivery: Pointer) -> None:
        state = lib.pn_delivery_remote_state(delivery)
        settled = lib.pn_delivery_settled(delivery)
        if not settled and (not state or state == RECEIVED):
            return
        tag = link.unsettled.get(delivery)
        if tag is None:
            return
        # by hand: a named tuple's own call takes twice as long
        found = tuple.__new__(Outcome, (None if settled else delivery, tag, state, False, False, None, b""))
        if state != ACCEPTED:
            if state == TRANSACTIONAL:
                transactional.note_outcome(link, delivery, tag, settled=settled)
                return
            found = _in_detail(found, lib.pn_delivery_remote(delivery))
        link.outcomes.append(found)
        if settled:
            del link.unsettled[delivery]
            lib.pn_delivery_settle(delivery)
        else:
            link.unsettled[delivery] = None  # its outcome is known; it waits to be settled by this side

    def _on_open(self, event: Pointer) -> None:
        if self._open_seen:
            self._refuse("amqp:not-allowed", "the connection is open already")
            return
        self._open_seen = True
        self.container = text(lib.pn_connection_remote_container(self._connection)) or ""
        self.desired = proton.symbols(lib.pn_connection_remote_desired_capabilities(self._connection))
        if self.resumes(self.container):
            self._go_along()
        else:
            self._read_along = None
        self._events.append(Event(Kind.OPENED))

    def _on_close(self, event: Pointer) -> None:
        for link in list(self.links.values()):
            self.go_on(link)
        self._lose_links()
        lib.pn_connection_close(self._connection)
        error = proton.condition_text(lib.pn_connection_remote_condition(self._connection))
        self._closed(error)

    def _on_begin(self, event: Pointer) -> None:
        self.asked += 1
        self._sessions += 1
        if self._sessions > self._limits.channel_max + 1:  # proton takes any number of them on one channel
            self._refuse("amqp:resource-limit-exceeded", f"there may be {self._limits.channel_max + 1} sessions")
            return
        session = lib.pn_event_session(event)
        window_bytes = max(self._limits.session_window_bytes, self._limits.max_frame_bytes)  # proton wants that much
        lib.pn_session_set_incoming_capacity(session, window_bytes)
        lib.pn_session_open(session)

    def _on_end(self, event: Pointer) -> None:
        session = lib.pn_event_session(event)
        for link in [link for link in self.links.values() if link.session == session]:
            self.go_on(link)
            self._lose(link)
        self._sessions -= 1
        lib.pn_session_close(session)
        lib.pn_session_free(session)

    def _on_attach(self, event: Pointer) -> None:
        self.asked += 1
        pn = lib.pn_event_link(event)
        name, sender = text(lib.pn_link_name(pn)) or "", bool(lib.pn_link_is_sender(pn))
        link = Link(pn, lib.pn_link_session(pn), name, sender=sender)
        self.links[pn] = link
        if sender:
            self.outgoing.add_link(link)
        link.priority = asked_priority(lib.pn_link_remote_properties(pn))
        if link.priority != DEFAULT_PRIORITY:
            self.outgoing.ranked = True
        link.presettled = int(lib.pn_link_remote_snd_settle_mode(pn)) == int(lib.PN_SND_SETTLED)
        link.settles_second = not sender and lib.pn_link_remote_rcv_settle_mode(pn) == lib.PN_RCV_SECOND
        claims = UNKNOWN if self._read_along is None else self._read_along.frames.claims(name, receives=sender)
        if not sender and may_resume(link, lib.pn_link_remote_target(pn)):
            self._go_along()
            link.resuming = Resuming(claims)
        lib.pn_link_set_snd_settle_mode(pn, lib.pn_link_remote_snd_settle_mode(pn))
        lib.pn_link_set_rcv_settle_mode(pn, lib.pn_link_remote_rcv_settle_mode(pn))
        if len(self.links) > self._limits.max_links:
            most = self._limits.max_links
            self.close_link(link, "amqp:resource-limit-exceeded", f"a connection may have {most} links")
            return
        self._events.append(Event(Kind.ATTACHED, link))

    def _on_detach(self, event: Pointer) -> None:
        pn = lib.pn_event_link(event)
        link = self.links.get(pn)
        if link is None:  # the answer to a detach of ours
            lib.pn_link_free(pn)
            return
        closed = int(lib.pn_event_type(event)) == int(lib.PN_LINK_REMOTE_CLOSE)
        self.go_on(link)
        if lib.pn_link_state(pn) & proton.LOCAL_UNINIT:
            _refuse_attach(link)
        if closed:
            lib.pn_link_close(link.pn)
        else:
            lib.pn_link_detach(link.pn)
        self._lose(link, closed)
        lib.pn_link_free(link.pn)

    def _on_flow(self, event: Pointer) -> None:
        link = self.links.get(lib.pn_event_link(event))
        if link is not None and link.sender:
            if lib.pn_link_credit(link.pn) < -2 * (link.sent + link.given_back):
                # proton counts with 31 bits; what a peer takes back while messages are on their way is never that much
                self.close_link(link, "amqp:not-implemented", f"credit of more than {MOST_CREDIT} is not understood")
                return
            self._events.append(Event(Kind.FLOW, link))

    def _on_transport_error(self, event: Pointer) -> None:
        self._closed(proton.condition_text(lib.pn_transport_condition(self._transport)))

    def _on_tail_closed(self, event: Pointer) -> None:
        """Proton stops reading at a frame it does not know, and says nothing: the error is told here."""
        if self._input_ended or lib.pn_condition_is_set(lib.pn_transport_condition(self._transport)):
            return
        if not lib.pn_connection_state(self._connection) & proton.REMOTE_CLOSED:
            self._refuse("amqp:decode-error", "a frame that is none of AMQP 1.0's")

    def _refuse(self, condition: str, description: str) -> None:
        """End the connection because of what the peer sent."""
        self._lose_links()
        self.close(condition, description)
        self._closed(f"{condition}: {description}")

    def _on_transport_closed(self, event: Pointer) -> None:
        self._closed("")

    def _closed(self, error: str) -> None:
        if not self._closed_seen:
            self._closed_seen = True
            self._events.append(Event(Kind.CLOSED, text=error))

    def _lose(self, link: Link, closed: bool = False) -> None:
        """The link is gone for good; tell the terminal, once."""
        if self.links.pop(link.pn, None) is not None:
            link.closed = link.deaf = True
            if link.sender:
                self.outgoing.drop_link(link)
            self._events.append(Event(Kind.DETACHED, link, closed=closed))

    def _lose_links(self) -> None:
        for link in list(self.links.values()):
            self._lose(link)

    # ---- what the terminal asks for -------------------------------------------------------------------------------

    def open(self, capabilities: tuple[str, ...] = (), properties: bytes = b"") -> None:
        """Answer the peer's open, unless the connection was closed before it came to that. *properties*: as a map."""
        if not lib.pn_connection_state(self._connection) & proton.LOCAL_UNINIT:
            return
        if capabilities:
            proton.put_symbols(lib.pn_connection_offered_capabilities(self._connection), capabilities)
        if properties:
            proton.put_encoded(lib.pn_connection_properties(self._connection), properties)
        lib.pn_connection_open(self._connection)

    def close(self, condition: str = "", description: str = "", info: bytes = b"") -> None:
        """Close the connection, with an error if *condition* names one; *info* is a map."""
        if condition:
            proton.set_condition(lib.pn_connection_condition(self._connection), condition, description, info)
        self.open()
        lib.pn_connection_close(self._connection)

    def terminus_of(self, link: Link) -> Terminus:
        """What the peer asked for at this side of the link."""
        pn = link.pn
        terminus = lib.pn_link_remote_source(pn) if link.sender else lib.pn_link_remote_target(pn)
        kind = int(lib.pn_terminus_get_type(terminus))
        mode = int(lib.pn_terminus_get_distribution_mode(terminus))
        return Terminus(
            address=text(lib.pn_terminus_get_address(terminus)),
            dynamic=bool(lib.pn_terminus_is_dynamic(terminus)),
            browse=mode == int(lib.PN_DIST_MODE_COPY),
            coordinator=kind == int(lib.PN_COORDINATOR),
            absent=kind == int(lib.PN_UNSPECIFIED),
            durability=int(lib.pn_terminus_get_durability(terminus)),
            expiry=_EXPIRIES[int(lib.pn_terminus_get_expiry_policy(terminus))],
            timeout_s=int(lib.pn_terminus_get_timeout(terminus)),
            capabilities=proton.symbols(lib.pn_terminus_capabilities(terminus)),
            filters=proton.encoded(lib.pn_terminus_filter(terminus)) if link.sender else b"",
            properties=proton.encoded(lib.pn_terminus_properties(terminus)),
        )

    def control(self, link: Link) -> None:
        """*link* controls transactions: from now on transfers of this connection may be for one."""
        link.coordinator = self.transactional = True
        if self._write_along is None:
            self._take = self._transfer_in
        else:
            self._plain_take = self._transfer_in

    def far_address_of(self, link: Link) -> str | None:
        """The address that the peer gave its own end of a link to it; None of a link from it."""
        return text(lib.pn_terminus_get_address(lib.pn_link_remote_target(link.pn))) if link.sender else None

    def open_link(
        self,
        link: Link,
        address: str | None,
        filters: bytes = b"",
        found: Terminus | None = None,
        kept: Kept | None = None,
    ) -> None:
        """Answer the attach: the termini as asked for, with *address* where a dynamic node was made.

        *filters* are those that are applied; *found* stands for a source that the peer left out. *kept* is
        what this side has unsettled of a link that resumes, None of one that does not.
        """
        pn = link.pn
        source, target = lib.pn_link_source(pn), lib.pn_link_target(pn)
        lib.pn_terminus_copy(source, lib.pn_link_remote_source(pn))
        proton.put_encoded(lib.pn_terminus_filter(source), filters)
        lib.pn_terminus_copy(target, lib.pn_link_remote_target(pn))
        if address is not None:
            lib.pn_terminus_set_address(source if link.sender else target, address.encode())
        if found is not None:
            _fill(source, found)
        if link.coordinator:
            transactional.offer(target)
        if link.resuming is not None:
            self._resume(link, target, kept)
        if not link.sender:
            lib.pn_link_set_max_message_size(pn, self._limits.max_message_bytes)
        lib.pn_link_open(pn)

    def _resume(self, link: Link, target: Pointer, kept: Kept | None) -> None:
        if kept is None:
            link.resuming = None
            lib.pn_terminus_set_durability(target, 0)
        elif self._write_along is not None:
            lib.pn_terminus_set_timeout(target, kept.expires_s)
            key = link.name, not link.sender
            self._write_along.frames.incomplete.discard(key)
            self._write_along.frames.unsettled[key] = {tag: encoded_state(state) for tag, state in kept.states.items()}

    def close_link(self, link: Link, condition: str = "", description: str = "") -> None:
        """Detach for good, with an error if *condition* names one; as a refused attach if it was not answered yet."""
        if link.closed:
            return
        if lib.pn_link_state(link.pn) & proton.LOCAL_UNINIT:
            _refuse_attach(link)
        if condition:
            proton.set_condition(lib.pn_link_condition(link.pn), condition, description)
        lib.pn_link_close(link.pn)
        self._lose(link)

    def check_credit(self, link: Link) -> None:
        """Close *link* if its peer sent more messages than it may; what was too much is not taken."""
        excess = -int(lib.pn_link_credit(link.pn))
        if excess <= 0:
            return
        while excess and link.inbox:
            excess -= not link.inbox.pop()[2] & MORE
        self.close_link(link, "amqp:link:transfer-limit-exceeded", "more messages were sent than there was credit for")

    def hold(self, link: Link) -> None:
        """Leave what comes on an incoming *link* in proton: its session's window shuts, and the peer waits."""
        link.deaf = True

    def go_on(self, link: Link) -> None:
        """Take what came while *link* was held, and what comes from now on."""
        if not link.deaf or link.closed:
            return
        link.deaf = False
        before: Pointer = NULL
        while not link.deaf and (delivery := lib.pn_link_current(link.pn)) != before and delivery:
            self._take(link, delivery)
            before = delivery
        self._touch(link)

    def grant(self, link: Link, credit: int) -> None:
        """Allow the peer to send so many messages more: now, or when it has settled those that were sent."""
        if link.told:
            now = max(0, credit - (len(link.told) - link.owed))
            link.owed += credit - now
            credit = now
        if not link.closed:
            lib.pn_link_flow(link.pn, credit)

    def credit_limit(self, link: Link) -> tuple[int, bool]:
        """Up to which number, of messages and credit given back, the peer wants to go; whether it wants to drain.

        It gets no further than `max_unsettled` allows; then the link is `capped`, to be asked again after outcomes.
        """
        used = link.sent + max(link.given_back, link.spent)
        credit, room = int(lib.pn_link_credit(link.pn)), self._limits.max_unsettled - len(link.unsettled)
        link.capped = credit > room
        if link.capped:
            return used + max(room, 0), False
        return used + credit, bool(lib.pn_link_get_drain(link.pn))

    def free(self) -> None:
        """Give everything back to proton. Nothing may be called afterwards."""
        self.links.clear()
        self.outgoing.give_up()
        lib.pn_transport_unbind(self._transport)
        lib.pn_decref(self._transport)
        lib.pn_collector_release(self._collector)
        lib.pn_connection_release(self._connection)
        lib.pn_decref(self._connection)
        lib.pn_collector_free(self._collector)


def _in_detail(outcome: Outcome, disposition: Pointer) -> Outcome:
    """*outcome* with what is said of it beyond its state."""
    if outcome.state == MODIFIED:
        return outcome._replace(
            failed=bool(lib.pn_disposition_is_failed(disposition)),
            undeliverable=bool(lib.pn_disposition_is_undeliverable(disposition)),
            annotations=proton.encoded(lib.pn_disposition_annotations(disposition)),
        )
    if outcome.state == REJECTED:
        condition = lib.pn_disposition_condition(disposition)
        if lib.pn_condition_is_set(condition):
            return outcome._replace(error=Error(*proton.condition_parts(condition)))
    return outcome


def _refuse_attach(link: Link) -> None:
    """Answer an attach that comes to nothing: a null terminus, and a detach behind it, are how that looks."""
    refused = lib.pn_link_source(link.pn) if link.sender else lib.pn_link_target(link.pn)
    lib.pn_terminus_set_type(refused, lib.PN_UNSPECIFIED)
    lib.pn_link_open(link.pn)


def _nobody(container: str) -> bool:
    return False


def _fill(source: Pointer, found: Terminus) -> None:
    """Write what there is into a source that was left out."""
    lib.pn_terminus_set_type(source, lib.PN_SOURCE)
    lib.pn_terminus_set_address(source, (found.address or "").encode())
    lib.pn_terminus_set_durability(source, found.durability)
    lib.pn_terminus_set_expiry_policy(source, next(code for code, name in _EXPIRIES.items() if name == found.expiry))
    proton.put_symbols(lib.pn_terminus_capabilities(source), found.capabilities)
