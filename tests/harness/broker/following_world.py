"""Two brokers in one thread: one has a federated copy of a queue of the other, and a test controls the link."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from cairnmq.amqp.links.attach import End
from cairnmq.amqp.native.proton_ffi import ACCEPTED
from cairnmq.amqp.ports import Attach, Delivery, Error, Open, Outcome, Terminus
from cairnmq.base.errors import CairnError
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.broker.federation.federated_queues import FederatedQueue
from cairnmq.store.contract.interface import MessageStore
from cairnmq.store.journaled.retention_leases import NOWHERE, Bookmark, Bookmarks
from tests.harness.broker.declarations import declare, discharge
from tests.harness.broker.world import FakeTerminal, World, message, number_of

MEMORY_BYTES = 64 << 20
PIECE_BYTES = 60000
Contents = tuple[int, ...]
"""The numbers of the messages on a queue, in order."""


class Marks(Bookmarks):
    """Bookmarks in memory, durable as soon as they are added or moved."""

    def __init__(self) -> None:
        super().__init__("nowhere")
        self.marks: dict[str, Bookmark] = {}

    def known(self) -> list[Bookmark]:
        return [*self.marks.values()]

    def add(self, bookmark: Bookmark) -> None:
        self.marks[bookmark.name] = bookmark

    def move(self, bookmark: Bookmark) -> CairnError | None:
        if bookmark.name in self.marks:
            self.marks[bookmark.name] = bookmark
        return None

    def remove(self, name: str) -> CairnError | None:
        self.marks.pop(name, None)
        return None

    def kept_from(self, end_lsn: int, is_full: bool) -> int:
        return min((mark.lsn for mark in self.marks.values()), default=NOWHERE)


class Attached(FakeTerminal):
    """The follower's end of the link."""

    error: Error | None = None

    def __init__(self) -> None:
        super().__init__()
        self.on_refusal: Callable[[int], None] | None = None
        self.left = False

    def opened(self, driver: Any, address: str | None, credit: int, **answer: Any) -> None:
        super().opened(driver, address, credit)

    def leave(self, error: Any, *, for_good: bool) -> None:
        self.left = True


class Outward:
    """The follower's outgoing connection, which collects requests to attach."""

    def __init__(self) -> None:
        self.asked: list[tuple[Attach, Callable[[Attach], None], Attached]] = []

    def attach(
        self, asked: Attach, driver: Any, answered: Callable[[Attach], None], *, sends: bool, priority: int = 4
    ) -> Attached:
        assert not sends
        attached = Attached()
        self.asked.append((asked, answered, attached))
        return attached


class To:
    """A stand-in for a connector with the attributes that federation uses."""

    name = "there"
    connection: Any = None


class FollowerSide:
    """The downstream broker, whose federated queue is named `q`."""

    follower: World

    @property
    def following(self) -> FederatedQueue:
        return self.follower.broker.remote.federated_queues.by_name["q"]

    def follow(self) -> None:
        said: list[Exception | None] = []
        self.follower.do(self.follower.broker.remote.federated_queues.create, "q", "there", "q", {}, said.append)
        assert said == [None]

    def copy(self) -> Contents | None:
        """Return the messages of the copy, None while it is partial; check that none of them is stored twice."""
        copy = self.following.copy
        found = contents(self.follower.store, copy.queue_id)
        assert len(found) == len(copy.ids)
        assert len(set(found)) == len(found)
        return found if copy.is_complete else None


class Sites(FollowerSide):
    """The queue `q` of `source`, and the copy `q` at `follower`."""

    def __init__(self, *, acquisitions: bool = False) -> None:
        """Create both brokers. *acquisitions*: the source logs acquisitions (delivery tracking)."""
        self.marks = Marks()
        self.source = World(MEMORY_BYTES, bookmarks=self.marks, acquisitions=acquisitions)
        self.follower = World(MEMORY_BYTES)
        self.to = To()
        self.link: tuple[FakeTerminal, Attached] | None = None
        """The ends of the link at the source and at the follower."""
        self.received: deque[Delivery] = deque()
        """Deliveries that the follower has accepted, in transit to the source."""
        self._confirmed = 0
        self.sender = self.source.open(to_client=False)
        self.states: dict[Contents, None] = {}
        """All states of the source's queue so far."""
        self._numbers: dict[int, int] = {}
        self.look()

    # ---- source ----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> Contents:
        """Return the contents of the source's queue."""
        store, queue_id = self.source.store, self.source.queue().queue_id
        for message_id in store.messages().get(queue_id, ()):
            if message_id not in self._numbers:
                self._numbers[message_id] = number_on(store, message_id)
        return tuple(self._numbers[message_id] for message_id in store.messages().get(queue_id, ()))

    def look(self) -> None:
        """Record the current contents of the source's queue as one of its states; call after each atomic change."""
        self.states[self.now] = None

    def send(self, number: int, size_bytes: int = 10) -> None:
        content = message(number, size_bytes, True)
        pieces = [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]
        for piece in pieces[:-1]:
            self.source.send(self.sender, (number, piece, 1))
        self.source.send(self.sender, (number, pieces[-1], 0))
        self.look()

    def take(self, count: int) -> None:
        """Dequeue *count* messages from the front with a consumer."""
        taker = self.source.open(to_client=True)
        self.source.do(taker.driver.request, count, False)
        self.source.read_all()
        for tag, _ in taker.forwarded[:count]:
            self.source.settle(taker, tag, ACCEPTED)
            self.look()
        self.source.do(taker.driver.close, (), False, True)

    def transact(self, number: int, count: int, size_bytes: int = 10) -> None:
        """Enqueue *count* messages and dequeue the first message of the queue, in one transaction."""
        source, connection = self.source, object()
        control = source.open(to_client=False, coordinator=True, address=None, connection=connection)
        source.send(control, (0, declare(), 0))
        txn_id = control.declared_ids[-1]
        taker = source.open(to_client=True)
        source.do(taker.driver.request, 1, False)
        source.read_all()
        if taker.forwarded:
            source.do(taker.driver.outcomes_in, connection, [(txn_id, Outcome(None, taker.forwarded[0][0], ACCEPTED))])
        contents = [message(one, size_bytes, True) for one in range(number, number + count)]
        source.do(self.sender.driver.receive_in, connection, txn_id, [(0, content, 0) for content in contents])
        source.send(control, (0, discharge(txn_id, fail=False), 0))
        self.look()
        source.do(taker.driver.close, (), False, True)

    def send_to_several(self, number: int) -> None:
        """Send through an exchange to two queues: first to `other`, where a consumer accepts it at once, and to `q`."""
        source = self.source
        if "other" not in source.broker.nodes.queues:
            other = source.open(to_client=True, address="other")
            source.do(other.driver.close, (), False, True)
        fanout = source.broker.nodes.exchanges["amq.fanout"]
        for queue in (source.queue("other"), source.queue()):
            if not queue.bindings:
                source.do(source.broker.nodes.bind, fanout, queue, "", {}, lambda error: None)
        sender = source.open(to_client=False, address="amq.fanout")
        source.send(sender, (number, message(number, 100, True), 0))
        self.look()
        assert not sender.rejected
        taker = source.open(to_client=True, address="other")
        source.do(taker.driver.request, 1, False)
        source.read_all()
        for tag, _ in taker.forwarded:
            source.settle(taker, tag, ACCEPTED)
        source.do(taker.driver.close, (), False, True)

    def purge(self) -> None:
        self.source.do(self.source.queue().order.purge, lambda found: None, "")
        self.look()

    # ---- link ------------------------------------------------------------------------------------------------------

    def connect(self) -> list[str]:
        """Have the follower attach the link; return the errors with which the source refuses it, if any."""
        outward = Outward()
        self.to.connection = outward
        self.follower.do(self.follower.broker.remote.federated_queues.came, self.to, outward)
        assert len(outward.asked) == 1, self.following.reason
        asked, answered, attached = outward.asked.pop()
        terminal = FakeTerminal()
        attach = Open(True, Terminus(address=asked.source.address), link_name=asked.name, attach=asked)
        self.source.do(self.source.broker.drivers.open, attach, terminal)
        while terminal.driver is None and self.source.readings:
            self.source.read_one()
        if terminal.failures:
            attached.error = Error(terminal.failures[0], "")
            self.follower.do(self.follower.broker.drivers.link_closed, attached)
            return terminal.failures
        self.link = terminal, attached
        self._confirmed = 0
        self.received.clear()
        self.follower.do(answered, Attach(asked.name, End(2, asked.source.address), asked.target))
        self.source.do(terminal.driver.request, attached.credit, False)
        return []

    def cut(self) -> None:
        """Break the connection; messages and dispositions in transit are lost."""
        if self.link is None:
            return
        terminal, attached = self.link
        self.link = None
        self.source.do(terminal.driver.close, (), True, False)
        self.to.connection = None
        self.follower.do(self.follower.broker.remote.federated_queues.went, self.to)
        assert attached.driver is not None

    def carry(self) -> bool:
        """Transfer one message from the source to the follower; return whether one was available."""
        if self.link is None:
            return False
        terminal, attached = self.link
        while not terminal.forwarded and self.source.readings:
            self.source.read_one()
        if not terminal.forwarded:
            return False
        tag, content = terminal.forwarded.pop(0)
        attached.credit -= 1
        self.follower.do(attached.driver.receive, [(tag, content, 0)])
        self.received += attached.confirmed[self._confirmed :]
        self._confirmed = len(attached.confirmed)
        return True

    def answer(self) -> bool:
        """Transfer one disposition and one credit from the follower to the source; return whether one was available."""
        if self.link is None or not self.received:
            return False
        terminal, _ = self.link
        self.source.do(terminal.driver.outcomes, [Outcome(None, self.received.popleft(), ACCEPTED)])
        self.source.do(terminal.driver.request, terminal.driver._limit + 1, False)
        return True

    def catch_up(self) -> None:
        while self.carry() or self.answer():
            pass

    def kill_source(self) -> None:
        self.cut()
        self.source.kill_and_start()
        self.sender = self.source.open(to_client=False)

    def kill_follower(self) -> None:
        self.cut()
        self.follower.kill_and_start()


def contents(store: MessageStore, queue_id: int) -> Contents:
    return tuple(number_on(store, message_id) for message_id in store.messages().get(queue_id, ()))


def number_on(store: MessageStore, message_id: int) -> int:
    pieces = range(store.piece_count(message_id))
    return number_of(b"".join(store.load_piece(message_id, number) for number in pieces))


def after(world: World, disk: MemoryDirectory) -> World:
    """Return a copy of *world* that starts from the contents of *disk*."""
    found = World.__new__(World)
    found.__dict__.update(world.__dict__)
    found.disk = disk
    found.readings = deque()
    found.start()
    return found
