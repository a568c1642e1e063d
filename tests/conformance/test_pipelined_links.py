"""Tests of links whose end follows their attach before the broker has answered: each frame takes effect, in order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cairnmq.amqp.codec.types import Array, Described, Symbol, Ubyte, Uint, Ulong
from cairnmq.amqp.links.events import Limits
from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions, StoreOptions
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.router import raw
from tests.harness.router.joined import until
from tests.harness.router.raw import Raw, begin, frame, opening, symbols

DETACH, CLOSE_LINK = frame(raw.DETACH, Uint(0), False), frame(raw.DETACH, Uint(0), True)
ENDS = {"detach": DETACH, "end": frame(raw.END), "close": frame(raw.CLOSE)}
SELECTOR = {Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), "color = 'red'")}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    router = RouterOptions(port=0, limits=Limits())
    running = RunningBroker(BrokerOptions("", StoreOptions(), router, ("known-*",), store_kind="memory"))
    yield running
    failure = running.failure
    running.stop()
    assert failure is None


def subscribing(name: str, filters: dict[Symbol, Described] | None = None) -> bytes:
    """Return the attach of a durable subscription."""
    topic: Array = symbols("topic")
    source = ["amq.topic/a", Uint(1), Symbol("never"), None, None, None, None, filters, None, None, topic]
    ends = Described(Ulong(raw.SOURCE), source), Described(Ulong(raw.TARGET), [])
    return frame(raw.ATTACH, name, Uint(0), True, Ubyte(2), Ubyte(0), *ends)


@pytest.mark.parametrize("filters", [None, SELECTOR], ids=["all", "selector"])
@pytest.mark.parametrize("end", ENDS)
def test_durable_subscription_is_made_before_the_end_behind_its_attach(
    broker: RunningBroker, end: str, filters: dict[Symbol, Described] | None
) -> None:  # C4
    container = f"sub-{end}-{filters is None}"
    with Raw(broker.port, opening(container), begin(), subscribing("s", filters), ENDS[end]) as one:
        if end == "detach":
            assert one.until("attach").fields[5] is not None, "the attach is answered with its source"
            assert not one.until("detach").error
        queues = broker._broker.nodes.queues
        until(lambda: f"subscription-{container}:s" in queues or any(container in name for name in queues))


def test_unsubscribing_takes_effect_though_its_detach_does_not_wait(broker: RunningBroker) -> None:  # C4
    by_name = frame(raw.ATTACH, "s", Uint(0), True, Ubyte(2), Ubyte(0), None, Described(Ulong(raw.TARGET), []))
    with Raw(broker.port, opening("unsub"), begin(), subscribing("s"), DETACH) as one:
        one.until("detach")
        assert [name for name in broker._broker.nodes.queues if "unsub" in name]
        one.say(by_name, CLOSE_LINK)
        assert one.until("attach").fields[5] is not None
        assert not one.until("detach").error
        until(lambda: not [name for name in broker._broker.nodes.queues if "unsub" in name])


@pytest.mark.parametrize("receives", [True, False], ids=["receiver", "sender"])
@pytest.mark.parametrize("end", [DETACH, CLOSE_LINK], ids=["detach", "close"])
def test_refused_attach_has_its_error_though_a_detach_came_behind_it(
    broker: RunningBroker, end: bytes, receives: bool
) -> None:  # C4
    """2.6.3: a link that can not be established is detached with the error."""
    attach = raw.attach("l", 0, "unknown", receives=receives)
    with Raw(broker.port, opening(), begin(), attach, end) as one:
        assert one.until("attach").fields[5 if receives else 6] is None
        assert one.until("detach").error == "amqp:not-found"
        one.say(raw.attach("l", 0, "known-1", receives=receives))
        assert one.until("attach").fields[5 if receives else 6] is not None, "its name can be used again"


@pytest.mark.parametrize("receives", [True, False], ids=["receiver", "sender"])
def test_detach_behind_an_attach_waits_for_the_answer(broker: RunningBroker, receives: bool) -> None:  # C4
    with Raw(broker.port, opening(), begin(), raw.attach("l", 0, "known-2", receives=receives), CLOSE_LINK) as one:
        assert one.until("attach").fields[5 if receives else 6] is not None
        detached = one.until("detach")
        assert detached.fields[1] is True
        assert not detached.error
        one.say(raw.attach("l", 0, "known-2", receives=receives))
        assert one.until("attach").fields[5 if receives else 6] is not None
