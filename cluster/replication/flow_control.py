"""Flow control by events: while a member reports that it lags, all hold back messages of clients (rule 8, D62).

*Lag* is what a member has heard and does not have done and on its disk: that is slow, or the wiring is being written.
It falls by itself, whatever others do, so nobody waits in a circle. Beyond `limit_bytes` a member says *off*, at a
quarter of that *on*. While anybody is off, messages of clients wait where they came in, their senders get no credit,
and nothing is brought to newcomers. Everything else is said: accepts, releases, owners. Whoever leaves holds nobody
any more; and whoever is off for `STUCK_S` and gets nothing done meanwhile ends, if the others are enough without it.

A member whose disk is full is off as well, since it can't refuse what it hears, and the room that is kept for accepts
is not for that. What was set aside goes (`losers`). After `FULL_S` it ends, if the others are enough without it: they
go on. If not, all hold what clients send until there is room, and accepts make it.

What is done here and not on a majority's disks takes memory, too, on all members alike. So nobody says that: beyond the
same limit each holds its own clients' messages. Newcomers are brought what they need meanwhile, as it may be they whose
acknowledgements are missing.

So each member has to keep: the limit; what the others had under way when they heard of it, a window of the group each;
and of each the rest of one long message, whose parts go on once the first was said. Where they come in: what senders
have credit for, and beyond `HELD_BYTES` not even the rest of a long message is read.

Messages also wait here while the group's window is full: what makes room passes them by. Core only.
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
"""Less than what the journal takes before the core has to wait for the disk: then nobody could say so."""
HELD_BYTES = 4 << 20
STUCK_S = 60.0
"""So long all wait for a member that gets nothing done."""
FULL_S = 5.0
"""And for one whose disk is full."""


class HeldEvent(NamedTuple):
    """An event that is held back."""

    local: LocalEvent
    event: bytes | None
    """None for messages that *local* has, and that are encoded when they are said."""
    size_bytes: int


class FlowControl:
    """The lag of one member, the lag that others report, and the events that it holds back for it."""

    def __init__(self, context: MemberContext, room_again: Callable[[], None], limit_bytes: int = LIMIT_BYTES) -> None:
        """*room_again*: grants the credit that was withheld from clients."""
        self._state = context.state
        self._store = context.store
        self._timers = context.timers
        self._broadcaster = context.broadcaster
        self._commits = context.commits
        self._inbox = context.inbox
        self._fail = context.fail
        self._disk_full = context.events.disk_full
        self._room_again = room_again
        self.limit_bytes = limit_bytes
        self.lag_bytes = 0
        self.unsafe_bytes = 0
        self.is_off = False
        """This member said so."""
        self.full = ""
        """Why this member can store nothing more, if it can't."""
        self.unwritten = ""
        """The same of a change of the wiring that waits for room, and all that is heard behind it."""
        self.waits_for_majority = False
        self.off: set[MemberId] = set()
        """Others that did."""
        self.held_bytes = 0
        self.offs = 0
        """How often this member was off."""
        self._lagging: deque[tuple[int, int]] = deque()
        """Received batches: the position of the last event of each one, and its bytes."""
        self._unsafe: deque[tuple[int, int]] = deque()
        self._held: deque[HeldEvent] = deque()
        self._held_up: list[Callable[[], None]] = []
        self._done = 0
        """What is below it is on the disk here."""

    @property
    def somebody_lags(self) -> bool:
        return self.is_off or bool(self.off)

    @property
    def holds(self) -> bool:
        """Return whether messages of clients have to wait."""
        return self.is_off or self.waits_for_majority or bool(self.off)

    def begin(self) -> None:
        """A new membership: whatever was heard before counts for nobody."""
        self.nothing_lags()
        self.is_off = self.waits_for_majority = False
        self.off.clear()

    def lost(self) -> list[LocalEvent]:
        """There is no group: what was held back, which nobody will ever hear."""
        self.begin()
        held, self._held = self._held, deque()
        self.held_bytes = 0
        self._relieve()
        return [one.local for one in held]

    # ---- what clients send ----------------------------------------------------------------------------------------

    def multicast(self, local: LocalEvent, size_bytes: int, event: bytes | None = None) -> None:
        """Messages, or an *event* with some.

        They wait if this member's disk is full as well: `look` notices that at the end of the step only.
        """
        if self._held or self.holds or self._broadcaster.is_waiting or self._store.full():
            self._held.append(HeldEvent(local, event, size_bytes))
            self.held_bytes += size_bytes
        else:
            self._say(local, event)

    def _say(self, local: LocalEvent, event: bytes | None) -> None:
        if event is None:
            assert local.kept is not None
            event = events.enqueue(local.names, *local.kept)
        self._broadcaster.send(event, local)

    def multicast_behind(self, local: LocalEvent) -> bool:
        """A word behind all that is held back; whether anything is."""
        if self._held:
            self._held.append(HeldEvent(local, events.control("nothing"), 0))
        return bool(self._held)

    def resume(self) -> None:
        """Say what was held back, as far as the group takes it now."""
        while self._held and not self.holds and not self._broadcaster.is_waiting and not self._store.full():
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

    # ---- lag ------------------------------------------------------------------------------------------------------

    def came(self, last: int, payloads: Sequence[bytes]) -> None:
        """A batch was heard; its last event is at *last*."""
        size_bytes = sum(map(len, payloads))
        mark = (last, size_bytes)
        self._lagging.append(mark)
        self._unsafe.append(mark)
        self.lag_bytes += size_bytes
        self.unsafe_bytes += size_bytes

    @property
    def end(self) -> int:
        """Behind all that was heard and is not done."""
        return self._unsafe[-1][0] + 1 if self._unsafe else 0

    def nothing_lags(self) -> None:
        """Forgets the lag: this member does not apply events now."""
        self._lagging.clear()
        self._unsafe.clear()
        self.lag_bytes = self.unsafe_bytes = 0

    def look(self, done: int, safe: int, parts_bytes: int) -> None:
        """The end of a step: what is below *done* is on the disk here, and what is below *safe* of a majority.

        *parts_bytes*: of long events that still come.
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
        full, self.full = self.full, self._store.full() or self.unwritten
        if self.full and not full:
            self._watch_full()
        lag_bytes = self.lag_bytes + parts_bytes
        lags = bool(self.full) or lag_bytes > (self.limit_bytes // 4 if self.is_off else self.limit_bytes)
        if self.is_off and not lags:
            self.is_off = False
            self._broadcaster.send(events.control("flow", off=False))
            self._on()
        elif lags and not self.is_off:
            self.is_off = True
            self.offs += 1
            self.say_again()
            self._watch()

    def _watch(self) -> None:
        self._timers.after(STUCK_S, self._look_whether_stuck, self._done, self.offs)

    def _look_whether_stuck(self, done: int, off: int) -> None:
        if not self.is_off or off != self.offs:
            return
        is_only_full = self.full and not self._lagging
        if self._done > done or is_only_full or not self._others_are_enough():
            self._watch()
        else:
            why = f"no received event was stored for {STUCK_S:.0f} s, and all other members wait"
            self._fail(why, "check the disk and the SQL database, and start this broker again")

    def _watch_full(self) -> None:
        self._disk_full()
        self._timers.after(FULL_S, self._look_whether_full)

    def _look_whether_full(self) -> None:
        if not self.full:
            return
        if self._others_are_enough():
            self._fail(f"its disk is full: {self.full}", "free some space, and start this broker again")
        else:
            self._watch_full()

    def _others_are_enough(self) -> bool:
        """Returns whether the members that do not lag are a majority, by all that came, applied or not."""
        members, off = {*self._state.members}, {*self.off}
        for event in self._inbox.events:
            if isinstance(event, Configuration):
                members = {*event.members}
            elif isinstance(event, ReceivedEvent) and event.payload[:1] == bytes((events.CONTROL,)):
                with suppress(events.BadEvent):
                    self._note_off(off, event)
        return len(members - off - {self._state.me}) >= self._commits.majority

    def _note_off(self, off: set[MemberId], heard: ReceivedEvent) -> None:
        told = events.decode(heard.payload)
        if isinstance(told, events.ControlEvent) and told.about["what"] == "flow":
            (off.add if told.about["off"] else off.discard)(heard.sender)

    def say_again(self) -> None:
        """Multicasts the lag of this member again, for new members."""
        if self.is_off:
            self._broadcaster.send(events.control("flow", off=True))

    def heard(self, message: ControlMessage) -> None:
        """Notes whether *sender* lags."""
        sender, _, about = message
        if sender == self._state.me:
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
