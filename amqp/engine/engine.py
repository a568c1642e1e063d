"""One AMQP connection over proton's engine: bytes in, events out; no socket, no thread, no clock.

`push` feeds what arrived, `digest` digests it: rare events go to the list of the `endpoints`, the frequent ones
(transfers and outcomes) are gathered on their links, so that a terminal handles a whole read at once. `output` and
`consumed` provide the bytes to send. One thread at a time, but it may change from call to call.

Proton frees nothing by itself here: pointers of a link are dead once it is `closed`, all of them after `free`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, repeat

from ..codec.transaction_types import TRANSACTIONAL
from ..frames.frame_check import FrameCheck
from ..frames.peer_links import Half
from ..frames.resume_transport import TakenOutput
from ..links import credit as crediting
from ..links import settlement, transaction_state
from ..links.events import Event, EventKind, Limits
from ..links.link import Link
from ..links.resume_state import Resumable, tag_of
from ..links.send_queue import SendQueue
from ..links.values import ABORTED, MORE, SETTLED, Outcome
from ..native.buffer_pool import Buckets
from ..native.proton_ffi import ACCEPTED, NULL, RECEIVED, Pointer, ffi, lib
from ..native.scratch_buffer import ScratchBuffer
from .endpoints import Endpoints

_DELIVERY = int(lib.PN_DELIVERY)
_FLOW = int(lib.PN_LINK_FLOW)
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
_FEW_UNFINISHED = 4
"""With more unfinished messages, frames are digested one by one."""
MOST_CREDIT = (1 << 31) - 1
DELIVERY_BYTES = 512
"""Approximate memory of a message that waits in proton, without its content."""


class Engine:
    """Proton's transport, driven through C functions: bytes, and the deliveries in them."""

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
        self._limits = limits
        self._scratch = scratch or ScratchBuffer(limits.max_frame_bytes)
        self._transport = lib.pn_transport()
        self._collector = lib.pn_collector()
        if not client:
            lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_max_frame(self._transport, limits.max_frame_bytes)
        lib.pn_transport_set_channel_max(self._transport, limits.channel_max)
        lib.pn_transport_set_idle_timeout(self._transport, limits.idle_timeout_ms)
        self._check = FrameCheck(self, limits.max_frame_bytes)
        self._taken = TakenOutput(self._transport, self._scratch)
        self.outgoing = SendQueue(self._transport, buckets, self._send_format)
        self.endpoints = Endpoints(
            container_id, limits, self._transport, self._check, self._taken, self.outgoing, self.go_on,
            self.begin_resuming,
        )  # fmt: skip
        lib.pn_connection_collect(self.endpoints.connection, self._collector)
        lib.pn_transport_bind(self._transport, self.endpoints.connection)
        # the queries of the frame check to the endpoints
        self.violated = self.endpoints.violated
        self.awaits_begin = self.endpoints.awaits_begin
        self.most_handles = self.endpoints.most_handles
        self.touched: list[Link] = []
        """Links with something in their `inbox`, `outcomes`, `provisional` or `acquiring`; the terminal empties it."""
        self.echoes_asked = self._check.echoes
        """States that the peer wants to receive; see `take_echoes`."""
        self.transactional = False
        """There was a link to the coordinator, or a transactional state without one: there may be more of these."""
        self.controls_left = ALL_CONTROLS
        """The number of control frames that may still be digested; later input waits until it is set again."""
        self.is_behind = False
        """Something waits for that."""
        self._is_unread = False
        """The peer's idle time does not count before something is read again."""
        self.has_long = False
        """True if, since `push`, a part of an incomplete message arrived."""
        self._take: Callable[[Link, Pointer], None] = self._transfer
        self._plain_take: Callable[[Link, Pointer], None] = self._transfer
        """The handler of transfers on links that don't resume."""
        self._buffer = self._scratch.incoming
        self._buffer_bytes = self._scratch.incoming_bytes
        self._named: bytes | None = None
        """The transaction that the flow being digested names, if any."""

    # ---- bytes ----------------------------------------------------------------------------------------------------

    def push(self, data: bytes | memoryview) -> None:
        """Feed bytes that arrived. Call `digest` afterwards."""
        self.has_long = False
        if self._is_unread:
            self._is_unread = False
            lib.pn_transport_set_idle_timeout(self._transport, self._limits.idle_timeout_ms)
        self._check.push(data)

    def pass_flow(self, frame: bytes, txn_id: bytes) -> None:
        """Push a flow that names the transaction *txn_id*: the change of credit that proton then reports is its own."""
        self.digest_answer()
        self.pass_on(frame)
        self._named = txn_id
        self.digest_answer()
        self._named = None

    def pass_alone(self, frame: bytes) -> None:
        """Push a disposition, and digest it before the next one may replace its state."""
        self.digest_answer()
        self.pass_on(frame)
        self.digest_answer()

    def pass_on(self, data: bytes | memoryview) -> None:
        """Push checked bytes into proton; digest meanwhile if proton has no room, or many messages are unfinished."""
        size = len(data)
        pointer = ffi.from_buffer("char[]", data)
        done = 0
        while done < size:
            taken = lib.pn_transport_push(self._transport, pointer + done, size - done)
            if taken < 0:
                return  # proton reads nothing more; an event has the reason
            done += taken
            if not taken:
                self.controls_left = max(self.controls_left, 1)
                self.digest()
            elif self.endpoints.unfinished > _FEW_UNFINISHED and done < size:
                self.digest()  # else the buffers of these messages would grow to the size of the read

    def take_run(self, before: memoryview, data: memoryview, contents: list[bytes], half: Half, settled: bool) -> None:
        """Push *before*, and transfers with whole messages on one link; take *contents*, which are these messages.

        A message then costs three calls of proton; `digest` makes thirteen. All unusual messages are left to it.
        """
        is_ready, link = self._is_ready(before), half.link
        self.pass_on(data)
        is_short = self._limits.max_frame_bytes <= self._limits.max_message_bytes
        if link is None or not (is_ready and is_short and self._take == self._transfer and all(contents)):
            return
        if link.is_paused or link.resuming is not None or lib.pn_link_queued(link.pn) != len(contents):
            return
        deliveries, pn, current, advance = [], link.pn, lib.pn_link_current, lib.pn_link_advance
        for _ in contents:
            deliveries.append(current(pn))
            advance(pn)
        all(map(lib.pn_collector_pop, repeat(self._collector, len(contents))))  # an event for each
        link.inbox += zip(deliveries, contents, repeat(SETTLED if settled or link.presettled else 0))
        self._touch(link)

    def take_accepted(self, before: memoryview, data: memoryview, most: int) -> None:
        """Push *before*, and a disposition that settles up to *most* outgoing deliveries as accepted.

        Take these outcomes if they are those of the first deliveries of a link; otherwise leave them to `digest`.
        """
        is_ready = self._is_ready(before)
        self.pass_on(data)
        event = lib.pn_collector_peek(self._collector) if is_ready else NULL
        delivery = lib.pn_event_delivery(event) if event else NULL
        link = self.endpoints.links.get(lib.pn_delivery_link(delivery)) if delivery else None
        if link is None or link.is_paused or len(link.unsettled) < most:
            return
        deliveries, tags = list(islice(link.unsettled, most)), list(islice(link.unsettled.values(), most))
        if None in tags or not all(map(lib.pn_delivery_settled, deliveries)):
            return
        any(map(lib.pn_delivery_settle, deliveries))
        all(map(lib.pn_collector_pop, repeat(self._collector, most)))
        for delivery in deliveries:
            del link.unsettled[delivery]
        link.outcomes += [tuple.__new__(Outcome, (None, tag, ACCEPTED, False, False, None, b"")) for tag in tags]
        self._touch(link)

    def _is_ready(self, before: memoryview) -> bool:
        """Push *before*, and digest it; return whether the next events will be only those of what is pushed next."""
        self.pass_on(before)
        self.digest()
        return not self.is_behind

    def push_end(self) -> None:
        """End the input: the peer sends nothing more."""
        self.endpoints.input_ended = True
        lib.pn_transport_close_tail(self._transport)

    def output(self) -> memoryview:
        """The next bytes to send, empty if there are none now. Valid until any engine of this thread is called."""
        if self.endpoints.echoes.due:
            self.endpoints.echoes.answer()
        if self._taken.ready or self._taken.frames is not None:
            data = self._taken.output()
            self.endpoints.asked = self.endpoints.asked if data else 0
            return data
        pending = lib.pn_transport_pending(self._transport)
        if pending <= 0:
            self.endpoints.asked = 0
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
        if self._taken.ready or self._taken.frames is not None or self.endpoints.echoes.due:
            return True
        if lib.pn_transport_pending(self._transport) > 0:
            return True
        self.endpoints.asked = 0
        return False

    def begin_resuming(self) -> None:
        """Write the fields that proton omits, from now on: of links that resume, or of transfers with a format."""
        if self._taken.frames is None:
            most_bytes = int(lib.pn_transport_get_remote_max_frame(self._transport)) or self._limits.max_frame_bytes
            self._taken.begin_changes(most_bytes)
            self._plain_take, self._take = self._take, self._transfer_resuming

    def output_ended(self) -> bool:
        """Return whether all output is taken and proton produces no more."""
        return not self._taken.ready and bool(lib.pn_transport_pending(self._transport) < 0)

    def tick(self, now_ms: int) -> int:
        """Let time pass: heartbeats and the peer's time-out. When to call again, 0 for never."""
        return int(lib.pn_transport_tick(self._transport, now_ms))

    # ---- events ---------------------------------------------------------------------------------------------------

    def _touch(self, link: Link) -> None:
        if not link.touched:
            link.touched = True
            self.touched.append(link)

    def digest_answer(self) -> None:
        """Digest a begin that answers a session of this side, outside of the budget of the turn."""
        left, self.controls_left = self.controls_left, ALL_CONTROLS
        self.digest()
        self.controls_left = left - (ALL_CONTROLS - self.controls_left)

    def digest(self) -> None:
        """Digest the pushed bytes, as far as `controls_left` allows."""
        while self.outgoing.answered:
            early, its_delivery = self.outgoing.answered.pop()
            if not early.closed:
                self._outcome(early, its_delivery)
                self._touch(early)
        collector, peek, pop = self._collector, lib.pn_collector_peek, lib.pn_collector_pop
        type_of, delivery_of, link_of = lib.pn_event_type, lib.pn_event_delivery, lib.pn_delivery_link
        link_of_event, links, handlers = lib.pn_event_link, self.endpoints.links, self.endpoints.handlers
        self.is_behind = False
        while True:
            event = peek(collector)
            if not event:
                return
            kind = type_of(event)
            if kind == _DELIVERY:
                delivery = delivery_of(event)
                owner = link_of(delivery)
                link = links.get(owner)
                if link is not None and not link.is_paused:
                    if link.sender:
                        self._outcome(link, delivery)
                    else:
                        self._take(link, delivery)
                    if not link.touched:
                        link.touched = True
                        self.touched.append(link)
                else:
                    self._leave(link, owner, delivery)
            elif kind == _FLOW and self._is_known(links.get(link_of_event(event))):
                pass
            else:
                if kind in _CONTROLS:
                    if self.controls_left <= 0:
                        self.is_behind = True
                        return
                    self.controls_left -= 1
                handler = self._on_flow if kind == _FLOW else handlers.get(kind)
                if handler is not None:
                    handler(event)
            pop(collector)

    def _is_known(self, link: Link | None) -> bool:
        """Return whether the driver knows the credit of *link*: proton reports what it has written as flows, too."""
        return (
            link is not None
            and link.sender
            and self._named is None
            and link.sent_limit >= 0  # below: unknown, which credit that proton takes for negative must not equal
            and link.sent_limit == link.sent + max(link.given_back, link.spent) + lib.pn_link_credit(link.pn)
            and not lib.pn_link_get_drain(link.pn)
        )

    def _on_flow(self, event: Pointer) -> None:
        link = self.endpoints.links.get(lib.pn_event_link(event))
        if link is not None and link.sender:
            if lib.pn_link_credit(link.pn) < -2 * (link.sent + link.given_back):
                # proton counts with 31 bits; revoked credit of messages in flight is never that much
                reason = f"credit of more than {MOST_CREDIT} is not understood"
                self.endpoints.close_link(link, "amqp:not-implemented", reason)
                return
            self.endpoints.events.append(Event(EventKind.FLOW, link))
            if self._named is not None:
                link.acquiring.append((self._named, *self.credit_limit(link)))
                self._touch(link)
        elif link is not None and link.routed is not None:
            self.endpoints.events.append(Event(EventKind.FLOW, link))

    def take_echoes(self) -> None:
        """Take the states that the peer wants to receive. Each counts as a control frame, and waits for the budget."""
        taken = self.endpoints.echoes.take(self._check.echoes, self.controls_left)
        self.controls_left -= taken + self._check.repeats
        self._check.repeats = 0
        self.endpoints.asked += taken
        if self.controls_left <= 0 and self.endpoints.echoes.is_any_ready(self._check.echoes):
            self.is_behind = True

    def _leave(self, link: Link | None, pn: Pointer, delivery: Pointer) -> None:
        """Leave a delivery of a held link in proton, and discard one of a closed link."""
        if link is not None and not link.closed:
            if link.settles_second and lib.pn_delivery_settled(delivery):
                settlement.answered(link, delivery)
            crediting.mend(link)
        elif not lib.pn_link_is_sender(pn):
            self._discard(pn, delivery)

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
        data = b""
        if size == 1 and lib.pn_delivery_aborted(delivery):  # then proton returns 1 for any size
            flags = ABORTED | SETTLED
        elif size:
            if size > self._buffer_bytes:
                self._scratch.grow(size)
                self._buffer, self._buffer_bytes = self._scratch.incoming, self._scratch.incoming_bytes
            size = lib.pn_link_recv(link.pn, self._buffer, size)
            data = ffi.unpack(self._buffer, size) if size > 0 else b""
        elif not self._may_be_empty(link, delivery, flags):
            return
        if link.grown_bytes + size > self._limits.max_message_bytes:
            most = self._limits.max_message_bytes
            self.endpoints.close_link(link, "amqp:link:message-size-exceeded", f"messages have up to {most} bytes here")
            return
        if flags & MORE:
            self.has_long = True
            link.grown_bytes += size
            if not self._count_partial(link):
                return
        else:
            flags |= self._end_message(link, delivery)
        if link.formats:
            data = link.formatted(tag_of(delivery), data, has_more=bool(flags & MORE))
            if not data and flags & MORE:
                return
        link.inbox.append((delivery, data, flags))
        if lib.pn_delivery_remote_state(delivery) == TRANSACTIONAL and not self.transactional:
            self._mind_transactions()  # of one that there is not, for no link has asked for it
            transaction_state.note_transfer(link, delivery, len(link.inbox) - 1, self._buffer)

    def _end_message(self, link: Link, delivery: Pointer) -> int:
        """Handle the end of a message; return the flag of a settled one."""
        if link.partials:
            self.endpoints.unfinished -= 1
            link.partials = link.grown_bytes = 0
        lib.pn_link_advance(link.pn)
        return SETTLED if link.presettled or lib.pn_delivery_settled(delivery) else 0

    def _send_format(self, delivery: Pointer, content: bytes) -> bytes:
        """Return the beginning of a message as it is sent, and let its transfers have the format that it names."""
        self.begin_resuming()
        assert self._taken.frames is not None
        return self._taken.frames.note_format(tag_of(delivery), content)

    def _may_be_empty(self, link: Link, delivery: Pointer, flags: int) -> bool:
        """Return whether a transfer without bytes ends a message: a part is only counted, a whole message refused."""
        if flags:
            self._count_partial(link)
        elif not link.partials and link.resuming is None:
            self._refuse_empty(link, delivery)
        else:
            return True
        return False

    def _refuse_empty(self, link: Link, delivery: Pointer) -> None:
        """Reject a message without any section, or close the link if its sender requests no outcome (3.2)."""
        reason = "a message has at least one section, the body; this one has no bytes"
        if link.presettled or lib.pn_delivery_settled(delivery):
            self.endpoints.close_link(link, "amqp:decode-error", reason)
            return
        lib.pn_link_advance(link.pn)
        settlement.reject(link, (delivery,), 1, "amqp:decode-error", reason)

    def _count_partial(self, link: Link) -> bool:
        """Count a part of a message; return False, with the link closed, after too many parts (A6)."""
        self.endpoints.unfinished += not link.partials
        link.partials += 1
        if link.partials <= self._limits.max_transfers:
            return True
        most = self._limits.max_transfers
        self.endpoints.close_link(link, "amqp:resource-limit-exceeded", f"a message may come in {most} frames here")
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
        if number == len(link.inbox) or self._taken.frames is None:
            return
        flags = link.inbox[-1][2]
        resumed = tag in resuming.resumed
        if not resumed and (link.name, True) in self._taken.frames.incomplete:
            link.inbox.pop()
            reason = "the unsettled map is incomplete: new deliveries are not allowed yet"
            self.endpoints.close_link(link, "amqp:not-allowed", reason)
            return
        if not flags & MORE:
            resuming.resumed.discard(tag)
            if not flags & SETTLED:
                resuming.tags[delivery] = tag
        resuming.arrivals.append((tag, resumed))

    def _outcome(self, link: Link, delivery: Pointer) -> None:
        state = lib.pn_delivery_remote_state(delivery)
        settled = lib.pn_delivery_settled(delivery)
        tag = link.unsettled.get(delivery)
        if tag is None and settlement.is_unasked(link, delivery):
            reason = f"a message came on the link {link.name!r}, on which its peer receives"
            self.endpoints.refuse("amqp:not-allowed", reason)
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
        """*link* controls transactions. Held links are resumed: a discharge must not overtake what waits on them."""
        link.coordinator = True
        self._check.names_transactions = True
        self._mind_transactions()
        for held in list(self.endpoints.holding):
            self.go_on(held)

    def _mind_transactions(self) -> None:
        """Read the states of transfers from now on: they may name a transaction."""
        self.transactional = True
        if self._taken.frames is None:
            self._take = self._transfer_in
        else:
            self._plain_take = self._transfer_in

    def note_tags(self, link: Link, messages: Iterable[Resumable]) -> None:
        """These go into the outbox of *link*, which may resume."""
        assert link.resuming is not None
        assert self._taken.frames is not None
        link.resuming.departures.extend([(message.tag, message.is_resumed) for message in messages])
        self._taken.frames.resumed.update([message.tag for message in messages if message.is_resumed])

    def check_credit(self, link: Link) -> bool:
        """Close *link* and return False if its peer exceeded its credit; excess messages are discarded."""
        link.credit = lib.pn_link_credit(link.pn)
        if (link.credit >= 0 and not (link.revoked_credit or link.is_locally_initiated)) or crediting.is_kept(link):
            return True
        reason = "more messages were sent than there was credit for"
        self.endpoints.close_link(link, "amqp:link:transfer-limit-exceeded", reason)
        return False

    def hold(self, link: Link) -> None:
        """Leave the input of an incoming *link* in proton: the window of its session closes, and the peer waits."""
        link.is_paused = True
        self.endpoints.holding[link] = None

    def held_bytes(self) -> int:
        """Return about how much memory the messages take that wait on held links."""
        waiting = sum([int(lib.pn_link_queued(link.pn)) for link in self.endpoints.holding])
        sessions = {link.session for link in self.endpoints.holding}
        return waiting * DELIVERY_BYTES + sum([int(lib.pn_session_incoming_bytes(session)) for session in sessions])

    def expect_silence(self) -> None:
        """The connection is not read any more: do not take that for silence of the peer."""
        self._is_unread = True
        lib.pn_transport_set_idle_timeout(self._transport, 0)

    def go_on(self, link: Link) -> None:
        """Resume processing of a held *link*, beginning with the input in proton."""
        if not link.is_paused or link.closed:
            return
        link.is_paused = False
        self.endpoints.holding.pop(link, None)
        before: Pointer = NULL
        while not link.is_paused and (delivery := lib.pn_link_current(link.pn)) != before and delivery:
            self._take(link, delivery)
            before = delivery
        self._touch(link)

    def credit_limit(self, link: Link) -> tuple[int, bool]:
        """Return the limit of messages and returned credit that the peer requests, and whether it requests a drain.

        The limit is bounded by `max_unsettled`; then the link is `capped`, and the driver asks again after outcomes.
        Credit beyond that is returned with the rest of a drain (2.6.7). A link without outcomes has no such bound.
        """
        used = link.sent + max(link.given_back, link.spent)
        credit, drain = int(lib.pn_link_credit(link.pn)), bool(lib.pn_link_get_drain(link.pn))
        room = credit if link.presettled else max(self._limits.max_unsettled - len(link.unsettled), 0)
        link.capped = credit > room
        link.beyond = credit - room if link.capped and drain else 0
        return used + min(credit, room), drain

    def free(self) -> None:
        """Give everything back to proton. Nothing may be called afterwards."""
        self.outgoing.give_up()
        lib.pn_transport_unbind(self._transport)
        lib.pn_decref(self._transport)
        lib.pn_collector_release(self._collector)
        self.endpoints.free()
        lib.pn_collector_free(self._collector)
