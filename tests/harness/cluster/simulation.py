"""Scenarios of a simulated cluster, each drawn from a seed: clients send and receive during random faults.

At the end everything is repaired, and the histories of the clients are compared with what the members store
(`histories`):

* a confirmed message is on each queue it was sent to, or a client has accepted it there; receivers of the queue `once`
  are presettled, so messages in flight to them at a fault may be lost, but none is delivered twice (D1);
* a message whose accept was settled is on no queue, and is not delivered afterwards (D3), except by a member that is
  no longer in the group and has not detected it: decision 38; the same applies to messages that were purged, or deleted
  with their queue (`simulated_management`);
* at most one delivery of a message indicates that it is the first (D2, D6);
* the first deliveries of a sender's messages to one receiver are in the sender's order, and so are the messages on
  their queue, with the exceptions in docs/explanation/cluster.md;
* delivered and stored messages equal the sent ones, byte by byte;
* all members have the same messages on every queue, at the same positions and with the same marks, and the same wiring
  (D15, `consistency`);
* transactions are atomic over all their queues, on all members (D53; `simulated_transactions`).

    python -m tests.harness.cluster.simulation SEED [RUNS [hangs]]

runs scenarios from SEED on, on all cores, and prints the seeds that fail; a single run is reported in full. With
`hangs`, members hang and resume, and no network faults occur.
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from cairnmq.cluster.health.liveness import SILENCE_S
from cairnmq.cluster.kernel.phases import SYNCHRONIZED
from cairnmq.cluster.replication.flow_control import LIMIT_BYTES
from tests.harness.cluster import numbered_messages as letters
from tests.harness.cluster.cluster_harness import (
    ACCEPT,
    FAIL,
    REJECT,
    RELEASE,
    Client,
    ClusterHarness,
    Receiver,
    Sender,
    SimulatedMember,
)
from tests.harness.cluster.consistency import checked
from tests.harness.cluster.histories import DEAD_LETTERS, Broken, Histories, keys
from tests.harness.cluster.simulated_faults import Faults
from tests.harness.cluster.simulated_management import CHANGING, EXCHANGE, Operations
from tests.harness.cluster.simulated_transactions import Worker
from tests.harness.cluster.transaction_client import Source
from tests.harness.recovery.cores import little_garbage, on_all_cores

FAN = "x"
"""An exchange that routes all messages to two queues."""
FANNED = ("q", "f")
SHAPES: tuple[dict[str, object], ...] = (
    {}, {}, {"priorities": True}, {"single-active-consumer": True}, {"retry-delay-ms": 50}, {"duplicate-window": 9},
)  # fmt: skip
STEPS = 80
SHARD = 20
"""The number of runs per task of a worker process."""


class Batch(NamedTuple):
    """Messages that a client sent together, and the queues on which they must be once confirmed."""

    queues: tuple[str, ...]
    """Queues that receive the messages in any case."""
    perhaps: tuple[str, ...] = ()
    """Queues that receive them if bound from operation `since` until the confirmation."""
    since: int = 0
    """The number of management operations when the messages were sent."""


class Simulation:
    """One run."""

    def __init__(
        self, seed: int, member: type[SimulatedMember] = SimulatedMember, steps: int = STEPS, *, hangs: bool = False
    ) -> None:
        """*hangs*: members hang and resume, without network faults; then no late delivery is excused."""
        self.seed = seed
        self.random = random.Random(seed)
        self.size = self.random.choice((3, 3, 3, 4, 5))
        self.harness = ClusterHarness(self.size, seed, member, detection_s=self.random.choice((0.1, 0.1, 0.5)))
        for each in self.harness.members.values():
            each.flow_limit_bytes = self.random.choice((5_000, 100_000, LIMIT_BYTES))
        silence_s = self.random.choice((0.3, 1.0, SILENCE_S))
        for each in self.harness.members.values():
            each.silence_s = silence_s
        self.steps = steps
        self.numbers = 0
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.workers: list[Worker] = []
        self.batches: dict[int, Batch] = {}
        self.histories = Histories()
        self.updated: set[int] = set()
        """Nodes whose stores hold transferred state."""
        self.log: list[str] = []
        self.met: Counter[str] = Counter()
        self.harness.on_tick = self.look_at_epochs
        self.faults = Faults(self.harness, self.random, self.note)
        self.faults.hangs = self.histories.is_strict = hangs
        self.operations = Operations(self.histories, self.random, self.note)

    def run(self) -> None:
        harness = self.harness.start()
        self.declare()
        for _ in range(self.steps):
            self.act()
            for _ in range(self.random.choice((1, 1, 2, 5, 15))):
                harness.tick()
                self.look()
        self.mend()
        self.check()

    def declare(self) -> None:
        member = self.harness[1]
        done: list[object] = []
        nodes = member.broker.nodes
        policy = {"max-deliveries": 40, **self.random.choice(SHAPES)}
        self.note(f"policy {policy}")
        for name in ("dead", "once", "f", "q", "r"):
            arguments = {"dead-letter-address": DEAD_LETTERS[name]} if name in DEAD_LETTERS else {}
            member.do(nodes.create_queue, name, {**arguments, **policy} if name == "q" else arguments, done.append)
        for name in (FAN, EXCHANGE):
            member.do(nodes.create_exchange, name, "fanout", {}, done.append)
        assert self.harness.until(lambda: len(done) == 7)
        for name in FANNED:
            member.do(nodes.bind, nodes.exchanges[FAN], nodes.queues[name], "", {}, done.append)
        assert self.harness.until(lambda: len(done) == 9)

    # ---- actions --------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        self.log.append(f"{self.harness.network.clock.now_s:.2f} {text}")
        self.met[text.split()[0]] += 1

    def act(self) -> None:
        draw = self.random.random()
        if draw < 0.08:
            self.faults.fault()
        elif draw < 0.14:
            self.faults.mend_something()
        elif draw < 0.22 and len(self.senders) < 4:
            address = self.random.choice(("q", "q", FAN, FAN, "r", "once", EXCHANGE, "t1"))
            self.senders.append(Sender(self.member(), address))
        elif draw < 0.32 and len(self.receivers) < 4:
            self.come()
        elif draw < 0.36 and self.receivers:
            receiver = self.random.choice(self.receivers)
            receiver.leave(lost=self.random.random() < 0.5)
        elif draw < 0.38 and len(self.workers) < 2:
            self.workers.append(Worker(self.member(), self.forwarded))
        elif draw < 0.39 and self.workers:
            self.random.choice(self.workers).client.leave(lost=self.random.random() < 0.5)
        elif draw < 0.52 and self.workers:
            self.work()
        elif draw < 0.57:
            self.operations.ask(self.member())
        elif draw < 0.77 and self.senders:
            self.send()
        elif self.receivers:
            self.receive()

    def work(self) -> None:
        worker = self.random.choice(self.workers)
        worker.work(self.random, self.fresh, self.histories.sends)
        attempt = worker.attempt
        if attempt is not None and attempt.commits:
            self.histories.may_be_rejected("q", keys("q", attempt.of_rejected))

    def member(self) -> SimulatedMember:
        running = [member for member in self.harness.members.values() if member.running]
        return self.random.choice(running or [self.harness[1]])

    def come(self) -> None:
        member = self.member()
        if member.running:
            once = self.random.random() < 0.12
            address = "once" if once else self.random.choice(("q", "q", "q", "r", "f", "dead", *CHANGING))
            receiver = Receiver(member, address, presettled=once)
            receiver.on_forward = self.forwarded
            self.receivers.append(receiver)

    def send(self) -> None:
        sender = self.random.choice(self.senders)
        count = self.random.choice((1, 1, 3, 10, 40))
        numbers = self.fresh(count)
        size = self.random.choice((10, 10, 100, 2000, 100_000 if count < 3 else 10))
        batch = Batch((sender.address,))
        if sender.address == FAN:
            batch = Batch(FANNED)
        elif sender.address == EXCHANGE:
            operations = self.operations
            bound = [name for name in CHANGING if operations.is_bound(name, sender.member, operations.number)]
            batch = Batch((), tuple(bound), operations.number)
        for name in CHANGING if sender.address == EXCHANGE else batch.queues:
            self.histories.sends(name, numbers, size, sender)
        self.batches.update(dict.fromkeys(numbers, batch))
        sender.send_whole({number: letters.written(number, size) for number in numbers})

    def fresh(self, count: int) -> range:
        self.numbers += count
        return range(self.numbers - count, self.numbers)

    def receive(self) -> None:
        receiver = self.random.choice(self.receivers)
        if self.random.random() < 0.5 or not receiver.unsettled:
            receiver.request(self.random.choice((1, 5, 50)))
            return
        numbers = [number for number in [*receiver.unsettled] if self.random.random() < 0.7]
        state = self.random.choice((ACCEPT, ACCEPT, ACCEPT, ACCEPT, RELEASE, FAIL, REJECT))
        if receiver.is_dead:
            return
        if state == ACCEPT:
            self.histories.accepts(keys(receiver.address, numbers))
        elif state == REJECT:
            self.histories.rejects(receiver.address, keys(receiver.address, numbers))
        receiver.settle_as(numbers, state, failed=state == FAIL)

    def forwarded(self, receiver: Receiver | Source, content: Any, is_late: bool) -> None:
        letter, histories = letters.read(content), self.histories
        if not letter.is_complete or letter.size_bytes != histories.sizes[letter.number]:
            raise Broken(f"{receiver.address}: {letter} came, and was not sent so")
        if is_late:
            histories.seen.update(keys(receiver.address, [letter.number]))
        else:
            histories.forwarded(
                receiver.member, receiver.address, letter.number,
                marked=letter.is_marked, presettled=receiver.presettled,
            )  # fmt: skip

    def look(self) -> None:
        """Record the confirmations and outcomes that clients received, and remove closed clients."""
        histories = self.histories
        for sender in self.senders:
            for number in sender.confirmed:
                self.is_confirmed(sender, number)
            sender.confirmed.clear()
        for receiver in self.receivers:
            if receiver.accepted:
                histories.is_final(keys(receiver.address, receiver.accepted), receiver.member)
            receiver.accepted.clear()
        self.operations.look()
        for client in [*self.senders, *self.receivers]:
            if client.is_dead:
                client.leave(lost=True)
        self.senders = [sender for sender in self.senders if not sender.closed]
        for worker in self.workers:
            attempt = worker.look()
            if attempt is not None:
                self.note(f"transaction {attempt.done} {sorted(attempt.puts)[:3]} {attempt.takes}")
                self.met[f"transaction-{attempt.done}"] += 1
                histories.over(attempt, worker.client.member)
            if worker.client.is_dead:
                worker.client.leave(lost=True)
        self.workers = [worker for worker in self.workers if not worker.client.closed]
        for receiver in [receiver for receiver in self.receivers if receiver.closed]:
            histories.check_order(receiver.address, receiver.order)
            self.receivers.remove(receiver)

    def is_confirmed(self, sender: Sender, number: int) -> None:
        batch = self.batches.pop(number)
        for name in batch.queues:
            self.histories.confirmed |= keys(name, [number])
        for name in batch.perhaps:
            if self.operations.is_bound(name, sender.member, batch.since):
                self.met["routed"] += 1
                self.histories.confirmed |= keys(name, [number])

    def look_at_epochs(self) -> None:
        """Record new epochs, nodes whose stores hold transferred state, and epochs that began from such a store."""
        for node, member in self.harness.members.items():
            if not member.running:
                continue
            core = member.core
            if core.receiver.requests:
                self.updated.add(node)
            if core.state.phase == SYNCHRONIZED and core.state.epoch > self.histories.epoch:
                self.histories.epoch = core.state.epoch
                if node in self.updated:
                    self.histories.shuffled = core.state.epoch

    # ---- the end --------------------------------------------------------------------------------------------------

    def mend(self) -> None:
        self.note("mend everything")
        harness = self.harness
        harness.network.heal()

        def mended() -> bool:
            for node, member in harness.members.items():
                paused = harness.network.daemons[node].paused
                if not member.running or member.failures or member.asleep or member.is_disk_slow or paused:
                    self.faults.wake(node)
            self.look()
            return all(member.serves for member in harness.members.values())

        if not harness.until(mended, 90):
            raise Broken(f"it does not come together again: {harness.reason()}")
        for client in [*self.senders, *self.receivers]:
            client.leave()
        for worker in self.workers:
            worker.client.leave()
        harness.run(1)  # members that hung detect only now that their daemon died
        if not harness.until(mended, 90):
            raise Broken(f"it does not come together again: {harness.reason()}")
        self.look()
        if not harness.until(lambda: self.is_quiet(), 10):
            raise Broken("it does not come to rest")
        self.operations.end()

    def is_quiet(self) -> bool:
        self.look()
        return not self.operations.open and all(
            not len(member.core.locals)
            and not member.core.commits.backlog
            and not member.core.flow.holds
            and member.serves
            for member in self.harness.members.values()
        )

    def check(self) -> None:
        self.histories.check(checked(self.harness, self.histories.sizes))


def run(
    seed: int, member: type[SimulatedMember] = SimulatedMember, steps: int = STEPS, *, hangs: bool = False
) -> Simulation:
    """Run one scenario; raise `Broken` with the seed and the last log lines if it fails."""
    simulation = Simulation(seed, member, steps, hangs=hangs)
    try:
        simulation.run()
    except Exception as error:
        story = "\n".join(simulation.log[-60:])
        raise Broken(f"seed {seed}: {str(error) or repr(error)}\n{story}") from error
    return simulation


class Outcomes(NamedTuple):
    """The results of several runs."""

    runs: int
    met: Counter[str]
    failures: list[str]

    def __str__(self) -> str:
        return "\n".join([*self.failures, f"{self.runs} runs, {len(self.failures)} failed: {dict(self.met)}"])


def some(first: int, runs: int, hangs: bool = False) -> Outcomes:
    """Run the scenarios of consecutive seeds in this process, and return their results."""
    lives = Outcomes(runs, Counter(), [])
    logging.disable(logging.CRITICAL)  # members log every fault
    try:
        with little_garbage():
            for seed in range(first, first + runs):
                try:
                    simulation = run(seed, hangs=hangs)
                except Exception as error:
                    what = str(error).partition("\n")[0] or f"seed {seed}: {error!r}"
                    again = f"python -m tests.harness.cluster.simulation {seed}{' 1 hangs' if hangs else ''}"
                    lives.failures.append(f"{what}; again: {again}")
                    continue
                lives.met.update(simulation.met)
                lives.met["confirmed"] += len(simulation.histories.confirmed)
                lives.met["settled"] += len(simulation.histories.final)
                lives.met["expelled"] += max(
                    (member.core.liveness.expulsions for member in simulation.harness.members.values()), default=0
                )
    finally:
        logging.disable(logging.NOTSET)
    return lives


def many(
    first: int, runs: int, told: Callable[[Outcomes], None] = lambda lives: None, *, hangs: bool = False
) -> Outcomes:
    """Run the scenarios of consecutive seeds on all cores; *told* receives the results of each part."""
    ends = first + runs
    total = Outcomes(runs, Counter(), [])
    for lives in on_all_cores(some, ((at, min(SHARD, ends - at), hangs) for at in range(first, ends, SHARD))):
        told(lives)
        total.met.update(lives.met)
        total.failures.extend(lives.failures)
    return total


def _show(so_far: Outcomes) -> None:
    for failure in so_far.failures:
        print(failure, flush=True)


def main() -> None:
    first, runs = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    hangs = "hangs" in sys.argv[3:]
    if runs == 1:
        print(dict(run(first, hangs=hangs).met))
        return
    lives = many(first, runs, _show, hangs=hangs)
    print(lives)
    sys.exit(bool(lives.failures))


if __name__ == "__main__":
    main()

__all__ = ["Broken", "Client", "Outcomes", "Simulation", "many", "run"]
