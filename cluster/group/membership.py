"""The membership of the group: a deterministic function of the deliveries of the bus.

Members that receive the same deliveries compute the same membership. A process on the bus is either a *member* or
*fresh*. A fresh process sends one hello for each change of the bus:

* A hello that a group receives admits its sender at that position. All members send a welcome, which gives the joining
  process the state of the group at that position. It kept the frames since its hello, and continues with them.
* A majority of hellos without a change of the bus between them founds a group. The members of a group are a majority
  and send no hellos, so no other group exists then.

A group that loses its majority ends for all of its members: they are fresh again. A hello names the ring and the
members that its sender knew, and is void if these differ, so late frames of a suspended process have no effect. A
process that never sends a hello, because it left without notice or hangs, blocks no other process.

All of this holds while all members receive the same frames. A divergence is detected soon: each events frame carries
the hash of the history of its configuration, and a member that finds that most of the others have another hash has
diverged.

A node has one member: a newer process replaces the older one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from dataclasses import replace

from .bus import BusAddress, BusChange, RingId
from .config_check import difference
from .frame import (
    MAX_MEMBERS,
    VERSION,
    EventsFrame,
    ExpulsionFrame,
    HelloFrame,
    RefusalFrame,
    Seat,
    WelcomeFrame,
    digest,
    next_state,
)
from .group_events import Configuration, Event, MemberRefused
from .member_id import MemberId

KEPT_STATES = 100
"""The number of past configurations that are kept; a frame sent in an older one counts as divergent."""


class GroupMembership:
    """The state machine of one process. It sends nothing: `to_say` and `wants_hello` name the frames to send."""

    def __init__(self, me: BusAddress, configured: int, new_incarnation: Callable[[], int], agreed: str = "") -> None:
        """*agreed*: the configuration that all members must share."""
        self.me = me
        self.configured = configured
        self.agreed = agreed
        self.new_incarnation = new_incarnation
        self.ring = RingId(0, 0)
        self.present: frozenset[BusAddress] = frozenset()
        """All processes on the bus."""
        self.seats: dict[BusAddress, Seat] = {}
        """The members of the group, ordered by node; empty outside of the group."""
        self.view = 0
        self.state = 0
        self.position = 0
        self.forced = False
        self.wants_hello = False
        self.to_say: list[WelcomeFrame | RefusalFrame] = []
        self.waits = False
        """True if the hello of this process founded no group: an existing one admits it, and a welcome follows."""
        self.replaced = False
        """True if another process of this node replaced this member."""
        self._past: set[tuple[int, int]] = set()
        """The configurations since this member was admitted."""
        self._came_in = 0
        """The view of the first of them."""
        self._strange: set[BusAddress] = set()
        """The members that sent a frame in a configuration that this member does not know."""
        self._digest = 0
        self._said = 0
        self._force = False
        self._tally: dict[int, tuple[BusAddress, HelloFrame]] = {}
        """The hellos since the last change of the bus, by node."""
        self._refused: set[BusAddress] = set()
        self._foreign: dict[int, int] = {}
        """The nodes that use another version of the frames, with that version."""

    @property
    def id(self) -> MemberId | None:
        seat = self.seats.get(self.me)
        return seat.member if seat else None

    def hello(self) -> HelloFrame:
        """Returns the hello to send now. Each has a new incarnation, so a welcome to an earlier one is void."""
        self.wants_hello = self.waits = False
        self._said = self.new_incarnation()
        return HelloFrame(self._said, self.ring, self._digest, self.view, self.configured, self._force, self.agreed)

    def force(self) -> None:
        self._force = True
        self.wants_hello = not self.seats

    def changed(self, change: BusChange) -> list[Event]:
        """Applies a change of the processes on the bus."""
        self.ring, self.present = change.ring, change.members
        self._digest = digest(change.members)
        self._tally.clear()
        self._refused &= change.members
        self._foreign.clear()
        self.waits = False
        found: list[Event] = []
        if self.seats:
            removed = [at for at in self.seats if at in change.left or at not in change.members]
            if removed:
                left = [self.seats.pop(at).member for at in removed]
                found.append(self._configuration(left=left))
                if self.me in removed or not self._enough():
                    self._dissolve()
        if not self.seats:
            self._said = 0
            self.wants_hello = self.me in change.members
        return found

    def received_hello(self, sender: BusAddress, hello: HelloFrame) -> list[Event]:
        if hello.ring != self.ring or hello.digest != self._digest or sender not in self.present:
            return []
        if hello.configured != self.configured:
            reason = f"it is configured for {hello.configured} members, node {self.me.node} for {self.configured}"
            return self._refuse_hello(sender, hello, reason)
        if differs := difference(hello.agreed, self.agreed, self.me.node):
            return self._refuse_hello(sender, hello, differs)
        self._tally[sender.node] = (sender, hello)
        if self._majority(self._tally):
            return self._found(forced=False)
        all_fresh = self._tally.keys() == {at.node for at in self.present}
        if all_fresh and any(each.forced for _, each in self._tally.values()):
            return self._found(forced=True)
        if self.seats:
            return self._let_in(sender, hello)
        if sender == self.me and hello.incarnation == self._said:
            self.waits = True
        return []

    def received_welcome(self, welcome: WelcomeFrame) -> list[Event]:
        """Enters the group if *welcome* is for this process. The caller then replays the frames since its hello."""
        target = BusAddress(*welcome.target[:2])
        address, hello = self._tally.get(target.node, (None, None))
        if hello and (address, hello.incarnation) == (target, welcome.target.incarnation):
            del self._tally[target.node]  # it is a member, and founds nothing
        entries = {BusAddress(*entry.member[:2]): entry for entry in welcome.entries}
        if (
            not self.waits
            or welcome.target != (*self.me, self._said)
            or self.me not in entries
            or entries[self.me].member != welcome.target
        ):
            return []
        self.waits = self.wants_hello = False
        self.seats = dict(sorted(entries.items()))
        self.view, self.position, self.forced = welcome.view, welcome.position, welcome.forced
        self._begin(welcome.state)
        return [self._now(joined=(welcome.target,))]

    def refused_by(self, refusal: RefusalFrame) -> str:
        """Return the reason if a group refuses this member; empty if *refusal* is for another one."""
        is_mine = not self.seats and refusal.target == (*self.me, self._said)
        return refusal.reason if is_mine else ""

    def foreign(self, sender: BusAddress, version: int) -> str:
        """Returns why this process cannot become a member, if most nodes use that other version; else empty."""
        self._foreign[sender.node] = version
        others = sorted(node for node, spoken in self._foreign.items() if spoken == version)
        if self.seats or not self._majority(others):
            return ""
        nodes = ", ".join(map(str, others))
        return f"nodes {nodes} use version {version} of the group's frames; this one uses version {VERSION}"

    def disagrees(self, sender: BusAddress, frame: EventsFrame) -> bool:
        """Return whether at least half of the group differs from this member, given *frame* from member *sender*."""
        if frame.state == self.state or frame.view < self._came_in or (frame.view, frame.state) in self._past:
            return False
        self._strange = {at for at in self._strange if at in self.seats} | {sender}
        return 2 * len(self._strange) >= len(self.seats)

    def leave(self) -> list[Event]:
        """Leaves at once; the bus reports it to the others."""
        if not self.seats:
            return []
        me = self.seats.pop(self.me).member
        event = self._configuration(left=[me], primary=False)
        self._dissolve()
        return [event]

    def received_expulsion(self, sender: BusAddress, expulsion: ExpulsionFrame) -> list[Event]:
        """Removes a silent member, if it sent nothing that *sender* did not receive, and the rest is a majority."""
        accuser, target = self.seats.get(sender), BusAddress(*expulsion.target[:2])
        seat = self.seats.get(target)
        if (
            accuser is None
            or accuser.member.incarnation != expulsion.incarnation
            or not accuser.next_seq
            or seat is None
            or seat.member != expulsion.target
            or seat.next_seq != expulsion.next_seq
            or 2 * (len(self.seats) - 1) <= self.configured
        ):
            return []
        member = self.seats.pop(target).member
        if target != self.me:
            return [self._configuration(left=[member], expelled=member)]
        event = self._configuration(left=[member], primary=False, expelled=member)
        self._dissolve()
        return [event]

    def _refuse_hello(self, sender: BusAddress, hello: HelloFrame, reason: str) -> list[Event]:
        """Refuses a hello. Its sender is notified only if a group exists; without one, either side may be wrong."""
        if self.seats:
            me = self.seats[self.me].member
            self.to_say.append(RefusalFrame(me.incarnation, MemberId(*sender, hello.incarnation), reason))
        return self.refuse(sender, reason)

    def refuse(self, sender: BusAddress, reason: str) -> list[Event]:
        """Returns the refusal of *sender*, once until it leaves the bus."""
        if sender in self._refused:
            return []
        self._refused.add(sender)
        return [MemberRefused(sender.node, sender.pid, reason)]

    def _begin(self, state: int) -> None:
        self.state, self._came_in = state, self.view
        self._past = {(self.view, state)}
        self._strange.clear()

    def _majority(self, some: Sized) -> bool:
        return 2 * len(some) > self.configured

    def _enough(self) -> bool:
        return bool(self.seats) and (self.forced or self._majority(self.seats))

    def _dissolve(self) -> None:
        self.seats = {}
        self.forced = False
        self.wants_hello = True

    def _found(self, forced: bool) -> list[Event]:
        """Founds a group with exactly the senders of the tallied hellos."""
        founders = sorted((address, MemberId(*address, hello.incarnation)) for address, hello in self._tally.values())
        view = max(hello.view for _, hello in self._tally.values()) + 1
        self._tally.clear()
        mine = (self.me, MemberId(*self.me, self._said)) in founders
        found: list[Event] = []
        if self.seats:  # only if two processes of a node alternate
            found += self.leave()
        if not mine:
            self.waits = False  # a hello of this process that is in flight reaches the founded group
            return found
        self.seats = {address: Seat(member) for address, member in founders}
        self.view, self.position, self.forced = view, 0, forced
        self._begin(next_state(0, view, 0, (member for _, member in founders)))
        self.waits = self.wants_hello = self._force = False
        members = tuple(member for _, member in founders)
        return [*found, self._now(joined=members, founded=True)]

    def _let_in(self, sender: BusAddress, hello: HelloFrame) -> list[Event]:
        old = [at for at in self.seats if at.node == sender.node]
        if old and self.seats[old[0]].member == (*sender, hello.incarnation):
            return []
        if len(self.seats) - len(old) >= MAX_MEMBERS:
            return self.refuse(sender, f"the group already has {MAX_MEMBERS} members")
        if self.me in old:  # another process of this node, or a hello of this process that is later than its welcome
            self.replaced = sender != self.me
            found = self.leave()
            self.wants_hello = False
            self.waits = sender == self.me and hello.incarnation == self._said
            return found
        left = [self.seats.pop(at).member for at in old]
        member = MemberId(*sender, hello.incarnation)
        self.seats[sender] = Seat(member)
        self.seats = dict(sorted(self.seats.items()))
        self.view = max(self.view, hello.view)  # so that it also rises for the joining process
        event = self._configuration(joined=[member], left=left)
        entries = tuple(map(replace, self.seats.values()))
        me = self.seats[self.me].member
        self.to_say.append(
            WelcomeFrame(me.incarnation, member, self.view, self.state, self.position, self.forced, entries)
        )
        return [event]

    def _configuration(
        self,
        joined: Iterable[MemberId] = (),
        left: Iterable[MemberId] = (),
        primary: bool = True,
        expelled: MemberId | None = None,
    ) -> Configuration:
        self.view += 1
        if self._majority(self.seats):
            self.forced = False  # the majority rule applies again
        self.state = next_state(self.state, self.view, self.position, (seat.member for seat in self.seats.values()))
        if len(self._past) > 2 * KEPT_STATES:
            self._past = {each for each in self._past if each[0] > self.view - KEPT_STATES}
        self._past.add((self.view, self.state))
        return self._now(tuple(joined), tuple(left), primary, expelled=expelled)

    def _now(
        self, joined: tuple[MemberId, ...] = (), left: tuple[MemberId, ...] = (), primary: bool = True,
        founded: bool = False, expelled: MemberId | None = None,
    ) -> Configuration:  # fmt: skip
        members = tuple(seat.member for seat in self.seats.values())
        primary = primary and self.me in self.seats and self._enough()
        return Configuration(self.view, members, joined, left, primary, founded, self.position, expelled)
