"""Tests of delivery tracking: the log records exactly the acquisitions of clients, and all else is unchanged."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.amqp.codec import encode
from cairnmq.amqp.codec.types import Described, Symbol
from cairnmq.amqp.links.resume_state import Claims
from cairnmq.amqp.native.proton_ffi import ACCEPTED, MODIFIED, RELEASED
from cairnmq.amqp.ports import MORE, Open, Terminus
from cairnmq.broker.kernel.acquisition_log import WRITE_AFTER_S
from cairnmq.journal.format.block import ACQUISITIONS, Block
from cairnmq.journal.format.record import RecordType
from cairnmq.journal.read.scanner import LogReader
from cairnmq.store.journaled.acquire_records import decode
from tests.harness.broker.world import FakeTerminal, World, message

SELECTOR = encode.value(
    {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "JMSPriority >= 0")}
)
LIMIT_BYTES = 20_000
"""A memory limit at which the broker reads some messages back from disk."""


class Handed(NamedTuple):
    """An acquisition of one message by one link."""

    message_id: int
    container: str
    link: str
    time_us: int


class Client:
    """A consumer link and the entries that it has acquired."""

    def __init__(self, world: World, number: int, how: str) -> None:
        self.terminal = FakeTerminal()
        self.container, self.link = f"client {number % 2}", f"link {number} é"
        self.presettled = how == "presettled"
        self.held: list[Any] = []
        self._seen = self._resumed = 0
        self._limit = 0
        attach = Open(
            True, Terminus(address="q", filters=SELECTOR if how == "selecting" else b""), self.presettled, self,
            self.link, self.container, claims=Claims({}, True) if how == "resuming" else None,
        )  # fmt: skip
        world.do(world.broker.drivers.open, attach, self.terminal)

    def ask(self, world: World, count: int) -> None:
        self._limit += count
        world.do(self.terminal.driver.request, self._limit, False)

    def new(self) -> list[Any]:
        """Return the entries that were forwarded since the last call."""
        found = [tag for tag, _ in self.terminal.forwarded[self._seen :]]
        found += [one[0] for one in self.terminal.resumable[self._resumed :]]
        self._seen, self._resumed = len(self.terminal.forwarded), len(self.terminal.resumable)
        if not self.presettled:
            self.held += found
        return found


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 5), st.sampled_from((10, 3000, 70_000)), st.booleans()),
        st.tuples(st.just("ask"), st.integers(0, 3), st.integers(1, 6)),
        st.tuples(st.just("settle"), st.integers(0, 3), st.sampled_from((ACCEPTED, RELEASED, MODIFIED))),
        st.tuples(st.just("close"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.sampled_from((0.3, 2.0))),
        st.tuples(st.just("restart")),
    ),
    min_size=3,
    max_size=14,
)
KINDS = ("plain", "presettled", "selecting", "resuming")


class Run:
    """A broker that executes a history of steps, and the acquisitions seen by its clients."""

    def __init__(self, history: list[tuple[Any, ...]], *, acquisitions: bool) -> None:
        self.world = World(LIMIT_BYTES, acquisitions=acquisitions)
        self.handed: list[Handed] = []
        self._clients: dict[int, Client] = {}
        self._opened = self._number = 0
        for what, *arguments in history:
            getattr(self, what)(*arguments)
            self._note()
        self.wait(2 * WRITE_AFTER_S)

    def _note(self) -> None:
        """Record the stored messages that clients received in this step, with the time (the clock does not advance)."""
        self.world.read_all()
        for client in self._clients.values():
            for entry in client.new():
                if entry.message_id:
                    now_us = self.world.clock.wall_us()
                    self.handed.append(Handed(entry.message_id, client.container, client.link, now_us))

    def client(self, kind: int) -> Client:
        if kind not in self._clients:
            self._opened += 1
            self._clients[kind] = Client(self.world, self._opened, KINDS[kind])
        return self._clients[kind]

    def send(self, count: int, size_bytes: int, durable: bool) -> None:
        sender = self.world.open(to_client=False)
        for _ in range(count):
            self._number += 1
            content = message(self._number, size_bytes, durable)
            pieces = [content[at : at + 60_000] for at in range(0, len(content), 60_000)]
            for piece in pieces:
                self.world.send(sender, (self._number, piece, MORE if piece is not pieces[-1] else 0))

    def ask(self, kind: int, count: int) -> None:
        self.client(kind).ask(self.world, count)

    def settle(self, kind: int, state: int) -> None:
        client = self._clients.get(kind)
        for entry in client.held[:2] if client is not None else ():
            self.world.settle(client.terminal, entry, state)  # type: ignore[union-attr]
            client.held.remove(entry)  # type: ignore[union-attr]

    def close(self, kind: int) -> None:
        client = self._clients.pop(kind, None)
        if client is not None:
            self.world.do(client.terminal.driver.close, client.held, False, True)
            self.world.do(self.world.broker.drivers.link_closed, client.terminal)

    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    def restart(self) -> None:
        self.wait(2 * WRITE_AFTER_S)
        self.world.kill_and_start()
        self.world.step()
        self._clients.clear()

    def blocks(self) -> list[Block]:
        return [block for block in LogReader(self.world.disk).scan() if isinstance(block, Block)]

    def written(self) -> list[Handed]:
        """Return the acquisitions that are recorded in the log."""
        found = []
        for block in self.blocks():
            for head in block.heads():
                if head.type == RecordType.ACQUIRE:
                    told = decode(bytes(block.payload(head)), head.extra)
                    found += [Handed(one, told.container, told.link, head.time_us) for one in told.message_ids]
        return found

    def recovered(self) -> dict[str, list[bytes]]:
        self.world.kill_and_start()
        names = {row.id: row.name for row in self.world.store.queues()}
        store = self.world.store
        return {
            names[queue_id]: [
                b"".join(store.load_piece(one, number) for number in range(store.piece_count(one))) for one in ids
            ]
            for queue_id, ids in store.messages().items()
            if not names[queue_id].startswith("$link:")  # named by a digest; its messages belong to other queues
        }


@given(steps)
def test_the_log_tells_exactly_what_clients_were_handed(history: list[tuple[Any, ...]]) -> None:
    noting, plain = Run(history, acquisitions=True), Run(history, acquisitions=False)
    assert sorted(noting.written()) == sorted(noting.handed)
    assert plain.written() == []
    assert len(plain.handed) == len(noting.handed)
    assert all(block.head.flags == ACQUISITIONS for block in noting.blocks())
    assert all(block.head.flags == 0 for block in plain.blocks())
    assert noting.recovered() == plain.recovered()


def test_they_wait_for_others_and_at_most_a_second() -> None:
    world = World(LIMIT_BYTES, acquisitions=True)
    sender = world.open(to_client=False)
    world.send(sender, *[(number, message(number, 10, True), 0) for number in range(3)])
    client = Client(world, 1, "plain")
    flushes = world.store.journal.writer.meters.written.flushes
    client.ask(world, 1)
    world.advance(WRITE_AFTER_S / 2)
    assert world.store.journal.writer.meters.written.flushes == flushes
    assert world.store.next_lsn == world.store.durable_lsn  # no client waits for a flush
    world.advance(WRITE_AFTER_S / 2)
    assert world.store.journal.writer.meters.written.flushes == flushes + 1
    client.ask(world, 1)
    world.settle(client.terminal, client.new()[0], ACCEPTED)  # the flush for the dequeue includes the acquisition
    assert world.store.journal.writer.meters.written.flushes == flushes + 2
    world.advance(WRITE_AFTER_S)
    assert world.store.journal.writer.meters.written.flushes == flushes + 2
