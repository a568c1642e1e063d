"""Tests of the samples that a broker keeps of itself and of its queues."""

from __future__ import annotations

import tracemalloc
from array import array
from math import isnan, nan

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.amqp.codec import decode
from cairnmq.management.samples.operation import encoded
from cairnmq.management.samples.ring import SAMPLE_S, Ring, Span
from cairnmq.management.samples.sampler import GROWTH_SAMPLES, IDLE_S, MOST_HISTORIES, Sampler, state_of
from cairnmq.management.serve import sampler_of
from tests.harness.broker.world import WorkingClock, World, message

KEPT = 8


@given(st.lists(st.integers(1, 60), max_size=80), st.integers(0, 70))
def test_ring_keeps_the_last_samples_and_the_gaps(numbers: list[int], after: int) -> None:  # U6
    ring = Ring(Span(5, KEPT), 1, "d")
    model: dict[int, float] = {}
    for place, number in enumerate(numbers):
        ring.set(number, [place])
        model = {one: value for one, value in model.items() if one < number} | {number: place}
    begin, (values,) = ring.since(after)
    end = max(model, default=0) + 1
    known = {number: value for number, value in enumerate(values, begin) if not isnan(value)}
    assert known == {one: value for one, value in model.items() if one >= after and one >= end - KEPT}
    assert len(values) <= KEPT


def started(world: World) -> Sampler:
    sampler = sampler_of(world.broker.parts)
    world.do(sampler.begin)
    return sampler


def column(sampler: Sampler, name: str, queue: str = "", span: str = "hour") -> list[float]:
    history = sampler.history_of(sampler._nodes.queues[queue]) if queue else sampler.broker
    return list(history.since(span, 0)[1][name])


def test_broker_is_sampled_without_a_client_and_gaps_stay_gaps() -> None:  # U6
    world = World(1 << 20)
    sender = world.open(to_client=False)
    sampler = started(world)
    for number in range(10):
        world.send(sender, (object(), message(number, 10, durable=False), 0))
    world.advance(SAMPLE_S)
    assert column(sampler, "messages") == [0, 10]
    assert column(sampler, "messages", "q") == [10]
    assert column(sampler, "enqueue-rate", "q")[-1] == column(sampler, "enqueue-rate")[-1] == 10 / SAMPLE_S
    world.advance(4 * SAMPLE_S)
    missing = column(sampler, "messages")[2:5]
    assert len(missing) == 3
    assert all(map(isnan, missing)), "the broker did not run"
    assert column(sampler, "messages")[5:] == [10]
    assert column(sampler, "enqueue-rate")[-1] == 0


def test_day_has_the_last_level_and_the_mean_rate_of_each_minute() -> None:  # U6
    world = World(1 << 20)
    world.clock.now_s = 6000.0
    sender = world.open(to_client=False)
    sampler = started(world)
    for number in range(23):
        world.send(sender, (object(), message(number, 10, durable=False), 0))
        world.advance(SAMPLE_S)
    assert column(sampler, "messages", span="day") == [11, 23]
    assert [round(rate, 3) for rate in column(sampler, "enqueue-rate", span="day")] == [0.2, 0.2]


def test_queue_without_consumers_and_growing_queue_are_reported() -> None:  # U6
    world = World(1 << 20)
    sender = world.open(to_client=False)
    sampler = started(world)

    def state() -> str:
        return state_of(world.queue(), sampler.sample_of(world.queue()))

    assert state() == "normal"
    consumer = world.open(to_client=True)
    for number in range(GROWTH_SAMPLES):
        assert state() == "normal"
        world.send(sender, (object(), message(number, 10, durable=False), 0))
        world.advance(SAMPLE_S)
    assert state() == "growing"
    world.do(consumer.driver.request, 2, False)
    world.advance(SAMPLE_S)
    assert state() == "normal"
    world.do(consumer.driver.close, (), False, True)
    assert state() == "no consumers"


def test_sampling_of_many_queues_is_bounded_in_memory_and_takes_slices() -> None:  # U6
    clock = WorkingClock(0.0)
    world = World(1 << 24, clock=clock)
    for number in range(3000):
        world.broker.nodes.add_queue(f"q{number}", {})
        world.queue(f"q{number}").messages = 1
    world.step()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    sampler = sampler_of(world.broker.parts)
    clock._each_s = 0.0005
    world.begin_step(sampler.begin, until=lambda: True)
    assert not sampler.totals, "the pass takes more than one step"
    world.broker.steps.finish()
    world.read_all()
    clock._each_s = 0.0
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert sampler.totals["messages"] == 3000
    assert len(sampler._histories) == MOST_HISTORIES
    assert used < MOST_HISTORIES * 80_000 + 3000 * 500
    assert f"q{MOST_HISTORIES}" not in {queue.name for queue in sampler._histories}
    sampler.history_of(world.queue("q2999"))
    assert len(sampler._histories) == MOST_HISTORIES
    assert world.queue("q2999") in sampler._histories, "asked about"
    world.broker.nodes.delete_queue(world.queue("q2999"), lambda _: None)
    world.step()
    world.advance(IDLE_S)
    assert world.queue("q2998") not in sampler._histories or len(sampler._histories) <= MOST_HISTORIES


def test_samples_are_an_array_of_doubles() -> None:
    values = array("f", [0.0, 1.5, nan, -2.0])
    found, at = decode.value(encoded(values))
    assert at == len(encoded(values))
    assert [str(one) for one in found.items] == ["0.0", "1.5", "nan", "-2.0"]
