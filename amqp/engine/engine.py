"""One AMQP connection over proton's engine: bytes in, events out; no socket, no thread, no clock.

`push` feeds what arrived, `process` digests it: rare events come back as a list, the frequent ones (transfers and
outcomes) are gathered on their links, so that a terminal handles a whole read at once. `output`/`consumed` hand out
what is to be sent. One thread at a time, but it may change from call to call.

Proton frees nothing by itself here: pointers of a link are dead once it is `closed`, all of them after `free`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..codec.transaction_types import TRANSACTIONAL
from ..frames.frame_reader import Outgoing
from ..frames.resume_transport import ReadAlong
from ..frames.txn_flow_transport import NamingFlows
from ..links import credit as crediting
from ..links import settlement, transaction_state
from ..links import terminus as termini
from ..links.events import Event, Limits
from ..links.link import Link
from ..links.resume_state import Kept, Resumable, encoded_state, tag_of
from ..links.values import ABORTED, MORE, SETTLED, Outcome, Terminus
from ..native import proton_ffi as proton
from ..native.buffer_pool import Buckets
from ..native.proton_ffi import ACCEPTED, NULL, RECEIVED, Pointer, ffi, lib, text
from ..native.scratch_buffer import ScratchBuffer
from .endpoints import Endpoints

_DELIVERY = int(lib.PN_DELIVERY)
_CONTROLS = frozenset(
    int(kind)
    for kind in (
        lib.PN_SESSION_REMOTE_OPEN,
        lib.PN_SESSION_REMOTE_CLOSE,
        lib.PN_LINK_REMOTE_OPEN,
        lib.PN_LINK_REMOTE_CLOSE,
        lib.PN_LINK_REMOTE_DETACH,
        lib.PN_LINK_FLOW,
    )
)
"""Control frames: few bytes of the peer, and much work here."""
ALL_CONTROLS = 1 << 60
DELIVERY_BYTES = 512
"""Approximate memory of a message that waits in proton, without its content."""
_CONFIGURATION = 1
"""The durability of a terminus whose unsettled state does not last."""


class Engine(Endpoints):
    """Proton's connection and transport, driven through C functions: bytes, and the deliveries in them."""

    def __init__(
        self,
        container_id: str,
        limits: Limits,
        buckets: Buckets,
        scratch: ScratchBuffer | None = None,
        *,
        client: bool = False,
    ) -> None:
        """*scratch* is shared with other engines of the same thread; *client*: this side opens the connection."""
        self._scratch = scratch or ScratchBuffer(limits.max_frame_bytes)
        super().__init__(container_id, limits, buckets, self._scratch, client=client)
        self.touched: list[Link] = []
        """Links with something in their `inbox`, `outcomes`, `provisional` or `acquiring`; the terminal empties it."""
        self.transactional = False
        """There was a link to the coordinator, or a transactional state without one: there may be more of these."""
        self.controls_left = ALL_CONTROLS
        """How many control frames may be digested; what is behind the next one waits until it is set anew."""
        self.is_behind = False
        """Something waits for that."""
        self._is_unread = False
        """The peer's idle time does not count before something is read again."""
        self.has_long = False
        """Since `push`: a part of a message came that more of is to come of."""
        self._take: Callable[[Link, Pointer], None] = self._transfer
        self._plain_take: Callable[[Link, Pointer], None] = self._transfer
        """What takes transfers on links that don't resume."""
        self._buffer = self._scratch.incoming
        self._buffer_bytes = self._scratch.incoming_bytes
        self._naming: NamingFlows | None = None
        """On a connection that has had a link to the coordinator."""

    # ---- bytes ----------------------------------------------------------------------------------------------------

    def push(self, data: bytes | memoryview) -> None:
        """Feed bytes that arrived. Call `process` afterwards."""
        self.has_long = False
        if self._is_unread:
            self._is_unread = False
            lib.pn_transport_set_idle_timeout(self._transport, self._limits.idle_timeout_ms)
        self._check.push(data, self._push_checked)

    def _push_checked(self, data: bytes | memoryview) -> None:
        if self._naming is not None:
            self._naming.push(data, self._push_on, self._said)
        elif self._read_along is None:
            self._push(data)
        else:
            self._push_on(data)

    def _push_on(self, data: bytes | memoryview) -> None:
        if self._read_along is not None:
            self._read_along.push(data, self._push)
        else:
            self._push(data)

    def _said(self, txn_id: bytes | None) -> None:
        self._named = txn_id
        self.digest_answer()  # all of it belongs to what the flow names
        self._named = None

    def _acquire(self, link: Link, txn_id: bytes) -> None:
        link.acquiring.append((txn_id, *self.credit_limit(link)))
        self._touch(link)

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
                self.controls_left = max(self.controls_left, 1)
                self._digest()

    def push_end(self) -> None:
        """The peer sends nothing more."""
        self._input_ended = True
        lib.pn_transport_close_tail(self._transport)

    def output(self) -> memoryview:
        """The next bytes to send, empty if there are none now. Valid until any engine of this thread is called."""
        if self._echoes.due:
            self._echoes.answer()
        if self._taken.ready or self._taken.frames is not None:
            data = self._taken.output()
            self.asked = self.asked if data else 0
            return data
        pending = lib.pn_transport_pending(self._transport)
        if pending <= 0:
            self.asked = 0
            return memoryview(b"")
        out = self._scratch.outgoing
        size = lib.pn_transport_peek(self._transport, self._scratch.outgoing_pointer, min(pending, len(out)))
        return memoryview(out)[: max(size, 0)]

    def consumed(self, size_bytes: int) -> bool:
        """Remove *size_bytes* of `output`, which were sent; return whether there may be more."""
        if self._taken.ready:
            self._taken.consumed(size_bytes)
        else:
            lib.pn_transport_pop(self._transport, size_bytes)
        if self.outgoing.held_bytes:
            self.outgoing.taken(size_bytes)
        if self._taken.ready or self._taken.frames is not None or self._echoes.due:
            return True
        if lib.pn_transport_pending(self._transport) > 0:
            return True
        self.asked = 0
        return False

    def _go_along(self) -> None:
        """There are links that resume on this connection: from now on what proton leaves out is read and written."""
        if self._read_along is None:
            self._read_along = ReadAlong(self._transport, self._limits.max_frame_bytes, is_new=False)
        if self._taken.frames is None:
            self._taken.take()
            most_bytes = int(lib.pn_transport_get_remote_max_frame(self._transport)) or self._limits.max_frame_bytes
            self._taken.frames = Outgoing(most_bytes)
            self._plain_take, self._take = self._take, self._transfer_resuming

    def peer_is_done(self) -> bool:
        """Return whether the peer has closed the connection or its input has ended."""
        return self._input_ended or bool(lib.pn_connection_state(self._connection) & proton.REMOTE_CLOSED)

    def output_ended(self) -> bool:
        """Return whether all output is taken and proton produces no more."""
        return not self._taken.ready and bool(lib.pn_transport_pending(self._transport) < 0)

    def tick(self, now_ms: int) -> int:
        """Let time pass: heartbeats and the peer's time-out. When to call again, 0 for never."""
        return int(lib.pn_transport_tick(self._transport, now_ms))

    # ---- events ---------------------------------------------------------------------------------------------------

    def process(self) -> list[Event]:
        """Digest everything; the rare events in order. See `touched` for the frequent ones."""
        self._digest()
        if self._check.echoes:
            self._take_echoes()
        events, self._events = self._events, []
        return events

    def _touch(self, link: Link) -> None:
        if not link.touched:
            link.touched = True
            self.touched.append(link)

    def digest(self) -> None:
        """Digest what was pushed."""
        self._digest()

    def digest_answer(self) -> None:
        """Digest a begin that answers a session of this side, whatever the budget of the turn."""
        left, self.controls_left = self.controls_left, ALL_CONTROLS
        self._digest()
        self.controls_left = left - (ALL_CONTROLS - self.controls_left)

    def _digest(self) -> None:
        while self.outgoing.answered:
            early, its_delivery = self.outgoing.answered.pop()
            if not early.closed:
                self._outcome(early, its_delivery)
                self._touch(early)
        collector, peek, pop = self._collector, lib.pn_collector_peek, lib.pn_collector_pop
        type_of, delivery_of, link_of = lib.pn_event_type, lib.pn_event_delivery, lib.pn_delivery_link
        owner_is_sender = lib.pn_link_is_sender
        links, handlers = self.links, self._handlers
        self.is_behind = False
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
                if link is not None and not link.is_paused:
                    if link.sender:
                        self._outcome(link, delivery)
                    else:
                        self._take(link, delivery)
                    if not link.touched:
                        link.touched = True
                        self.touched.append(link)
                elif link is not None and not link.closed:
                    if link.settles_second and lib.pn_delivery_settled(delivery):
                        settlement.answered(link, delivery)
                    crediting.mend(link)
                elif not owner_is_sender(owner):
                    self._discard(owner, delivery)
            else:
                handler = handlers.get(kind)
                if handler is not None:
                    if kind in _CONTROLS:
                        if self.controls_left <= 0:
                            self.is_behind = True
                            return
                        self.controls_left -= 1
                    handler(event)
                    pn_link = NULL
            pop(collector)

    def _take_echoes(self) -> None:
        """Count each echo as a control frame; those beyond the budget of the turn wait."""
        taken = self._echoes.take(self._check.echoes, self.controls_left)
        self.controls_left -= taken
        self.asked += taken
        self.is_behind = self.is_behind or (self.controls_left <= 0 and self._echoes.is_any_ready(self._check.echoes))

    def _discard(self, pn: Pointer, delivery: Pointer) -> None:
        """Drop the bytes of a delivery on a closed link.

        In proton they would accumulate, and close the window of the session.
        """
        while lib.pn_delivery_readable(delivery) and lib.pn_link_recv(pn, self._buffer, self._buffer_bytes) > 0:
            pass
        if not lib.pn_delivery_partial(delivery):
            lib.pn_delivery_settle(delivery)

    def _transfer(self, link: Link, delivery: Pointer) -> None:
        if not lib.pn_delivery_readable(delivery):
            if link.settles_second and lib.pn_delivery_settled(delivery):
                settlement.answered(link, delivery)
            return  # the sender settled a delivery that was read before
        size = lib.pn_delivery_pending(delivery)
        flags = MORE if lib.pn_delivery_partial(delivery) else 0
        if size == 1 and lib.pn_delivery_aborted(delivery):  # then proton says 1, whatever there was
            flags = ABORTED | SETTLED
            data = b""
        elif size:
            if size > self._buffer_bytes:
                self._scratch.grow(size)
                self._buffer, self._buffer_bytes = self._scratch.incoming, self._scratch.incoming_bytes
            size = lib.pn_link_recv(link.pn, self._buffer, size)
            data = ffi.unpack(self._buffer, size) if size > 0 else b""
        elif flags:
            self._count_partial(link)
            return
        elif not link.partials and link.resuming is None:
            self._refuse_empty(link, delivery)
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
        if lib.pn_delivery_remote_state(delivery) == TRANSACTIONAL and not self.transactional:
            self._mind_transactions()  # of one that there is not, for no link has asked for it
            transaction_state.note_transfer(link, delivery, len(link.inbox) - 1, self._buffer)

    def _refuse_empty(self, link: Link, delivery: Pointer) -> None:
        """A message without any section came: reject it, or close the link if its sender wants no outcome (3.2)."""
        why = "a message has at least one section, the body; this one has no bytes"
        if link.presettled or lib.pn_delivery_settled(delivery):
            self.close_link(link, "amqp:decode-error", why)
            return
        lib.pn_link_advance(link.pn)
        settlement.reject(link, (delivery,), "amqp:decode-error", why)
        self.grant(link, 1)

    def _count_partial(self, link: Link) -> bool:
        """A part of a message came; False if there were too many (A6), and the link is closed."""
        link.partials += 1
        if link.partials <= self._limits.max_transfers:
            return True
        most = self._limits.max_transfers
        self.close_link(link, "amqp:resource-limit-exceeded", f"a message may come in {most} frames here")
        return False

    def _transfer_in(self, link: Link, delivery: Pointer) -> None:
        """Take a transfer, and note which transaction it is for."""
        number = len(link.inbox)
        self._transfer(link, delivery)
        if number < len(link.inbox):
            transaction_state.note_transfer(link, delivery, number, self._buffer)

    def _transfer_resuming(self, link: Link, delivery: Pointer) -> None:
        """Take a transfer, and note its tag if *link* may resume."""
        resuming = link.resuming
        if resuming is None:
            self._plain_take(link, delivery)
            return
        tag, number = tag_of(delivery), len(link.inbox)
        self._plain_take(link, delivery)
        if number == len(link.inbox) or self._read_along is None or self._taken.frames is None:
            return
        flags = link.inbox[-1][2]
        resumed = self._read_along.frames.is_resumed(link.name, tag)
        if not resumed and (link.name, True) in self._taken.frames.incomplete:
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
        tag = link.unsettled.get(delivery)
        if tag is None and settlement.is_unasked(link, delivery):
            self.refuse("amqp:not-allowed", f"a message came on the link {link.name!r}, on which its peer receives")
            return
        if tag is None or (not settled and (not state or state == RECEIVED)):
            return
        # by hand: a named tuple's own call takes twice as long
        found = tuple.__new__(Outcome, (None if settled else delivery, tag, state, False, False, None, b""))
        if state != ACCEPTED:
            if state == TRANSACTIONAL:
                transaction_state.note_outcome(link, delivery, tag, settled=settled)
                return
            found = settlement.in_detail(found, lib.pn_delivery_remote(delivery))
        link.outcomes.append(found)
        if settled:
            del link.unsettled[delivery]
            lib.pn_delivery_settle(delivery)
        else:
            link.unsettled[delivery] = None  # its outcome is known; it waits to be settled by this side

    # ---- what the terminal asks for -------------------------------------------------------------------------------

    def control(self, link: Link) -> None:
        """*link* controls transactions. Held links go on: a discharge must not overtake what waits on them."""
        link.coordinator = True
        if self._naming is None:
            self._naming = NamingFlows(self._transport, self._limits.max_frame_bytes)
        self._mind_transactions()
        for held in list(self.holding):
            self.go_on(held)

    def _mind_transactions(self) -> None:
        """From now on transfers may be for one."""
        self.transactional = True
        if self._taken.frames is None:
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
        """Answer the attach, with the termini as `termini.answer` has them.

        *kept* is what this side has unsettled of a link that resumes, None of one that does not.
        """
        pn = link.pn
        target = lib.pn_link_target(pn)
        termini.answer(link, address, filters, found)
        if link.coordinator:
            transaction_state.offer(target)
        if link.resuming is not None:
            self._resume(link, lib.pn_link_source(pn) if link.sender else target, kept)
        if not link.sender:
            lib.pn_link_set_max_message_size(pn, self._limits.max_message_bytes)
        self._open(link)
        if link.resuming is not None and link.sender and self._taken.frames is not None:
            link.resuming.holds_back = (link.name, False) in self._taken.frames.incomplete

    def _resume(self, link: Link, terminus: Pointer, kept: Kept | None) -> None:
        if kept is None:
            link.resuming = None
            lib.pn_terminus_set_durability(terminus, _CONFIGURATION if link.sender else 0)
        elif self._taken.frames is not None:
            lib.pn_terminus_set_timeout(terminus, kept.expires_s)
            key = link.name, not link.sender
            self._taken.frames.incomplete.discard(key)
            self._taken.frames.unsettled[key] = {tag: encoded_state(state) for tag, state in kept.states.items()}

    def note_tags(self, link: Link, messages: Iterable[Resumable]) -> None:
        """These go into the outbox of *link*, which may resume."""
        assert link.resuming is not None
        assert self._taken.frames is not None
        link.resuming.departures.extend([(message.tag, message.is_resumed) for message in messages])
        self._taken.frames.resumed.update([message.tag for message in messages if message.is_resumed])

    def check_credit(self, link: Link) -> bool:
        """Close *link* if its peer sent more messages than it may, and say False; what was too much is not taken."""
        if crediting.is_kept(link):
            return True
        self.close_link(link, "amqp:link:transfer-limit-exceeded", "more messages were sent than there was credit for")
        return False

    def hold(self, link: Link) -> None:
        """Leave what comes on an incoming *link* in proton: its session's window shuts, and the peer waits."""
        link.is_paused = True
        self.holding[link] = None

    def held_bytes(self) -> int:
        """Return about how much memory the messages take that wait on held links."""
        waiting = sum([int(lib.pn_link_queued(link.pn)) for link in self.holding])
        sessions = {link.session for link in self.holding}
        return waiting * DELIVERY_BYTES + sum([int(lib.pn_session_incoming_bytes(session)) for session in sessions])

    def receives(self) -> bool:
        """Return True if the peer has attached a receiving link."""
        return any(link.sender for link in self.links.values())

    def expect_silence(self) -> None:
        """The connection is not read any more: do not take that for silence of the peer."""
        self._is_unread = True
        lib.pn_transport_set_idle_timeout(self._transport, 0)

    def go_on(self, link: Link) -> None:
        """Take what came while *link* was held, and what comes from now on."""
        if not link.is_paused or link.closed:
            return
        link.is_paused = False
        self.holding.pop(link, None)
        before: Pointer = NULL
        while not link.is_paused and (delivery := lib.pn_link_current(link.pn)) != before and delivery:
            self._take(link, delivery)
            before = delivery
        self._touch(link)

    def grant(self, link: Link, credit: int) -> None:
        """Allow the peer to send *credit* more messages: now, or when it has settled those that were sent."""
        if link.awaiting_peer_settle:
            now = max(0, credit - (len(link.awaiting_peer_settle) - link.deferred_credit))
            link.deferred_credit += credit - now
            credit = now
        if link.closed:
            return
        if link.excess_messages:
            crediting.ask(link, credit)
        else:
            lib.pn_link_flow(link.pn, credit)

    def credit_limit(self, link: Link) -> tuple[int, bool]:
        """Up to which number, of messages and credit given back, the peer wants to go; whether it wants to drain.

        It gets no further than `max_unsettled` allows; then the link is `capped`, to be asked again after outcomes.
        Credit beyond that is given back with the rest of a drain (2.6.7). A link without outcomes has no such limit.
        """
        used = link.sent + max(link.given_back, link.spent)
        credit, drain = int(lib.pn_link_credit(link.pn)), bool(lib.pn_link_get_drain(link.pn))
        room = credit if link.presettled else max(self._limits.max_unsettled - len(link.unsettled), 0)
        link.capped = credit > room
        link.beyond = credit - room if link.capped and drain else 0
        return used + min(credit, room), drain
