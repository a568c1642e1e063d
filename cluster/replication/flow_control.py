"""Flow control by events: while a member reports that it lags, all hold back messages of clients (rule 8, D62).

The *lag* of a member is the size of the events that it received and that are not both applied and durable: the disk is
slow, or the wiring is being written. It falls without any action of other members, so no circular wait is possible. A
member reports *off* when its lag exceeds `limit_bytes`, and *on* at a quarter of that. While any member is off, the
following holds:

* Messages of clients wait at the member that received them, and their senders get no credit.
* State transfers pause.
* All other events are sent: accepts, releases, changes of owners.

A member that leaves holds back no one. A member that is off for `STUCK_S` without progress ends its membership, if the
others are a majority without it.

A member whose disk is full is off as well, since it cannot refuse received events, and the space that is reserved for
accepts is not for them. It deletes its backups of divergent state (`divergent_state`). After `FULL_S` it ends its
membership, if the others are a majority without it. Otherwise all members hold back client messages until accepts make
room.

Events that are applied here but not durable at a majority also take memory, on all members alike. So no member reports
them: beyond the same limit each holds back its own clients' messages. State transfers continue meanwhile, since the
missing acknowledgements may be those of joining members.

So the memory of a member is bounded by the limit, by the group's window of each other member (events in flight when it
received the report), and by the rest of one long message of each. Its parts continue once the first was sent. The
member that receives client messages holds those that senders have credit for; beyond `HELD_BYTES` it does not even read
the rest of a long message.

Messages also wait here while the group's window is full: events that make room overtake them. Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..group.group_events import Configuration
from ..group.member_id import MemberId
from ..kernel import events
from ..kernel.context import MemberContext
from ..kernel.control_messages import ControlMessage
from ..kernel.inbox import ReceivedEvent
from ..kernel.local_messages import LocalEvent

LIMIT_BYTES = 8 << 20
"""The default limit. At the size where the core waits for the journal's disk, it could not report its lag."""
HELD_BYTES = 4 << 20
STUCK_S = 60.0
"""The time that all members wait for a member without progress."""
FULL_S = 5.0
"""The time that all members wait for a member whose disk is full."""


class HeldEvent(NamedTuple):
    """An event that is held back."""

    local: LocalEvent
    event: bytes | None
    """The encoded event; None for the messages of *local*, which are encoded when they are sent."""
    size_bytes: int


class FlowControl:
    """The lag of one member, the lag that others report, and the events that it holds back for it."""

    def __init__(self, context: MemberContext, room_again: Callable[[], None], limit_bytes: int = LIMIT_BYTES) -> None:
        """*room_again*: grants the credit that was withheld from clients."""
        self._context = context
        self._disk_full = context.events.disk_full
        self._room_again = room_again
        self.limit_bytes = limit_bytes
        self.lag_bytes = 0
        self.unsafe_bytes = 0
        self.is_off = False
        """True if this member reported *off*."""
        self.full = ""
        """The reason why this member cannot store events; empty if it can."""
        self.unwritten = ""
        """The reason why a change of the wiring waits for room, with all events behind it; empty if none does."""
        self.waits_for_majority = False
        self.off: set[MemberId] = set()
        """The other members that reported *off*."""
        self.held_bytes = 0
        self.offs = 0
        """The number of times that this member reported *off*."""
        self._lagging: deque[tuple[int, int]] = deque()
        """Received batches: the position of the last event of each one, and its bytes."""
        self._unsafe: deque[tuple[int, int]] = deque()
        self._held: deque[HeldEvent] = deque()
        self._held_up: list[Callable[[], None]] = []
        self._done = 0
        """The position below which all is durable here."""

    @property
    def somebody_lags(self) -> bool:
        return self.is_off or bool(self.off)

    @property
    def holds(self) -> bool:
        """Return whether messages of clients have to wait."""
        return self.is_off or self.waits_for_majority or bool(self.off)

    def begin(self) -> None:
        """Begins a new membership, without a lag of this member or of others."""
        self.nothing_lags()
        self.is_off = self.waits_for_majority = False
        self.off.clear()

    def lost(self) -> list[LocalEvent]:
        """Resets the flow control, as the group was left; returns the held events, which will never be delivered."""
        self.begin()
        held, self._held = self._held, deque()
        self.held_bytes = 0
        self._relieve()
        return [one.local for one in held]

    def multicast(self, local: LocalEvent, size_bytes: int, event: bytes | None = None) -> None:
        """Multicasts messages, or an *event* that contains some.

        They also wait if this member's disk is full, which `look` detects only at the end of the step.
        """
        if self._held or self.holds or self._context.broadcaster.unsent.is_waiting or self._context.store.full():
            self._held.append(HeldEvent(local, event, size_bytes))
            self.held_bytes += size_bytes
        else:
            self._say(local, event)

    def _say(self, local: LocalEvent, event: bytes | None) -> None:
        if event is None:
            assert local.kept is not None
            event = events.enqueue(local.names, *local.kept)
        self._context.broadcaster.send(event, local)

    def when_answered(self, action: Callable[[], None]) -> None:
        """Runs *action* when all events that were sent or held so far are safe, or never will be."""
        behind = LocalEvent(action, always=True)
        if not len(self._context.locals) and not self._context.commits.backlog and not self.held_bytes:
            action()
        elif self._held:
            self._held.append(HeldEvent(behind, events.control("nothing"), 0))
        else:
            self._context.broadcaster.send_control("nothing", behind)

    def resume(self) -> None:
        """Sends held events, as far as the group accepts them."""
        unsent, store = self._context.broadcaster.unsent, self._context.store
        while self._held and not self.holds and not unsent.is_waiting and not store.full():
            local, event, size_bytes = self._held.popleft()
            self.held_bytes -= size_bytes
            self._say(local, event)
        if self._held_up and self.held_bytes <= HELD_BYTES // 2:
            self._relieve()

    def held_up(self, then: Callable[[], None]) -> bool:
        """Returns whether a long message must wait, since too much is held here; then *then* is called at the end."""
        if self.held_bytes <= HELD_BYTES:
            return False
        self._held_up.append(then)
        return True

    def _relieve(self) -> None:
        relieved, self._held_up = self._held_up, []
        for then in relieved:
            then()

    def came(self, last: int, payloads: Sequence[bytes]) -> None:
        """Records a received batch, whose last event is at *last*."""
        size_bytes = sum(map(len, payloads))
        mark = (last, size_bytes)
        self._lagging.append(mark)
        self._unsafe.append(mark)
        self.lag_bytes += size_bytes
        self.unsafe_bytes += size_bytes

    @property
    def end(self) -> int:
        """The position behind the last received event, 0 if all are safe."""
        return self._unsafe[-1][0] + 1 if self._unsafe else 0

    def nothing_lags(self) -> None:
        """Forgets the lag: this member does not apply events now."""
        self._lagging.clear()
        self._unsafe.clear()
        self.lag_bytes = self.unsafe_bytes = 0

    def look(self, done: int, safe: int, parts_bytes: int) -> None:
        """Updates the lag at the end of a step: all below *done* is durable here, all below *safe* at a majority.

        *parts_bytes*: the size of incomplete long events.
        """
        self._done = done
        while self._lagging and self._lagging[0][0] < done:
            self.lag_bytes -= self._lagging.popleft()[1]
        while self._unsafe and self._unsafe[0][0] < safe:
            self.unsafe_bytes -= self._unsafe.popleft()[1]
        before = self.waits_for_majority
        self.waits_for_majority = self.unsafe_bytes > (self.limit_bytes // 4 if before else self.limit_bytes)
        if before and not self.waits_for_majority:
            self._on()
        full, self.full = self.full, self._context.store.full() or self.unwritten
        if self.full and not full:
            self._watch_full()
        lag_bytes = self.lag_bytes + parts_bytes
        lags = bool(self.full) or lag_bytes > (self.limit_bytes // 4 if self.is_off else self.limit_bytes)
        if self.is_off and not lags:
            self.is_off = False
            self._context.broadcaster.send_control("flow", off=False)
            self._on()
        elif lags and not self.is_off:
            self.is_off = True
            self.offs += 1
            self.say_again()
            self._watch()

    def _watch(self) -> None:
        self._context.timers.after(STUCK_S, self._look_whether_stuck, self._done, self.offs)

    def _look_whether_stuck(self, done: int, off: int) -> None:
        if not self.is_off or off != self.offs:
            return
        is_only_full = self.full and not self._lagging
        if self._done > done or is_only_full or not self._others_are_enough():
            self._watch()
        else:
            reason = f"no received event was stored for {STUCK_S:.0f} s, and all other members wait"
            self._context.fail(reason, "check the disk and the SQL database, and start this broker again")

    def _watch_full(self) -> None:
        self._disk_full()
        self._context.timers.after(FULL_S, self._look_whether_full)

    def _look_whether_full(self) -> None:
        if not self.full:
            return
        if self._others_are_enough():
            self._context.fail(f"its disk is full: {self.full}", "free some space, and start this broker again")
        else:
            self._watch_full()

    def _others_are_enough(self) -> bool:
        """Returns whether the members that do not lag are a majority, given all received events, applied or not."""
        members, off = {*self._context.state.members}, {*self.off}
        for event in self._context.inbox.events:
            if isinstance(event, Configuration):
                members = {*event.members}
            elif isinstance(event, ReceivedEvent) and event.payload[:1] == bytes((events.CONTROL,)):
                with suppress(events.BadEvent):
                    self._note_off(off, event)
        return len(members - off - {self._context.state.me}) >= self._context.commits.majority

    def _note_off(self, off: set[MemberId], received: ReceivedEvent) -> None:
        reported = events.decode(received.payload)
        if isinstance(reported, events.ControlEvent) and reported.about["what"] == "flow":
            (off.add if reported.about["off"] else off.discard)(received.sender)

    def say_again(self) -> None:
        """Multicasts the lag of this member again, for new members."""
        if self.is_off:
            self._context.broadcaster.send_control("flow", off=True)

    def received(self, message: ControlMessage) -> None:
        """Records whether *sender* lags."""
        sender, _, about = message
        if sender == self._context.state.me:
            return
        if about["off"]:
            self.off.add(sender)
        else:
            self.off.discard(sender)
            self._on()

    def left(self, config: Configuration) -> None:
        """Forgets the lag of members that left."""
        if not self.off.isdisjoint(config.left):
            self.off.difference_update(config.left)
            self._on()

    def _on(self) -> None:
        if not self.holds:
            self._room_again()
