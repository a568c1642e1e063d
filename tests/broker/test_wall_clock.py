"""Tests of times when the wall clock is set, of times that stand for no limit, and of the time to live that is left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import integers, sampled_from
from proton import symbol, timestamp

from cairnmq.amqp.codec import encode
from cairnmq.amqp.codec.types import Timestamp, Uint
from cairnmq.broker.scheduling.scheduler import RECHECK_S
from tests.harness.broker.policies import Policed, decoded, either

HOUR_S = 3600.0


@pytest.fixture
def policed() -> Policed:
    return Policed()


def in_ms(policed: Policed, seconds: float) -> timestamp:
    return timestamp(policed.world.clock.wall_us() // 1000 + int(seconds * 1000))


@either
def test_messages_are_due_when_the_wall_clock_is_set_forward(policed: Policed, durable: bool) -> None:  # S6
    policed.make("old")
    policed.make("q", expiry_address="old")
    due = {symbol("x-opt-delivery-time"): in_ms(policed, HOUR_S)}
    policed.send("q", "due", durable=durable, annotations=due)
    policed.send("q", "expired", durable=durable, ttl=HOUR_S)
    policed.world.clock.set_wall_clock(2 * HOUR_S)
    policed.world.advance(RECHECK_S)
    policed.world.read_all()
    assert policed.bodies("old") == ["expired"]
    assert policed.bodies("q") == ["due"]


@either
def test_messages_wait_for_their_time_when_the_wall_clock_is_set_back(policed: Policed, durable: bool) -> None:  # S6
    due = {symbol("x-opt-delivery-time"): in_ms(policed, 8)}
    policed.send("q", "due", durable=durable, annotations=due)
    policed.world.clock.set_wall_clock(-HOUR_S)
    for _ in range(3):
        policed.world.advance(8)
        assert policed.bodies("q") == []
    policed.world.advance(HOUR_S)
    policed.world.read_all()
    assert policed.bodies("q") == ["due"]


@given(integers(-(1 << 63), 0), sampled_from([None, 0, 60_000]))
def test_a_time_that_stands_for_no_limit_does_not_expire_a_message(expiry_ms: int, ttl_ms: int | None) -> None:  # P4
    policed = Policed()
    fields = [encode.value(True), encode.NULL, encode.NULL if ttl_ms is None else encode.value(Uint(ttl_ms))]
    properties = [*[encode.NULL] * 8, encode.value(Timestamp(expiry_ms))]
    content = encode.described(0x70, encode.listed(fields)) + encode.described(0x73, encode.listed(properties))
    sender = policed.world.open(to_client=False)
    policed.world.send(sender, (1, content + encode.described(0x77, encode.value("m")), 0))
    policed.world.advance(59)
    assert policed.world.queue().messages == 1
    policed.world.advance(1000)
    assert policed.world.queue().messages == (0 if ttl_ms else 1)


@either
@pytest.mark.parametrize("size", [10, 200_000])
def test_a_consumer_gets_the_time_to_live_that_is_left(policed: Policed, durable: bool, size: int) -> None:  # P5
    policed.make("q", message_ttl_ms=40_000)
    policed.send("q", "x" * size, durable=durable, ttl=50)
    policed.send("q", "no limit", durable=durable)
    policed.world.advance(20)
    taker = policed.open("q")
    [(entry, first), (_, second)] = taker.forwarded
    assert decoded(first).ttl == pytest.approx(30)
    assert decoded(second).ttl == 0
    policed.world.do(taker.driver.close, [entry], True, True)
    [(_, again)] = policed.open("q").forwarded[:1]
    assert decoded(again).ttl == pytest.approx(30)
    assert decoded(again).delivery_count == 1
