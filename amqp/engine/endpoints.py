"""The endpoints of one connection in proton: the connection itself, its sessions and its links, as they come and go."""

from __future__ import annotations

from collections.abc import Callable

from ..frames.frame_check import FrameCheck
from ..frames.peer_links import Channel, Half, Scope, Violation
from ..frames.resume_transport import TakenOutput
from ..links import credit as crediting
from ..links import terminus as termini
from ..links import transaction_state
from ..links.attach import SECOND, SETTLED, Attach, asked_priority, asks_to_last, say
from ..links.events import Event, EventKind, Limits
from ..links.link import Link
from ..links.link_state import UNANSWERED, LinkAction, LinkEvent, LinkState
from ..links.resume_state import KeptLink, ResumeState, claims_in, encoded_state
from ..links.send_queue import SendQueue
from ..links.values import DEFAULT_PRIORITY, Error, Terminus
from ..native import proton_ffi as proton
from ..native.proton_ffi import Pointer, lib, text
from .echoes import Echoes, handle_of_attach

MOST_CREDIT = (1 << 31) - 1
MOST_OWN_SESSIONS = 64
"""The maximum number of sessions on a connection that this side opened; links beyond that share them."""
_CONFIGURATION = 1
"""The durability of a terminus whose unsettled state does not last."""


class Endpoints:
    """Proton's connection, its sessions and its links."""

    def __init__(
        self,
        container_id: str,
        limits: Limits,
        transport: Pointer,
        check: FrameCheck,
        taken: TakenOutput,
        outgoing: SendQueue,
        go_on: Callable[[Link], None],
        begin_resuming: Callable[[], None],
    ) -> None:
        """*check* has read the frames before proton has.

        *go_on* processes the input that arrived while a link was held, and resumes processing. *begin_resuming* begins
        to write the fields that proton omits, for links that resume.
        """
        self.links: dict[Pointer, Link] = {}
        self.holding: dict[Link, None] = {}
        """Links that are held: their input stays in proton."""
        self.unfinished = 0
        """Messages of which a part has arrived. Proton has a buffer for each, of the size of what is pushed at once."""
        self.routing: dict[object, int] = {}
        """Channels whose messages wait to be routed, each with the number of reasons."""
        self.routing_of_closed: set[object] = set()
        """The channels in `routing` whose links are closed."""
        self.events: list[Event] = []
        """The rare events in order; the terminal empties it."""
        self.container = ""
        """The peer's container id, once it has opened the connection."""
        self.desired: tuple[str, ...] = ()
        """The capabilities that it desires."""
        self.asked = 0
        """The number of requests of the peer that require an answer, since it received all answers last."""
        self.begun = 0
        """Sessions that the peer has begun so far."""
        self.input_ended = False
        """True if the peer has ended its output."""
        self.connection = lib.pn_connection()
        lib.pn_connection_set_container(self.connection, container_id.encode())
        self.echoes = Echoes(taken)
        self._limits = limits
        self._transport = transport
        self._check = check
        self._taken = taken
        self._outgoing = outgoing
        self._go_on, self._begin_resuming = go_on, begin_resuming
        self._open_seen = False
        self._closed_seen = False
        self._sessions = 0
        self._numbers: dict[Pointer, int] = {}
        """The numbers of the sessions."""
        self._own_sessions: dict[Pointer, int] = {}
        """Sessions that this side began, and how many links each has."""
        self._unanswered: set[Pointer] = set()
        """Those of them that the peer has not answered."""
        self.handlers: dict[int, Callable[[Pointer], None]] = {
            int(lib.PN_CONNECTION_REMOTE_OPEN): self._on_open,
            int(lib.PN_CONNECTION_REMOTE_CLOSE): self._on_close,
            int(lib.PN_SESSION_REMOTE_OPEN): self._on_begin,
            int(lib.PN_SESSION_REMOTE_CLOSE): self._on_end,
            int(lib.PN_LINK_REMOTE_OPEN): self._on_attach,
            int(lib.PN_LINK_REMOTE_CLOSE): self._on_detach,
            int(lib.PN_LINK_REMOTE_DETACH): self._on_detach,
            int(lib.PN_TRANSPORT_ERROR): lambda event: self._closed(
                proton.condition_text(lib.pn_transport_condition(self._transport))
            ),
            int(lib.PN_TRANSPORT_TAIL_CLOSED): self._on_tail_closed,
            int(lib.PN_TRANSPORT_CLOSED): lambda event: self._closed(""),
        }
        """By the type of proton's event."""

    # ---- what the peer does ---------------------------------------------------------------------------------------

    def _on_open(self, event: Pointer) -> None:
        if self._open_seen:
            self.refuse("amqp:not-allowed", "the connection is open already")
            return
        self._open_seen = True
        self.container = text(lib.pn_connection_remote_container(self.connection)) or ""
        self.desired = proton.symbols(lib.pn_connection_remote_desired_capabilities(self.connection))
        self.events.append(Event(EventKind.OPENED))

    def _on_close(self, event: Pointer) -> None:
        for link in list(self.links.values()):
            self._go_on(link)
        self._lose_links()
        lib.pn_connection_close(self.connection)
        error = proton.condition_text(lib.pn_connection_remote_condition(self.connection))
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
        self.events.append(Event(EventKind.BEGUN, session=self.begun))

    def _open_session(self, session: Pointer) -> None:
        window_bytes = max(self._limits.session_window_bytes, self._limits.max_frame_bytes)  # proton wants that much
        lib.pn_session_set_incoming_capacity(session, window_bytes)
        lib.pn_session_open(session)

    def _on_end(self, event: Pointer) -> None:
        session = lib.pn_event_session(event)
        condition = lib.pn_session_remote_condition(session)
        error = Error(*proton.condition_parts(condition)) if lib.pn_condition_is_set(condition) else None
        for link in [link for link in self.links.values() if link.session == session]:
            self._go_on(link)
            link.error = error
            self._move(link, LinkEvent.LOST, for_good=link.routed is not None and not asks_to_last(link))
        if self._own_sessions.pop(session, None) is None:
            self._sessions -= 1
            self.events.append(Event(EventKind.ENDED, session=self._numbers.pop(session, 0)))
        self.echoes.forget(session)
        lib.pn_session_close(session)
        lib.pn_session_free(session)

    def _on_attach(self, event: Pointer) -> None:
        pn = lib.pn_event_link(event)
        half = self._check.attached.popleft()
        unsettled, half.unsettled = half.unsettled, b""
        if pn in self.links:
            half.link = self.links[pn]
            half.link.formats = half.formats
            half.link.move(LinkEvent.PEER_ATTACH)
            if not self._refuse_half(half.link, half):
                self.events.append(Event(EventKind.ANSWERED, half.link))
            return
        self.asked += 1
        name, sender = text(lib.pn_link_name(pn)) or "", bool(lib.pn_link_is_sender(pn))
        link = Link(pn, lib.pn_link_session(pn), name, sender=sender, state=LinkState.REQUESTED)
        self.links[pn] = link
        if sender:
            self._outgoing.add_link(link)
        link.priority = asked_priority(lib.pn_link_remote_properties(pn))
        if link.priority != DEFAULT_PRIORITY:
            self._outgoing.ranked = True
        link.presettled = int(lib.pn_link_remote_snd_settle_mode(pn)) == int(lib.PN_SND_SETTLED)
        link.settles_second = not sender and lib.pn_link_remote_rcv_settle_mode(pn) == lib.PN_RCV_SECOND
        if termini.may_resume(link, lib.pn_link_remote_source(pn) if sender else lib.pn_link_remote_target(pn)):
            self._begin_resuming()
            link.resuming = ResumeState(claims_in(unsettled, is_incomplete=half.is_incomplete))
        lib.pn_link_set_snd_settle_mode(pn, lib.pn_link_remote_snd_settle_mode(pn))
        lib.pn_link_set_rcv_settle_mode(pn, lib.pn_link_remote_rcv_settle_mode(pn))
        half.link, link.formats = link, half.formats
        link.has_source = half.has_source
        link.asked = termini.asked_for(link)
        link.far_address = text(lib.pn_terminus_get_address(lib.pn_link_remote_target(pn))) if sender else None
        if self._refuse_half(link, half):
            return
        if len(self.links) > self._limits.max_links:
            most = self._limits.max_links
            self.close_link(link, "amqp:resource-limit-exceeded", f"a connection may have {most} links")
            return
        self.events.append(Event(EventKind.ATTACHED, link))

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
        self._go_on(link)
        self._move(link, LinkEvent.PEER_CLOSE if closed else LinkEvent.PEER_DETACH, for_good=closed)
        if link.is_forwarded and not link.closed:  # a client that gave up must not wait for another container
            proton.set_condition(lib.pn_link_condition(pn), "amqp:link:detach-forced", "the link was not open yet")
            self._move(link, LinkEvent.CLOSE, for_good=closed)

    def violated(self, channel: Channel | None, violation: Violation) -> None:
        """End the link, session or connection on which the peer sent a frame that the specification forbids."""
        half = violation.half
        if violation.scope is Scope.LINK:
            if half is not None and half.link is not None:
                self._go_on(half.link)
                self.close_link(half.link, violation.condition, violation.description)
        elif violation.scope is Scope.SESSION and channel is not None and channel.session is not None:
            self._end_session(channel.session, violation.condition, violation.description)
        else:
            self.refuse(violation.condition, violation.description)

    def awaits_begin(self) -> bool:
        """Return whether a session that this side began is unanswered."""
        return bool(self._unanswered)

    def most_handles(self) -> int:
        """Return the limit of attached handles: room for refused links, and for those that this side asked for."""
        return 2 * self._limits.max_links + sum(self._own_sessions.values())

    def _end_session(self, session: Pointer, condition: str, description: str) -> None:
        """End a session because of a violation by the peer. Earlier input is kept."""
        for link in [link for link in self.links.values() if link.session == session]:
            self._go_on(link)
            link.error = Error(condition, description)
            self._move(link, LinkEvent.LOST, for_good=link.routed is not None and not asks_to_last(link))
        proton.set_condition(lib.pn_session_condition(session), condition, description)
        lib.pn_session_close(session)
        self.events.append(Event(EventKind.VIOLATED, text=f"{condition}: {description}"))

    def _on_tail_closed(self, event: Pointer) -> None:
        """Refuse the connection: proton stops reading at an unknown frame without an error of its own."""
        if self.input_ended or lib.pn_condition_is_set(lib.pn_transport_condition(self._transport)):
            return
        if not lib.pn_connection_state(self.connection) & proton.REMOTE_CLOSED:
            self.refuse("amqp:decode-error", "a frame that is none of AMQP 1.0's")

    def refuse(self, condition: str, description: str) -> None:
        """End the connection because of a violation by the peer."""
        self._lose_links()
        self.close(condition, description)
        self._closed(f"{condition}: {description}")

    def _closed(self, error: str) -> None:
        if not self._closed_seen:
            self._closed_seen = True
            self.events.append(Event(EventKind.CLOSED, text=error))

    def _move(self, link: Link, event: LinkEvent, *, for_good: bool = False) -> None:
        """Perform the actions in the table of `link_state`. *for_good*: whether the report of the end is a close."""
        self._perform(link, link.move(event), for_good=for_good)

    def _perform(self, link: Link, actions: tuple[LinkAction, ...], *, for_good: bool) -> None:
        for action in actions:
            if action is LinkAction.REFUSE:
                termini.refuse(link)
            elif action is LinkAction.CLOSE:
                lib.pn_link_close(link.pn)
            elif action is LinkAction.DETACH:
                lib.pn_link_detach(link.pn)
            elif action is LinkAction.REPORT:
                self.events.append(Event(EventKind.DETACHED, link, closed=for_good))
            else:
                lib.pn_link_free(link.pn)
        if link.closed:
            self._remove(link)

    def _remove(self, link: Link) -> None:
        """Remove an ended link from the connection, its session, and the senders."""
        if self.links.pop(link.pn, None) is not None:
            self.holding.pop(link, None)
            self.unfinished -= bool(link.partials)
            if link.sender:
                self._outgoing.drop_link(link)
            if link.session in self._own_sessions:
                self._leave_session(link.session)

    def _lose_links(self) -> None:
        for link in list(self.links.values()):
            self._move(link, LinkEvent.LOST)

    # ---- what the terminal asks for -------------------------------------------------------------------------------

    def open(self, capabilities: tuple[str, ...] = (), properties: bytes = b"") -> None:
        """Answer the peer's open, unless the connection was closed before it came to that. *properties*: as a map."""
        if not lib.pn_connection_state(self.connection) & proton.LOCAL_UNINIT:
            return
        if capabilities:
            proton.put_symbols(lib.pn_connection_offered_capabilities(self.connection), capabilities)
        if properties:
            proton.put_encoded(lib.pn_connection_properties(self.connection), properties)
        lib.pn_connection_open(self.connection)

    def open_to(self, hostname: str, properties: bytes) -> None:
        """Open a connection to another container."""
        lib.pn_connection_set_hostname(self.connection, hostname.encode())
        self.open((), properties)

    def attach(self, link: Link, asked: Attach) -> None:
        """Ask the peer for *link*, which this side has made (router guide C42).

        It has a session of its own while there are few: what is held on a link shuts its session's window, and others
        should not wait for that.
        """
        most = min(MOST_OWN_SESSIONS, int(lib.pn_transport_remote_channel_max(self._transport)))
        used = [one for one, links in self._own_sessions.items() if links]
        if len(used) < max(1, most):
            session = lib.pn_session(self.connection)
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
            self._outgoing.add_link(link)
            link.presettled = asked.snd_settle_mode == SETTLED
            self._outgoing.ranked = self._outgoing.ranked or link.priority != DEFAULT_PRIORITY
        else:
            link.settles_second = asked.rcv_settle_mode == SECOND
            most_bytes = self._limits.max_message_bytes
            asked = asked._replace(max_message_bytes=min(asked.max_message_bytes or most_bytes, most_bytes))
        say(link, asked)
        self._open(link)

    def _open(self, link: Link) -> None:
        """Send the attach. Its handle, which proton chooses, is read from the frame: an echo may have to name it."""
        actions = link.move(LinkEvent.ATTACH)
        if not link.sender:
            lib.pn_link_open(link.pn)
        else:
            self._taken.take()
            lib.pn_link_open(link.pn)
            frames = self._taken.read()
            link.handle = handle_of_attach(frames)
            self._taken.add(frames)
        if actions:
            self._perform(link, actions, for_good=LinkAction.CLOSE in actions)

    def open_link(
        self,
        link: Link,
        address: str | None,
        filters: bytes = b"",
        found: Terminus | None = None,
        kept: KeptLink | None = None,
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

    def _resume(self, link: Link, terminus: Pointer, kept: KeptLink | None) -> None:
        if kept is None:
            link.resuming = None
            lib.pn_terminus_set_durability(terminus, _CONFIGURATION if link.sender else 0)
        elif self._taken.frames is not None:
            lib.pn_terminus_set_timeout(terminus, kept.expires_s)
            key = link.name, not link.sender
            self._taken.frames.incomplete.discard(key)
            self._taken.frames.unsettled[key] = {tag: encoded_state(state) for tag, state in kept.states.items()}

    def open_as(self, link: Link, found: Attach) -> None:
        """Answer an attach with the answer of another container."""
        if not link.sender:
            most_bytes = self._limits.max_message_bytes
            found = found._replace(max_message_bytes=min(found.max_message_bytes or most_bytes, most_bytes))
        link.resuming = None
        say(link, found)
        self._open(link)

    def flow(self, link: Link, credit: int, drain: bool) -> None:
        """Grant *credit* more messages as a receiver, or fewer if negative, and for all or nothing now if *drain*."""
        if not link.closed:
            lib.pn_link_set_drain(link.pn, drain)
            crediting.ask(link, credit)

    def given_back(self, link: Link) -> int:
        """Return the credit that the peer returned, on a link on which it sends, since the last call."""
        crediting.mend(link)
        link.credit = int(lib.pn_link_credit(link.pn))
        return int(lib.pn_link_drained(link.pn))

    def detach(self, link: Link, error: Error | None, for_good: bool) -> None:
        """Detach a link, or close it if *for_good*, with an error of another component."""
        if link.closed:
            return
        if error is not None:
            proton.set_condition(lib.pn_link_condition(link.pn), *error)
        if for_good or link.state in UNANSWERED:
            self.close_link(link)
        else:
            self._move(link, LinkEvent.DETACH)

    def _leave_session(self, session: Pointer) -> None:
        self._own_sessions[session] -= 1
        if not self._own_sessions[session]:
            lib.pn_session_close(session)

    def close(self, condition: str = "", description: str = "", info: bytes = b"") -> None:
        """Close the connection, with an error if *condition* names one; *info* is a map."""
        if condition:
            proton.set_condition(lib.pn_connection_condition(self.connection), condition, description, info)
        self.open()
        lib.pn_connection_close(self.connection)

    def session_of(self, link: Link) -> int:
        """Return the number of the session of *link* on the connection, from 1 on; 0 if unknown."""
        return self._numbers.get(link.session, 0)

    def close_link(self, link: Link, condition: str = "", description: str = "", info: bytes = b"") -> None:
        """Close the link, with an error if *condition* names one; as a refused attach if it was not answered yet.

        *info* of the error is an encoded map.
        """
        if link.closed:
            return
        if condition:
            proton.set_condition(lib.pn_link_condition(link.pn), condition, description, info)
            link.error = Error(condition, description, info)
        # the other end of a link route is closed, too, because this link no longer exists;
        # but a terminus that outlasts its link at the client's request is kept there, as it is here
        for_good = link.routed is not None and (link.is_locally_initiated or not asks_to_last(link))
        self._move(link, LinkEvent.CLOSE, for_good=for_good)

    def begin_routing(self, channel: object, *, is_closed: bool) -> None:
        """Note that messages of *channel* wait to be routed; *is_closed*: its link is closed already."""
        self.routing[channel] = self.routing.get(channel, 0) + 1
        if is_closed:
            self.routing_of_closed.add(channel)

    def end_routing(self, channel: object) -> None:
        """Note that messages of *channel* do not wait any more, for one reason."""
        self.routing[channel] -= 1
        if not self.routing[channel]:
            del self.routing[channel]
            self.routing_of_closed.discard(channel)

    def peer_is_done(self) -> bool:
        """Return whether the peer has closed the connection or its input has ended."""
        return self.input_ended or bool(lib.pn_connection_state(self.connection) & proton.REMOTE_CLOSED)

    def receives(self) -> bool:
        """Return True if the peer has attached a receiving link."""
        return any(link.sender for link in self.links.values())

    def free(self) -> None:
        """Free the connection in proton. Nothing may be called afterwards."""
        self.links.clear()
        lib.pn_connection_release(self.connection)
        lib.pn_decref(self.connection)
