"""The endpoints of one connection in proton: the connection itself, its sessions and its links, as they come and go.

The rare events of an engine. Its frequent ones, deliveries, are in `engine`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..frames.frame_check import Channel, FrameCheck, Half, Scope, Violation
from ..frames.resume_transport import ReadAlong, TakenOutput
from ..links import credit as crediting
from ..links import terminus as termini
from ..links.attach import SECOND, SETTLED, Attach, asks_to_last, say
from ..links.events import Event, Kind, Limits
from ..links.link import Link
from ..links.priority import asked_priority
from ..links.resume_state import UNKNOWN, ResumeState
from ..links.send_queue import SendQueue
from ..links.values import DEFAULT_PRIORITY, Error
from ..native import proton_ffi as proton
from ..native.buffer_pool import Buckets
from ..native.proton_ffi import Pointer, lib, text
from ..native.scratch_buffer import ScratchBuffer
from .echoes import Echoes, handle_of_attach

MOST_CREDIT = (1 << 31) - 1
MOST_OWN_SESSIONS = 64
"""Of a connection that this side opened; links beyond that share them."""


class Endpoints:
    """Proton's connection and transport, and what is open on it."""

    def __init__(
        self, container_id: str, limits: Limits, buckets: Buckets, scratch: ScratchBuffer, *, client: bool = False
    ) -> None:
        """*client*: the connection is one that this side opens."""
        self.links: dict[Pointer, Link] = {}
        self.resumes: Callable[[str], bool] = _nobody
        """Whether a container has links here that resume; asked when the connection is opened."""
        self.container = ""
        """The peer's container id, once it has opened the connection."""
        self.desired: tuple[str, ...] = ()
        """The capabilities that it desires."""
        self.asked = 0
        """How often the peer asked for something that takes an answer, since it took all answers last."""
        self._limits = limits
        self._events: list[Event] = []
        self._open_seen = False
        self._closed_seen = False
        self._sessions = 0
        self._numbers: dict[Pointer, int] = {}
        """Of the sessions."""
        self.begun = 0
        """Sessions that the peer has begun so far."""
        self._input_ended = False
        self._connection = lib.pn_connection()
        self._collector = lib.pn_collector()
        self._transport = lib.pn_transport()
        lib.pn_connection_set_container(self._connection, container_id.encode())
        lib.pn_connection_collect(self._connection, self._collector)
        if not client:
            lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_max_frame(self._transport, limits.max_frame_bytes)
        lib.pn_transport_set_channel_max(self._transport, limits.channel_max)
        lib.pn_transport_set_idle_timeout(self._transport, limits.idle_timeout_ms)
        lib.pn_transport_bind(self._transport, self._connection)
        self._read_along: ReadAlong | None = None
        """Until a client has opened the connection, and on one with links that resume."""
        if not client:
            self._read_along = ReadAlong(self._transport, limits.max_frame_bytes, is_new=True)
        self._check = FrameCheck(self, limits.max_frame_bytes)
        self._taken = TakenOutput(self._transport, scratch)
        self._echoes = Echoes(self._taken)
        self.holding: dict[Link, None] = {}
        """Links that are held: what comes on them stays in proton."""
        self._named: bytes | None = None
        """What the flow that is being digested says of transactions, if it says anything."""
        self._own_sessions: dict[Pointer, int] = {}
        """Sessions that this side began, and how many links each has."""
        self._unanswered: set[Pointer] = set()
        """Those of them that the peer has not answered."""
        self.outgoing = SendQueue(self._transport, buckets)
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

    # ---- what the engine does with deliveries ---------------------------------------------------------------------

    def go_on(self, link: Link) -> None:
        """Take what came while *link* was held."""
        raise NotImplementedError

    def digest(self) -> None:
        """Digest what was pushed."""
        raise NotImplementedError

    def digest_answer(self) -> None:
        """Digest a begin that answers a session of this side, whatever the budget of the turn."""
        raise NotImplementedError

    def _acquire(self, link: Link, txn_id: bytes) -> None:
        """A flow has named a transaction, or that there is to be none any more."""
        raise NotImplementedError

    def _go_along(self) -> None:
        """There are links that resume on this connection."""
        raise NotImplementedError

    # ---- what the peer does ---------------------------------------------------------------------------------------

    def _on_open(self, event: Pointer) -> None:
        if self._open_seen:
            self.refuse("amqp:not-allowed", "the connection is open already")
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
        session = lib.pn_event_session(event)
        channel = self._check.begun.popleft()
        channel.session = session
        if channel.is_answer and session not in self._unanswered:
            self._check.shut()
            self.refuse("amqp:not-allowed", "begin with a remote-channel whose session has begun already (2.7.2)")
            return
        self._unanswered.discard(session)
        if session in self._own_sessions:
            return
        self.asked += 1
        self._sessions += 1
        if self._sessions > self._limits.channel_max + 1:  # proton takes any number of them on one channel
            self.refuse("amqp:resource-limit-exceeded", f"there may be {self._limits.channel_max + 1} sessions")
            return
        self._open_session(session)
        self.begun += 1
        self._numbers[session] = self.begun
        self._events.append(Event(Kind.BEGUN, session=self.begun))

    def _open_session(self, session: Pointer) -> None:
        window_bytes = max(self._limits.session_window_bytes, self._limits.max_frame_bytes)  # proton wants that much
        lib.pn_session_set_incoming_capacity(session, window_bytes)
        lib.pn_session_open(session)

    def _on_end(self, event: Pointer) -> None:
        session = lib.pn_event_session(event)
        condition = lib.pn_session_remote_condition(session)
        error = Error(*proton.condition_parts(condition)) if lib.pn_condition_is_set(condition) else None
        for link in [link for link in self.links.values() if link.session == session]:
            self.go_on(link)
            link.error = error
            self._lose(link, closed=link.routed is not None and not asks_to_last(link))
        if self._own_sessions.pop(session, None) is None:
            self._sessions -= 1
            self._events.append(Event(Kind.ENDED, session=self._numbers.pop(session, 0)))
        self._echoes.forget(session)
        lib.pn_session_close(session)
        lib.pn_session_free(session)

    def _on_attach(self, event: Pointer) -> None:
        pn = lib.pn_event_link(event)
        half = self._check.attached.popleft()
        if pn in self.links:
            half.link = self.links[pn]
            if not self._refuse_half(half.link, half):
                self._events.append(Event(Kind.ANSWERED, half.link))
            return
        self.asked += 1
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
        if termini.may_resume(link, lib.pn_link_remote_source(pn) if sender else lib.pn_link_remote_target(pn)):
            self._go_along()
            link.resuming = ResumeState(claims)
        lib.pn_link_set_snd_settle_mode(pn, lib.pn_link_remote_snd_settle_mode(pn))
        lib.pn_link_set_rcv_settle_mode(pn, lib.pn_link_remote_rcv_settle_mode(pn))
        half.link = link
        link.has_source = half.has_source
        if self._refuse_half(link, half):
            return
        if len(self.links) > self._limits.max_links:
            most = self._limits.max_links
            self.close_link(link, "amqp:resource-limit-exceeded", f"a connection may have {most} links")
            return
        self._events.append(Event(Kind.ATTACHED, link))

    def _refuse_half(self, link: Link, half: Half) -> bool:
        """Close *link* if its peer's attach is one that the specification forbids."""
        if half.refusal is not None:
            self.close_link(link, half.refusal.condition, half.refusal.description)
        return half.refusal is not None

    def _on_detach(self, event: Pointer) -> None:
        pn = lib.pn_event_link(event)
        link = self.links.get(pn)
        if link is None:  # the answer to a detach of ours
            lib.pn_link_free(pn)
            return
        closed = int(lib.pn_event_type(event)) == int(lib.PN_LINK_REMOTE_CLOSE)
        if lib.pn_condition_is_set(lib.pn_link_remote_condition(pn)):
            link.error = Error(*proton.condition_parts(lib.pn_link_remote_condition(pn)))
        self.go_on(link)
        if lib.pn_link_state(pn) & proton.LOCAL_UNINIT:
            termini.refuse(link)
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
            if self._named is not None:
                self._acquire(link, self._named)
        elif link is not None and link.routed is not None:
            self._events.append(Event(Kind.FLOW, link))

    def violated(self, channel: Channel | None, violation: Violation) -> None:
        """End the link, session or connection on which the peer sent a frame that the specification forbids."""
        half = violation.half
        if violation.scope is Scope.LINK:
            if half is not None and half.link is not None:
                self.go_on(half.link)
                self.close_link(half.link, violation.condition, violation.description)
        elif violation.scope is Scope.SESSION and channel is not None and channel.session is not None:
            self._end_session(channel.session, violation.condition, violation.description)
        else:
            self.refuse(violation.condition, violation.description)

    def awaits_begin(self) -> bool:
        """Return True if a session that this side began is unanswered."""
        return bool(self._unanswered)

    def most_handles(self) -> int:
        """Return the limit of attached handles: room for refused links, and for those that this side asked for."""
        return 2 * self._limits.max_links + sum(self._own_sessions.values())

    def _end_session(self, session: Pointer, condition: str, description: str) -> None:
        """End a session because of what the peer sent on it. What came before is kept."""
        for link in [link for link in self.links.values() if link.session == session]:
            self.go_on(link)
            link.error = Error(condition, description)
            self._lose(link, closed=link.routed is not None and not asks_to_last(link))
        proton.set_condition(lib.pn_session_condition(session), condition, description)
        lib.pn_session_close(session)

    def _on_transport_error(self, event: Pointer) -> None:
        self._closed(proton.condition_text(lib.pn_transport_condition(self._transport)))

    def _on_tail_closed(self, event: Pointer) -> None:
        """Proton stops reading at a frame it does not know, and says nothing: the error is told here."""
        if self._input_ended or lib.pn_condition_is_set(lib.pn_transport_condition(self._transport)):
            return
        if not lib.pn_connection_state(self._connection) & proton.REMOTE_CLOSED:
            self.refuse("amqp:decode-error", "a frame that is none of AMQP 1.0's")

    def refuse(self, condition: str, description: str) -> None:
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
            link.closed = link.is_paused = True
            self.holding.pop(link, None)
            if link.sender:
                self.outgoing.drop_link(link)
            if link.session in self._own_sessions:
                self._leave_session(link.session)
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

    def open_to(self, hostname: str, properties: bytes) -> None:
        """Open a connection to another container."""
        lib.pn_connection_set_hostname(self._connection, hostname.encode())
        self.open((), properties)

    def attach(self, link: Link, asked: Attach) -> None:
        """Ask the peer for *link*, which this side has made (router guide C42).

        It has a session of its own while there are few: what is held on a link shuts its session's window, and others
        should not wait for that.
        """
        most = min(MOST_OWN_SESSIONS, int(lib.pn_transport_remote_channel_max(self._transport)))
        used = [one for one, links in self._own_sessions.items() if links]
        if len(used) < max(1, most):
            session = lib.pn_session(self._connection)
            self._own_sessions[session] = 0
            self._unanswered.add(session)
            self._open_session(session)
        else:
            session = min(used, key=lambda one: self._own_sessions[one])
        self._own_sessions[session] += 1
        link.session, link.is_locally_initiated = session, True
        link.pn = (lib.pn_sender if link.sender else lib.pn_receiver)(session, asked.name.encode())
        self.links[link.pn] = link
        if link.sender:
            self.outgoing.add_link(link)
            link.presettled = asked.snd_settle_mode == SETTLED
            self.outgoing.ranked = self.outgoing.ranked or link.priority != DEFAULT_PRIORITY
        else:
            link.settles_second = asked.rcv_settle_mode == SECOND
            most_bytes = self._limits.max_message_bytes
            asked = asked._replace(max_message_bytes=min(asked.max_message_bytes or most_bytes, most_bytes))
        say(link, asked)
        self._open(link)

    def _open(self, link: Link) -> None:
        """Send the attach. Its handle, which proton chooses, is read from the frame: an echo may have to name it."""
        if not link.sender:
            lib.pn_link_open(link.pn)
            return
        self._taken.take()
        lib.pn_link_open(link.pn)
        frames = self._taken.read()
        link.handle = handle_of_attach(frames)
        self._taken.add(frames)

    def open_as(self, link: Link, found: Attach) -> None:
        """Answer an attach with what another container has answered."""
        if not link.sender:
            most_bytes = self._limits.max_message_bytes
            found = found._replace(max_message_bytes=min(found.max_message_bytes or most_bytes, most_bytes))
        link.resuming = None
        say(link, found)
        self._open(link)

    def flow(self, link: Link, credit: int, *, drain: bool) -> None:
        """Grant *credit* more messages as a receiver, or fewer if negative, and for all or nothing now if *drain*."""
        if not link.closed:
            lib.pn_link_set_drain(link.pn, drain)
            crediting.ask(link, credit)

    def given_back(self, link: Link) -> int:
        """Return the credit that the peer returned, on a link on which it sends, since the last call."""
        crediting.mend(link)
        return int(lib.pn_link_drained(link.pn))

    def detach(self, link: Link, error: Error | None, *, for_good: bool) -> None:
        """As `close_link`, for good or not, with an error of somebody else's."""
        if link.closed:
            return
        if error is not None:
            proton.set_condition(lib.pn_link_condition(link.pn), *error)
        if for_good or lib.pn_link_state(link.pn) & proton.LOCAL_UNINIT:
            self.close_link(link)
        else:
            lib.pn_link_detach(link.pn)
            self._lose(link)

    def _leave_session(self, session: Pointer) -> None:
        self._own_sessions[session] -= 1
        if not self._own_sessions[session]:
            lib.pn_session_close(session)

    def close(self, condition: str = "", description: str = "", info: bytes = b"") -> None:
        """Close the connection, with an error if *condition* names one; *info* is a map."""
        if condition:
            proton.set_condition(lib.pn_connection_condition(self._connection), condition, description, info)
        self.open()
        lib.pn_connection_close(self._connection)

    def session_of(self, link: Link) -> int:
        """Which session of the connection it is on, from 1 on."""
        return self._numbers.get(link.session, 0)

    def close_link(self, link: Link, condition: str = "", description: str = "", info: bytes = b"") -> None:
        """Detach for good, with an error if *condition* names one; as a refused attach if it was not answered yet.

        *info* of the error is an encoded map.
        """
        if link.closed:
            return
        if lib.pn_link_state(link.pn) & proton.LOCAL_UNINIT:
            termini.refuse(link)
        if condition:
            proton.set_condition(lib.pn_link_condition(link.pn), condition, description, info)
            link.error = Error(condition, description, info)
        lib.pn_link_close(link.pn)
        # who is at the other end of a longer one is to hear of that as of a close, too: this one is not there any more;
        # but what a client would have outlast its link is not given up for it there, as it is not here
        self._lose(link, closed=link.routed is not None and (link.is_locally_initiated or not asks_to_last(link)))

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


def _nobody(container: str) -> bool:
    return False
