"""A harness of complete cluster members in one thread, with all random choices drawn from one seed.

Stores (on disks in memory), brokers and members are real; the group engine is in memory, the clock is manual, and
clients work at the level of channels.
"""

from __future__ import annotations

import functools
import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from cairnmq.amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED, RELEASED
from cairnmq.amqp.ports import Delivery, Forward, Open, Outcome, Terminus
from cairnmq.base.errors import CairnError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.broker.broker import Broker
from cairnmq.broker.messages.entry import ARRIVAL_MASK
from cairnmq.cluster.broker_handler import BrokerHandler
from cairnmq.cluster.health.liveness import SILENCE_S
from cairnmq.cluster.member import ClusterMember, MemberOptions
from cairnmq.cluster.nodes.failover_addresses import ClientAddresses
from cairnmq.cluster.replication.flow_control import LIMIT_BYTES
from cairnmq.recovery.recover import recover
from tests.harness.broker.world import FakeTerminal, message, number_of
from tests.harness.cluster.memory_bus import MemoryNetwork
from tests.harness.cluster.memory_group import on_bus
from tests.harness.recovery.world import OPTIONS, MemoryWiring
from tests.harness.store.small_disk import SmallDisk

ACCEPT, RELEASE, FAIL, REJECT = ACCEPTED, RELEASED, MODIFIED, REJECTED
TICK_S = 0.01


SECTOR_BYTES = 4096
"""The sector size of disks; `tests/recovery` tests the effect of power cuts on blocks."""


@functools.cache
def _empty_wiring(node: int) -> object:
    """Return the wiring of a new store, cached: the creation of its tables takes half as long as a scenario."""
    wiring = MemoryWiring()
    wiring.identify(UUID(int=node))
    return wiring.hold()


class Connection:
    """A connection of a client, which the broker may close."""

    name = "simulated"
    container = "simulated"
    user = ""

    def __init__(self) -> None:
        self.expelled = ""
        self.sent_elsewhere = False

    def idle_s(self) -> float | None:
        return None

    def expel(self, description: str, *, elsewhere: bool = False) -> None:
        self.expelled = self.expelled or description
        self.sent_elsewhere = elsewhere


class SimulatedMember:
    """A machine with its disk and, while `running`, the process on it."""

    core_type: type[ClusterMember] = ClusterMember

    def __init__(self, network: MemoryNetwork, node: int) -> None:
        self.network = network
        self.node = node
        self.clock: ManualClock = network.clock
        self.disk = MemoryDirectory(sector_bytes=SECTOR_BYTES)
        self.wiring = MemoryWiring()
        self.wiring.put_back(_empty_wiring(node))
        self.running = False
        self.asleep = False
        self.failures: list[CairnError] = []
        self.lives = 0
        self.flow_limit_bytes = LIMIT_BYTES
        self.is_disk_slow = False
        """True if the disk reports no writes as durable."""
        self.is_reader_slow = False
        """True if requested reads from the disk do not complete."""
        self.capacity_bytes = 0
        """The capacity of the disk; 0 means unlimited."""
        self.silence_s = SILENCE_S
        self.places = ClientAddresses()
        self.agreed = ""
        """The version and options that the member sends to its group."""
        self.name = "test"
        """The configured name of the cluster."""

    def start(self) -> None:
        self.lives += 1
        self.actions: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self.readings: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.clients: list[Any] = []
        self.unheard_lsn = 0
        self.files = SmallDisk(self.disk, self.capacity_bytes) if self.capacity_bytes else self.disk
        self.store, _ = recover(self.files, self.wiring, self.clock, OPTIONS)
        actions = self.actions
        self.store.run_inline(lambda lsn: actions.append((self._durable, (lsn,))))
        self.bus = self.network.bus(self.node)
        group = on_bus(self.bus, self.network, agreed=self.agreed)
        options = MemberOptions(
            silence_s=self.silence_s, flow_limit_bytes=self.flow_limit_bytes, places=self.places
        )
        self.core = self.core_type(
            group, self.name, lambda: self.network.configured, self.clock, self.failures.append, options
        )
        readings = self.readings
        self.broker = Broker(
            self.store,
            self.clock,
            lambda action, *args: actions.append((action, args)),
            lambda work, *args: readings.append((work, args)),
            cluster=BrokerHandler(self.core),
        )
        self.running = True
        self.waits_until_s = 0.0

    def _durable(self, lsn: int) -> None:
        if self.is_disk_slow:
            self.unheard_lsn = lsn
            return
        self.broker.steps.durable(lsn)

    def look_at_room(self) -> None:
        """Flush, prepare containers, check for free space and grant withheld credit, as the threads of a journal do."""
        self.store.kick()
        self.store.journal.writer.write_mark()
        while self.store.journal.pool.prepare():
            pass
        self.store.journal.pool.look_at_room()
        self.do(self.broker.sender_credit.grant_withheld)

    def hurry_disk(self) -> None:
        self.is_disk_slow = False
        if self.running and self.unheard_lsn:
            self.do(self._durable, self.unheard_lsn)

    def kill(self, cut: random.Random | None = None) -> None:
        """Kill the process; with *cut*, simulate a power cut that loses some of the unsynced data."""
        self.running = self.asleep = self.is_disk_slow = False
        self.store.journal.abandon()
        self.network.kill_process(self.bus)
        self.disk = self.disk.after_kill() if cut is None else self.disk.after_power_cut(cut)

    def stop(self) -> None:
        """Stop the member in order: disconnect its clients and leave the group."""
        for client in [*self.clients]:
            client.leave()
        self.settle()
        self.core.leave()
        self.store.kick()
        self.kill()

    def runs(self, life: int) -> bool:
        """Return whether the process that *life* numbers (see `lives`) is still running."""
        return self.running and self.lives == life

    @property
    def serves(self) -> bool:
        return self.running and not self.core.service.not_serving_reason()

    def do(self, action: Callable[..., object], *args: Any) -> None:
        self.actions.append((action, args))

    def step(self) -> None:
        """Run one step as the threads of a broker do: only if input arrived or a timer is due."""
        if not self.running or self.asleep:
            return
        if not (self.actions or self.readings or self.bus.inbox) and self.clock.monotonic_s() < self.waits_until_s:
            return
        self._step()
        if self.running:
            wait_s = self.core.group.wait_s()
            group_s = math.inf if wait_s is None else self.clock.monotonic_s() + wait_s
            self.waits_until_s = min(group_s, self.broker.core.scheduler.due_s)

    def _step(self) -> None:
        self.broker.steps.finish()
        while self.actions:
            action, args = self.actions.popleft()
            action(*args)
            if not self.running:
                return
            if not self.actions:
                self.broker.steps.finish()
        for _ in range(0 if self.is_reader_slow else len(self.readings)):
            work, args = self.readings.popleft()
            work(*args)
        if self.broker.core.scheduler.due_s <= self.clock.monotonic_s():
            self.do(self.broker.core.scheduler.run)

    def settle(self) -> None:
        for _ in range(20):
            self.step()

    def contents(self, name: str) -> list[tuple[int, int]]:
        """Return the position and number of each message on a queue of this member, sorted."""
        return sorted((position, number_of(content)) for position, content in self.whole_contents(name).items())

    def whole_contents(self, name: str) -> dict[int, bytes]:
        """Return the complete content of each message on a queue by position; durable contents are read from disk."""
        replica, durable_lsn = self.core.owners.replicas[name], self.store.durable_lsn
        found = {
            entry.position & ARRIVAL_MASK: (
                self.load(entry.message_id)
                if entry.content is None or 0 < entry.message_id < durable_lsn
                else entry.complete()
            )
            for entry in replica.entries()
            if not entry.is_dequeued
        }
        for position, message_id in replica.stored():
            if position not in found:
                found[position] = self.load(message_id)
        return found

    def marks(self, name: str) -> dict[int, tuple[bool, int]]:
        """Return, by position, whether each message was delivered before, and its number of failed deliveries."""
        replica = self.core.owners.replicas[name]
        below = replica.queue.contents.delivered_below
        found = {position: (message_id < below, int(message_id < below)) for position, message_id in replica.stored()}
        for entry in replica.entries():
            if not entry.is_dequeued:
                found[entry.position & ARRIVAL_MASK] = entry.previously_delivered, entry.failures
        return found

    def load(self, message_id: int) -> bytes:
        pieces = range(self.store.piece_count(message_id))
        return b"".join(self.store.load_piece(message_id, number) for number in pieces)


class Client(FakeTerminal):
    """A connection with one link."""

    def __init__(
        self, member: SimulatedMember, *, to_client: bool, address: str = "q", presettled: bool = False
    ) -> None:
        super().__init__()
        self.member = member
        self.life = member.lives
        self.connection = Connection()
        self.to_client = to_client
        self.address = address
        self.closed = False
        self.told = {}
        member.clients.append(self)
        attach = Open(to_client, Terminus(address=address), presettled, self.connection)
        member.do(member.broker.drivers.connection_opened, self.connection)
        member.do(member.broker.drivers.open, attach, self)

    @property
    def is_dead(self) -> bool:
        is_there = self.member.runs(self.life)
        return bool(self.closed or not is_there or self.failures or self.connection.expelled)

    def leave(self, *, lost: bool = False, unsettled: Sequence[Any] = ()) -> None:
        """Close the connection, and requeue the unsettled deliveries."""
        if self.closed:
            return
        self.closed = True
        if self in self.member.clients:
            self.member.clients.remove(self)
        if not self.member.runs(self.life):
            return
        if self.driver is not None:
            self.member.do(self._close, unsettled, lost)

    def _close(self, unsettled: Sequence[Any], lost: bool) -> None:
        self.driver.close(tuple(unsettled), lost, not lost)
        self.member.broker.drivers.link_closed(self)  # type: ignore[arg-type]  # terminals of tests have fewer methods
        self.member.broker.drivers.connection_closed(self.connection)


class Sender(Client):
    def __init__(self, member: SimulatedMember, address: str = "q") -> None:
        super().__init__(member, to_client=False, address=address)
        self.sent: list[int] = []

    def send(self, numbers: Sequence[int], *, size_bytes: int = 10, durable: bool = True) -> None:
        self.send_whole({number: message(number, size_bytes, durable) for number in numbers})

    def send_whole(self, messages: Mapping[int, bytes]) -> None:
        """Send *messages*; the broker confirms each under its key."""
        if self.driver is None or self.is_dead:
            return
        self.sent += messages
        self.member.do(self.driver.receive, [(number, content, 0) for number, content in messages.items()])


class Receiver(Client):
    def __init__(self, member: SimulatedMember, address: str = "q", *, presettled: bool = False) -> None:
        super().__init__(member, to_client=True, address=address, presettled=presettled)
        self.unsettled: dict[int, tuple[Any, bool]] = {}
        self.order: list[tuple[int, bool]] = []
        """Numbers in order of arrival, each with whether the message was marked as delivered before."""
        self.accepted: list[int] = []
        self.on_forward: Callable[[Receiver, Any, bool], None] = lambda *_: None
        """Called with the content of each message, and whether it arrived after the client's end."""
        self.presettled = presettled
        self._limit = 0
        self._back: list[Any] = []
        """Deliveries to requeue when the connection closes, with those that arrive after its end."""

    def forward(self, messages: Sequence[Forward]) -> None:
        is_late = self.is_dead
        for entry, content in messages:
            self.on_forward(self, content, is_late)
            if is_late:
                if not self.presettled:
                    self._back.append(entry)
                continue
            number = number_of(content)
            marked = bool(entry.previously_delivered)
            self.order.append((number, marked))
            if not self.presettled:
                self.unsettled[number] = (entry, marked)

    def request(self, credit: int) -> None:
        self._limit += credit
        if self.driver is not None and not self.is_dead:
            self.member.do(self.driver.request, self._limit, False)

    def settle_as(self, numbers: Sequence[int], state: int, *, failed: bool = False) -> None:
        if self.driver is None or self.is_dead:
            return
        outcomes = [
            Outcome(number, self.unsettled.pop(number)[0], state, failed, False)
            for number in numbers
            if number in self.unsettled
        ]
        self.member.do(self.driver.outcomes, outcomes)

    def leave(self, *, lost: bool = False, unsettled: Sequence[Any] = ()) -> None:
        self._back += [entry for entry, _ in self.unsettled.values()]
        self.unsettled.clear()
        super().leave(lost=lost, unsettled=self._back)

    def settle(self, deliveries: Sequence[tuple[Delivery, int]]) -> None:
        super().settle(deliveries)
        self.accepted += [number for number, state in deliveries if state == ACCEPTED]


class ClusterHarness:
    """The members of a simulated cluster and the network between them."""

    def __init__(
        self, size: int = 3, seed: int = 0, member: type[SimulatedMember] = SimulatedMember, detection_s: float = 0.1
    ) -> None:
        self.network = MemoryNetwork(size, seed, detection_s=detection_s)
        self.members = {node: member(self.network, node) for node in range(1, size + 1)}
        self.on_tick: Callable[[], None] = lambda: None
        """Called at the end of each tick."""

    def __getitem__(self, node: int) -> SimulatedMember:
        return self.members[node]

    def start(self) -> ClusterHarness:
        for member in self.members.values():
            member.start()
        assert self.until(lambda: all(member.serves for member in self.members.values())), self.reason()
        return self

    def tick(self) -> None:
        self.network.clock.advance(TICK_S)
        self.network.step()
        for member in self.members.values():
            member.step()
        self.on_tick()

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds / TICK_S)):
            self.tick()

    def until(self, condition: Callable[[], bool], seconds: float = 30) -> bool:
        for _ in range(int(seconds / TICK_S)):
            if condition():
                return True
            self.tick()
        return condition()

    def reason(self) -> dict[int, str]:
        return {
            node: f"{member.core.state.phase}: {member.core.service.not_serving_reason()}" if member.running else "off"
            for node, member in self.members.items()
        }

    def same_everywhere(self, name: str = "q") -> bool:
        contents = [member.contents(name) for member in self.members.values() if member.serves]
        return all(one == contents[0] for one in contents)


__all__ = ["ACCEPT", "FAIL", "REJECT", "RELEASE", "Client", "ClusterHarness", "Receiver", "Sender", "SimulatedMember"]


def send(harness: ClusterHarness, node: int, numbers: range) -> None:
    """Send messages from a client of *node*, and wait until all are confirmed."""
    sender = Sender(harness[node])
    assert harness.until(lambda: sender.driver is not None)
    sender.send(numbers)
    assert harness.until(lambda: len(sender.confirmed) == len(numbers)), harness.reason()
    sender.leave()


def started(*queues: str, **arguments: Any) -> ClusterHarness:
    """Return a started cluster with *queues*, each with *arguments*; other queues are created on first use."""
    harness = ClusterHarness().start()
    done: list[Any] = []
    for name in queues:
        harness[1].do(harness[1].broker.nodes.create_queue, name, arguments, done.append)
    assert harness.until(lambda: len(done) == len(queues))
    return harness
