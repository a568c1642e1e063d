"""A terminal: the worker's side of one connection. It speaks AMQP to the client, and RFC005's words to the drivers.

What one read brought is handed over as one action per link, never message by message. What the core says comes back as
work, done in order when the worker gets to it. All methods are the worker's, except those of `ChannelEnd`, which the
core calls and which only note work down.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..amqp import termini
from ..amqp.attaching import said_by_peer
from ..amqp.beginning import Beginning, Stage
from ..amqp.buckets import Buckets
from ..amqp.engine import Engine
from ..amqp.events import Event, Kind, Limits
from ..amqp.link import Link
from ..amqp.scratch import Scratch
from ..base.errors import CairnError
from ..channel.words import Drivers, Error, Open
from .channel_end import ChannelEnd
from .handing_over import hand_over

if TYPE_CHECKING:
    from .admission import Admission
    from .core import Core
    from .gate import Gate

log = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 10.0
"""How long a client may take to authenticate and open the connection."""

Work = tuple[Callable[..., None], tuple[Any, ...]]


class Terminal:
    """One connection, without its socket: bytes in, bytes out, actions to the core, work from it."""

    dials = False
    """The broker opens it."""

    def __init__(
        self,
        name: str,
        core: Core,
        drivers: Drivers,
        admission: Admission,
        limits: Limits,
        buckets: Buckets,
        gate: Gate,
        *,
        wake: Callable[[Terminal], None],
        secure: bool = False,
        certified: str = "",
        certificate: bytes = b"",
        no_room: str = "",
        scratch: Scratch | None = None,
    ) -> None:
        """*name* is for the log; *wake* is called when the first work is noted down, mostly on the core.

        *secure*: the bytes come through TLS; *certified*: whom the client's *certificate* names, empty for nobody;
        *no_room*: why it is one connection too many, and is closed as soon as it is open; *scratch*: the worker's.
        """
        self.name = name
        self.certified = certified
        self.certificate = certificate
        self._about = {"connection": name}
        self._secure = secure
        self._no_room = no_room
        self.core = core
        self.closed = False
        self.engine = Engine(admission.container_id, limits, buckets, scratch, client=self.dials)
        self._admission = admission
        self._drivers = drivers
        self.engine.resumes = self._resumes
        self._gate = gate
        self._front: Beginning | None = gate.front(secure=secure, certified=certified)
        self.why = ""
        """Why it is over, where there is a reason."""
        self._user = ""
        self._counted = False
        self._prelude = b""  # what the front answers, to be sent before anything of the engine
        self._wake = wake
        self._channels: dict[Link, ChannelEnd] = {}
        self._work: deque[Work] = deque()
        self._scheduled = False
        self._opened = False
        self._heard = False
        """What was read last had something whole."""
        self._brings_long = False
        """What had was a part of a long message, and not its end; less than a frame tells nothing of that."""
        self.leaving = False
        """It says goodbye when all that it took is answered."""

    def _resumes(self, container: str) -> bool:
        return self._drivers.resumes(self._user, container)

    # ---- bytes ----------------------------------------------------------------------------------------------------

    def feed(self, data: bytes | memoryview) -> None:
        """Bytes came from the client."""
        front = self._front
        if front is not None:
            waiting = front.check
            answer, rest = front.feed(bytes(data))
            self._go_in(front, answer, rest, waiting)
            return
        if data:
            self.engine.push(data)
        self._digest()

    def _go_in(self, front: Beginning, answer: bytes, rest: bytes, waiting: object) -> None:
        """The front has come as far as it could; *waiting*: the check that was asked for before."""
        self._prelude += answer
        check, then = front.check, partial(self.note, self._checked)
        if check not in (None, waiting) and not self._gate.check(check, lambda: not self.closed, then):
            self._prelude += front.busy()
        if front.stage is Stage.REFUSED:
            log.info("%s: refused: %s", self.name, front.why, extra=self._about)
            self.why = front.why
            self.give_up()
        elif front.stage is Stage.OPEN:
            self._front = None
            self._user = front.user
            self._begin_amqp()
            self.engine.push(rest)
            self._digest()

    def _begin_amqp(self) -> None:
        """Who is there is known: AMQP proper begins."""

    def _checked(self, found: object) -> None:
        front = self._front
        if front is not None and not self.closed:
            answer, rest = front.checked(found)
            self._go_in(front, answer, rest, None)

    def feed_end(self) -> None:
        """The client closed its side, or the connection broke."""
        self.engine.push_end()
        self._digest()
        self.give_up()

    def output(self) -> bytes | memoryview:
        """What to send next; empty if there is nothing now."""
        if self._prelude:
            return self._prelude
        if self._front is not None:
            return b""
        data = self.engine.output()
        if not data:
            outgoing = self.engine.outgoing
            if outgoing.held_bytes and outgoing.recount() and outgoing.blocked:
                self._pump_blocked()
                data = self.engine.output()
        return data

    def sent(self, size_bytes: int) -> None:
        """So much of `output` was sent."""
        if self._prelude:
            self._prelude = self._prelude[size_bytes:]
            return
        self.engine.consumed(size_bytes)
        outgoing = self.engine.outgoing
        if outgoing.blocked:
            self._pump_blocked()
        if outgoing.answered:
            self._digest()

    def brings_long(self) -> bool:
        """Whether a long message is on its way in: a part of it came last, and not its end."""
        return self._brings_long

    def heard_small(self) -> bool:
        """Whether what was read last had something whole that has nothing to do with a long message."""
        return self._heard and not self._brings_long and not self.engine.outgoing.sends_long()

    def takes_long(self) -> bool:
        """Whether a long message is on its way out."""
        return self.engine.outgoing.sends_long()

    def unanswered(self) -> int:
        """How often the client asked for something since it took all that was to be sent to it."""
        return self.engine.asked

    def finished(self) -> bool:
        """Whether the socket can be closed: everything was said."""
        return self.closed and not self._prelude and (self._front is not None or self.engine.output_ended())

    def client_is_done(self) -> bool:
        """Whether the client has said that it sends nothing more; else what it still sends is to be read, unheard."""
        return self.engine.peer_is_done()

    def tick(self, now_ms: int) -> int:
        """Time has passed: send a heartbeat, or notice a silent client. When to say so again; 0 for any time."""
        if self._front is not None or self.closed:
            return 0
        due_ms = self.engine.tick(now_ms)
        self._digest()
        return due_ms

    @property
    def patience_s(self) -> float:
        """How long the client may be `opening`."""
        return OPEN_TIMEOUT_S

    def opening(self) -> bool:
        """Whether the client has not come as far as AMQP's open yet."""
        return not self._opened

    # ---- from the client to the core ------------------------------------------------------------------------------

    def _digest(self) -> None:
        events = self.engine.process()
        self._heard = bool(events or self.engine.touched)
        if self._heard:
            self._brings_long = self.engine.has_long
        # transfers and outcomes first: a detach behind them in the same read must not overtake them
        if self.engine.transactional:  # a discharge must not overtake what came before it on other links
            self.engine.touched.sort(key=_controls)
        shut_out = False
        for link in self.engine.touched:
            link.touched = False
            if link.inbox:
                shut_out |= not self.engine.check_credit(link)
            hand_over(self, link)
        self.engine.touched.clear()
        for event in events:
            self._on_event(event)
        if shut_out:  # others that have to do with that link need not wait until its peer says something
            self._digest()

    def _on_event(self, event: Event) -> None:
        link = event.link
        if self.closed:
            return
        if event.kind is Kind.OPENED:
            opener = self.engine.container, self._user
            log.debug("%s: opened by container %r of %r", self.name, *opener, extra=self._about)
            self._opened = True
            self._open()
        elif event.kind is Kind.BEGUN:
            self.core.post(self._drivers.session_begun, self, event.session)
        elif event.kind is Kind.ENDED:
            self.core.post(self._drivers.session_ended, self, event.session)
        elif event.kind is Kind.CLOSED:
            if event.text:  # that a client just leaves is nothing to talk about
                level = logging.DEBUG if event.text.endswith("connection aborted") else logging.INFO
                log.log(level, "%s: %s", self.name, event.text, extra=self._about)
                self.why = event.text
            self.give_up()
        elif link is None or (link.closed and event.kind is not Kind.DETACHED):
            return
        elif event.kind is Kind.ATTACHED:
            self._attach(link)
        elif event.kind is Kind.FLOW:
            if link.sender:
                self.request(link)
                if link.outbox:
                    self.pump(link)
            else:
                self._note_given_back(link)
        elif event.kind is Kind.DETACHED:
            self._detached(link, lost=False, for_good=event.closed)

    def _open(self) -> None:
        """Open the connection, if its user may have it and nothing else speaks against it."""
        condition, why = "amqp:unauthorized-access", self._drivers.why_not_in(self._user)
        if not why:
            condition, why = "amqp:resource-limit-exceeded", self._no_room or self._gate.enter(self._user)
            self._counted = not why
        if why:
            answer = self._admission.refuse(condition, why)
        else:
            answer = self._admission.admit(
                self, self.engine.container, self.engine.desired, secure=self._secure
            )
        self.engine.open(answer.capabilities, answer.properties)
        if answer.error is not None:
            log.info("%s: refused: %s", self.name, answer.error.description, extra=self._about)
            self.engine.close(*answer.error)
            self.give_up()
        else:
            self.core.post(self._drivers.connection_opened, self)

    def _note_given_back(self, link: Link) -> None:
        """The peer, which sends on a link that is part of a longer one, said how it stands."""
        given_back, channel = self.engine.given_back(link), link.channel
        if given_back and channel is not None:
            self.core.post(channel.driver.drained, given_back)

    def _attach(self, link: Link) -> None:
        terminus = termini.asked_for(link)
        if terminus.coordinator:
            self.engine.control(link)
        channel = link.channel = self._channels[link] = ChannelEnd(self, link)
        self.core.post(
            self._drivers.open,
            Open(
                link.sender,
                terminus,
                link.presettled,
                self,
                link.name,
                self.engine.container,
                self._user,
                self.engine.far_address_of(link),
                link.resuming.claims if link.resuming is not None else None,
                self.engine.session_of(link),
                said_by_peer(link) if self._drivers.is_routed(terminus.address) else None,
            ),
            channel,
        )

    def request(self, link: Link) -> None:
        """Tell the driver how much the client wants."""
        channel = link.channel
        if channel is not None and channel.driver is not None:
            self.core.post(channel.driver.request, *self.engine.credit_limit(link))

    def _detached(self, link: Link, lost: bool, for_good: bool) -> None:
        channel, link.channel = self._channels.pop(link, None), None
        if channel is None:
            return
        channel.for_good = for_good
        if channel.driver is not None:
            returned = [tag for tag in link.unsent() if tag is not None]
            self.core.post(channel.driver.close, returned, lost, for_good)
        self.core.post(self._drivers.link_closed, channel)

    def give_up(self) -> None:
        """The connection is over: give everything back that it held. Again has no effect."""
        if self.closed:
            return
        self.closed = True
        self._admission.leave(self, self.engine.container)
        if self._counted:
            self._gate.leave(self._user)
        for link in list(self._channels):
            link.closed = link.deaf = True
            self._detached(link, lost=True, for_good=False)
        self.core.post(self._drivers.connection_closed, self)

    def shut_down(self) -> None:
        """Say goodbye to the client, once everything that was taken from it is answered."""
        if self._front is not None:
            self.give_up()
        elif not self.leaving:
            self.leaving = True
            self.core.post(self._drivers.when_answered, lambda: self.note(self._say_goodbye))

    @property
    def container(self) -> str:
        return self.engine.container

    @property
    def user(self) -> str:
        return self._user

    def expel(self, description: str, *, elsewhere: bool = False) -> None:
        self.note(self._do_expel, description, elsewhere)

    def _do_expel(self, description: str, elsewhere: bool) -> None:
        if not self.closed:
            info = self._admission.elsewhere(secure=self._secure) if elsewhere else b""
            self.engine.close("amqp:connection:forced", description, info)
            for link in self._channels:
                link.error = Error("amqp:connection:forced", description)  # for the other end of a longer one
            self.give_up()

    def _say_goodbye(self) -> None:
        if not self.closed:
            info = self._admission.elsewhere(secure=self._secure)
            self.engine.close("amqp:connection:forced", "the broker shuts down", info)

    def free(self) -> None:
        """Give the engine's memory back. After it only `do_work` is called, for what the core still notes down."""
        self.engine.free()

    # ---- from the core to the client ------------------------------------------------------------------------------

    def note(self, action: Callable[..., None], *args: Any) -> None:
        """Note work down for the worker. On the core (C9)."""
        assert self.core.is_current()
        self._work.append((action, args))
        if not self._scheduled:
            self._scheduled = True
            self._wake(self)

    def do_work(self) -> None:
        """Do what the core noted down."""
        self._scheduled = False  # before the work: what is noted from here on wakes the worker again
        work = self._work
        while work:
            action, args = work.popleft()
            action(*args)
        if self.engine.outgoing.ranked:
            self._pump_blocked()
        if self._front is None and not self.closed:
            self._digest()

    def _pump_blocked(self) -> None:
        for link in self.engine.outgoing.in_turn():
            self.pump(link)

    def pump(self, link: Link) -> None:
        """Send what waits on *link*; if its content can't be read back, that link is closed and says so."""
        try:
            if self.engine.outgoing.pump(link):
                self.request(link)
        except CairnError as error:
            about = {**self._about, "link": link.name}
            log.error("%s: link %s: %s", self.name, link.name, error, extra=about)
            self.engine.outgoing.abort(link)
            self.engine.close_link(link, "amqp:internal-error", str(error))


def _controls(link: Link) -> bool:
    return link.coordinator
