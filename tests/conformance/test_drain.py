"""Tests that a drain is answered, also if the broker limits the unsettled messages of a link."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cairnmq.amqp.codec.types import Described, Uint, Ulong
from cairnmq.amqp.links.events import Limits
from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions, StoreOptions
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.router import raw
from tests.harness.router.raw import Raw, attach, begin, frame, opening, transfer

MOST_UNSETTLED = 10
BODY = b"\x00\x53\x77\x43"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    router = RouterOptions(port=0, limits=Limits(max_unsettled=MOST_UNSETTLED))
    running = RunningBroker(BrokerOptions("", StoreOptions(), router, ("*",), store_kind="memory"))
    yield running
    failure = running.failure
    running.stop()
    assert failure is None


def flow(delivery_count: int, credit: int, *, drain: bool = False) -> bytes:
    fields = (Uint(0), Uint(2048), Uint(0), Uint(2048), Uint(0), Uint(delivery_count), Uint(credit), None, drain)
    return frame(raw.FLOW, *fields)


def filled(broker: RunningBroker, queue: str, count: int) -> Raw:
    """Return a connection with a receiver on *queue*, which has *count* messages."""
    with Raw(broker.port, opening(), begin(), attach("out", 0, queue)) as sender:
        while len(sender.until("flow").fields) < 7:
            pass
        for number in range(count):
            sender.say(transfer(0, number, BODY))
        settled = 0
        while settled < count:
            first, last = [*sender.until("disposition").fields, None][1:3]
            settled += (first if last is None else last) - first + 1
    one = Raw(broker.port, opening(), begin(), attach("in", 0, queue, receives=True))
    one.until("attach")
    return one


def until_drained(one: Raw, before: int, credit: int) -> tuple[int, int]:
    """Read until all *credit* is used or returned; return the number of messages and the delivery-count."""
    count = 0
    while (found := one.hear()) is not None:
        count += found.name == "transfer"
        if count == credit:
            return count, before + count
        if found.name == "flow" and len(found.fields) > 6:
            assert found.fields[6] == 0, "no credit is left"
            return count, found.fields[5]
    raise AssertionError("the connection ended")


@pytest.mark.parametrize("count", [0, 3, MOST_UNSETTLED, 3 * MOST_UNSETTLED])
@pytest.mark.parametrize("credit", [MOST_UNSETTLED, MOST_UNSETTLED + 1, 1000])
def test_drain_is_answered_beyond_the_limit_of_unsettled_messages(
    broker: RunningBroker, count: int, credit: int
) -> None:  # V2
    """A drain delivers up to the limit and returns all other credit, and later credit counts from there."""
    queue = f"q-{count}-{credit}"
    with filled(broker, queue, count) as one:
        one.say(flow(0, credit, drain=True))
        came, delivery_count = until_drained(one, 0, credit)
        assert came == min(count, MOST_UNSETTLED)
        assert delivery_count == credit
        if not came:
            return
        one.say(frame(raw.DISPOSITION, True, Uint(0), Uint(came - 1), True, Described(Ulong(0x24), [])))
        left = min(count - came, 4)
        one.say(flow(credit, 4, drain=True))
        assert until_drained(one, credit, 4) == (left, credit + 4), "credit that was given back is not used"


def test_drain_is_answered_while_nothing_more_may_be_unsettled(broker: RunningBroker) -> None:  # V2
    with filled(broker, "full", 3 * MOST_UNSETTLED) as one:
        one.say(flow(0, MOST_UNSETTLED))
        for _ in range(MOST_UNSETTLED):
            one.until("transfer")
        one.say(flow(MOST_UNSETTLED, 5, drain=True))
        assert until_drained(one, MOST_UNSETTLED, 5) == (0, MOST_UNSETTLED + 5)


def test_settled_messages_are_not_limited_by_unsettled_ones(broker: RunningBroker) -> None:  # V2, a sibling
    """A link that receives settled messages gets messages for all its credit, whatever the limit."""
    with filled(broker, "settled", 3 * MOST_UNSETTLED) as one:
        settles = attach("settled", 1, "settled", receives=True).replace(b"\x50\x02\x50\x00", b"\x50\x01\x50\x00")
        fields = (Uint(0), Uint(2048), Uint(0), Uint(2048), Uint(1), Uint(0), Uint(1000), None, False)
        one.say(settles, frame(raw.FLOW, *fields))
        for _ in range(3 * MOST_UNSETTLED):
            assert one.until("transfer").fields[4] is True


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("granted", [0, 5])
def test_drain_without_credit_is_answered(broker: RunningBroker, count: int, granted: int) -> None:  # V2
    """A client that revokes its credit and drains gets a flow, for which go-amqp's DrainCredit waits (2.6.7)."""
    with filled(broker, f"empty-{count}-{granted}", count) as one:
        if granted:
            one.say(flow(0, granted))
            for _ in range(count):
                one.until("transfer")
        came = min(count, granted)
        one.say(flow(came, 0, drain=True))
        fields = one.until("flow").fields
        while len(fields) <= 8 or not fields[8]:
            fields = one.until("flow").fields
        assert fields[5:7] == [came, 0], "the delivery-count of the client, and no credit"
