"""A life of a cluster, drawn from one seed: clients send and receive, and everything fails now and then.

Afterwards all is mended, and the histories of the clients are held against what the members have:

* what was confirmed is on a queue, or a client has accepted it; from the queue `once` receivers take for good, so what
  is on its way to them when something fails may be lost, but nothing comes a second time (D1);
* what a client was told to be accepted is on no queue, and nobody got it after that (D3), but from a member that the
  group had gone on without, and that does not know it yet: decision 38;
* of all deliveries of a message at most one says that nobody had it before (D2, D6);
* one sender's messages come to one receiver in their order, as long as they come for the first time;
* all members have the same on every queue, at the same positions (D15);
* of a transaction there is all or nothing, on all its queues, at all members (D53; `simulated_transactions`).

`python -m tests.cluster.simulation SEED [RUNS]` runs seeds from SEED on, on all cores, and names those that fail; with
one run only the whole story is told.
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

from cairnmq.cluster.events import told
from cairnmq.cluster.flow import LIMIT_BYTES
from cairnmq.cluster.group import MemberId

from ..recovery.cores import little_garbage, on_all_cores
from .simulated_transactions import Attempt, Worker, halves
from .transactor import Source
from .world import ACCEPT, FAIL, REJECT, RELEASE, Client, Member, Receiver, Sender, World

DEAD_LETTERS = "dead"
SHAPES: tuple[dict[str, object], ...] = (
    {}, {}, {"priorities": True}, {"single-active-consumer": True}, {"retry-delay-ms": 50}, {"duplicate-window": 9},
)  # fmt: skip
SHARD = 20
"""So many runs one process does at a time."""


class Broken(AssertionError):
    """A promise was broken."""


class Simulation:
    """One run."""

    def __init__(self, seed: int, member: type[Member] = Member, steps: int = 120) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.size = self.random.choice((3, 3, 3, 4, 5))
        self.world = World(self.size, seed, member, detection_s=self.random.choice((0.1, 0.1, 0.5)))
        for each in self.world.members.values():
            each.flow_limit_bytes = self.random.choice((5_000, 100_000, LIMIT_BYTES))
        self.steps = steps
        self.numbers = 0
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.confirmed: set[int] = set()
        self.sent_by: dict[int, Sender] = {}
        self.accepted: set[int] = set()
        """Clients said so, and may or may not have been told that it is."""
        self.final: set[int] = set()
        """They were told,"""
        self.final_in: dict[int, tuple[int, tuple[MemberId, ...]]] = {}
        """and which configuration the member was in that told them: its view, and who was in."""
        self.once: set[int] = set()
        self.gone_out: set[int] = set()
        self.rejected: set[int] = set()
        self.unmarked: Counter[int] = Counter()
        self.workers: list[Worker] = []
        self.attempts: list[Attempt] = []
        self.seen: set[int] = set()
        self.claims: Counter[int] = Counter()
        """How often clients accepted a message, as far as nobody told them that it was in vain."""
        self.log: list[str] = []
        self.met: Counter[str] = Counter()

    def run(self) -> None:
        world = self.world.start()
        self.declare()
        for _ in range(self.steps):
            self.act()
            for _ in range(self.random.choice((1, 1, 2, 5, 15))):
                world.tick()
                self.look()
        self.mend()
        self.check()

    def declare(self) -> None:
        member = self.world[1]
        done: list[object] = []
        nodes = member.broker.nodes
        member.do(nodes.create_queue, DEAD_LETTERS, {}, done.append)
        policy = {"dead-letter-address": DEAD_LETTERS, "max-deliveries": 40, **self.random.choice(SHAPES)}
        self.note(f"policy {policy}")
        member.do(nodes.create_queue, "q", policy, done.append)
        member.do(nodes.create_queue, "r", {"dead-letter-address": DEAD_LETTERS}, done.append)
        member.do(nodes.create_queue, "once", {}, done.append)
        assert self.world.until(lambda: len(done) == 4)

    # ---- what happens ---------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        self.log.append(f"{self.world.network.clock.now_s:.2f} {text}")
        self.met[text.split()[0]] += 1

    def act(self) -> None:
        draw = self.random.random()
        if draw < 0.08:
            self.fault()
        elif draw < 0.14:
            self.mend_something()
        elif draw < 0.22 and len(self.senders) < 4:
            self.senders.append(Sender(self.member(), self.random.choice(("q", "q", "q", "r", "once"))))
        elif draw < 0.32 and len(self.receivers) < 4:
            self.come()
        elif draw < 0.36 and self.receivers:
            receiver = self.random.choice(self.receivers)
            receiver.leave(lost=self.random.random() < 0.5)
        elif draw < 0.38 and len(self.workers) < 2:
            self.workers.append(Worker(self.member(), self.forwarded))
        elif draw < 0.39 and self.workers:
            self.random.choice(self.workers).client.leave(lost=self.random.random() < 0.5)
        elif draw < 0.54 and self.workers:
            self.random.choice(self.workers).work(self.random, self.fresh)
        elif draw < 0.76 and self.senders:
            self.send()
        elif self.receivers:
            self.receive()

    def member(self) -> Member:
        running = [member for member in self.world.members.values() if member.running]
        return self.random.choice(running or [self.world[1]])

    def come(self) -> None:
        member = self.member()
        if member.running:
            once = self.random.random() < 0.15
            receiver = Receiver(member, "once" if once else self.random.choice("qqr"), presettled=once)
            receiver.on_forward = self.forwarded
            self.receivers.append(receiver)

    def send(self) -> None:
        sender = self.random.choice(self.senders)
        count = self.random.choice((1, 1, 3, 10, 40))
        numbers = self.fresh(count)
        size = self.random.choice((10, 10, 100, 2000, 100_000 if count < 3 else 10))
        sender.send(numbers, size_bytes=size, durable=True)
        if sender.address == "once":
            self.once.update(numbers)
        self.sent_by.update(dict.fromkeys(numbers, sender))

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
            self.accepted.update(numbers)
            self.claims.update(numbers)
        elif state == REJECT:
            self.rejected.update(numbers)
        receiver.settle_as(numbers, state, failed=state == FAIL)

    def forwarded(self, receiver: Receiver | Source, number: int, marked: bool) -> None:
        self.seen.add(number)
        if number in self.final and not self.was_left_behind(receiver.member, number):
            raise Broken(f"{number} was accepted for good, and handed out again by node {receiver.member.node}")
        if not marked:
            self.unmarked[number] += 1
            if self.unmarked[number] > 1:
                raise Broken(f"{number} was handed out twice, and none of the two says so")
        if receiver.presettled:
            if number in self.gone_out:
                raise Broken(f"{number} was taken for good twice")
            self.gone_out.add(number)

    def was_left_behind(self, member: Member, number: int) -> bool:
        """Whether the group had gone on without *member* when *number* was accepted for good."""
        view, members = self.final_in[number]
        return member.core.view < view and member.core.me not in members

    def is_final(self, numbers: Collection[int], member: Member) -> None:
        """A client of *member* was told so."""
        self.final.update(numbers)
        for number in numbers:
            self.final_in.setdefault(number, (member.core.view, member.core.members))

    def look(self) -> None:
        """What clients were told."""
        for sender in self.senders:
            self.confirmed.update(sender.confirmed)
            sender.confirmed.clear()
        for receiver in self.receivers:
            self.is_final(receiver.accepted, receiver.member)
            receiver.accepted.clear()
        for client in [*self.senders, *self.receivers]:
            if client.is_dead:
                client.leave(lost=True)
        self.senders = [sender for sender in self.senders if not sender.closed]
        for worker in self.workers:
            attempt = worker.look()
            if attempt is not None:
                self.over(attempt, worker.client.member)
            if worker.client.is_dead:
                worker.client.leave(lost=True)
        self.workers = [worker for worker in self.workers if not worker.client.closed]
        for receiver in [receiver for receiver in self.receivers if receiver.closed]:
            self.check_order(receiver)
            self.receivers.remove(receiver)

    def over(self, attempt: Attempt, member: Member) -> None:
        """A transaction of a client of *member* is."""
        self.attempts.append(attempt)
        self.note(f"transaction {attempt.done} {sorted(attempt.puts)[:3]} {attempt.takes}")
        self.met[f"transaction-{attempt.done}"] += 1
        if attempt.done is False:
            return
        self.accepted.update(attempt.of(ACCEPT))
        self.claims.update(attempt.of(ACCEPT))
        self.rejected.update(attempt.of(REJECT))
        if attempt.done:
            self.confirmed.update(attempt.puts)
            self.is_final(attempt.of(ACCEPT), member)

    def fault(self) -> None:
        network, choice = self.world.network, self.random.random()
        node = self.random.randint(1, self.size)
        member = self.world[node]
        if choice < 0.3:
            if member.running:
                cut = self.random.random() < 0.5
                self.note(f"kill {node} cut={cut}")
                member.kill(self.random if cut else None)
        elif choice < 0.5:
            nodes = [*self.world.members]
            self.random.shuffle(nodes)
            at = self.random.randint(1, self.size - 1)
            self.note(f"partition {nodes[:at]} {nodes[at:]}")
            network.partition(nodes[:at], nodes[at:])
        elif choice < 0.6:
            self.note(f"pause-daemon {node}")
            network.pause_daemon(node)
        elif choice < 0.7:
            self.note(f"egress {node}")
            network.cut_egress(node)
        elif choice < 0.8:
            at = self.random.choice((0, self.random.randint(1, self.size)))
            if member.running and member.core.me is not None and not network.daemons[node].paused:
                self.note(f"drop {node} at {at}")
                network.drop(node, at)
                member.core.say(told("nothing"))
                member.core.group.flush()
        elif choice < 0.85:
            self.note(f"slow-disk {node}")
            member.is_disk_slow = True
        elif choice < 0.9:
            self.note(f"sleep {node}")
            member.asleep = True
        elif choice < 0.95:
            self.note(f"daemon {node} dies")
            network.kill_daemon(node)
        else:
            self.note(f"stop {node}")
            if member.running:
                member.stop()

    def mend_something(self) -> None:
        network, choice = self.world.network, self.random.random()
        node = self.random.randint(1, self.size)
        self.wake(node)
        if choice < 0.4:
            self.note("heal all")
            network.heal()

    def wake(self, node: int) -> None:
        network, member = self.world.network, self.world[node]
        if network.daemons[node].paused:
            network.resume_daemon(node)
        network.start_daemon(node)
        member.asleep = False
        member.hurry_disk()
        if member.running and member.failures:
            member.failures.clear()
            member.kill()
        if not member.running:
            self.note(f"start {node}")
            member.start()

    # ---- the end --------------------------------------------------------------------------------------------------

    def mend(self) -> None:
        self.note("mend everything")
        world = self.world
        world.network.heal()

        def mended() -> bool:
            for node, member in world.members.items():
                paused = world.network.daemons[node].paused
                if not member.running or member.failures or member.asleep or member.is_disk_slow or paused:
                    self.wake(node)
            self.look()
            return all(member.serves for member in world.members.values())

        if not world.until(mended, 90):
            raise Broken(f"it does not come together again: {world.why()}")
        for client in [*self.senders, *self.receivers]:
            client.leave()
        for worker in self.workers:
            worker.client.leave()
        world.run(1)  # who slept hears only now that its daemon died
        if not world.until(mended, 90):
            raise Broken(f"it does not come together again: {world.why()}")
        self.look()
        if not world.until(lambda: self.is_quiet(), 10):
            raise Broken("it does not come to rest")

    def is_quiet(self) -> bool:
        self.look()
        return all(
            not len(member.core.locals)
            and not member.core.completion.backlog
            and not member.core.flow.holds
            and member.serves
            for member in self.world.members.values()
        )

    def check_order(self, receiver: Receiver) -> None:
        last: dict[Sender, int] = {}
        for number, marked in receiver.order:
            sender = self.sent_by.get(number)
            if marked or sender is None:
                continue
            if number < last.get(sender, -1):
                raise Broken(f"{number} came behind {last[sender]} of the same sender")
            last[sender] = number

    def check(self) -> None:
        there: set[int] = set()
        for name in ("q", "r", "once", DEAD_LETTERS):
            contents = {node: member.contents(name) for node, member in self.world.members.items()}
            first = contents[1]
            for node, content in contents.items():
                if content != first:
                    extra, missing = set(content) - set(first), set(first) - set(content)
                    raise Broken(f"{name}: node {node} has {sorted(extra)[:9]}, node 1 has {sorted(missing)[:9]}")
            numbers = [number for _, number in first]
            if len(set(numbers)) < len(numbers):
                twice = [number for number, count in Counter(numbers).items() if count > 1]
                raise Broken(f"{name} has some messages twice: {twice[:9]}")
            for member in self.world.members.values():
                counted = member.core.owners.replicas[name].queue.messages
                if counted != len(numbers):
                    raise Broken(f"{name}: node {member.node} counts {counted} messages, there are {len(numbers)}")
            there.update(numbers)
        for wrong in halves(self.attempts, self.seen | there, there, self.claims):
            raise Broken(wrong)
        lost = self.confirmed - there - self.accepted - self.once - self.final
        if lost - self.rejected:
            raise Broken(f"confirmed, and lost: {sorted(lost - self.rejected)[:20]}")
        if self.rejected & lost:
            raise Broken(f"rejected, and not among the dead letters: {sorted(self.rejected & lost)[:20]}")
        if there & self.final:
            raise Broken(f"accepted for good, and still there: {sorted(there & self.final)[:20]}")


def run(seed: int, member: type[Member] = Member, steps: int = 120) -> Simulation:
    """Raises `Broken`, with the seed and what happened."""
    simulation = Simulation(seed, member, steps)
    try:
        simulation.run()
    except Exception as error:
        story = "\n".join(simulation.log[-60:])
        raise Broken(f"seed {seed}: {str(error) or repr(error)}\n{story}") from error
    return simulation


class Lives(NamedTuple):
    """What became of several."""

    runs: int
    met: Counter[str]
    failures: list[str]

    def __str__(self) -> str:
        return "\n".join([*self.failures, f"{self.runs} runs, {len(self.failures)} failed: {dict(self.met)}"])


def some(first: int, runs: int) -> Lives:
    """Of these seeds, one after the other."""
    lives = Lives(runs, Counter(), [])
    logging.disable(logging.CRITICAL)  # members say a lot about what is done to them
    try:
        with little_garbage():
            for seed in range(first, first + runs):
                try:
                    simulation = run(seed)
                except Exception as error:
                    what = str(error).partition("\n")[0] or f"seed {seed}: {error!r}"
                    lives.failures.append(f"{what}; again: python -m tests.cluster.simulation {seed}")
                    continue
                lives.met.update(simulation.met)
                lives.met["confirmed"] += len(simulation.confirmed)
                lives.met["settled"] += len(simulation.final)
    finally:
        logging.disable(logging.NOTSET)
    return lives


def many(first: int, runs: int, told: Callable[[Lives], None] = lambda lives: None) -> Lives:
    """The same on all cores; each seed's life is the same wherever it is lived."""
    ends = first + runs
    total = Lives(runs, Counter(), [])
    for lives in on_all_cores(some, ((at, min(SHARD, ends - at)) for at in range(first, ends, SHARD))):
        told(lives)
        total.met.update(lives.met)
        total.failures.extend(lives.failures)
    return total


def _show(so_far: Lives) -> None:
    for failure in so_far.failures:
        print(failure, flush=True)


def main() -> None:
    first, runs = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if runs == 1:
        print(dict(run(first).met))
        return
    lives = many(first, runs, _show)
    print(lives)
    sys.exit(bool(lives.failures))


if __name__ == "__main__":
    main()

__all__ = ["Broken", "Client", "Lives", "Simulation", "many", "run"]
