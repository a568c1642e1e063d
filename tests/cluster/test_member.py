"""Tests of one group member on a scripted bus, with void, unexpected, late and invalid frames."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.cluster.group.bus import BusAddress, BusChange, BusEvent, BusMessage, RingId
from cairnmq.cluster.group.frame import (
    VERSION,
    EventsFrame,
    Frame,
    HelloFrame,
    LostFrame,
    RefusalFrame,
    Seat,
    WelcomeFrame,
    decode,
    digest,
    encode,
)
from cairnmq.cluster.group.group import BATCH_BYTES, HEARTBEAT_S
from cairnmq.cluster.group.group_events import Configuration, Event, EventBatch, GroupFailed, MemberRefused
from cairnmq.cluster.group.member import HELLO_S, KEPT_BYTES, QUIET_S, RETRY_S, GroupMember
from cairnmq.cluster.group.member_id import MemberId

ME, TWO, THREE = BusAddress(1, 11), BusAddress(2, 22), BusAddress(3, 33)
ALL = frozenset((ME, TWO, THREE))
RING, LATER = RingId(1, 4), RingId(1, 8)
NONE: frozenset[BusAddress] = frozenset()


class ScriptedBus:
    def __init__(self) -> None:
        self.address = ME
        self.configured = 3
        self.nodes = (1, 2, 3)
        self.inbox: list[BusEvent] = []
        self.sent: list[Frame] = []
        self.rejoined = 0
        self.refuse = 0
        """The number of frames that `send` refuses from now on."""

    def join(self, name: str) -> None:
        pass

    def rejoin(self) -> None:
        self.rejoined += 1

    def send(self, frame: bytes) -> bool:
        if self.refuse:
            self.refuse -= 1
            return False
        self.sent.append(decode(frame))
        return True

    def poll(self, limit: int) -> Iterable[BusEvent]:
        inbox, self.inbox = self.inbox, []
        return inbox

    def fileno(self) -> int:
        raise NotImplementedError

    def wait_s(self) -> float | None:
        return None

    def close(self) -> None:
        pass


class Script:
    """A member on node 1, and a script of the events that it receives."""

    def __init__(self) -> None:
        self.bus = ScriptedBus()
        self.clock = ManualClock()
        self.member = GroupMember(self.bus, self.clock)
        self.member.join("test")

    def hear(self, sender: BusAddress, *frames: Frame | bytes) -> list[Event]:
        some = [each if isinstance(each, bytes) else encode(each) for each in frames]
        return self.tell(*(BusMessage(sender, each) for each in some))

    def tell(self, *events: BusEvent) -> list[Event]:
        self.bus.inbox += events
        return self.member.step()

    def hello(self) -> HelloFrame:
        return next(frame for frame in reversed(self.bus.sent) if isinstance(frame, HelloFrame))

    def welcome(self) -> WelcomeFrame:
        return next(frame for frame in reversed(self.bus.sent) if isinstance(frame, WelcomeFrame))

    def passes(self, seconds: float) -> list[Event]:
        self.clock.advance(seconds)
        return self.member.step()

    def events(self, incarnation: int, seq: int, *payloads: bytes, received: int = 0) -> EventsFrame:
        """Return a frame of events in the current configuration of the member."""
        membership = self.member._membership
        assert membership is not None
        return EventsFrame(incarnation, seq, received, membership.view, membership.state, list(payloads))


@pytest.fixture
def fresh() -> Script:
    """Return a member on the bus with two others, before its hello is delivered."""
    script = Script()
    assert script.tell(BusChange(RING, ALL, NONE, ALL)) == []
    return script


@pytest.fixture
def member(fresh: Script) -> Script:
    """Return a member in a group with node 2, whose incarnation is 2000."""
    found = fresh.hear(ME, fresh.hello()) + fresh.hear(TWO, say_hello(2000))
    assert isinstance(found[0], Configuration)
    assert found[0].founded
    return fresh


def say_hello(
    incarnation: int, ring: RingId = RING, present: frozenset[BusAddress] = ALL, configured: int = 3, agreed: str = ""
) -> HelloFrame:
    return HelloFrame(incarnation, ring, digest(present), 0, configured, False, agreed)


def said(events: list[Event]) -> list[bytes]:
    return [payload for event in events if isinstance(event, EventBatch) for payload in event.payloads]


def test_a_hello_of_another_ring_is_void(fresh: Script) -> None:
    fresh.hear(ME, fresh.hello())
    assert fresh.hear(TWO, say_hello(2000, ring=LATER)) == []
    assert fresh.hear(TWO, say_hello(2000, present=frozenset((ME, TWO)))) == []
    assert fresh.hear(BusAddress(4, 44), say_hello(2000)) == []
    assert fresh.member.me is None
    fresh.tell(BusChange(LATER, ALL, NONE, NONE))
    assert fresh.hear(TWO, say_hello(2000, ring=LATER)) == [], "my own of the earlier ring is void, too"
    assert fresh.hello().ring == LATER
    assert fresh.hear(ME, fresh.hello())


def test_one_hello_from_each_of_two_is_needed_not_two_of_one(fresh: Script) -> None:
    assert fresh.hear(TWO, say_hello(2000), say_hello(2001)) == []
    assert len(fresh.hear(ME, fresh.hello())) == 1
    assert fresh.member.me is not None


def test_events_of_an_incarnation_that_is_not_in_are_dropped(member: Script) -> None:  # rule 3
    assert said(member.hear(TWO, member.events(1999, 1, b"old"))) == []
    assert said(member.hear(THREE, member.events(3000, 1, b"not in"))) == []
    assert member.member.dropped == 2
    assert said(member.hear(TWO, member.events(2000, 1, b"one", b"two"))) == [b"one", b"two"]
    assert said(member.hear(TWO, member.events(2000, 1, b"one", b"two"))) == [], "a number comes once"


def test_who_says_hello_is_let_in_and_told_how_things_stand(member: Script) -> None:
    member.hear(TWO, member.events(2000, 1, b"one", b"two"))
    found = member.hear(THREE, say_hello(3000))
    assert isinstance(found[0], Configuration)
    three = MemberId(*THREE, 3000)
    assert found[0].joined == (three,)
    assert found[0].position == 2
    member.member.flush()
    welcome = member.welcome()
    assert (welcome.target, welcome.view, welcome.position) == (three, found[0].view, 2)
    assert [entry.next_seq for entry in welcome.entries] == [1, 2, 1]
    assert member.hear(THREE, say_hello(3000)) == [], "it is in"
    assert said(member.hear(THREE, member.events(3000, 1, b"new"))) == [b"new"]


def welcome_for(script: Script, incarnation: int) -> WelcomeFrame:
    seats = [MemberId(*ME, incarnation), MemberId(*TWO, 2000), MemberId(*THREE, 3000)]
    entries = tuple(Seat(seat, 5 if seat.node > 1 else 1) for seat in seats)
    return WelcomeFrame(2000, seats[0], 7, 12345, 99, False, entries)


def test_a_newcomer_goes_on_from_its_hello(fresh: Script) -> None:
    mine = fresh.hello()
    two = replace(fresh.events(2000, 5, b"kept"), view=7, state=12345)
    early = replace(two, seq=4, payloads=[b"before"])
    assert fresh.hear(TWO, early) == []
    assert fresh.hear(ME, mine) == []
    assert fresh.hear(TWO, two) == []
    found = fresh.hear(TWO, welcome_for(fresh, mine.incarnation))
    assert isinstance(found[0], Configuration)
    assert found[0].position == 99
    assert found[1:] == [EventBatch(MemberId(*TWO, 2000), 99, [b"kept"], 5)]
    assert fresh.hear(THREE, welcome_for(fresh, mine.incarnation)) == [], "one is enough"


@pytest.mark.parametrize("change", [True, False], ids=["after a change", "after a while"])
def test_a_welcome_to_an_earlier_hello_is_void(fresh: Script, change: bool) -> None:
    first = fresh.hello()
    fresh.hear(ME, first)
    if change:
        fresh.tell(BusChange(LATER, ALL, NONE, NONE))
    else:
        fresh.passes(HELLO_S)
    assert fresh.hello().incarnation != first.incarnation
    assert fresh.hear(TWO, welcome_for(fresh, first.incarnation)) == []
    assert fresh.member.me is None


def test_a_welcome_that_is_not_for_me_is_not_mine(fresh: Script) -> None:
    mine = fresh.hello()
    fresh.hear(ME, mine)
    right = welcome_for(fresh, mine.incarnation)
    for wrong in (
        replace(right, target=MemberId(*TWO, mine.incarnation)),
        replace(right, target=MemberId(1, 12, mine.incarnation)),
        replace(right, entries=right.entries[1:]),
        replace(right, entries=(Seat(MemberId(*ME, 77), 1), *right.entries[1:])),
    ):
        assert fresh.hear(TWO, wrong) == []
    assert fresh.member.me is None


def test_too_much_to_keep_is_not_kept(fresh: Script) -> None:
    first = fresh.hello()
    fresh.hear(ME, first)
    large = EventsFrame(2000, 5, 0, 7, 12345, [bytes(60_000)] * 100)
    for _ in range(KEPT_BYTES // 6_000_000 + 1):
        assert fresh.hear(TWO, large) == []
    assert fresh.hear(TWO, welcome_for(fresh, first.incarnation)) == []
    assert fresh.hello().incarnation != first.incarnation


def test_who_has_heard_another_history_than_the_others_leaves(member: Script) -> None:
    strange = replace(member.events(2000, 1, b"?"), view=9, state=1)
    found = member.hear(TWO, strange)
    assert isinstance(found[-1], Configuration)
    assert not found[-1].primary
    assert said(found) == []
    assert member.bus.rejoined == 1
    assert member.member.rejoined == 1


def test_one_of_three_that_has_another_history_is_left_to_itself(member: Script) -> None:
    member.hear(THREE, say_hello(3000))
    strange = replace(member.events(2000, 1, b"?"), view=9, state=1)
    assert said(member.hear(TWO, strange)) == [b"?"]
    member.hear(THREE, replace(member.events(3000, 1, b"?"), view=9, state=1))
    assert member.bus.rejoined == 1, "two of three have another one"


def test_what_was_said_before_a_change_was_heard_is_not_strange(member: Script) -> None:
    before = member.events(2000, 1, b"before")
    member.hear(THREE, say_hello(3000))
    assert said(member.hear(TWO, before)) == [b"before"]
    assert member.bus.rejoined == 0


def test_the_sender_says_who_missed_its_frame(member: Script) -> None:  # rule 6
    member.hear(THREE, say_hello(3000))
    member.hear(TWO, member.events(2000, 1, b"one"))
    assert member.hear(TWO, member.events(2000, 3, b"three", received=1)) == [], "two is missing: nothing is delivered"
    assert member.hear(THREE, member.events(3000, 1, b"other")) == []
    assert said(member.hear(TWO, LostFrame(2000, 2))) == [b"other"], "it was lost to all; what came after is dropped"
    assert said(member.hear(TWO, member.events(2000, 4, b"four"))) == []
    assert member.bus.rejoined == 0


def test_a_frame_that_came_back_to_its_sender_was_missed_by_me(member: Script) -> None:  # rule 6
    member.hear(TWO, member.events(2000, 2, b"two"))
    assert member.member.me is not None
    found = member.hear(TWO, member.events(2000, 2, received=2))
    assert isinstance(found[0], Configuration)
    assert member.member.me is None
    assert member.bus.rejoined == 1


def test_a_sender_that_does_not_say_is_not_waited_for(member: Script) -> None:
    member.hear(TWO, member.events(2000, 2, b"two"))
    assert member.passes(QUIET_S) == []
    assert member.passes(8 * QUIET_S)
    assert member.bus.rejoined == 1


def test_a_sender_that_leaves_without_saying_takes_me_along(member: Script) -> None:
    member.hear(TWO, member.events(2000, 2, b"two"))
    member.tell(BusChange(RING, ALL - {TWO}, frozenset((TWO,)), NONE))
    assert member.bus.rejoined == 1


def test_what_was_lost_to_others_only_is_left_to_them(member: Script) -> None:
    member.hear(TWO, member.events(2000, 1, b"one"))
    found = member.hear(TWO, LostFrame(2000, 1))
    assert isinstance(found[0], Configuration)
    assert member.bus.rejoined == 1


def test_bytes_that_are_no_frame_count_as_lost(member: Script) -> None:
    good = encode(member.events(2000, 1, b"one"))
    for at in range(len(good)):
        member.hear(TWO, good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :])
        member.hear(TWO, good[:at])
    assert member.member.dropped == 2 * len(good)
    assert said(member.hear(TWO, good)) == [b"one"]
    member.hear(TWO, b"garbage")
    assert member.bus.rejoined == 0


def test_another_version_is_told_once(member: Script) -> None:
    other = bytearray(encode(say_hello(3000)))
    other[7] = VERSION + 1
    assert member.hear(THREE, bytes(other), bytes(other)) == [
        MemberRefused(3, 33, f"it uses version {VERSION + 1} of the group's frames; this member uses version {VERSION}")
    ]


def test_where_i_stand_is_repeated_when_it_is_quiet(member: Script) -> None:
    me = member.member.me
    assert me is not None
    assert member.member.multicast(b"one")
    member.member.flush()
    sent = member.bus.sent[-1]
    assert isinstance(sent, EventsFrame)
    assert said(member.hear(ME, sent)) == [b"one"]
    member.passes(QUIET_S)
    member.member.flush()
    assert member.bus.sent[-1] == replace(sent, payloads=[], received=1)
    count = len(member.bus.sent)
    for _ in range(10):
        member.passes(QUIET_S)
    assert len(member.bus.sent) == count + int(10 * QUIET_S / HEARTBEAT_S), "then once for each heartbeat"


def test_what_was_given_asks_for_a_step(member: Script) -> None:
    """A caller that waits for `wait_s` before each step sends the payload at once."""
    member.passes(QUIET_S)
    wait_s = member.member.wait_s()
    assert wait_s is not None
    assert QUIET_S < wait_s <= HEARTBEAT_S
    assert member.member.multicast(b"one")
    assert member.member.wait_s() == 0
    member.member.step()
    assert isinstance(member.bus.sent[-1], EventsFrame)
    assert member.member.wait_s() == QUIET_S


def test_a_full_batch_that_the_bus_does_not_take_asks_for_a_step(member: Script) -> None:
    member.bus.refuse = 1
    assert member.member.multicast(bytes(BATCH_BYTES))
    assert not any(isinstance(frame, EventsFrame) for frame in member.bus.sent)
    assert member.member.wait_s() == 0
    member.member.step()
    assert isinstance(member.bus.sent[-1], EventsFrame)


def test_a_bus_that_takes_nothing_is_tried_again_and_not_all_the_time(member: Script) -> None:
    member.bus.refuse = 10**6
    assert member.member.multicast(b"one")
    for _ in range(3):
        member.passes(QUIET_S)
        assert member.member.wait_s() == RETRY_S
    member.bus.refuse = 0
    member.passes(RETRY_S)
    assert [frame.payloads for frame in member.bus.sent[-2:] if isinstance(frame, EventsFrame)] == [[b"one"], []]


@pytest.mark.parametrize("repeats_lost", [0, 1, 5])
@pytest.mark.parametrize("size_bytes", [3, BATCH_BYTES])
def test_a_frame_that_does_not_come_back_is_looked_for(member: Script, size_bytes: int, repeats_lost: int) -> None:
    """The loss is detected even if repeats are lost, no other member sends, and no step is taken early."""
    member.passes(QUIET_S)
    assert member.member.multicast(bytes(size_bytes))
    member.member.flush()
    for _ in range(repeats_lost + 1):
        wait_s = member.member.wait_s()
        assert wait_s is not None
        assert wait_s <= QUIET_S
        assert member.passes(wait_s) == []
    member.member.flush()
    repeat = member.bus.sent[-1]
    assert isinstance(repeat, EventsFrame)
    assert (repeat.seq, repeat.received, repeat.payloads) == (1, 0, [])
    member.hear(ME, repeat)
    assert member.bus.rejoined == 1


def test_who_is_in_founds_nothing_with_one_who_asks_again(member: Script) -> None:
    member.hear(THREE, say_hello(3000))
    member.member.flush()
    member.hear(ME, member.welcome())
    found = member.hear(TWO, say_hello(2001))
    assert len(found) == 1
    assert isinstance(found[0], Configuration)
    assert not found[0].founded
    assert (found[0].joined, found[0].left) == ((MemberId(*TWO, 2001),), (MemberId(*TWO, 2000),))


def other_version(incarnation: int) -> bytes:
    other = bytearray(encode(say_hello(incarnation)))
    other[7] = VERSION + 1
    return bytes(other)


def test_who_finds_most_of_another_version_ends(fresh: Script) -> None:
    assert [type(event) for event in fresh.hear(TWO, other_version(2000))] == [MemberRefused], "one may be wrong itself"
    assert fresh.hear(THREE, other_version(3000))[-1] == GroupFailed(
        f"nodes 2, 3 use version {VERSION + 1} of the group's frames; this one uses version {VERSION}",
        "install the same version of CairnMQ on all members",
    )


def test_who_is_in_goes_on_and_says_where_it_stands(member: Script) -> None:
    """A process with another version can't be answered; it counts members with a different version by their frames."""
    member.passes(QUIET_S)
    count = len(member.bus.sent)
    assert [type(event) for event in member.hear(THREE, other_version(3000))] == [MemberRefused]
    member.passes(QUIET_S)
    assert [type(frame) for frame in member.bus.sent[count:]] == [EventsFrame]
    assert member.hear(TWO, other_version(2000)), "of those who are in, too: it goes on while they are"
    assert member.member.me is not None


def test_who_differs_is_told_how(member: Script) -> None:
    theirs = '{"--anycast": "a.*", "version of events": "1"}'
    reason = "its --anycast is 'a.*', on node 1 it is ''; its version of events is '1', on node 1 it is ''"
    assert member.hear(THREE, say_hello(3000, agreed=theirs)) == [MemberRefused(3, 33, reason)]
    member.member.flush()
    me = member.member.me
    assert me is not None
    assert member.bus.sent[-1] == RefusalFrame(me.incarnation, MemberId(*THREE, 3000), reason)
    assert member.hear(THREE, say_hello(3001, agreed="no JSON")) == [], "told here once"
    member.member.flush()
    refusal = member.bus.sent[-1]
    assert isinstance(refusal, RefusalFrame)
    assert (refusal.target.incarnation, refusal.reason) == (
        3001, "its version and options are encoded differently"
    )  # fmt: skip


def test_before_there_is_a_group_nobody_is_refused(fresh: Script) -> None:
    """Without a group, no member can decide which options are wrong."""
    assert fresh.hear(TWO, say_hello(2000, agreed="{}"))
    assert not any(isinstance(frame, RefusalFrame) for frame in fresh.bus.sent)


def test_a_refusal_ends_only_whom_it_means(fresh: Script, member: Script) -> None:
    assert member.hear(TWO, RefusalFrame(2000, MemberId(*ME, 1), "no")) == []
    assert member.member.me is not None
    one = Script()
    one.tell(BusChange(RING, ALL, NONE, ALL))
    assert one.hear(TWO, RefusalFrame(2000, MemberId(*ME, one.hello().incarnation + 1), "of an earlier hello")) == []
    [died] = one.hear(TWO, RefusalFrame(2000, MemberId(*ME, one.hello().incarnation), "it is of 1990"))
    assert isinstance(died, GroupFailed)
    assert died.reason == "the cluster refused this broker: it is of 1990"
