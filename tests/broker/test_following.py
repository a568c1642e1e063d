"""Tests of federated queues (D23): despite failures, each copy equals its source at some point in time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.errors import StoreError
from cairnmq.broker.federation import upstream_feed as feeding
from cairnmq.broker.federation.federation_link import BROKEN
from cairnmq.broker.federation.replica import notes_name
from cairnmq.broker.federation.upstream_link import TICK_S
from cairnmq.broker.federation.wire_format import (
    ALL,
    BadStep,
    Head,
    Line,
    Piece,
    Purge,
    Put,
    PutPieces,
    Take,
    decode,
    encode,
    message,
)
from cairnmq.store.contract.dequeue_reason import DequeueReason
from tests.harness.broker.following_world import Sites, after, contents
from tests.harness.thorough import amount


def test_it_comes_to_equal_the_source_and_goes_on() -> None:  # D23
    sites = Sites()
    for number in range(5):
        sites.send(number)
    sites.take(2)
    sites.follow()
    sites.connect()
    sites.catch_up()
    assert sites.copy() == (2, 3, 4)
    sites.send(5)
    sites.take(1)
    sites.catch_up()
    assert sites.copy() == (3, 4, 5)
    sites.kill_follower()
    assert sites.copy() == (3, 4, 5)
    sites.kill_source()
    sites.take(1)
    sites.send(6)
    sites.connect()
    sites.catch_up()
    assert sites.copy() == (4, 5, 6)
    sites.send(7, 200000)
    sites.catch_up()
    assert sites.copy() == (4, 5, 6, 7)
    sites.purge()
    sites.catch_up()
    assert sites.copy() == ()


ids = st.integers(0, (1 << 64) - 1)
some_ids = st.lists(ids, max_size=4).map(tuple)
events = st.one_of(
    st.builds(Put, ids, st.binary(max_size=50)), st.builds(Piece, ids, st.binary(max_size=50)),
    st.builds(PutPieces, ids), st.builds(Take, st.sampled_from(DequeueReason), some_ids), st.builds(Purge, some_ids),
    st.builds(Line, st.text(max_size=20)),
)  # fmt: skip

WHAT = (
    *["send"] * 4, *["take"] * 3, "transact", "fan out", "purge", "follow", *["connect"] * 2, *["carry"] * 4,
    *["answer"] * 3, "cut", "kill source", "kill follower",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(amount("CAIRN_FOLLOWED", 20, 4)))
def test_whatever_breaks_it_is_what_the_source_was(seed: int) -> None:  # D23
    """The copy is consistent when links break at any message or disposition and brokers are killed at any step."""
    random, sites, number, followed = Random(seed), Sites(acquisitions=seed % 2 > 0), 0, False
    for _ in range(60):
        what, count = random.choice(WHAT), random.randrange(1, 6)
        if what == "send":
            size_bytes = random.choice([10, 3000, 70000, 200000])
            for _ in range(count):
                sites.send(number, size_bytes)
                number += 1
        elif what == "take":
            sites.take(count)
        elif what == "transact":
            sites.transact(number, count)
            number += count
        elif what == "fan out":
            sites.send_to_several(number)
            number += 1
        elif what == "purge" and count < 3:
            sites.purge()
        elif what == "follow" and not followed:
            sites.follow()
            followed = True
        elif what == "connect" and followed and sites.link is None:
            sites.connect()
        elif what in ("carry", "answer"):
            for _ in range(count):
                (sites.carry if what == "carry" else sites.answer)()
        elif what == "cut":
            sites.cut()
        elif what == "kill source":
            sites.kill_source()
        elif what == "kill follower" and followed:
            sites.kill_follower()
        if followed:
            copy = sites.copy()
            assert copy is None or copy in sites.states, f"{copy} is none of {[*sites.states]}"
    if not followed:
        sites.follow()
    for _ in range(3):  # the next link omits messages that were dequeued and reclaimed during a read
        sites.cut()
        sites.connect()
        sites.catch_up()
    assert sites.copy() == sites.now


@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 32))
def test_the_power_of_the_follower_fails_at_each_operation_of_its_disk(seed: int) -> None:  # D23
    random = Random(seed)
    sites = Sites()
    sites.follow()
    sites.connect()
    sites.catch_up()
    disks = []

    def crash(operation: str) -> None:
        disks.append(sites.follower.disk.after_kill())
        disks.extend(sites.follower.disk.after_power_cut(Random(one)) for one in range(2))

    number = 0
    for _ in range(6):
        for _ in range(random.randrange(4)):
            sites.send(number, random.choice([10, 100000]))
            number += 1
        sites.take(random.randrange(3))
        if random.random() < 0.2:
            sites.purge()
        sites.follower.disk.on_operation = crash
        sites.catch_up()
        sites.follower.disk.on_operation = None
    assert sites.copy() == sites.now
    assert disks
    for disk in random.sample(disks, min(len(disks), 40)):
        killed = after(sites.follower, disk)
        copy = killed.broker.remote.federated_queues.by_name["q"].copy
        assert copy.is_complete
        assert contents(killed.store, copy.queue_id) in sites.states
        assert len(copy.ids) == len(contents(killed.store, copy.queue_id))
        killed.store.journal.abandon()


def test_what_went_while_the_line_was_cut_is_nowhere_missed() -> None:
    """A dequeued message is omitted if its content, stored apart from its enqueue record, may be reclaimed."""
    sites = Sites()
    sites.follow()
    sites.connect()
    sites.catch_up()
    sites.cut()
    sites.send(0)
    sites.send(1, 300000)
    sites.send(2)
    sites.take(2)
    sites.connect()
    sites.catch_up()
    assert sites.copy() == (2,)


def test_a_long_transaction_comes_whole_or_not_at_all() -> None:
    sites = Sites()
    sites.send(0)
    sites.follow()
    sites.connect()
    sites.catch_up()
    sites.transact(1, 40, 5000)
    assert sites.carry()
    assert sites.copy() == (0,)
    sites.kill_follower()
    assert sites.copy() == (0,)
    sites.connect()
    sites.catch_up()
    assert sites.copy() == sites.now
    assert len(sites.now) == 40


def test_what_it_has_not_got_yet_is_dropped_when_it_begins_anew() -> None:
    sites = Sites()
    sites.send(0)
    sites.follow()
    sites.connect()
    sites.catch_up()
    done: list[object] = []
    sites.follower.do(sites.follower.broker.remote.federated_queues.resynchronize, sites.following, done.append)
    assert done == [None]
    assert sites.copy() is None
    sites.link = None
    sites.send(1)
    sites.connect()
    sites.catch_up()
    assert sites.copy() == (0, 1)


def test_the_name_is_taken_until_it_is_taken_over() -> None:
    sites = Sites()
    sites.send(0)
    sites.follow()
    follower = sites.follower
    for to_client in (True, False):
        assert follower.open(to_client=to_client).failures == ["amqp:not-allowed"]


def test_of_two_that_follow_under_one_name_the_first_does() -> None:
    sites = Sites()
    federated = sites.follower.broker.remote.federated_queues
    said: list[Exception | None] = []

    def both() -> None:
        for source in ("q", "another"):
            federated.create("q", "there", source, {}, said.append)

    sites.follower.do(both)
    assert [str(one) for one in said if one is not None] == ["queue 'q': it already exists; choose another name"]
    assert sites.following.source == "q"
    sites.send(0)
    sites.connect()
    sites.catch_up()
    sites.kill_follower()
    assert sites.copy() == (0,)


def test_what_is_followed_no_more_is_gone() -> None:
    sites = Sites()
    sites.send(0)
    sites.follow()
    sites.connect()
    sites.catch_up()
    follower = sites.follower
    done: list[object] = []
    follower.do(follower.broker.remote.federated_queues.delete, sites.following, done.append)
    assert done == [None]
    follower.kill_and_start()
    assert not follower.broker.remote.federated_queues.by_name
    assert not follower.broker.nodes.copies
    assert follower.store.messages() == {}
    assert follower.open(to_client=True).driver is not None, "the name is free"


def test_damaged_copy_stays_broken_if_it_can_not_be_deleted() -> None:
    sites = Sites()
    sites.follow()
    follower = sites.follower
    notes, ignored = follower.broker.nodes.copies[notes_name("q")], list[object]()
    follower.do(follower.broker.remote.federated_queues._drop, notes, ignored.append)
    follower.kill_and_start()
    assert sites.following.state == BROKEN
    reason, deleted = sites.following.reason, list[object]()
    follower.wiring.refuse_writing()
    follower.do(follower.broker.remote.federated_queues.delete, sites.following, deleted.append)
    follower.wiring.refuse_writing(False)
    assert isinstance(deleted.pop(), StoreError)
    assert (sites.following.state, sites.following.reason) == (BROKEN, reason)
    follower.do(follower.broker.remote.federated_queues.delete, sites.following, deleted.append)
    assert deleted == [None]
    assert not follower.broker.remote.federated_queues.by_name


def test_taken_over_it_is_a_queue_as_any_other() -> None:  # D23
    sites = Sites()
    for number in range(3):
        sites.send(number)
    sites.follow()
    follower = sites.follower
    done: list[object] = []

    def promote(*, force: bool) -> None:
        following = sites.following
        follower.do(lambda: follower.broker.remote.federated_queues.promote(following, done.append, force=force))

    promote(force=False)
    assert "does not have all" in str(done.pop())
    sites.connect()
    sites.catch_up()
    promote(force=False)
    assert done == [None]
    assert not follower.broker.remote.federated_queues.by_name
    assert not follower.broker.nodes.copies
    for again in (False, True):
        if again:
            follower.kill_and_start()
        receiver = follower.open(to_client=True)
        follower.do(receiver.driver.request, 10, False)
        follower.read_all()
        assert len(receiver.forwarded) == 3
        assert all(entry.previously_delivered for entry, _ in receiver.forwarded), "somebody may have had them before"


def test_the_address_is_for_brokers() -> None:
    sites = Sites()
    assert sites.source.open(to_client=True, address="$stream/q").failures == ["amqp:not-allowed"]
    assert sites.source.open(to_client=False, address="$stream/q").failures == ["amqp:not-allowed"]


def test_a_copy_of_more_than_a_message_goes_on_where_it_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "_BATCH", 2)
    sites = Sites()
    for number in range(9):
        sites.send(number)
    sites.follow()
    sites.connect()
    for _ in range(3):
        assert sites.carry()
    assert sites.copy() is None
    had = list(sites.following.copy.ids)
    assert len(had) == 4
    sites.kill_follower()
    sites.take(1)
    sites.connect()
    sites.catch_up()
    assert sites.copy() == sites.now
    assert list(sites.following.copy.ids)[:3] == had[1:]


def test_copy_too_far_behind_reports_it_and_can_be_resynchronized() -> None:
    sites = Sites()
    sites.send(0)
    sites.follow()
    sites.connect()
    sites.catch_up()
    sites.cut()
    sites.marks.marks.clear()  # the store drops marks in the same way
    for number in range(1, 60):
        sites.send(number, 60000)
        sites.take(1)
    sites.kill_source()
    assert sites.connect() == ["amqp:not-found"]
    sites.source.read_all()
    assert "amqp:not-found" in sites.following.reason
    assert sites.marks.marks == {}, "nothing is kept for who has to begin anew"
    assert sites.copy() in sites.states, "it stays what it was"
    done: list[object] = []
    sites.to.connection = None
    sites.follower.do(sites.follower.broker.remote.federated_queues.resynchronize, sites.following, done.append)
    assert sites.connect() == []
    sites.catch_up()
    assert sites.copy() == sites.now


def test_what_is_kept_for_a_follower_moves_on_with_it() -> None:
    sites = Sites()
    sites.follow()
    sites.connect()
    sites.catch_up()
    (begin,) = sites.marks.known()
    for number in range(60):
        sites.send(number, 60000)
        sites.take(1)
        sites.catch_up()
    (end,) = sites.marks.known()
    assert end.lsn > begin.lsn + 2_000_000
    assert sites.source.store.journal.pool.limbo_count < 5


def test_a_source_that_has_nothing_for_it_tells_the_time() -> None:
    sites = Sites()
    sites.follow()
    sites.connect()
    sites.catch_up()
    steps, before_us = sites.following.copy.steps, sites.following.as_of_us
    sites.source.clock.advance(100)
    sites.source.advance(TICK_S)
    sites.catch_up()
    assert sites.following.as_of_us >= before_us + 100_000_000
    assert sites.following.copy.steps == steps, "nothing is written for that"


@given(said=st.lists(events, max_size=5), flags=st.integers(0, 7), numbers=st.tuples(*[st.integers(0, ALL)] * 3))
def test_what_is_said_is_heard(said: list[Any], flags: int, numbers: tuple[int, int, int]) -> None:
    head = Head(flags, *numbers)
    assert decode(message(head, [encode(event) for event in said])) == (head, said)


@given(junk=st.binary(max_size=200), cut=st.integers(0, 100), at=st.integers(0, 100), byte=st.integers(0, 255))
def test_what_is_no_step_is_refused(junk: bytes, cut: int, at: int, byte: int) -> None:
    said = bytearray(message(Head(1, 2, 3, 4), [encode(Put(5, b"six")), encode(Take(DequeueReason.ACCEPTED, (7, 8)))]))
    said[at % len(said)] = byte
    for bad in (junk, bytes(said), bytes(said[:cut])):
        try:
            decode(bad)
        except BadStep:
            pass
