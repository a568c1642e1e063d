"""The sampler: reads the figures of all queues every `SAMPLE_S`, in time slices.

| kept | for | memory |
|---|---|---|
| an hour and a day of the broker | one | 140 KiB |
| rates and growth | each queue | 200 bytes |
| an hour and a day of a queue | `MOST_HISTORIES` queues: with messages, or asked about | 55 KiB |

A pass over 10,000 queues takes 20 ms each `SAMPLE_S`, of which a step of the core does 2 ms at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import nan
from typing import Protocol

from ...broker.contents.policy import Policy
from ...broker.kernel.context import CoreContext
from ...broker.nodes.node_removal import RetiredTotals
from ...broker.nodes.registry import NodeRegistry
from ...store.journaled.metrics import measure
from ...store.journaled.store import JournalStore
from .ring import SAMPLE_S, History

MOST_HISTORIES = 128
"""Queues with a history."""
AT_ONCE = 64
"""Queues between two checks of the clock."""
IDLE_S = 60.0
"""A queue that did nothing for so long gives its history to a busy one."""
GROWTH_SAMPLES = 3
"""A queue grows if its ready messages became more in so many samples, and fewer in none between."""
QUEUE_COLUMNS = {
    "messages": False, "ready": False, "unsettled": False, "consumers": False,
    "enqueue-rate": True, "dequeue-rate": True,
}  # fmt: skip
BROKER_COLUMNS = QUEUE_COLUMNS | {"disk-free-bytes": False, "sync-ms": True}
COUNTERS = (
    "queues", "messages", "ready", "consumers", "held-bytes", "enqueued", "dequeued", "dead-lettered", "expired"
)  # fmt: skip


class QueueMemory(Protocol):
    """The memory of a queue's messages."""

    @property
    def held_bytes(self) -> int: ...


class SampledQueue(Protocol):
    """The figures of a queue that are sampled."""

    name: str
    policy: Policy
    is_deleted: bool
    messages: int
    taken: int
    dead_lettered: int
    expired: int

    @property
    def memory(self) -> QueueMemory: ...

    @property
    def depth(self) -> int: ...

    @property
    def taker_count(self) -> int: ...

    @property
    def enqueued(self) -> int: ...


class QueueSample:
    """The last sample of a queue."""

    __slots__ = ("dequeue_rate", "dequeued", "enqueue_rate", "enqueued", "growth", "ready")

    def __init__(self, ready: int) -> None:
        self.enqueued = self.dequeued = 0
        self.ready = ready
        self.enqueue_rate = self.dequeue_rate = nan
        self.growth = 0

    def update(self, queue: SampledQueue, elapsed_s: float) -> bool:
        """Take the next sample; return whether the queue did anything since the last one."""
        enqueued, dequeued, ready = queue.enqueued, queue.taken, queue.depth
        self.growth = 0 if ready < self.ready else min(GROWTH_SAMPLES, self.growth + (ready > self.ready))
        came, went = max(0, enqueued - self.enqueued), max(0, dequeued - self.dequeued)
        self.enqueue_rate, self.dequeue_rate = came / elapsed_s, went / elapsed_s
        self.enqueued, self.dequeued, self.ready = enqueued, dequeued, ready
        return bool(came or went)


Seen = dict[SampledQueue, QueueSample]


class Sampler:
    """The samples of one broker. Core only."""

    def __init__(self, core: CoreContext, nodes: NodeRegistry, retired: RetiredTotals) -> None:
        self._core = core
        self._nodes = nodes
        self._retired = retired
        self.broker = History(BROKER_COLUMNS, "d")
        self.totals: dict[str, int] = {}
        """Sums over all queues but the broker's own, as of the last sample; empty before the first one."""
        self._samples: dict[SampledQueue, QueueSample] = {}
        self._histories: dict[SampledQueue, tuple[History, float]] = {}
        """The queues with a history, and when they last did something, or were asked about; the longest idle first."""
        self._at_s = 0.0
        self._before: tuple[float, int, int] | None = None
        """The time and the counters of the last pass, for the rates of the broker."""
        self._syncs = 0, 0.0

    def begin(self) -> None:
        """Take a sample, and another one after each interval of the wall clock."""
        self._at_s = self._core.clock.monotonic_s()
        self._go_on(iter(list(self._nodes.queues.values())), {}, dict.fromkeys(COUNTERS, 0))

    def sample_of(self, queue: SampledQueue) -> QueueSample | None:
        """Return the last sample of *queue*; None before the first one."""
        return self._samples.get(queue)

    def history_of(self, queue: SampledQueue) -> History:
        """Return the history of *queue*, which is kept from now on."""
        return self._kept(queue, self._core.clock.monotonic_s(), is_asked=True) or History(QUEUE_COLUMNS, "f")

    def _go_on(self, queues: Iterator[SampledQueue], seen: Seen, sums: dict[str, int]) -> None:
        while some := list(islice(queues, AT_ONCE)):
            for queue in some:
                if not queue.is_deleted and not queue.name.startswith("$"):
                    self._sample(queue, seen, sums)
            if not self._core.background.has_time():
                self._core.background.put_off(lambda: self._go_on(queues, seen, sums))
                return
        self._samples = seen
        for queue in [queue for queue in self._histories if queue not in seen]:
            del self._histories[queue]
        self._finish(sums)
        wall_s = self._core.clock.wall_us() / 1e6
        self._core.scheduler.after(SAMPLE_S - wall_s % SAMPLE_S, self.begin)

    def _sample(self, queue: SampledQueue, seen: Seen, sums: dict[str, int]) -> None:
        now_s = self._at_s
        sample = seen[queue] = self._samples.get(queue) or QueueSample(queue.depth)
        is_busy = sample.update(queue, nan if self._before is None else max(0.001, now_s - self._before[0]))
        messages, ready, consumers = queue.messages, sample.ready, queue.taker_count
        sums["queues"] += 1
        sums["messages"] += messages
        sums["ready"] += ready
        sums["consumers"] += consumers
        sums["held-bytes"] += queue.memory.held_bytes
        sums["enqueued"] += sample.enqueued
        sums["dequeued"] += sample.dequeued
        sums["dead-lettered"] += queue.dead_lettered
        sums["expired"] += queue.expired
        history = self._kept(queue, now_s) if is_busy or messages else self._histories.get(queue, (None, 0.0))[0]
        if history is not None:
            rates = sample.enqueue_rate, sample.dequeue_rate
            wall_s = self._core.clock.wall_us() / 1e6
            history.add(wall_s, (messages, ready, max(0, messages - ready), consumers, *rates))

    def _kept(self, queue: SampledQueue, now_s: float, *, is_asked: bool = False) -> History | None:
        """Return the history of a queue that does something now; None if there is no room for one."""
        found = self._histories.pop(queue, None)
        if found is None and len(self._histories) >= MOST_HISTORIES:
            idle, (_, since_s) = next(iter(self._histories.items()))
            if not is_asked and now_s - since_s < IDLE_S:
                return None
            del self._histories[idle]
        history = History(QUEUE_COLUMNS, "f") if found is None else found[0]
        self._histories[queue] = history, now_s
        return history

    def _finish(self, sums: dict[str, int]) -> None:
        """Add the sample of the broker."""
        sums["enqueued"] += self._retired.enqueued
        sums["dequeued"] += self._retired.taken
        sums["dead-lettered"] += self._retired.dead_lettered
        sums["expired"] += self._retired.expired
        self.totals = sums
        rates = nan, nan
        now_s, enqueued, dequeued = self._at_s, sums["enqueued"], sums["dequeued"]
        if self._before is not None:
            elapsed_s = max(0.001, now_s - self._before[0])
            rates = max(0, enqueued - self._before[1]) / elapsed_s, max(0, dequeued - self._before[2]) / elapsed_s
        self._before = now_s, enqueued, dequeued
        unsettled = max(0, sums["messages"] - sums["ready"])
        levels = sums["messages"], sums["ready"], unsettled, sums["consumers"]
        self.broker.add(self._core.clock.wall_us() / 1e6, (*levels, *rates, *self._disk()))

    def _disk(self) -> tuple[float, float]:
        """Return the free bytes of the disk, and the mean duration of the syncs since the last sample."""
        if not isinstance(self._core.store, JournalStore):
            return nan, nan
        metrics = measure(self._core.store)
        number, total_s = sum(metrics.fsync_s.counts), metrics.fsync_s.total
        before, before_s = self._syncs
        self._syncs = number, total_s
        free = nan if metrics.disk_free_bytes is None else metrics.disk_free_bytes
        return free, 1000 * (total_s - before_s) / (number - before) if number > before else nan


def state_of(queue: SampledQueue, sample: QueueSample | None) -> str:
    """Return what an operator should look at; `normal` for nothing."""
    policy = queue.policy
    if policy.paused:
        return "paused"
    if policy.max_messages and queue.messages >= policy.max_messages:
        return "full"
    if queue.depth and not queue.taker_count:
        return "no consumers"
    if sample is not None and sample.growth >= GROWTH_SAMPLES:
        return "growing"
    return "normal"
