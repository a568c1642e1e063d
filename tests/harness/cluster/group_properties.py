"""Properties of every group, in memory and on corosync: one suite for both."""

from __future__ import annotations

import pytest

from cairnmq.cluster.group.group import MAX_PAYLOAD_BYTES, GroupError
from cairnmq.cluster.group.group_events import Configuration, EventBatch, GroupFailed, MemberRefused, Quorum
from tests.harness.cluster import total_order as order
from tests.harness.cluster.group_harness import NODES, GroupHarness, payloads


class GroupProperties:
    """A suite of tests; derive from it, and define the fixture `harness`."""

    @pytest.fixture
    def three(self, harness: GroupHarness) -> GroupHarness:
        """Return a harness whose group has three members."""
        harness.form()
        return harness

    # ---- order ------------------------------------------------------------------------------------------------------

    def test_all_hear_one_order(self, three: GroupHarness) -> None:  # D15
        for number in range(300):
            for node in NODES:
                three.say(node, b"%d of %d" % (number, node))
            if not number % 7:
                three.step()
        three.until(lambda: all(len(payloads(three.received[node])) == 900 for node in NODES), "all is heard")
        order.check(three.lives)
        for node in NODES:
            assert payloads(three.received[node]) == payloads(three.received[1])
            me = three.members[node].me
            assert me is not None
            assert order.by_sender(three.received[1], me) == [b"%d of %d" % (number, node) for number in range(300)]
            assert three.members[node].in_flight_bytes == 0

    def test_small_events_travel_together(self, three: GroupHarness) -> None:  # D55
        for number in range(1000):
            assert three.members[1].multicast(b"%060d" % number)
        three.until(lambda: len(payloads(three.received[2])) == 1000, "all is heard")
        batches = [event for event in three.received[2] if isinstance(event, EventBatch)]
        assert len(batches) <= 1000 // 40

    def test_configurations_stand_at_one_place_among_the_events(self, harness: GroupHarness) -> None:
        harness.form(1, 2)
        for number in range(50):
            harness.say(1, b"a %d" % number)
            harness.say(2, b"b %d" % number)
            if number == 20:
                harness.add(3)
            harness.step()
        harness.until(lambda: harness.together(*NODES), "the third is in")
        harness.say(3, b"last")
        harness.all_heard(b"last")
        order.check(harness.lives)
        joined = harness.last(3)
        assert joined is not None
        assert joined.joined == (harness.members[3].me,)
        assert joined == harness.last(1) == harness.last(2)

    # ---- sizes and back-pressure ------------------------------------------------------------------------------------

    def test_sizes(self, three: GroupHarness) -> None:  # D52
        largest = bytes(range(256)) * (MAX_PAYLOAD_BYTES // 256)
        three.say(1, b"", largest, b"x" * 5000, b"", b"end")
        three.all_heard(b"end")
        for node in NODES:
            assert payloads(three.received[node]) == [b"", largest, b"x" * 5000, b"", b"end"]
        with pytest.raises(GroupError, match="65537 bytes exceeds the limit of 65536"):
            three.members[1].multicast(b"x" * (MAX_PAYLOAD_BYTES + 1))

    def test_what_is_under_way_is_bounded(self, harness: GroupHarness) -> None:  # D25
        harness.form(1, 2)
        member = harness.add(3, window_bytes=100_000)
        harness.until(lambda: harness.together(*NODES), "the third is in")
        taken = 0
        while member.multicast(b"%04d" % taken + bytes(2000)):
            taken += 1
            assert taken < 100, "no end"
        assert 40 <= taken <= 50
        assert member.in_flight_bytes <= 100_000
        harness.until(lambda: member.in_flight_bytes == 0, "all came back")
        harness.say(3, b"more")
        harness.all_heard(b"more")
        for node in NODES:
            assert [each[:4] for each in payloads(harness.received[node])] == [b"%04d" % n for n in range(taken)] + [
                b"more"
            ]

    def test_try_again_loses_nothing(self, three: GroupHarness) -> None:
        three.buses[2].refuse = 40
        for number in range(100):
            three.say(2, b"%d" % number)
            three.members[2].flush()
        three.until(lambda: len(payloads(three.received[1])) == 100, "all is heard")
        assert payloads(three.received[1]) == [b"%d" % number for number in range(100)]
        assert three.members[2].rejoined == 0

    def test_not_yet_in_the_group(self, harness: GroupHarness) -> None:
        member = harness.add(1)
        assert not member.multicast(b"early")
        assert member.me is None
        for _ in range(20):
            harness.step()
            harness.machines.wait(harness.members.values())
        assert harness.last(1) is None, "one of three is not a majority"
        with pytest.raises(GroupError, match="already joined"):
            member.join("again")

    # ---- joining and leaving ----------------------------------------------------------------------------------------

    def test_who_leaves_is_gone_and_comes_back_as_new(self, three: GroupHarness) -> None:  # D59
        before = three.members[3].me
        three.say(3, b"before")
        three.all_heard(b"before")
        three.remove(3)
        three.until(lambda: three.together(1, 2), "it is gone")
        last = three.last(1)
        assert last is not None
        assert last.left == (before,)
        three.say(1, b"without")
        three.all_heard(b"without", 1, 2)
        three.add(3)
        three.until(lambda: three.together(*NODES), "it is back")
        three.say(2, b"after")
        three.all_heard(b"after")
        assert payloads(three.received[3]) == [b"after"]
        assert three.members[3].me != before
        order.check(three.lives)

    def test_one_that_is_left_is_no_group(self, three: GroupHarness) -> None:
        three.remove(3)
        three.until(lambda: three.together(1, 2), "it is gone")
        three.remove(2)
        three.until(lambda: three.members[1].me is None, "no majority")
        last = three.last(1)
        assert last is not None
        assert not last.primary
        assert not three.members[1].multicast(b"no")
        three.add(2)
        three.until(lambda: three.together(1, 2), "two found it anew")
        last = three.last(1)
        assert last is not None
        assert last.founded
        order.check(three.lives)

    def test_an_operator_says_that_one_is_enough(self, three: GroupHarness) -> None:
        three.remove(3)
        three.until(lambda: three.together(1, 2), "it is gone")
        three.remove(2)
        three.until(lambda: three.members[1].me is None, "no majority")
        three.members[1].force()
        three.until(lambda: three.together(1), "it goes on alone")
        three.say(1, b"alone")
        three.all_heard(b"alone", 1)
        three.add(2)
        three.until(lambda: three.together(1, 2), "another one is let in")
        last = three.last(1)
        assert last is not None
        assert not last.founded
        three.remove(2)
        three.until(lambda: three.members[1].me is None, "the usual rule holds again")
        order.check(three.lives)

    def test_a_member_that_sleeps_holds_nobody_and_catches_up(self, three: GroupHarness) -> None:
        for number in range(50):
            three.say(1, b"%d" % number)
        for node in (1, 2):
            three.until(lambda node=node: len(payloads(three.received[node])) == 50, "heard", asleep=(3,))  # type: ignore[misc]
        assert not payloads(three.received[3])
        three.until(lambda: len(payloads(three.received[3])) == 50, "it catches up")
        assert three.members[3].rejoined == 0
        order.check(three.lives)

    def test_a_ghost_keeps_nobody_from_anything(self, harness: GroupHarness) -> None:
        ghost = harness.machines.bus(3, len(NODES))
        ghost.join(harness.name)
        for _ in range(20):
            list(ghost.poll(100))
            harness.machines.wait(harness.members.values())
        harness.form(1, 2)
        harness.say(1, b"without it")
        harness.all_heard(b"without it", 1, 2)
        ghost.close()

    def test_members_of_another_configuration_are_told(self, three: GroupHarness) -> None:
        three.remove(3)
        three.until(lambda: three.together(1, 2), "it is gone")
        three.add(3, configured=5)

        def told() -> bool:
            return all(any(isinstance(event, MemberRefused) for event in three.received[node]) for node in (1, 2))

        three.until(told, "it is refused")
        refused = next(event for event in three.received[1] if isinstance(event, MemberRefused))
        assert (refused.node, refused.reason) == (3, "it is configured for 5 members, node 1 for 3")
        three.say(1, b"unaffected")
        three.all_heard(b"unaffected", 1, 2)
        assert three.together(1, 2)
        assert three.members[3].me is None
        three.until(lambda: isinstance(three.received[3][-1], GroupFailed), "its group fails")
        died = three.received[3][-1]
        assert isinstance(died, GroupFailed)
        assert "refused this broker: it is configured for 5 members, node" in died.reason

    def test_a_foreign_name_is_another_group(self, three: GroupHarness) -> None:
        three.remove(3)
        three.until(lambda: three.together(1, 2), "it is gone")
        three.name, name = f"{three.name}-other", three.name
        other = three.add(3)
        three.name = name
        three.say(1, b"ours")
        three.all_heard(b"ours", 1, 2)
        assert other.me is None
        assert not payloads(three.received[3])

    # ---- daemons and links ------------------------------------------------------------------------------------------

    def test_what_a_paused_daemon_kept_is_heard_by_nobody(self, three: GroupHarness) -> None:  # rules 3 and 5
        before = three.members[3].me
        three.machines.pause_daemon(3)
        assert three.members[3].multicast(b"stale")
        three.members[3].flush()
        three.until(lambda: three.together(1, 2), "the others go on", asleep=(3,))
        three.say(1, b"meanwhile")
        three.machines.resume_daemon(3)
        three.until(lambda: three.together(*NODES), "it is back, as new")
        three.say(3, b"fresh")
        three.all_heard(b"fresh")
        assert three.members[3].me != before
        assert not any(b"stale" in payloads(three.received[node]) for node in (1, 2))
        if b"stale" not in payloads(three.received[3]):  # a daemon alone may deliver it to its own member
            assert three.members[1].dropped > 0, "it was under way"
            assert three.members[2].dropped > 0
        order.check(three.lives)

    def test_a_minority_is_no_group(self, three: GroupHarness) -> None:  # rule 4
        three.machines.partition([1, 2], [3])
        three.until(lambda: three.together(1, 2) and three.members[3].me is None, "they are parted")
        last = three.last(3)
        assert last is not None
        assert not last.primary
        three.until(lambda: Quorum(False) in three.received[3], "the daemon reports no quorum")
        three.say(1, b"without it")
        three.all_heard(b"without it", 1, 2)
        assert not three.members[3].multicast(b"no")
        three.machines.heal()
        three.until(lambda: three.together(*NODES), "it is back")
        three.say(3, b"again")
        three.all_heard(b"again")
        assert b"without it" not in payloads(three.received[3])
        order.check(three.lives)

    def test_where_nobody_has_a_majority_the_group_ends(self, three: GroupHarness) -> None:
        three.machines.partition([1], [2], [3])
        three.until(lambda: not any(member.me for member in three.members.values()), "no group")
        three.machines.heal()
        three.until(lambda: three.together(*NODES), "they found it anew")
        received = [event for node in NODES for event in three.received[node]]
        founders = [event for event in received if isinstance(event, Configuration) and event.founded]
        assert len(founders) >= 4, "two of three at least, twice"
        three.say(3, b"again")
        three.all_heard(b"again")
        order.check(three.lives)

    def test_one_that_nobody_hears_is_out(self, three: GroupHarness) -> None:  # rule 1
        three.machines.cut_egress(1)
        three.members[1].multicast(b"into the void")
        three.members[1].flush()
        three.until(lambda: three.together(2, 3) and three.members[1].me is None, "it is out")
        three.say(2, b"without it")
        three.all_heard(b"without it", 2, 3)
        three.machines.heal()
        three.until(lambda: three.together(*NODES), "it is back")
        assert not any(b"into the void" in payloads(three.received[node]) for node in (2, 3))
        order.check(three.lives)

    def test_the_death_of_a_daemon_is_told_and_ends_the_member(self, three: GroupHarness) -> None:  # rule 18
        three.machines.kill_daemon(3)
        three.until(lambda: isinstance(three.received[3][-1], GroupFailed), "its group fails")
        assert not three.members[3].multicast(b"no")
        assert three.members[3].step() == []
        three.until(lambda: three.together(1, 2), "the others go on")
        three.remove(3)
        with pytest.raises(GroupError, match="not running"):
            three.add(3)
        three.machines.start_daemon(3)
        three.add(3)
        three.until(lambda: three.together(*NODES), "it is back")
        order.check(three.lives)

    # ---- losses -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("later", [True, False], ids=["in the middle", "at the end"])
    def test_a_sender_whose_frame_is_lost_to_all_is_out(self, three: GroupHarness, later: bool) -> None:  # rule 6
        before = three.members[2].me
        three.say(2, b"one")
        three.all_heard(b"one")
        three.buses[2].drop_sent = 1
        three.say(2, b"lost")
        three.members[2].flush()
        if later:
            three.say(2, b"after")
            three.members[2].flush()
        three.until(lambda: three.members[2].rejoined == 1 and three.together(*NODES), "it left and is back")
        three.say(2, b"again")
        three.all_heard(b"again")
        for node in NODES:
            assert payloads(three.received[node]) == [b"one", b"again"]
        assert three.members[2].me != before
        assert three.members[1].rejoined == three.members[3].rejoined == 0
        order.check(three.lives)

    @pytest.mark.parametrize("later", [True, False], ids=["in the middle", "at the end"])
    def test_one_who_missed_a_frame_is_out(self, three: GroupHarness, later: bool) -> None:  # rule 6
        three.say(2, b"one")
        three.all_heard(b"one")
        three.buses[3].drop_heard = lambda message: b"lost" in message.frame
        three.say(2, b"lost")
        three.members[2].flush()
        if later:
            three.say(1, b"other")
            three.say(2, b"after")
        three.until(lambda: three.members[3].rejoined == 1 and three.together(*NODES), "it left and is back")
        three.say(2, b"again")
        three.all_heard(b"again")
        assert b"after" not in payloads(three.received[3])
        assert three.members[1].rejoined == three.members[2].rejoined == 0
        order.check(three.lives)

    def test_a_lost_welcome_is_asked_for_again(self, harness: GroupHarness) -> None:
        harness.form(1, 2)
        member = harness.add(3)
        harness.buses[3].drop_heard = lambda message: message.sender != harness.buses[3].address
        harness.until(lambda: len(harness.last(1).members) == 3, "it was let in")  # type: ignore[union-attr]
        assert member.me is None
        harness.buses[3].drop_heard = lambda message: False
        harness.until(lambda: harness.together(*NODES), "it is in, and knows")
        order.check(harness.lives)
