"""A bus in one process, for groups in memory, with every fault that has been observed in an engine.

A `MemoryNetwork` models the machines and the links between them. To members, it behaves as corosync does:

* A ring with an unreachable node delivers no more messages.
* After `detection_s`, new rings are formed from the nodes that reach each other.
* Each process receives the departures first, then the arrivals, then the quorum of the new ring.
* Frames that were pending in a daemon are then sent in the new ring, however old they are.

Everything runs in one thread. Behavior that the contract of `bus.Bus` leaves open is drawn from the seed: the number of
events that a poll returns, and the time at which quorum is reported. No ring forms by itself: call `step` after the
clock has advanced.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.cluster.group.bus import BusAddress, BusChange, BusDied, BusEvent, BusMessage, RingId
from cairnmq.cluster.group.group import GroupError
from cairnmq.cluster.group.group_events import Quorum

PENDING_FRAMES = 64
"""The number of frames that a daemon keeps when it cannot send them; it refuses further frames."""


@dataclass(slots=True)
class Ring:
    id: RingId
    nodes: frozenset[int]
    broken_at: float | None = None


@dataclass(slots=True)
class Daemon:
    """The corosync daemon of one machine."""

    node: int
    ring: Ring
    running: bool = True
    paused: bool = False
    pending: deque[tuple[MemoryBus, bytes | None]] = field(default_factory=deque)
    """Frames to send; None stands for a process that leaves."""
    unheard: list[tuple[str, BusMessage]] = field(default_factory=list)
    """Messages delivered to the daemon's own processes while no other daemon could receive them."""
    buses: list[MemoryBus] = field(default_factory=list)
    groups: dict[str, frozenset[BusAddress]] = field(default_factory=dict)
    """The addresses on the bus in each group, as this daemon sees them."""

    def members(self, name: str) -> frozenset[BusAddress]:
        return self.groups.get(name, frozenset())


class MemoryNetwork:
    """Machines 1 to *configured*, all of which run and reach each other at the start."""

    def __init__(
        self, configured: int, seed: int = 0, clock: ManualClock | None = None, detection_s: float = 1.0
    ) -> None:
        self.configured = configured
        self.clock = clock or ManualClock()
        self.detection_s = detection_s
        self.random = random.Random(seed)
        self._ring_seq = 0
        self._pids = 100
        ring = self._ring(frozenset(range(1, configured + 1)))
        self.daemons = {node: Daemon(node, ring) for node in ring.nodes}
        self._cut: set[tuple[int, int]] = set()
        self._drops: dict[tuple[int, int], int] = {}
        self._again: dict[int, int] = {}

    def bus(self, node: int) -> MemoryBus:
        """Return the bus of a new process on machine *node*, which has not joined yet."""
        self._pids += 1
        return MemoryBus(self, node, self._pids)

    # ---- faults -----------------------------------------------------------------------------------------------------

    def partition(self, *sides: Iterable[int]) -> None:
        """Partition the network: nodes reach only nodes of the same side; a node in none of *sides* is isolated."""
        of = {node: number for number, side in enumerate(sides) for node in side}
        nodes = self.daemons
        self._cut = {(a, b) for a in nodes for b in nodes if a != b and of.get(a, -a) != of.get(b, -b)}
        self._look()

    def heal(self) -> None:
        self._cut.clear()
        self._look()

    def cut_egress(self, node: int) -> None:
        """Cut the egress of a node: its frames reach only itself, until the other nodes detect the failure."""
        self._cut |= {(node, other) for other in self.daemons if other != node}
        self._look()

    def kill_daemon(self, node: int) -> None:
        """Kill the daemon of a node: its processes receive the error and must join again."""
        daemon = self.daemons[node]
        daemon.running = False
        daemon.paused = False
        daemon.pending.clear()
        daemon.unheard.clear()
        daemon.groups.clear()
        for bus in daemon.buses:
            bus.die("the cluster's daemon died")
        daemon.buses.clear()
        self._look()

    def start_daemon(self, node: int) -> None:
        """Start the daemon of a node, alone in its own ring until rings are formed again."""
        daemon = self.daemons[node]
        if not daemon.running:
            daemon.running = True
            daemon.ring = self._ring(frozenset([node]))
            self._look()

    def pause_daemon(self, node: int) -> None:
        """Pause the daemon of a node, as SIGSTOP does; frames that its processes send meanwhile stay pending in it."""
        self.daemons[node].paused = True
        self._look()

    def resume_daemon(self, node: int) -> None:
        self.daemons[node].paused = False
        self._look()

    def kill_process(self, bus: MemoryBus, ghost: bool = False) -> None:
        """Kill a process, as SIGKILL does to a broker; a *ghost* stays in the member lists."""
        bus.dead = True
        bus.inbox.clear()
        daemon = self.daemons[bus.node]
        if bus in daemon.buses and not ghost:
            self.submit(daemon, bus, None)

    def drop(self, sender: int, at: int = 0, count: int = 1) -> None:
        """Lose the next *count* frames of *sender* silently: at node *at*, or everywhere if *at* is 0."""
        self._drops[sender, at] = self._drops.get((sender, at), 0) + count

    def try_again(self, node: int, count: int) -> None:
        """Make the daemon of a node refuse its next *count* frames."""
        self._again[node] = count

    def quiet(self) -> None:
        """Cancel the requested losses and refusals that have not occurred yet."""
        self._drops.clear()
        self._again.clear()

    # ---- the engine -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Form new rings if one has been broken for `detection_s`."""
        now = self.clock.monotonic_s()
        due = [
            daemon.ring
            for daemon in self.daemons.values()
            if daemon.running and daemon.ring.broken_at is not None and now >= daemon.ring.broken_at + self.detection_s
        ]
        if due:
            self._form()

    def send(self, bus: MemoryBus, frame: bytes) -> bool:
        daemon = self.daemons[bus.node]
        if self._again.get(bus.node, 0) > 0:
            self._again[bus.node] -= 1
            return False
        if len(daemon.pending) >= PENDING_FRAMES:
            return False
        self.submit(daemon, bus, frame)
        return True

    def submit(self, daemon: Daemon, bus: MemoryBus, frame: bytes | None) -> None:
        stuck = daemon.ring.broken_at is not None and (frame is None or not self._mute(daemon))
        if stuck or daemon.paused or daemon.pending:
            daemon.pending.append((bus, frame))
        else:
            self._order(daemon, bus, frame)

    def join(self, bus: MemoryBus) -> bool:
        """Join the bus; return False if that is not possible now."""
        daemon = self.daemons[bus.node]
        if not daemon.running:
            raise GroupError(f"cluster node {bus.node}", "the daemon is not running", "start it")
        if daemon.paused or daemon.ring.broken_at is not None or bus.address in daemon.members(bus.name):
            return False
        daemon.buses.append(bus)
        bus.inbox.append(Quorum(2 * len(daemon.ring.nodes) > self.configured))
        self._change(daemon.ring, bus.name, joined=frozenset([bus.address]))
        return True

    def _mute(self, daemon: Daemon) -> bool:
        """Return whether a daemon receives from all others and reaches none: it continues for a while."""
        others = daemon.ring.nodes - {daemon.node}
        return bool(others) and all(
            (daemon.node, other) in self._cut and (other, daemon.node) not in self._cut for other in others
        )

    def _order(self, daemon: Daemon, bus: MemoryBus, frame: bytes | None) -> None:
        """Deliver a frame to all members of the ring."""
        if frame is None:
            if bus in daemon.buses:
                daemon.buses.remove(bus)
            if bus.address in daemon.members(bus.name):
                self._change(daemon.ring, bus.name, left=frozenset([bus.address]))
            return
        event = BusMessage(bus.address, frame)
        if self._dropped(bus.node, 0):
            return
        if daemon.ring.broken_at is not None:
            daemon.unheard.append((bus.name, event))
            self._give(daemon.node, bus.name, event)
            return
        for node in sorted(daemon.ring.nodes):
            if not self._dropped(bus.node, node):
                self._give(node, bus.name, event)

    def _dropped(self, sender: int, at: int) -> bool:
        left = self._drops.get((sender, at), 0)
        if left:
            self._drops[sender, at] = left - 1
        return left > 0

    def _give(self, node: int, name: str, event: BusEvent) -> None:
        for bus in self.daemons[node].buses:
            if bus.name == name:
                bus.give(event)

    def _change(
        self,
        ring: Ring,
        name: str,
        left: frozenset[BusAddress] = frozenset(),
        joined: frozenset[BusAddress] = frozenset(),
    ) -> None:
        for node in sorted(ring.nodes):
            daemon = self.daemons[node]
            members = daemon.groups[name] = daemon.members(name) - left | joined
            self._give(node, name, BusChange(ring.id, members, left, joined))

    def _ring(self, nodes: frozenset[int]) -> Ring:
        self._ring_seq += 4
        return Ring(RingId(min(nodes), self._ring_seq), nodes)

    def _reach(self, a: int, b: int) -> bool:
        here, there = self.daemons[a], self.daemons[b]
        fit = here.running and there.running and not here.paused and not there.paused
        return fit and (a, b) not in self._cut and (b, a) not in self._cut

    def _look(self) -> None:
        """Mark rings that are broken or could be larger, after a change of machines or links; unmark repaired ones."""
        now = self.clock.monotonic_s()
        for daemon in self.daemons.values():
            if not daemon.running or daemon.paused:
                continue
            if daemon.ring.broken_at is None and self._component(daemon.node) != daemon.ring.nodes:
                daemon.ring.broken_at = now
        for daemon in self.daemons.values():
            ring = daemon.ring
            if ring.broken_at is not None and all(self._complete(node, ring) for node in ring.nodes):
                ring.broken_at = None
                self._send_again(ring)
                for node in sorted(ring.nodes):
                    self._send_pending(self.daemons[node])

    def _complete(self, node: int, ring: Ring) -> bool:
        daemon = self.daemons[node]
        return daemon.ring is ring and self._component(node) == ring.nodes

    def _component(self, node: int) -> frozenset[int]:
        """Return the nodes that can form a ring with *node*: all reach all, and lower node numbers choose first."""
        free = sorted(self.daemons)
        while free:
            ring: list[int] = []
            for each in free:
                if all(self._reach(each, other) for other in ring):
                    ring.append(each)
            if node in ring:
                return frozenset(ring)
            free = [each for each in free if each not in ring]
        raise AssertionError(node)

    def _form(self) -> None:
        old = {node: (daemon.ring, dict(daemon.groups)) for node, daemon in self.daemons.items()}
        formed: dict[frozenset[int], Ring] = {}
        for node, daemon in self.daemons.items():
            if not daemon.running or daemon.paused:
                continue
            nodes = self._component(node)
            if nodes == daemon.ring.nodes and all(self.daemons[each].ring is daemon.ring for each in nodes):
                daemon.ring.broken_at = None
                continue
            if nodes not in formed:
                formed[nodes] = self._ring(nodes)
        for nodes, ring in formed.items():
            for node in sorted(nodes):
                self._move(self.daemons[node], ring, old)
        for daemon in self.daemons.values():
            if daemon.running and not daemon.paused and daemon.ring.broken_at is None:
                self._send_pending(daemon)

    def _move(self, daemon: Daemon, ring: Ring, old: dict[int, tuple[Ring, dict[str, frozenset[BusAddress]]]]) -> None:
        """Deliver the changes of a new ring: first the departures, then the arrivals, then the quorum."""
        before, groups = old[daemon.node]
        daemon.ring = ring
        daemon.unheard.clear()
        met = {node for node in ring.nodes if old[node][0] is not before}
        for name in sorted({name for node in ring.nodes for name in old[node][1]}):
            members = groups.get(name, frozenset())
            left = frozenset(at for at in members if at.node in met or at.node not in ring.nodes)
            joined = frozenset(at for node in met for at in old[node][1].get(name, ()) if at.node == node)
            if left:
                self._give(daemon.node, name, BusChange(ring.id, members - left, left, frozenset()))
            daemon.groups[name] = members - left | joined
            self._give(daemon.node, name, BusChange(ring.id, daemon.groups[name], frozenset(), joined))
        for bus in daemon.buses:
            bus.give(Quorum(2 * len(ring.nodes) > self.configured))

    def _send_again(self, ring: Ring) -> None:
        """Deliver to the others what only the sender's node received, after a cut that ended before its detection."""
        for node in sorted(ring.nodes):
            for name, event in self.daemons[node].unheard:
                for other in sorted(ring.nodes - {node}):
                    self._give(other, name, event)
            self.daemons[node].unheard.clear()

    def _send_pending(self, daemon: Daemon) -> None:
        pending, daemon.pending = daemon.pending, deque()
        for bus, frame in pending:
            self.submit(daemon, bus, frame)


class MemoryBus:
    """The `Bus` of one process on a network in memory."""

    def __init__(self, network: MemoryNetwork, node: int, pid: int) -> None:
        self._network = network
        self.node = node
        self.address = BusAddress(node, pid)
        self.configured = network.configured
        self.nodes = (*sorted(network.daemons),)
        self.name = ""
        self.inbox: deque[BusEvent] = deque()
        self.dead = False
        self.asleep = False
        """True if the process receives nothing, as under SIGSTOP."""
        self._joined: bool | None = None
        """True if the bus has joined; None if no join was requested, or after an error."""
        self._event_fd: int | None = None

    def join(self, name: str) -> None:
        self.name = name
        self._joined = self._network.join(self)

    def rejoin(self) -> None:
        daemon = self._network.daemons[self.node]
        self.inbox.clear()
        if self._joined and self in daemon.buses:
            daemon.buses.remove(self)
            self._network.submit(daemon, self, None)
        self._joined = False

    def send(self, frame: bytes) -> bool:
        return bool(self._joined) and not self.dead and self._network.send(self, frame)

    def poll(self, limit: int) -> Iterable[BusEvent]:
        """Yield at most *limit* events; by chance, fewer than are available."""
        if self._joined is False and not self.dead:
            try:
                self._joined = self._network.join(self)
            except GroupError as error:
                self.die(error.reason)
        if self.asleep:
            return
        limit = self._network.random.choice((limit, limit, 1, 2, 3))
        while self.inbox and limit > 0:
            limit -= 1
            yield self.inbox.popleft()
        if not self.inbox and self._event_fd is not None:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._event_fd)

    def give(self, event: BusEvent) -> None:
        if self.dead:
            return
        if isinstance(event, Quorum):  # only the newest quorum is valid, even if it overtakes other events
            for older in [one for one in self.inbox if isinstance(one, Quorum)]:
                self.inbox.remove(older)
        if isinstance(event, Quorum) and self._network.random.random() < 0.5:
            self.inbox.appendleft(event)
        else:
            self.inbox.append(event)
        if self._event_fd is not None:
            os.eventfd_write(self._event_fd, 1)

    def die(self, reason: str) -> None:
        self.inbox.clear()
        self.give(BusDied(reason))
        self._joined = None

    def fileno(self) -> int:
        if self._event_fd is None:
            self._event_fd = os.eventfd(len(self.inbox), os.EFD_NONBLOCK)
        return self._event_fd

    def wait_s(self) -> float | None:
        return 0.0 if self.inbox else 0.005 if self._joined is False else None

    def close(self) -> None:
        if not self.dead:
            self._network.kill_process(self)
        if self._event_fd is not None:
            os.close(self._event_fd)
            self._event_fd = None
