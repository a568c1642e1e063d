"""A harness of a cluster whose queue `q` is federated to another site; the test controls the connection."""

from __future__ import annotations

from collections import deque
from typing import Any

from cairnmq.amqp.links.attach import Attach, End
from cairnmq.amqp.native.proton_ffi import ACCEPTED
from cairnmq.amqp.ports import Delivery, Error, Open, Outcome, Terminus
from cairnmq.cluster.kernel.inbox import ReceivedEvent
from cairnmq.cluster.member import ClusterMember
from tests.harness.broker.following_world import Attached, Contents, FollowerSide, Outward, To
from tests.harness.broker.world import FakeTerminal
from tests.harness.broker.world import World as Broker
from tests.harness.cluster.cluster_harness import ClusterHarness, SimulatedMember

MEMORY_BYTES = 64 << 20
OBSERVER = 3
"""The member that records the states of the queue; it has no clients, so its messages keep their positions."""


class ObservedCore(ClusterMember):
    """A cluster member that calls `observe` after each event."""

    observe: Any = None

    def work(self) -> bool:
        if self.observe is None:
            return super().work()
        apply = self.apply_loop.apply

        def observed(received: ReceivedEvent) -> None:
            apply(received)
            self.observe()

        self.apply_loop.apply = observed  # type: ignore[method-assign]
        try:
            return super().work()
        finally:
            del self.apply_loop.apply


class ObservedMember(SimulatedMember):
    core_type = ObservedCore


class Sites(FollowerSide):
    """The queue `q` of a cluster of *size* members, and its federated copy `q` at `follower`."""

    def __init__(self, seed: int = 0, *, size: int = 3, observed: bool = True, **arguments: Any) -> None:
        """*observed*: record each state of the queue; no message may then be long enough to arrive in parts."""
        self.cluster = ClusterHarness(size, seed, member=ObservedMember).start()
        self.follower = Broker(MEMORY_BYTES)
        self.to = To()
        self.link: tuple[SimulatedMember, FakeTerminal, Attached] | None = None
        """The upstream member and the ends of the link."""
        self.received: deque[Delivery] = deque()
        self._confirmed = 0
        self.cluster[1].do(self.cluster[1].broker.nodes.create_queue, "q", arguments, print)
        assert self.cluster.until(lambda: all("q" in one.core.owners.replicas for one in self.cluster.members.values()))
        self.states: dict[Contents, None] = {(): None}
        """All states of the durable messages on the queue so far."""
        observer = self.cluster[min(OBSERVER, size)].core
        assert isinstance(observer, ObservedCore)
        self._is_observed = observed
        if observed:
            observer.observe = self._observe

    def _observe(self) -> None:
        self.states[self.now()] = None

    def now(self, node: int = OBSERVER) -> Contents:
        """Return the numbers of the durable messages on the queue of member *node*."""
        member = self.cluster[min(node, len(self.cluster.members))]
        replica = member.core.owners.replicas.get("q")
        if replica is None:
            return ()
        lasting = {entry.position for entry in replica.entries() if entry.message_id}
        lasting |= {position for position, _ in replica.stored()}
        return tuple(number for position, number in member.contents("q") if position in lasting)

    # ---- connection ------------------------------------------------------------------------------------------------

    def connect(self, node: int) -> list[str]:
        """Attach the follower's link to member *node*; return the errors of a refusal."""
        member, outward, terminal = self.cluster[node], Outward(), FakeTerminal()
        self.to.connection = outward
        self.follower.do(self.follower.broker.remote.federated_queues.came, self.to, outward)
        asked, answered, attached = outward.asked.pop()
        attach = Open(True, Terminus(address=asked.source.address), link_name=asked.name, attach=asked)
        member.do(member.broker.drivers.open, attach, terminal)
        assert self.cluster.until(lambda: not member.running or terminal.driver is not None or bool(terminal.failures))
        if terminal.failures or not member.running:
            attached.error = Error(terminal.failures[0] if terminal.failures else "gone", "")
            self.to.connection = None
            self.follower.do(self.follower.broker.drivers.link_closed, attached)
            return terminal.failures
        self.link = member, terminal, attached
        self._confirmed = 0
        self.received.clear()
        self.follower.do(answered, Attach(asked.name, End(2, asked.source.address), asked.target))
        member.do(terminal.driver.request, attached.credit, False)
        return []

    def cut(self) -> None:
        """Break the connection, also to a killed member; messages and dispositions in flight are lost."""
        if self.link is None:
            return
        member, terminal, _ = self.link
        self.link = None
        if member.running:
            member.do(terminal.driver.close, (), True, False)
        self.to.connection = None
        self.follower.do(self.follower.broker.remote.federated_queues.went, self.to)

    @property
    def is_up(self) -> bool:
        return self.link is not None and self.link[0].running and not self.link[1].failures

    def carry(self) -> bool:
        """Deliver one message from the member to the follower; return False if none was waiting."""
        if self.link is None or not self.link[1].forwarded:
            return False
        _, terminal, attached = self.link
        tag, content = terminal.forwarded.pop(0)
        self.follower.do(attached.driver.receive, [(tag, content, 0)])
        self.received += attached.confirmed[self._confirmed :]
        self._confirmed = len(attached.confirmed)
        return True

    def answer(self) -> bool:
        """Deliver one disposition and one credit from the follower to the member; return False if none was waiting."""
        if self.link is None or not self.received:
            return False
        member, terminal, _ = self.link
        member.do(terminal.driver.outcomes, [Outcome(None, self.received.popleft(), ACCEPTED)])
        member.do(terminal.driver.request, terminal.driver._limit + 1, False)
        return True

    def hold(self) -> None:
        """Check that the copy at the follower equals a past state of the queue."""
        copy = self.copy()
        assert not self._is_observed or copy is None or copy in self.states, (copy, [*self.states][-5:])

    def catch_up(self, seconds: float = 3) -> None:
        for _ in range(int(seconds / 0.01)):
            while self.carry() or self.answer():
                self.hold()
            self.cluster.tick()
