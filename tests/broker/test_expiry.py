"""Tests of `absolute-expiry-time`: a message expires at that time or after its time to live, whichever is sooner."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import integers, none, one_of, sampled_from, text
from proton import symbol

from cairnmq.amqp.codec import encode, header, sections
from cairnmq.amqp.codec.types import Timestamp
from cairnmq.broker.messages.message_times import expiry_ms, may_have_times
from tests.harness.broker.policies import Policed, either


@pytest.fixture
def policed() -> Policed:
    return Policed()


def at(policed: Policed, seconds: float) -> float:
    """Return the time in *seconds* from now, in seconds since 1970."""
    return policed.world.clock.wall_us() / 1e6 + seconds


@either
@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("annotated", [False, True])
def test_a_message_goes_at_its_absolute_time(policed: Policed, durable: bool, size: int, annotated: bool) -> None:
    policed.make("old")
    policed.make("q", expiry_address="old")
    more: dict[str, Any] = {"annotations": {symbol("x-opt-note"): 1}} if annotated else {}
    policed.send("q", "x" * size, durable=durable, expiry_time=at(policed, 10), **more)
    policed.send("q", "stays", durable=durable)
    policed.world.advance(9)
    assert policed.world.queue().messages == 2
    policed.world.advance(2)
    policed.world.read_all()
    assert policed.bodies("q") == ["stays"]
    assert policed.bodies("old") == ["x" * size]


@pytest.mark.parametrize(("ttl_s", "absolute_s"), [(5, 10), (10, 5)])
def test_the_sooner_one_counts(policed: Policed, ttl_s: int, absolute_s: int) -> None:
    policed.send("q", "m", ttl=ttl_s, expiry_time=at(policed, absolute_s))
    policed.world.advance(4)
    assert policed.world.queue().messages == 1
    policed.world.advance(2)
    assert policed.world.queue().messages == 0


def test_time_goes_on_while_the_broker_is_down_and_what_was_moved_stays(policed: Policed) -> None:
    policed.make("old")
    policed.make("q", expiry_address="old")
    policed.send("q", "m", expiry_time=at(policed, 5))
    policed.world.kill_and_start()
    policed.senders.clear()
    policed.world.advance(6)
    assert policed.take("q") == []
    policed.world.read_all()
    policed.world.kill_and_start()
    policed.senders.clear()
    policed.world.advance(6)
    assert policed.bodies("old") == ["m"], "it has expired once, and does so no more"


def test_what_has_expired_on_its_way_is_never_handed_out(policed: Policed) -> None:
    policed.open("q")
    assert policed.send("q", "m", expiry_time=at(policed, -5)) == "accepted"
    assert policed.last is None or not policed.last.forwarded
    policed.world.advance(0.1)
    assert policed.world.queue().messages == 0


@given(
    sampled_from([0, 5, 8, 9, 10, 13]), one_of(none(), integers(-(1 << 63), (1 << 63) - 1)),
    one_of(none(), integers(0, 1 << 50)), text(max_size=300), sampled_from([0x40, 0x83, 0]),
)  # fmt: skip


def test_it_is_found_wherever_it_stands(
    count: int, expiry: int | None, creation: int | None, subject: str, low: int
) -> None:
    """The expiry time equals that of the full properties decoder, even if its last byte looks like a type code."""
    expiry = expiry if expiry is None else (expiry & ~0xFF) | low
    times = [None if one is None else Timestamp(one) for one in (expiry, creation)]
    fields = [None, b"user", "to", subject, None, None, None, None, *times, None, None, None][:count]
    content = encode.described(0x73, encode.value(fields))
    wanted = expiry if count > 8 else None
    assert sections.properties(content, 3).absolute_expiry_time_ms == wanted
    assert expiry_ms(content, 3) == wanted
    assert may_have_times(content, header.parse(content)) == (wanted is not None)
