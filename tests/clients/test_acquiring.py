"""Tests of acquisition in transactions (AMQP 1.0 part 4, 4.4.3), frame by frame.

The property `txn-id` of a flow names the transaction in which its credit is spent. No client library sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from proton import Message

from cairnmq.amqp.codec.types import Described, Symbol, Ubyte, Uint, Ulong
from cairnmq.amqp.links.events import Limits
from cairnmq.base.clock import SystemClock
from cairnmq.broker_plugin.options import TransactionLimits
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import Peer
from tests.harness.clients.transacting import ROLLBACK, TIMEOUT, UNKNOWN_ID, bodies, taken
from tests.harness.router import raw
from tests.harness.router.raw import ATTACH, DISPOSITION, FLOW, SOURCE, Frame, Raw, begin, frame, opening

from .conftest import NewPeer, StartBroker

CONTROL, LINK = 0, 1
"""The handles of the two links."""
ACCEPTED, REJECTED, RELEASED, MODIFIED, TRANSACTIONAL = 0x24, 0x25, 0x26, 0x27, 0x34
LONG_S = 3600.0
"""A duration that exceeds the test on any machine."""
DECLARE = b"\x00\x53\x77\x00\x53\x31\x45"
sizes = pytest.mark.parametrize("size", [10, 100_000, 2_000_000])


def flow_of_session(*, next_incoming: int = 0) -> bytes:
    return frame(FLOW, Uint(next_incoming), Uint(1 << 20), Uint(0), Uint(1 << 20))


class Delivery(NamedTuple):
    """A complete message that was received."""

    number: int
    txn_id: bytes
    """The transaction ID in the state of the first transfer; empty without a state."""
    message: Any


def discharge_of(txn_id: bytes, *, fail: bool) -> bytes:
    fields = b"\xa0" + bytes((len(txn_id),)) + txn_id + (b"\x41" if fail else b"\x42")
    return b"\x00\x53\x77\x00\x53\x32\xc0" + bytes((len(fields) + 1, 2)) + fields


class Controller(Raw):
    """A client with a link to the coordinator, and a receiving link."""

    def __init__(self, port: int, address: str = "q", *, presettled: bool = False, copy: bool = False) -> None:
        control = frame(
            ATTACH, "control", Uint(CONTROL), False, Ubyte(0), Ubyte(0),
            Described(Uint(SOURCE), [None]), Described(Ulong(0x30), []), None, None, Uint(0),
        )  # fmt: skip
        super().__init__(port, opening("controller"), begin(), control)
        while len(self.until("flow").fields) < 7:
            pass
        source = [address, None, None, None, None, None, Symbol("copy")] if copy else [address]
        self.say(
            frame(
                ATTACH, "taker", Uint(LINK), True, Ubyte(1 if presettled else 0), Ubyte(0),
                Described(Uint(SOURCE), source), Described(Uint(raw.TARGET), ["me"]),
            )
        )  # fmt: skip
        self.until("attach")
        self._requests = 0
        self._count = 0
        self.others: list[Frame] = []
        """Frames that arrived while another one was awaited."""

    # ---- requests -------------------------------------------------------------------------------------------------

    def ask(self, request: bytes) -> Any:
        """Send a request to the coordinator, and return the state of its answer."""
        self.request(request)
        return self.outcome(self._requests - 1, receiver=True)

    def request(self, request: bytes) -> None:
        self.say(raw.transfer(CONTROL, self._requests, request))
        self._requests += 1

    def outcome(self, number: int, *, receiver: bool) -> Any:
        """Wait for a disposition from the broker, as the *receiver* or the sender of a delivery; return its state."""
        while True:
            for found in self.others:
                if found.name == "disposition" and found.fields[0] is receiver:
                    first, last = found.fields[1], found.fields[2] if found.fields[2] is not None else found.fields[1]
                    if first <= number <= last:
                        return found.fields[4]
            self._one_more()

    def _one_more(self) -> None:
        found = self.hear()
        assert found is not None, "the broker closed the connection"
        assert found.name not in ("end", "close"), found
        self.others.append(found)

    def declare(self) -> bytes:
        state = self.ask(DECLARE)
        assert state.descriptor == 0x33
        return bytes(state.value[0])

    def discharge(self, txn_id: bytes, *, fail: bool = False) -> str:
        """Discharge a transaction, and return the name of the error, or an empty string."""
        state = self.ask(discharge_of(txn_id, fail=fail))
        return "" if state.descriptor == ACCEPTED else str(state.value[0].value[0])

    # ---- receiving ------------------------------------------------------------------------------------------------

    def flow(self, credit: int, properties: dict[Symbol, Any] | None = None, *, drain: bool = False) -> None:
        """Grant *credit* for more messages, and send *properties* unchanged."""
        counts = Uint(self._count), Uint(credit)
        self.say(self.flow_frame(counts, properties, drain))

    @staticmethod
    def flow_frame(counts: tuple[Uint, Uint], properties: dict[Symbol, Any] | None, drain: bool) -> bytes:
        window = Uint(0), Uint(1 << 20), Uint(0), Uint(1 << 20)
        return frame(FLOW, *window, Uint(LINK), *counts, None, drain, False, properties)

    def acquire(self, txn_id: bytes, credit: int) -> None:
        self.flow(credit, {Symbol("txn-id"): txn_id})

    def take(self, number: int = 1) -> list[Delivery]:
        return [self._take() for _ in range(number)]

    def _take(self) -> Delivery:
        first = self._transfer()
        content, more = first.payload, first.fields[5:6] == [True]
        while more:
            part = self._transfer()
            content, more = content + part.payload, part.fields[5:6] == [True]
        self._count += 1
        state = first.fields[7] if len(first.fields) > 7 else None
        message = Message()
        message.decode(content)
        txn_id = b""
        if state is not None:
            assert state.descriptor == TRANSACTIONAL
            assert len(state.value) == 1, "no outcome"
            txn_id = bytes(state.value[0])
        return Delivery(int(first.fields[1]), txn_id, message)

    def _transfer(self) -> Frame:
        while True:
            for place, found in enumerate(self.others):
                if found.name == "transfer":
                    return self.others.pop(place)
            self._one_more()

    def transfers(self) -> int:
        """Return the number of transfers that arrived and were not taken."""
        return sum(found.name == "transfer" for found in self.others)

    def tell(self, one: Delivery, outcome: int, txn_id: bytes = b"", *, settled: bool = False) -> None:
        state = Described(Ulong(outcome), [])
        if txn_id:
            state = Described(Ulong(TRANSACTIONAL), [txn_id, state])
        self.say(frame(DISPOSITION, True, Uint(one.number), Uint(one.number), settled, state))

    def refused(self) -> str:
        while not any(found.name == "detach" for found in self.others):
            self._one_more()
        (found,) = [found for found in self.others if found.name == "detach"]
        assert found.fields[:2] == [LINK, True]
        return found.error

    def settle_down(self) -> None:
        """Wait until the broker has processed all frames so far: the coordinator answers after them."""
        self.ask(discharge_of(b"nobody's", fail=True))


NewController = Callable[..., Controller]


@pytest.fixture
def control(broker: RunningBroker) -> Iterator[NewController]:
    made: list[Controller] = []

    def new(address: str = "q", *, port: int = broker.port, **options: Any) -> Controller:
        made.append(Controller(port, address, **options))
        return made[-1]

    yield new
    for one in made:
        one.sock.close()


def put(peer: Peer, number: int, size: int = 10, *, durable: bool = True) -> None:
    messages = [Message(body=b"%d" % n + bytes(size), durable=durable, first_acquirer=True) for n in range(number)]
    peer.send(peer.sender("q"), *messages)


def numbers(found: list[Any]) -> list[int]:
    return [int(bytes(one.message.body).split(b"\0")[0]) for one in found]


def left(peer: Peer) -> list[tuple[int, int, bool]]:
    """Take all messages off the queue, and return the number, delivery count and first-acquirer flag of each."""
    found = taken(peer)
    return [
        (number, one.message.delivery_count, one.message.first_acquirer)
        for number, one in zip(numbers(found), found, strict=True)
    ]


@sizes
def test_what_is_acquired_and_accepted_is_gone_with_the_commit(peer: Peer, control: NewController, size: int) -> None:
    put(peer, 3, size)
    one = control()
    txn_id = one.declare()
    one.acquire(txn_id, 2)
    found = one.take(2)
    assert numbers(found) == [0, 1]
    assert [delivery.txn_id for delivery in found] == [txn_id, txn_id], "each of them says so"
    one.tell(found[0], ACCEPTED, txn_id)
    one.tell(found[1], ACCEPTED, txn_id, settled=True)
    assert one.discharge(txn_id) == ""
    assert one.outcome(found[0].number, receiver=False).descriptor == ACCEPTED
    one.sock.close()
    assert left(peer) == [(2, 0, True)]


@sizes
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_what_is_acquired_is_released_by_a_discharge_that_fails(
    peer: Peer, control: NewController, size: int, durable: bool
) -> None:
    """The order is kept. Messages with an outcome count as failed deliveries, settled or not; the others do not."""
    put(peer, 4, size, durable=durable)
    one = control()
    txn_id = one.declare()
    one.acquire(txn_id, 3)
    found = one.take(3)
    one.tell(found[1], ACCEPTED, txn_id)
    one.tell(found[2], ACCEPTED, txn_id, settled=True)
    assert one.discharge(txn_id, fail=True) == ""
    for delivery in found[:2]:
        assert one.outcome(delivery.number, receiver=False).descriptor == RELEASED
    assert left(peer) == [(0, 0, False), (1, 1, False), (2, 1, False), (3, 0, True)]


def test_what_has_no_outcome_is_its_receivers_after_the_commit(peer: Peer, control: NewController) -> None:
    """The receiver may settle the message in no transaction or in another one; its link's end releases it."""
    put(peer, 4)
    one = control()
    first = one.declare()
    one.acquire(first, 3)
    found = one.take(3)
    assert one.discharge(first) == ""
    second = one.declare()
    one.tell(found[0], ACCEPTED, settled=True)
    one.tell(found[1], ACCEPTED, second)
    assert one.discharge(second) == ""
    assert bodies(peer) == [b"3" + bytes(10)]
    one.sock.close()
    assert sorted(numbers(one_by_one(peer, 2))) == [2, 3], "the broker may see later that it is gone"


def one_by_one(peer: Peer, number: int) -> list[Any]:
    """Receive *number* messages; wait for those that are not back on the queue yet."""
    receiver = peer.receiver("q", number)
    return peer.take(receiver, number)


@pytest.mark.parametrize("how", ["cut", "session", "link"])
def test_what_is_acquired_comes_back_when_its_client_goes(peer: Peer, control: NewController, how: str) -> None:
    """A lost connection counts as a failed delivery with or without an outcome, as outside of transactions."""
    put(peer, 3)
    one = control()
    txn_id = one.declare()
    one.acquire(txn_id, 2)
    found = one.take(2)
    one.tell(found[1], ACCEPTED, txn_id)
    one.settle_down()
    if how == "cut":
        one.sock.close()
    elif how == "session":
        one.say(frame(raw.END))
        one.until("end")
    else:
        one.say(frame(raw.DETACH, Uint(LINK), True))
        one.until("detach")
        assert one.discharge(txn_id, fail=True) == ""
    back = sorted(one_by_one(peer, 3), key=lambda one: bytes(one.message.body))
    counted = 1 if how == "cut" else 0
    assert [(one.message.delivery_count, one.message.first_acquirer) for one in back] == [
        (counted, False),
        (1, False),
        (0, True),
    ]


@pytest.mark.parametrize("name", [b"nobody's", b"", "text", 7], ids=repr)
def test_an_id_that_nobody_knows_closes_the_link(peer: Peer, control: NewController, name: Any) -> None:
    put(peer, 1)
    one = control()
    one.flow(1, {Symbol("txn-id"): name})
    assert one.refused() == UNKNOWN_ID
    assert not one.transfers()
    assert left(peer) == [(0, 0, True)]


def test_an_id_that_was_discharged_is_unknown(peer: Peer, control: NewController) -> None:
    put(peer, 1)
    one = control()
    txn_id = one.declare()
    assert one.discharge(txn_id) == ""
    one.acquire(txn_id, 1)
    assert one.refused() == UNKNOWN_ID


def test_another_connections_id_is_unknown(peer: Peer, control: NewController) -> None:
    one, other = control(), control()
    one.acquire(other.declare(), 1)
    assert one.refused() == UNKNOWN_ID


@pytest.mark.parametrize("empty", [{}, {Symbol("txn-id"): None}, {Symbol("other"): 1}], ids=repr)
def test_the_property_is_cleared_by_a_map_without_it(peer: Peer, control: NewController, empty: Any) -> None:
    """A flow without properties does not change the transaction."""
    put(peer, 4)
    one = control()
    txn_id = one.declare()
    one.acquire(txn_id, 1)
    one.take()
    one.flow(1)
    assert one.take()[0].txn_id == txn_id
    one.flow(1, empty)
    assert one.take()[0].txn_id == b""
    one.flow(1)
    assert one.take()[0].txn_id == b""
    assert one.discharge(txn_id, fail=True) == ""
    assert numbers(one_by_one(peer, 2)) == [0, 1], "those that it took in it"


def test_a_discharge_clears_it_and_leaves_the_credit(peer: Peer, control: NewController) -> None:
    one = control()
    txn_id = one.declare()
    one.acquire(txn_id, 10)
    assert one.discharge(txn_id) == ""
    put(peer, 1)
    assert [found.txn_id for found in one.take()] == [b""]


def test_several_transactions_on_one_link(peer: Peer, control: NewController) -> None:
    """A message belongs to the transaction that was named last when it was dispatched."""
    put(peer, 6)
    one = control()
    first, second = one.declare(), one.declare()
    key = Symbol("txn-id")
    said: list[tuple[int, dict[Symbol, Any], bytes]] = [
        (1, {key: first}, first), (2, {key: second}, second), (1, {}, b""), (1, {key: first}, first),
    ]  # fmt: skip
    for credit, properties, txn_id in said:
        one.flow(credit, properties)
        assert [found.txn_id for found in one.take(credit)] == [txn_id] * credit
    one.request(discharge_of(first, fail=True))
    one.request(discharge_of(second, fail=False))
    one.settle_down()
    assert numbers(one_by_one(peer, 3)) == [0, 4, 5]


def test_a_flow_in_pieces_and_among_others(peer: Peer, control: NewController) -> None:
    """A flow is read correctly wherever its bytes are cut, and among other frames."""
    put(peer, 30)
    one = control()
    txn_id = one.declare()
    for number in range(1, 16):
        said = one.flow_frame((Uint(number - 1), Uint(1)), {Symbol("txn-id"): txn_id if number % 2 else None}, False)
        empty = (8).to_bytes(4) + b"\x02\0\0\0"
        around = flow_of_session() if number % 3 else empty
        complete = around + said + around
        cut = number * len(complete) // 16
        one.say(complete[:cut])
        peer.settle_down()
        one.say(complete[cut:])
        (found,) = one.take()
        assert found.txn_id == (txn_id if number % 2 else b"")
    assert one.discharge(txn_id, fail=True) == ""
    assert numbers(one_by_one(peer, 10)) == [0, 2, 4, 6, 8, 10, 12, 14, 15, 16]


def test_drain_hands_out_in_the_transaction_what_there_is(peer: Peer, control: NewController) -> None:
    put(peer, 2)
    one = control()
    txn_id = one.declare()
    one.flow(10, {Symbol("txn-id"): txn_id}, drain=True)
    assert [found.txn_id for found in one.take(2)] == [txn_id] * 2
    while not any(found.name == "flow" and len(found.fields) > 6 and found.fields[6] == 0 for found in one.others):
        one._one_more()
    assert one.discharge(txn_id, fail=True) == ""
    assert left(peer) == [(0, 0, False), (1, 0, False)]


def test_an_outcome_outside_of_the_transaction_fails_it(peer: Peer, control: NewController) -> None:
    """The outcome is sent in no transaction, or in another one, which fails as well; the message is requeued."""
    put(peer, 2)
    one = control()
    for settled in (True, False):
        txn_id = one.declare()
        one.acquire(txn_id, 1)
        (found,) = one.take()
        one.tell(found, ACCEPTED, settled=settled)
        assert one.discharge(txn_id) == ROLLBACK
    first, second = one.declare(), one.declare()
    one.acquire(first, 1)
    (found,) = one.take()
    one.tell(found, ACCEPTED, second)
    assert [one.discharge(first), one.discharge(second)] == [ROLLBACK, ROLLBACK]
    assert [number for number, _, _ in left(peer)] == [0, 1]


def test_half_a_message_that_is_acquired_is_aborted_by_a_discharge_that_fails(
    peer: Peer, control: NewController
) -> None:
    """The session window closes in the middle of the message, and opens again."""
    put(peer, 1, 3_000_000)
    one = control()
    txn_id = one.declare()
    window = Uint(0), Uint(2), Uint(0), Uint(1 << 20)
    counts = Uint(LINK), Uint(0), Uint(1), None, False, False
    one.say(frame(FLOW, *window, *counts, {Symbol("txn-id"): txn_id}))
    first = one._transfer()
    assert first.fields[5]
    assert one.discharge(txn_id, fail=True) == ""
    one.say(flow_of_session(next_incoming=2))
    last = one._transfer()
    while len(last.fields) < 10 or not last.fields[9]:
        last = one._transfer()
    assert left(peer) == [(0, 0, False)]


def test_what_can_not_be_taken_back_is_not_acquired(
    start_broker: StartBroker, peer_at: NewPeer, control: NewController
) -> None:
    """Presettled links, browsers and links with passthrough routing refuse the transaction ID of a flow."""
    port = start_broker(anycast=("any.*",)).port
    peer = peer_at(port)
    put(peer, 1)
    for options in ({"presettled": True}, {"copy": True}, {"address": "any.where"}):
        one = control(port=port, **options)
        one.acquire(one.declare(), 1)
        assert one.refused() == "amqp:not-implemented"
    assert left(peer) == [(0, 0, True)]


class Skipping(SystemClock):
    """A clock that a test can advance."""

    skipped_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.skipped_s


def test_a_transaction_that_took_too_long_hands_out_nothing_more(
    start_broker: StartBroker, peer_at: NewPeer, control: NewController, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dispatch on the link stops until its client discharges the transaction or names another one."""
    monkeypatch.setattr("cairnmq.broker_plugin.run.SystemClock", Skipping)
    broker = start_broker(transactions=TransactionLimits(LONG_S), limits=Limits(idle_timeout_ms=0))
    peer = peer_at(broker.port)
    put(peer, 2)
    one = control(port=broker.port)
    txn_id = one.declare()
    one.acquire(txn_id, 1)
    found = one.take()
    one.flow(5)
    found += one.take()
    monkeypatch.setattr(Skipping, "skipped_s", 2 * LONG_S)
    for delivery in found:
        assert one.outcome(delivery.number, receiver=False).descriptor == RELEASED
    again = one_by_one(peer, 2)
    one.settle_down()
    assert not one.transfers(), "though it has credit"
    assert numbers(again) in ([0, 1], [1, 0])
    assert one.discharge(txn_id) == TIMEOUT


def test_each_transaction_that_fails_counts_where_an_outcome_was_told(peer: Peer, control: NewController) -> None:
    """A delivery limit also applies to a message whose transaction fails each time after its outcome was sent."""
    put(peer, 1)
    one = control()
    for turn in range(3):
        txn_id = one.declare()
        one.acquire(txn_id, 1)
        (found,) = one.take()
        assert found.message.delivery_count == turn
        one.tell(found, ACCEPTED, txn_id)
        assert one.discharge(txn_id, fail=True) == ""
