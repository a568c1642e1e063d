"""A member on a bus: provides the guarantees of `group` on a bus that guarantees less.

Missing numbers: when a frame of sender S is missing, nothing is delivered until S sends one of these frames:

* An events frame with `received` at or beyond the missing number: S received the frame, so only this member missed it.
  This member leaves and joins as new.
* A lost frame: S missed the frame, too, and leaves. The others continue without the later frames of S.

A sender repeats its last number after QUIET_S without events, so that this is detected soon, also for the very last
frame; and after each configuration, so that members with another one detect it. If S leaves before it sent either, this
member leaves, because it cannot know which frames the others received.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ...base.clock import Clock
from .bus import Bus, BusAddress, BusChange, BusDied, BusEvent, BusMessage
from .config_check import REMEDY
from .frame import (
    BadFrame,
    EventsFrame,
    ExpulsionFrame,
    Frame,
    HelloFrame,
    LostFrame,
    OtherVersion,
    RefusalFrame,
    Seat,
    WelcomeFrame,
    decode,
)
from .group import HEARTBEAT_S, MAX_PAYLOAD_BYTES, WINDOW_BYTES, GroupError
from .group_events import Event, EventBatch, GroupFailed, Quorum
from .member_id import MemberId
from .membership import GroupMembership
from .send_queue import Outbox

QUIET_S = 0.25
"""The time without events after which a sender repeats its last number."""
ANSWER_S = 8 * QUIET_S
"""The time limit for a sender to report which members missed one of its frames."""
RETRY_S = 0.005
"""The retry interval after the bus returned "try again", which no event ends."""
HELLO_S = 1.0
"""The time after which an unanswered hello is repeated; it doubles with each repetition."""
MAX_HELLO_S = 16.0
KEPT_BYTES = 64 << 20
"""Bytes of frames kept while waiting for a welcome or a missing number; beyond this limit the member joins as new."""
STEP_EVENTS = 256
"""The approximate number of events of the bus per step."""


def random_incarnation() -> int:
    """Returns 63 random bits, never zero."""
    return int.from_bytes(os.urandom(8), "little") >> 1 | 1


class GroupMember:
    """A `Group` on a `Bus`."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        new_incarnation: Callable[[], int] = random_incarnation,
        window_bytes: int = WINDOW_BYTES,
        quiet_s: float = QUIET_S,
        hello_s: float = HELLO_S,
        agreed: str = "",
    ) -> None:
        """*agreed*: the configuration that all members must share (`config_check`)."""
        self._bus = bus
        self._clock = clock
        self._quiet_s = quiet_s
        self._first_hello_s = self._hello_s = hello_s
        self._outbox = Outbox(bus, window_bytes)
        self._membership = GroupMembership(BusAddress(0, 0), 0, new_incarnation, agreed)
        """The membership, whose address and size of the cluster are known after `join`."""
        self._has_joined = False
        self._kept: list[BusMessage] | None = None
        """The frames that were received since the hello of this member."""
        self._kept_bytes = 0
        self._held: list[BusEvent] | None = None
        self._held_bytes = 0
        self._held_until: float | None = None
        self._missing: tuple[BusAddress, int] | None = None
        """The sender and the number of the missing frame, for which events are held."""
        self._leaving = False
        self._reported: str | None = None
        """The reason for which the membership ended."""
        self._more = False
        self._blocked = False
        self._hello_at: float | None = None
        self._quiet_at: float | None = None
        self._heartbeat_at: float | None = None
        self._signs: set[MemberId] = set()
        self.dropped = 0
        """Frames of processes that were not members, and invalid frames."""
        self.rejoined = 0
        """The number of times that this member left on its own and joined as new."""

    # ---- the interface of a group -----------------------------------------------------------------------------------

    @property
    def me(self) -> MemberId | None:
        return self._membership.id

    @property
    def in_flight_bytes(self) -> int:
        return self._outbox.in_flight_bytes

    def join(self, name: str) -> None:
        if self._has_joined:
            raise GroupError(f"cluster group {name}", "it was already joined", "make a new one")
        self._bus.join(name)
        self._has_joined = True
        self._membership.me, self._membership.configured = self._bus.address, self._bus.configured

    def close(self) -> None:
        self._reported = self._reported or "closed"
        self._outbox.begin(0)
        self._bus.close()

    def multicast(self, payload: bytes) -> bool:
        if len(payload) > MAX_PAYLOAD_BYTES:
            reason = f"an event of {len(payload)} bytes exceeds the limit of {MAX_PAYLOAD_BYTES}"
            raise GroupError("cluster group", reason)
        if not self._outbox.incarnation or self._leaving:
            return False
        return self._outbox.enqueue(payload)

    def flush(self) -> None:
        if self._reported is not None:
            return
        outbox = self._outbox
        self._blocked = outbox.flush()
        if self._quiet_at is None and outbox.received < outbox.last_seq:  # the frame and its repetition may be lost
            self._quiet_at = self._clock.monotonic_s() + self._quiet_s

    def nodes(self) -> tuple[int, ...]:
        return self._bus.nodes

    def take_signs(self) -> set[MemberId]:
        signs, self._signs = self._signs, set()
        return signs

    def expel(self, member: MemberId) -> None:
        seat = self._membership.seats.get(BusAddress(*member[:2]))
        if seat is None or seat.member != member or not self._outbox.incarnation or self._leaving:
            return
        self._outbox.say(ExpulsionFrame(self._outbox.incarnation, member, seat.next_seq))

    def force(self) -> None:
        self._membership.force()

    def fileno(self) -> int:
        return self._bus.fileno()

    def wait_s(self) -> float | None:
        if self._reported is not None:
            return None
        if self._more or not (self._blocked or self._outbox.idle):
            return 0.0
        if self._blocked:  # due frames are sent behind the waiting ones
            waits = [RETRY_S]
        else:
            now = self._clock.monotonic_s()
            timers = (self._hello_at, self._quiet_at, self._heartbeat_at) if self._held is None else (self._held_until,)
            waits = [at - now for at in timers if at is not None]
        bus_s = self._bus.wait_s()
        if bus_s is not None:
            waits.append(bus_s)
        return max(0.0, min(waits)) if waits else None

    def step(self) -> list[Event]:
        if self._reported is not None or not self._has_joined:
            return []
        events: list[Event] = []
        self.flush()
        taken = 0
        for each in self._bus.poll(STEP_EVENTS):
            taken += 1
            self._take(each, events)
            if self._reported is not None:
                return events
        self._more = taken >= STEP_EVENTS
        if not self._more:
            self._timers(events)
        self.flush()
        if self._leaving and not self._blocked:
            self._rejoin()
        return events

    # ---- events of the bus ------------------------------------------------------------------------------------------

    def _take(self, event: BusEvent, events: list[Event]) -> None:
        if isinstance(event, Quorum):
            events.append(event)
        elif isinstance(event, BusDied):
            self._die(event.reason, events)
        elif self._leaving:
            pass  # events that arrive while this member leaves are ignored
        elif self._held is not None:
            self._hold(event, events)
        elif isinstance(event, BusChange):
            self._changed(event, events)
        else:
            self._received(event, events)

    def _changed(self, change: BusChange, events: list[Event]) -> None:
        membership = self._membership
        self._kept = None
        self._hello_s = self._first_hello_s
        before = membership.id
        events += membership.changed(change)
        self._after(before)

    def _received(self, message: BusMessage, events: list[Event]) -> None:
        membership = self._membership
        try:
            frame = decode(message.frame)
        except OtherVersion as error:
            self.dropped += 1
            self._received_foreign(message.sender, error, events)
            return
        except BadFrame:
            self.dropped += 1
            return
        if self._kept is not None and not isinstance(frame, WelcomeFrame):
            self._keep(message, self._kept)
        if isinstance(frame, EventsFrame):
            if membership.seats:
                self._received_events(message, frame, events)
        else:
            self._received_about_group(message, frame, events)

    def _received_events(self, message: BusMessage, frame: EventsFrame, events: list[Event]) -> None:
        membership = self._membership
        seat = membership.seats.get(message.sender)
        if seat is None or seat.member.incarnation != frame.incarnation or not seat.next_seq:
            self.dropped += 1
            return
        self._signs.add(seat.member)
        if frame.state != membership.state and membership.disagrees(message.sender, frame):
            self._leave_by_itself(events)
            return
        repeats = not frame.payloads
        if frame.seq != seat.next_seq - repeats:
            if frame.seq >= seat.next_seq:
                self._missed(seat, message, events)
            else:
                self.dropped += 1
            return
        mine = message.sender == membership.me
        if mine:
            self._outbox.came_back(frame.seq)
            if not repeats:
                self._quiet_at = self._clock.monotonic_s() + self._quiet_s
        if repeats:
            return
        seat.next_seq += 1
        events.append(EventBatch(seat.member, membership.position, frame.payloads, frame.seq))
        membership.position += len(frame.payloads)

    def _received_foreign(self, sender: BusAddress, error: OtherVersion, events: list[Event]) -> None:
        """Repeats this member's state, so that the sender of an unreadable frame learns how many cannot read it."""
        membership = self._membership
        reported = membership.refuse(sender, error.reason)
        events += reported
        if reason := membership.foreign(sender, error.version):
            self._die(reason, events, "install the same version of CairnMQ on all members")
        elif reported and membership.seats:
            self._quiet_at = self._clock.monotonic_s() + self._quiet_s

    def _received_about_group(self, message: BusMessage, frame: Frame, events: list[Event]) -> None:
        membership = self._membership
        before = membership.id
        if isinstance(frame, HelloFrame):
            events += membership.received_hello(message.sender, frame)
            if membership.replaced:
                self._die("another process of this node joined the group in its place", events)
                return
        elif isinstance(frame, WelcomeFrame):
            events += membership.received_welcome(frame)
        elif isinstance(frame, LostFrame):
            self._received_lost(message.sender, frame, events)
        elif isinstance(frame, ExpulsionFrame):
            events += membership.received_expulsion(message.sender, frame)
        elif isinstance(frame, RefusalFrame) and (reason := membership.refused_by(frame)):
            self._die(f"the cluster refused this broker: {reason}", events, REMEDY)
            return
        kept, self._kept = self._kept, self._kept if membership.waits else None
        if membership.waits and kept is None:
            self._kept, self._kept_bytes = [], 0
        self._after(before)
        if isinstance(frame, WelcomeFrame) and membership.id != before:
            for each in kept or ():
                self._take(each, events)

    def _received_lost(self, sender: BusAddress, frame: LostFrame, events: list[Event]) -> None:
        seat = self._membership.seats.get(sender)
        if seat is None or seat.member.incarnation != frame.incarnation:
            self.dropped += 1
        elif seat.next_seq > frame.seq:  # this member received it: the others may continue without it
            self._leave_by_itself(events)
        else:
            seat.next_seq = 0

    # ---- missing numbers --------------------------------------------------------------------------------------------

    def _missed(self, seat: Seat, message: BusMessage, events: list[Event]) -> None:
        if message.sender == self._membership.me:
            self._leave_by_itself(events)
            self._outbox.say(LostFrame(seat.member.incarnation, seat.next_seq))
            return
        self._missing = (message.sender, seat.next_seq)
        self._held, self._held_bytes = [], 0
        self._held_until = self._clock.monotonic_s() + ANSWER_S
        self._hold(message, events)

    def _hold(self, event: BusMessage | BusChange, events: list[Event]) -> None:
        """Holds an event until the sender of the missing frame reports which members missed it."""
        assert self._held is not None
        assert self._missing is not None
        sender, missing = self._missing
        self._held.append(event)
        if isinstance(event, BusChange):
            if sender in event.left or self._membership.me in event.left:
                self._leave_by_itself(events)
            return
        self._held_bytes += len(event.frame)
        if self._held_bytes > KEPT_BYTES:
            self._leave_by_itself(events)
        if event.sender != sender:
            return
        try:
            frame = decode(event.frame)
        except BadFrame:
            return
        if frame.incarnation != self._membership.seats[sender].member.incarnation:
            return
        if isinstance(frame, EventsFrame) and frame.received >= missing:
            self._leave_by_itself(events)
        elif isinstance(frame, LostFrame):
            held, self._held, self._missing, self._held_until = self._held, None, None, None
            self._membership.seats[sender].next_seq = 0
            for each in held:
                self._take(each, events)

    def _leave_by_itself(self, events: list[Event]) -> None:
        """Leaves at once; joins the bus again as soon as the queued frames are sent."""
        membership = self._membership
        self._held = self._missing = self._kept = self._held_until = None
        events += membership.leave()
        membership.wants_hello = False
        self._leaving = True
        self._outbox.begin(0)

    def _rejoin(self) -> None:
        self._leaving = False
        self.rejoined += 1
        self._outbox.begin(0)
        self._hello_at = self._quiet_at = self._heartbeat_at = None
        self._membership.changed(BusChange(self._membership.ring, frozenset(), frozenset(), frozenset()))
        self._bus.rejoin()

    # ---- common ---------------------------------------------------------------------------------------------------

    def _keep(self, message: BusMessage, kept: list[BusMessage]) -> None:
        kept.append(message)
        self._kept_bytes += len(message.frame)
        if self._kept_bytes > KEPT_BYTES:  # as if the welcome had not arrived
            self._kept = None
            self._membership.waits = False
            self._membership.wants_hello = True

    def _after(self, before: MemberId | None) -> None:
        """Updates the outbox and the timers after an event about the group."""
        membership = self._membership
        me = membership.id
        if me != before:
            self._outbox.begin(me.incarnation if me else 0)
            self._hello_at = None
            self._hello_s = self._first_hello_s
            self._heartbeat_at = self._clock.monotonic_s() + HEARTBEAT_S
        if me is None:
            self._quiet_at = self._heartbeat_at = None
        elif membership.state != self._outbox.state:
            self._outbox.view, self._outbox.state = membership.view, membership.state
            self._quiet_at = self._clock.monotonic_s() + self._quiet_s
        for welcome in membership.to_say:
            self._outbox.say(welcome)
        membership.to_say.clear()

    def _timers(self, events: list[Event]) -> None:
        """Acts on timers, only when no event waits to be received: an outdated hello would be void or harmful."""
        membership, now = self._membership, self._clock.monotonic_s()
        if self._held_until is not None and now >= self._held_until:
            self._leave_by_itself(events)
        if self._leaving or self._held is not None:
            return
        if self._hello_at is not None and now >= self._hello_at:
            self._hello_s = min(2 * self._hello_s, MAX_HELLO_S)
            membership.wants_hello = True
        if membership.wants_hello:
            self._kept = None
            self._outbox.say(membership.hello())
            self._hello_at = now + self._hello_s
        if self._quiet_at is not None and now >= self._quiet_at and self._outbox.idle:
            self._quiet_at = None
            self._outbox.say_where()
        if self._heartbeat_at is not None and now >= self._heartbeat_at and self._outbox.idle:
            self._heartbeat_at = now + HEARTBEAT_S
            self._outbox.say_where()

    def _die(self, reason: str, events: list[Event], remedy: str = "") -> None:
        self._reported = reason
        self._outbox.begin(0)
        events.append(GroupFailed(reason, remedy))
