"""A terminal: the worker's side of one connection. It speaks AMQP to the client, and calls the drivers (RFC005).

The messages of one read are passed on as one action per link, not one by one. Answers of the core come back as work,
which the worker does in order. All methods belong to the worker, except those of `ChannelEnd`, which the core calls and
which only queue work.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import Any, NamedTuple

from ...amqp.engine.engine import ALL_CONTROLS, Engine
from ...amqp.links.events import Event, EventKind, Limits
from ...amqp.links.link import Link
from ...amqp.native.buffer_pool import Buckets
from ...amqp.native.scratch_buffer import ScratchBuffer
from ...amqp.ports import IDLE, Drivers, Error
from ...amqp.sasl.handshake import Handshake, Stage
from ...amqp.sasl.server_handshake import ServerHandshake
from ...base.accounts.audit import FORBIDDEN, LIMIT, Login, LoginFailure
from ...base.errors import CairnError
from ..admission.admission import Admission
from ..admission.login_gate import BUSY, LoginGate
from ..kernel.core import Core
from .channel_end import ChannelEnd, hand_over_acquiring, hand_over_tagged

log = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 60.0
"""Seconds in which a client has to authenticate and open the connection."""

MOST_BEGINS_PER_S = 1000
"""Sessions that a client may begin in a second; a session costs some hundred times the bytes that begin it."""
MOST_HELD_BYTES = 6 << 20
"""The limit of bytes on the held links of a connection that only sends. Above it, the socket is not read.

It exceeds the session window for passthrough addresses, so one such link stops only its own session.
"""
MOST_HELD_BESIDE_BYTES = 16 << 20
"""Limit on a connection that also receives: the held links may wait for outcomes that it sends."""
UNREADABLE = 1 << 30
"""More unanswered requests than any client may have."""

_IDLE = "local-idle-timeout expired"

Work = tuple[Callable[..., None], tuple[Any, ...]]


class Turn(NamedTuple):
    """The effect of what a connection digested last."""

    controls_left: int
    """Control frames that are still allowed."""
    is_behind: bool
    """Something that was read waits: nothing more should be read."""
    has_messages: bool
    """True if messages or outcomes of messages arrived."""
    is_small: bool
    """True if something complete arrived, and no long message is being received or sent."""


@dataclass(frozen=True, slots=True)
class TerminalContext:
    """The collaborators of a terminal."""

    core: Core
    drivers: Drivers
    admission: Admission
    limits: Limits
    buckets: Buckets
    gate: LoginGate


class Terminal:
    """A connection, without its socket: bytes in, bytes out, actions to the core, work from it."""

    dials = False
    """The broker opens it."""
    patience_s = OPEN_TIMEOUT_S
    """The seconds for which the client may be silent while it `is_opening`."""

    def __init__(
        self,
        context: TerminalContext,
        name: str,
        *,
        wake: Callable[[Terminal], None],
        secure: bool = False,
        certified: str = "",
        certificate: bytes = b"",
        no_room: Callable[[bool], str] = lambda is_manager: "",
        scratch: ScratchBuffer | None = None,
        idle_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        """*name* is for the log; *wake* is called when the first work is queued, mostly on the core.

        *secure*: the connection uses TLS; *certified*: the user that the client's *certificate* names, empty for none;
        *no_room*: returns, at the open, the reason to refuse one more connection, empty to accept it. *scratch*: the
        worker's buffer; *idle_s*: returns the seconds since bytes last arrived, None if unknown, on any thread.
        """
        self.name = name
        self.certified = certified
        self.certificate = certificate
        self.idle_s = idle_s
        self._about = {"connection": name}
        self._secure = secure
        self._no_room = no_room
        self.core = context.core
        self.closed = False
        self.engine = Engine(
            context.admission.container_id, context.limits, context.buckets, scratch, client=self.dials
        )
        self.endpoints = self.engine.endpoints
        self.holding = self.endpoints.holding
        """Links that are held. While there are some, `is_full` may be true."""
        self.routing = self.endpoints.routing
        """Channels whose messages wait to be routed. While there are some, `is_full` may be true."""
        self._idle_timeout_ms = context.limits.idle_timeout_ms
        self._admission = context.admission
        self._drivers = context.drivers
        self._gate = context.gate
        self._front: Handshake | None = self._gate.front(secure=secure, certified=certified)
        self.reason = ""
        """The reason why the connection ended, if any."""
        self._session_failed = False
        """A session was ended because of an error of the client."""
        self.user = ""
        """The user that the client has logged in as."""
        self.stored_key = b""
        self._origin = ""
        self._mechanism = ""
        self._counted = False
        self._prelude = b""  # output of the front, to be sent before that of the engine
        self._wake = wake
        self._channels: dict[Link, ChannelEnd] = {}
        self._work: deque[Work] = deque()
        self._scheduled = False
        self.is_opening = True
        """True until the client has sent AMQP's open."""
        self._received = False
        """True if the latest read contained something complete."""
        self.brings_long = False
        """True if the latest read held part of a long message without its end; unchanged by less than a frame."""
        self._brought = False
        """True if the latest read contained messages or outcomes of messages."""
        self._begun_before = (0, 0)
        """The time at which begins were counted last, and their number."""
        self.leaving = False
        """True if the connection is closed once all accepted messages are answered."""

    @property
    def is_checked(self) -> bool:
        """Return whether the client waits for the check of its login."""
        front = self._front  # its worker may remove it meanwhile
        return front is not None and front.check is not None

    # ---- bytes ----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview, controls: int = ALL_CONTROLS) -> Turn:
        """Process bytes from the client, at most *controls* control frames among them; the rest waits for `go_on`."""
        engine, front = self.engine, self._front
        engine.controls_left = controls
        if front is not None:
            waiting = front.check
            answer, rest = front.feed(bytes(data))
            self._go_in(front, answer, rest, waiting)
        else:
            self._digest(data)
            if self.holding:
                self._limit_held()
        outgoing = engine.outgoing
        return Turn(
            engine.controls_left,
            engine.is_behind and not self.closed,
            self._brought,
            self._received and not self.brings_long and not (outgoing.blocked and outgoing.sends_long()),
        )

    def _go_in(self, front: Handshake, answer: bytes, rest: bytes, waiting: object) -> None:
        """Continue the front after a check; *waiting*: the check that was pending."""
        self._prelude += answer
        if isinstance(front, ServerHandshake):
            self._origin = front.origin
        check = front.check
        has_time = check is None or check is waiting or self._gate.check(
            check, self.name, lambda: not self.closed, partial(self.note, self._checked), self._origin
        )  # fmt: skip
        if not has_time:
            self._prelude += front.busy()
        if front.stage is Stage.REFUSED:
            if isinstance(front, ServerHandshake):
                self._gate.login_failed(front.failure(self.name))
            else:
                log.info("%s: refused: %s", self.name, front.reason, extra=self._about)
            self.reason = front.reason
            self.give_up()
        elif front.stage is Stage.OPEN:
            self._front = None
            self.user = front.user
            if isinstance(front, ServerHandshake):
                self._mechanism, self.stored_key = front.mechanism, front.stored_key
            self._begin_amqp()
            self._digest(rest)

    def _begin_amqp(self) -> None:
        """Begin AMQP proper: the client is authenticated."""

    def _checked(self, found: object) -> None:
        front = self._front
        if front is not None and not self.closed:
            if found is BUSY:
                self._go_in(front, front.busy(), b"", front.check)
                return
            answer, rest = front.checked(found)
            self._go_in(front, answer, rest, None)

    def go_on(self, controls: int) -> Turn:
        """Process the input that waits since `receive`, at most *controls* control frames."""
        engine = self.engine
        engine.controls_left = controls
        if self._front is None and not self.closed:
            self._digest()
        return Turn(engine.controls_left, engine.is_behind and not self.closed, self._brought, False)

    def is_full(self) -> bool:
        """Return whether messages wait to be routed, or held links keep too many bytes. Called after each read."""
        engine = self.engine
        if self.closed:
            return False
        waits_to_route = self.endpoints.routing_of_closed or (self.routing and engine.transactional)
        if not waits_to_route and (
            not self.holding or engine.held_bytes() < MOST_HELD_BYTES or self.endpoints.receives()
        ):
            return False
        engine.expect_silence()
        return True

    def _limit_held(self) -> None:
        """Close the connection if too much waits on its held links though it is read on, for it receives."""
        held_bytes = self.engine.held_bytes()
        if held_bytes >= MOST_HELD_BESIDE_BYTES and self.endpoints.receives():
            reason = f"{held_bytes} bytes wait for room on links of this connection: receive on another one"
            self.endpoints.refuse("amqp:resource-limit-exceeded", reason)
            self._digest()

    def end_input(self) -> None:
        """Process the rest of the input: the client closed its side, or the connection broke."""
        if isinstance(self._front, ServerHandshake) and not self.closed:
            if self._front.left():
                self._gate.login_failed(self._front.failure(self.name))
            self.reason = self._front.reason
            self.give_up()
            return
        self.engine.controls_left = ALL_CONTROLS
        self.engine.push_end()
        self._digest()
        self.give_up()

    def write(self, send: Callable[[bytes | memoryview], int], most_bytes: int, most_long_bytes: int) -> bool:
        """Pass output to *send*, which returns how much of it was taken; return whether there may be more.

        Stop behind *most_bytes*, and behind *most_long_bytes* while a long message is sent. Raises what *send* raises.
        """
        written_bytes = 0
        data = self._output()
        while data:
            size = send(data)
            written_bytes += size
            if self._prelude:
                self._prelude = self._prelude[size:]
                is_more = True
            else:
                is_more = self.engine.consumed(size) or bool(self.engine.outgoing.held_bytes)
                if self.engine.outgoing.blocked:
                    self._pump_blocked()
                    is_more = True
                if self.engine.outgoing.answered:
                    self._digest()
                    is_more = True
            if written_bytes >= most_long_bytes and (written_bytes >= most_bytes or self.takes_long()):
                return True
            data = self._output() if is_more else b""
        return False

    def _output(self) -> bytes | memoryview:
        """Return the bytes to send next; empty if there are none now."""
        if self._prelude:
            return self._prelude
        if self._front is not None:
            return b""
        data = self.engine.output()
        outgoing = self.engine.outgoing
        if not data and outgoing.held_bytes and outgoing.recount() and outgoing.blocked:
            self._pump_blocked()
            data = self.engine.output()
        return data

    def takes_long(self) -> bool:
        """Return whether a long message is being sent."""
        outgoing = self.engine.outgoing
        return bool(outgoing.blocked) and outgoing.sends_long()

    def unanswered(self) -> int:
        """Return the number of requests of the client since it last took all output.

        During a login one answer is more than enough.
        """
        return UNREADABLE if self._prelude else self.endpoints.asked

    def finished(self) -> bool:
        """Return whether the socket can be closed: all output was sent."""
        return self.closed and not self._prelude and (self._front is not None or self.engine.output_ended())

    def client_is_done(self) -> bool:
        """Return whether the client has ended its output; otherwise its remaining bytes must be read and discarded."""
        return self.endpoints.peer_is_done()

    def tick(self, now_ms: int) -> int:
        """Run timers: send a heartbeat, or detect an idle client. Return the time of the next call; 0 for any time."""
        if self._front is not None or self.closed:
            return 0
        due_ms = self.engine.tick(now_ms)
        self._limit_begins(now_ms)
        self._digest()
        return due_ms

    def _limit_begins(self, now_ms: int) -> None:
        since_ms, before = self._begun_before
        passed_ms = now_ms - since_ms
        if passed_ms >= 1000:
            self._begun_before = now_ms, self.endpoints.begun
            if since_ms and self.endpoints.begun - before > MOST_BEGINS_PER_S * passed_ms // 1000:
                reason = f"more than {MOST_BEGINS_PER_S} sessions begun in a second"
                self.endpoints.refuse("amqp:resource-limit-exceeded", reason)

    # ---- from the client to the core ------------------------------------------------------------------------------

    def _digest(self, data: bytes | memoryview = b"") -> None:
        engine = self.engine
        if data:
            engine.push(data)
        engine.digest()
        if engine.echoes_asked:
            engine.take_echoes()
        events, self.endpoints.events = self.endpoints.events, []
        self._brought = bool(engine.touched)
        self._received = self._brought or bool(events)
        if self._received:
            self.brings_long = engine.has_long
        # transfers and outcomes first: a detach behind them in the same read must not overtake them
        if engine.transactional:  # a discharge must not overtake earlier input on other links
            engine.touched.sort(key=lambda link: link.coordinator)
        shut_out = False
        for link in engine.touched:
            link.touched = False
            if link.inbox:
                shut_out |= not engine.check_credit(link)
            self._hand_over(link)
        engine.touched.clear()
        for event in events:
            self._on_event(event)
        # links that are shut out or continue for others need not wait until the peer sends something
        if shut_out or engine.touched:
            self._digest()

    def _hand_over(self, link: Link) -> None:
        """Pass the arrivals on *link* to its driver, each kind as one action of the core.

        Without a driver, acquisitions wait for the channel to open, and all else is dropped.
        """
        driver = None if link.channel is None else link.channel.driver
        post = self.core.post
        if link.inbox:
            fragments, link.inbox = link.inbox, []
            # later requests could not be answered any more, so they are ignored
            if driver is not None and not self.leaving:
                if link.resuming is None and not link.runs:
                    post(driver.receive, fragments)
                else:
                    hand_over_tagged(self, link, driver, fragments)
        if link.acquiring and driver is not None:
            hand_over_acquiring(self, link, driver)
        if link.provisional:
            provisional, link.provisional = link.provisional, []
            if driver is not None:
                post(driver.outcomes_in, self, provisional)
        if link.outcomes:
            outcomes, link.outcomes = link.outcomes, []
            if driver is not None:
                post(driver.outcomes, outcomes)
                if link.capped:
                    self.request(link)

    def _on_event(self, event: Event) -> None:
        link = event.link
        if self.closed:
            return
        if event.kind is EventKind.OPENED:
            opener = self.endpoints.container, self.user
            log.debug("%s: opened by container %r of %r", self.name, *opener, extra=self._about)
            self.is_opening = False
            self._open()
        elif event.kind is EventKind.BEGUN:
            self.core.post(self._drivers.session_begun, self, event.session)
        elif event.kind is EventKind.ENDED:
            self.core.post(self._drivers.session_ended, self, event.session)
        elif event.kind is EventKind.VIOLATED:
            self._log_session_error(event.text)
        elif event.kind is EventKind.CLOSED:
            if event.text:  # the end of a client that just leaves is not logged
                level = logging.DEBUG if event.text.endswith("connection aborted") else logging.INFO
                is_idle = event.text.endswith(_IDLE)
                self.reason = f"{IDLE}{self._idle_timeout_ms / 1000:g} s" if is_idle else event.text
                text = f"{self.reason}: the client sent no heartbeats" if is_idle else event.text
                log.log(level, "%s: %s", self.name, text, extra={**self._about, "event": "connection.ended"})
            self.give_up()
        elif link is None:
            return
        elif event.kind is EventKind.ATTACHED:  # also of a link whose session ended behind it
            self._attach(link)
        elif event.kind is EventKind.DETACHED:
            self._detached(link, lost=False, for_good=event.closed)
        elif link.closed:
            return
        elif event.kind is EventKind.FLOW:
            if link.sender:
                self.request(link)
                if link.outbox:
                    self.pump(link)
            else:
                self._note_given_back(link)

    def _log_session_error(self, error: str) -> None:
        """Log why a session was ended; more errors of the same client are logged at debug level."""
        level = logging.DEBUG if self._session_failed else logging.INFO
        self._session_failed = True
        log.log(level, "%s: a session was ended: %s", self.name, error, extra={**self._about, "event": "session.ended"})

    def _open(self) -> None:
        """Open the connection, if its user may have it and no limit forbids it."""
        condition, denial, reason = "amqp:unauthorized-access", self._drivers.denial_reason_in(self.user), FORBIDDEN
        if not denial:
            condition, reason = "amqp:resource-limit-exceeded", LIMIT
            most = self._drivers.most_connections(self.user)
            denial = self._no_room(self._drivers.is_manager(self.user)) or self._gate.enter(self.user, most)
            self._counted = not denial
        if denial:
            answer = self._admission.refuse(condition, denial)
        else:
            answer = self._admission.admit(
                self,
                self.user,
                self.endpoints.container,
                self.endpoints.desired,
                secure=self._secure,
                is_console=bool(self._origin),
            )
        self.endpoints.open(answer.capabilities, answer.properties)
        if answer.error is not None:
            if denial:
                address = self._origin or self.name
                self._gate.login_failed(LoginFailure(address, self.user, self._mechanism, reason, denial))
            else:
                log.info("%s: refused: %s", self.name, answer.error.description, extra=self._about)
            self.endpoints.close(*answer.error)
            self.give_up()
        else:
            address = self._origin or self.name
            self._gate.logged_in(Login(address, self.user, self._mechanism, self.endpoints.container))
            self.core.post(self._drivers.connection_opened, self)

    def _note_given_back(self, link: Link) -> None:
        """Handle a flow of the peer, which sends on a link that is part of a longer one."""
        given_back, channel = self.endpoints.given_back(link), link.channel
        if given_back and channel is not None:
            self.core.post(channel.driver.drained, given_back)

    def _attach(self, link: Link) -> None:
        channel = link.channel = self._channels[link] = ChannelEnd(self, link)
        attach = channel.attach(self, self.endpoints.container, self.user, self._drivers.is_routed)
        if attach.terminus.coordinator and not link.closed:
            self.engine.control(link)
        self.core.post(self._drivers.open, attach, channel)

    def request(self, link: Link) -> None:
        """Pass the client's credit to the driver."""
        channel = link.channel
        if channel is not None and channel.driver is not None:
            limit, drain = self.engine.credit_limit(link)
            link.sent_limit = -1 if drain else limit
            self.core.post(channel.driver.request, limit, drain)

    def _detached(self, link: Link, lost: bool, for_good: bool) -> None:
        channel, link.channel = self._channels.pop(link, None), None
        if channel is None:
            return
        channel.for_good = for_good
        if channel in self.routing:
            self.endpoints.routing_of_closed.add(channel)
        if channel.driver is not None:
            returned = [tag for tag in link.unsent() if tag is not None]
            link.outbox.clear()
            self.core.post(channel.driver.close, returned, lost, for_good)
        self.core.post(self._drivers.link_closed, channel)

    def give_up(self) -> None:
        """Release everything that the closed connection held. Repeated calls have no effect."""
        if self.closed:
            return
        self.closed = True
        self._admission.leave(self, self.user, self.endpoints.container)
        if self._counted:
            self._gate.leave(self.user)
        for link in list(self._channels):
            link.lose()
            self._detached(link, lost=True, for_good=False)
        self.core.post(self._drivers.connection_closed, self)

    def shut_down(self) -> None:
        """Close the connection once everything that was accepted from the client is answered."""
        if self._front is not None:
            self.give_up()
        elif not self.leaving:
            self.leaving = True
            self.core.post(self._drivers.when_answered, lambda: self.note(self._say_goodbye))

    @property
    def container(self) -> str:
        return self.endpoints.container

    def expel(self, description: str, *, elsewhere: bool = False) -> None:
        self.note(self._do_expel, description, elsewhere)

    def _do_expel(self, description: str, elsewhere: bool) -> None:
        if not self.closed:
            info = self._admission.elsewhere(secure=self._secure) if elsewhere else b""
            self.endpoints.close("amqp:connection:forced", description, info)
            for link in self._channels:
                link.error = Error("amqp:connection:forced", description)  # for the other end of a longer one
            self.give_up()

    def _say_goodbye(self) -> None:
        if not self.closed:
            info = self._admission.elsewhere(secure=self._secure)
            self.endpoints.close("amqp:connection:forced", "the broker shuts down", info)

    def free(self) -> None:
        """Free the engine. Afterwards only `do_work` is called, for work that the core still queues."""
        self.engine.free()

    # ---- from the core to the client ------------------------------------------------------------------------------

    def note(self, action: Callable[..., None], *args: Any) -> None:
        """Note work down for the worker. On the core (C9)."""
        assert self.core.player == get_ident()
        self._work.append((action, args))
        if not self._scheduled:
            self._scheduled = True
            self._wake(self)

    def do_work(self) -> bool:
        """Do the work that the core queued; return whether input waits for `go_on`, as it may after a login."""
        self._scheduled = False  # before the work: later entries wake the worker again
        work = self._work
        while work:
            action, args = work.popleft()
            action(*args)
        if self.engine.outgoing.ranked:
            self._pump_blocked()
        if self._front is not None or self.closed:
            return False
        engine = self.engine
        engine.digest()
        if engine.touched or self.endpoints.events or engine.echoes_asked:
            self._digest()
        return engine.is_behind

    def _pump_blocked(self) -> None:
        for link in self.engine.outgoing.in_turn():
            self.pump(link)

    def pump(self, link: Link) -> None:
        """Send waiting messages on *link*; if content can't be read back, close the link with the error."""
        try:
            if self.engine.outgoing.pump(link):
                self.request(link)
        except CairnError as error:
            about = {**self._about, "event": "message.unreadable", "link": link.name}
            log.error("%s: link %s: %s", self.name, link.name, error, extra=about)
            self.engine.outgoing.abort(link)
            self.endpoints.close_link(link, "amqp:internal-error", str(error))
        if link.on_sent is not None and link.sent >= link.on_sent[0]:
            self.core.post(link.on_sent[1])
            link.on_sent = None
