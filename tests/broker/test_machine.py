"""A property test of queues with all policies, for any operations in any order and restarts at any point.

Queues without a dropping policy must contain exactly the messages of the model. For queues that drop messages, the
model has the messages that may be there. The counters are checked on all queues, and the core never raises.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from proton import Message

from cairnmq.amqp.codec import encode
from cairnmq.amqp.codec.types import Described, Symbol
from cairnmq.amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED, RELEASED
from cairnmq.amqp.ports import Open, Outcome, Terminus
from tests.harness.broker.policies import Policed, decoded
from tests.harness.broker.world import FakeTerminal
from tests.harness.thorough import amount

POLICIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "dead": {"dead-letter-address": "plain"},
    "deaths": {"dead-letter-address": "dead", "max-deliveries": 2},
    "retried": {"retry-delay-ms": 700, "dead-letter-address": "nowhere/at all"},
    "late": {"message-ttl-ms": 2500, "expiry-address": "dead"},
    "ring": {"max-messages": 4, "overflow": "ring"},
    "sized": {"max-bytes": 3000, "overflow": "reject"},
    "blocked": {"max-messages": 4, "overflow": "block", "dead-letter-address": "fan"},
    "urgent": {"priorities": True, "dead-letter-address": "dead"},
    "newest": {"last-value-key": "subject", "message-ttl-ms": 5000},
    "groups": {"message-groups": True, "retry-delay-ms": 300},
    "single": {"single-active-consumer": True, "max-messages": 5, "overflow": "ring"},
    "once": {"duplicate-window": 3},
    "brief": {"auto-delete": "no-messages"},
}
KEEPING = ("plain", "dead", "deaths", "retried", "urgent", "groups", "blocked", "late")
"""Queues that lose messages only by moving them to other queues."""
names = st.sampled_from(sorted(POLICIES))
SELECTOR = encode.value(
    {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "number > 5 AND JMSType <> 'b'")}
)


class Taker:
    """A consumer in the model."""

    def __init__(self, terminal: FakeTerminal, queue: str, presettled: bool) -> None:
        self.terminal = terminal
        self.queue = queue
        self.presettled = presettled
        self.asked = 0
        self.seen = 0
        self.held: list[tuple[Any, int]] = []
        self.closed = False


class Machine(RuleBasedStateMachine):
    """One broker with a small memory limit."""

    def __init__(self) -> None:
        super().__init__()
        self.policed = Policed(15_000)
        self.world = self.policed.world
        self.number = 0
        self.takers: list[Taker] = []
        self.removed: list[Taker] = []
        """Closed consumers; messages that are still forwarded to them are requeued at once."""
        self.expiring: set[int] = set()
        self.moved: set[int] = set()
        self.dropped: set[int] = set()
        """Messages that may have left their queues by a purge or a deletion."""
        self.there: dict[str, dict[int, bool]] = {name: {} for name in POLICIES}
        """Messages that may be on each queue, with their durability."""
        for name, arguments in POLICIES.items():
            self.make(name, arguments)
        nodes = self.world.broker.nodes
        for queue in ("plain", "urgent", "late"):
            self.world.do(nodes.bind, nodes.exchanges["amq.topic"], nodes.queues[queue], f"#.{queue}", {}, no_error)

    def make(self, name: str, arguments: dict[str, Any]) -> None:
        made: list[Any] = []
        self.world.do(self.world.broker.nodes.create_queue, name, arguments, made.append)
        assert not isinstance(made[0], Exception), made

    def open(self, *, to_client: bool, presettled: bool = False, link: str = "", **terminus: Any) -> FakeTerminal:
        terminal = FakeTerminal()
        attach = Open(to_client, Terminus(**terminus), presettled, None, link or f"link {self.number}", "client")
        self.world.do(self.world.broker.drivers.open, attach, terminal)
        return terminal

    # ---- actions of clients -----------------------------------------------------------------------------------------

    @rule(
        queue=names,
        count=st.integers(1, 6),
        durable=st.booleans(),
        ttl=st.sampled_from((0, 0, 1, 3)),
        priority=st.integers(0, 10),
        word=st.sampled_from((None, "a", "b")),
        size=st.sampled_from((0, 500, 2500)),
    )
    def send(
        self, queue: str, count: int, durable: bool, ttl: int, priority: int, word: str | None, size: int
    ) -> None:
        sender = self.open(to_client=False, address=queue)
        if sender.driver is None:
            return
        batch, numbers = [], []
        for _ in range(count):
            self.number += 1
            numbers.append(self.number)
            message = Message(
                body=str(self.number).rjust(size),
                durable=durable,
                ttl=ttl,
                priority=priority,
                subject=word,
                group_id=word,
                id=str(self.number // 2) if queue == "once" else None,
                properties={"number": self.number},
            )
            batch.append((self.number, bytes(message.encode()), 0))
        self.world.send(sender, *batch)
        if queue in self.there:
            for number in set(numbers) & set(sender.confirmed):
                self.there[queue][number] = durable
                if queue == "late" or ttl:
                    self.there["dead" if queue == "late" else queue].setdefault(number, durable)
        self.expiring |= set(numbers) if ttl or "message-ttl-ms" in POLICIES.get(queue, {}) else set()
        self.world.do(sender.driver.close, (), False, False)

    @rule(size=st.integers(1, 3), durable=st.booleans())
    def send_in_pieces(self, size: int, durable: bool) -> None:
        sender = self.open(to_client=False, address="plain")
        if sender.driver is None:
            return
        self.number += 1
        content = bytes(Message(body=str(self.number).rjust(size * 70_000), durable=durable).encode())
        pieces = [content[at : at + 30_000] for at in range(0, len(content), 30_000)]
        for place, piece in enumerate(pieces, 1):
            self.world.send(sender, (self.number, piece, int(place < len(pieces))))
        if self.number in sender.confirmed:
            self.there["plain"][self.number] = durable
        self.world.do(sender.driver.close, (), False, False)

    @rule(
        queue=names,
        credit=st.sampled_from((1, 3, 50)),
        presettled=st.booleans(),
        selecting=st.booleans(),
        browse=st.sampled_from((False, False, True)),
    )
    def receive(self, queue: str, credit: int, presettled: bool, selecting: bool, browse: bool) -> None:
        if len(self.takers) >= 5:
            return
        filters = SELECTOR if selecting else b""
        terminal = self.open(
            to_client=True, address=queue, presettled=presettled and not browse, filters=filters, browse=browse
        )
        if terminal.driver is None:
            return
        taker = Taker(terminal, queue, presettled)
        taker.asked = credit
        self.world.do(terminal.driver.request, credit, False)
        if browse:
            self.world.read_all()
            self.world.do(terminal.driver.close, [tag for tag, _ in terminal.forwarded], False, False)
        else:
            self.takers.append(taker)

    @rule(data=st.data(), more=st.integers(0, 5), drain=st.booleans())
    def ask(self, data: st.DataObject, more: int, drain: bool) -> None:
        if self.takers:
            taker = data.draw(st.sampled_from(self.takers))
            if not taker.closed:
                taker.asked += more
                self.world.do(taker.terminal.driver.request, taker.asked, drain)

    @rule(
        data=st.data(),
        state=st.sampled_from((ACCEPTED, ACCEPTED, REJECTED, RELEASED, MODIFIED, 0)),
        failed=st.booleans(),
        undeliverable=st.booleans(),
        count=st.integers(1, 5),
    )
    def settle(self, data: st.DataObject, state: int, failed: bool, undeliverable: bool, count: int) -> None:
        holders = [taker for taker in self.takers if taker.held and not taker.closed]
        if not holders:
            return
        taker = data.draw(st.sampled_from(holders))
        settled, taker.held = taker.held[:count], taker.held[count:]
        for _, number in settled:
            durable = self.there[taker.queue].get(number, False)
            target = POLICIES[taker.queue].get("dead-letter-address", "")
            may_die = state == REJECTED or "max-deliveries" in POLICIES[taker.queue]
            if state == ACCEPTED or (state == REJECTED and target not in self.there):
                self.there[taker.queue].pop(number, None)
            elif may_die:
                self.moved.add(number)
                self.there[target].setdefault(number, durable)
        outcomes = [Outcome(None, tag, state, failed, undeliverable) for tag, _ in settled]
        self.world.do(taker.terminal.driver.outcomes, outcomes)

    @rule(data=st.data(), crossing=st.integers(0, 4), lost=st.booleans())
    def leave(self, data: st.DataObject, crossing: int, lost: bool) -> None:
        """Close a consumer while some messages are still on their way to its channel."""
        if self.takers:
            taker = data.draw(st.sampled_from(self.takers))
            tags = [tag for tag, _ in taker.held]
            if lost and "max-deliveries" in POLICIES[taker.queue]:
                self.moved |= {number for _, number in taker.held}
                for _, number in taker.held:
                    self.there["dead"].setdefault(number, self.there[taker.queue].get(number, False))
            keep = len(tags) if taker.closed else max(0, len(tags) - crossing)
            self.world.do(taker.terminal.driver.close, tags[:keep], lost, False)
            taker.held = taker.held[keep:]
            taker.closed = True
            if not taker.held and (keep == len(tags)):
                self.takers.remove(taker)
                self.removed.append(taker)

    # ---- actions of administrators, time and restarts ---------------------------------------------------------------

    @rule(queue=names)
    def purge(self, queue: str) -> None:
        nodes = self.world.broker.nodes
        if queue in nodes.queues:
            held = {number for taker in self.takers for _, number in taker.held if taker.queue == queue}
            self.world.do(nodes.queues[queue].order.purge, no_error, "")
            self.dropped |= {*self.there[queue]} - held
            self.there[queue] = {number: lasts for number, lasts in self.there[queue].items() if number in held}

    @rule(queue=names)
    def delete(self, queue: str) -> None:
        nodes = self.world.broker.nodes
        if queue in nodes.queues:
            self.world.do(nodes.delete_queue, nodes.queues[queue], no_error)
            self.dropped |= {*self.there[queue]}
            self.there[queue] = {}
            for taker in [taker for taker in self.takers if taker.queue == queue]:
                self.world.do(taker.terminal.driver.close, [tag for tag, _ in taker.held], False, False)
                self.takers.remove(taker)
        self.make(queue, POLICIES[queue])

    @rule(seconds=st.sampled_from((0.2, 0.8, 2.0, 6.0)))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule()
    def read(self) -> None:
        self.world.read_one()

    @rule()
    def restart(self) -> None:
        self.policed.restart()
        self.world.step()
        self.takers.clear()
        self.removed.clear()
        for queue, there in self.there.items():
            self.there[queue] = {number: True for number, lasts in there.items() if lasts}
        for name, arguments in POLICIES.items():
            self.make(name, arguments)

    # ---- invariants -------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Record the newly forwarded messages as held by their consumers."""
        for taker in (*self.takers, *self.removed):
            forwarded = taker.terminal.forwarded
            for tag, content in forwarded[taker.seen :]:
                number = int(decoded(content).body)
                known = self.there[taker.queue]
                assert number in known or number in self.moved | self.expiring | self.dropped, (taker.queue, number)
                if taker.presettled:
                    known.pop(number, None)
                else:
                    taker.held.append((tag, number))
            taker.seen = len(forwarded)
        for taker in [taker for taker in self.removed if taker.held]:
            self.world.do(taker.terminal.driver.close, [tag for tag, _ in taker.held], False, False)
            taker.held.clear()

    @invariant()
    def counters_are_right(self) -> None:
        self.look()
        broker = self.world.broker
        memories = [queue.memory for queue in broker.nodes.queues.values()]
        loading_bytes = sum(sum(links.values()) for links in broker.core.complete_loads._holding.values())
        counted_bytes = sum(memory.held_bytes + memory.read_bytes for memory in memories) + loading_bytes
        assert broker.core.memory.used_bytes == counted_bytes
        for queue in broker.nodes.queues.values():
            if queue.name in POLICIES and not queue.contents.reader.is_reading and not queue.contents.delayed:
                held = len(queue.with_consumers())
                alive = sum(not entry.is_dequeued for entry in (*queue.contents.ready, *queue.contents.returned))
                parked = sum(map(len, getattr(queue, "_parked", {}).values()))
                stored = queue.contents.backlog.count - queue.contents.backlog.holes
                assert queue.messages == held + alive + parked + stored, queue.name

    def teardown(self) -> None:
        """Close all consumers and consume all remaining messages."""
        for taker in self.takers:
            self.look()  # messages that the previous consumer returned may have been forwarded to this one
            self.world.do(taker.terminal.driver.close, [tag for tag, _ in taker.held], False, False)
            taker.held.clear()
        for _ in range(8):
            self.world.read_all()
            self.world.advance(5)
        found: dict[str, list[int]] = {}
        for name in POLICIES:
            if name in self.world.broker.nodes.queues:
                found[name] = [int(body) for body in self.policed.bodies(name)]
                assert len(found[name]) == len(set(found[name])), f"twice on {name}: {found[name]}"
                queue = self.world.broker.nodes.queues.get(name)
                if queue is not None:
                    assert queue.messages == 0, name
                    assert (queue.memory.held_bytes, queue.memory.read_bytes) == (0, 0), name
                    assert queue.limits is None or queue.limits.bytes == 0, name
        everywhere = {number for numbers in found.values() for number in numbers}
        for name in KEEPING:
            expected = {number for number, lasts in self.there[name].items() if lasts} - self.moved - self.expiring
            missing = expected - everywhere - self.dropped
            assert not missing, f"{name} lost {missing}"
            unknown = set(found.get(name, ())) - {*self.there[name]} - self.moved - self.expiring - self.dropped
            assert not unknown, f"{name} has {unknown}"


def no_error(result: object) -> None:
    assert not isinstance(result, Exception), result


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=amount("CAIRN_MACHINE_RUNS", 60, 20),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
