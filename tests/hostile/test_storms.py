"""Tests of hostile or defective clients: other clients are served, memory is bounded, and no message is lost."""

from __future__ import annotations

import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.amqp.codec import encode
from cairnmq.amqp.codec.types import Described, Uint, Ulong, Ushort
from cairnmq.amqp.engine.endpoints import MOST_CREDIT
from tests.harness.process import DEADLINE_S, BrokerProcess, broker
from tests.harness.router.raw import AMQP, DETACH, DISPOSITION, END, FLOW, Raw, attach, begin, frame, opening, transfer

GROWTH_BYTES = 64 << 20
"""Maximum growth of the broker's memory from before to after a storm."""
GROWTH_BYTES_PER_CONNECTION = 160 << 10
"""Additional growth permitted for each parallel connection, which has buffers for two frames."""
IDLE = 800
EVER = 0xFFFFFFFF


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("storms") / "data", "--memory-limit", "32M") as started:
        assert_served(started.port, "first", 20)
        yield started


def assert_served(port: int, name: str, count: int) -> None:
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE_S)
    sender, receiver = connection.create_sender(name), connection.create_receiver(name)
    for number in range(count):
        sender.send(Message(body=number, durable=True))
        assert receiver.receive(timeout=DEADLINE_S).body == number
        receiver.accept()
    connection.close()


class Bystander:
    """A well-behaved client that sends to two queues, receives from one of them, and leaves messages on the other."""

    def __init__(self, port: int, name: str) -> None:
        self.confirmed = 0
        self._connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE_S)
        self._name = name
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._connection.close()
        if self._error is not None:
            raise AssertionError("the bystander was not served") from self._error

    def _run(self) -> None:
        try:
            there, back = self._connection.create_sender("mine"), self._connection.create_receiver("mine")
            kept = self._connection.create_sender(self._name)
            while not self._stop.is_set() or not self.confirmed:
                there.send(Message(body=self.confirmed, durable=True))
                assert back.receive(timeout=DEADLINE_S).body == self.confirmed
                back.accept()
                kept.send(Message(body=self.confirmed, durable=True))
                self.confirmed += 1
        except BaseException as error:
            self._error = error


def resident_bytes(running: BrokerProcess) -> int:
    statm = Path(f"/proc/{running.process.pid}/statm").read_text()
    return int(statm.split()[1]) * resource.getpagesize()


def hear_all(raw: Raw) -> None:
    """Shut down the sending direction, read and ignore frames until the broker closes the connection, and close it."""
    raw.sock.shutdown(socket.SHUT_WR)
    raw.rest()
    raw.sock.close()


# ---- storms -------------------------------------------------------------------------------------------------------


def bytes_one_by_one(port: int) -> None:
    said = AMQP + opening() + begin() + attach("slow", 0, "slow") + transfer(0, 0, b"\x00\x53\x77\x41")
    socks = [socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) for _ in range(20)]
    for at in range(len(said)):
        for sock in socks:
            sock.sendall(said[at : at + 1])
    for sock in socks:
        sock.close()


def links_come_and_go(port: int) -> None:
    raw = Raw(port, opening(), begin())
    raw.until("begin")
    for turn in range(60):
        for number in range(40):
            raw.say(attach(f"link {turn} {number}", number, f"node {number % 3}", receives=bool(number % 2)))
        for number in range(40):
            raw.say(frame(DETACH, Uint(number), number % 3 > 0))
        for _ in range(40):
            raw.until("detach")
    hear_all(raw)


def links_come_and_go_unheard(port: int) -> None:
    """Attach and detach links of the same name repeatedly, without waiting for a response."""
    raw = Raw(port, opening(), begin())
    pair = attach("same", 0, "node", receives=True) + frame(DETACH, Uint(0), True)
    with suppress(OSError):
        for _ in range(3000):
            raw.say(pair)
    raw.sock.close()


def sessions_come_and_go(port: int) -> None:
    """Begin and end as many sessions as one connection may begin per second."""
    raw = Raw(port, opening())
    for _ in range(19):
        for channel in range(50):
            raw.say(begin(channel), attach("link", 0, "node", receives=True, channel=channel))
            raw.say(frame(END, channel=channel))
        for _ in range(50):
            raw.until("end")
    hear_all(raw)


def connections_come_and_go(port: int) -> None:
    for number in range(400):
        said = (b"", AMQP, AMQP + opening(), AMQP + opening() + begin() + attach("l", 0, "node"))[number % 4]
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
            sock.sendall(said)


def connections_do_nothing(port: int) -> None:
    with ExitStack() as stack:
        for number in range(IDLE):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S))
            if number % 2:
                sock.sendall(AMQP + opening(f"idle {number}") + begin())
        assert_served(port, "while others idle", 5)


def credit_without_end(port: int) -> None:
    """Grant the most credit that proton supports; more than that is answered by a detach with an error."""
    raw = Raw(port, opening(), begin(), attach("greedy", 0, "nothing here", receives=True))
    raw.until("attach")
    for _ in range(1000):
        raw.say(frame(FLOW, Uint(0), Uint(2048), Uint(0), Uint(2048), Uint(0), Uint(0), Uint(MOST_CREDIT), None, True))
    for handle, credit in enumerate((0x80000000, EVER), 1):
        flow = frame(FLOW, Uint(0), Uint(2048), Uint(0), Uint(2048), Uint(handle), Uint(0), Uint(credit))
        raw.say(attach(f"too greedy {handle}", handle, "nothing here", receives=True), flow)
        assert raw.until("detach").error == "amqp:not-implemented"
    for count in (0, 1, 0x7FFFFFFF, 0x80000000, EVER):
        for credit in (EVER, 0x80000000, 1, 0, EVER):
            for drain in (False, True):
                flow = frame(
                    FLOW, Uint(0), Uint(2048), Uint(0), Uint(2048), Uint(0), Uint(count), Uint(credit), None, drain
                )
                raw.say(flow * 20)
    hear_all(raw)


def senders_die_in_the_middle(port: int) -> None:
    head = b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xb0" + (1 << 30).to_bytes(4)
    for durable in range(12):
        raw = Raw(port, opening(), begin(window=EVER), attach("s", 0, "half"))
        raw.until("flow")
        raw.say(transfer(0, 0, head if durable % 2 else head[8:], more=True))
        part = transfer(0, None, bytes(60_000), more=True)
        with suppress(OSError):
            for _ in range(50):
                raw.say(part)
        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset instead of a close
        raw.sock.close()


def empty_transfers_without_end(port: int) -> None:
    raw = Raw(port, opening(), begin(window=EVER), attach("s", 0, "empty"))
    raw.until("flow")
    raw.say(transfer(0, 0, more=True))
    part = transfer(0, None, more=True)
    with suppress(OSError):
        for _ in range(300):
            raw.say(part * 100)
    raw.sock.close()


def receivers_die_in_the_middle(port: int) -> None:
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE_S)
    connection.create_sender("long").send(Message(body=bytes(4 << 20), durable=True))
    flow = frame(FLOW, Uint(0), Uint(2048), Uint(0), Uint(2048), Uint(0), Uint(0), Uint(10))
    for _ in range(12):
        raw = Raw(port, opening(), begin(), attach("r", 0, "long", receives=True), flow)
        raw.until("transfer")
        raw.sock.close()
    receiver = connection.create_receiver("long")
    assert len(receiver.receive(timeout=DEADLINE_S).body) == 4 << 20
    receiver.accept()
    connection.close()


def receivers_read_nothing(port: int) -> None:
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE_S)
    sender = connection.create_sender("unread")
    for _ in range(40):
        sender.send(Message(body=bytes(200_000), durable=True))
    flow = frame(FLOW, Uint(0), Uint(EVER), Uint(0), Uint(EVER), Uint(0), Uint(0), Uint(MOST_CREDIT))
    stalled = [
        Raw(port, opening(), begin(window=EVER), attach("r", 0, "unread", receives=True), flow) for _ in range(10)
    ]
    assert_served(port, "while others do not read", 5)
    for raw in stalled:
        raw.sock.close()
    receiver = connection.create_receiver("unread")
    for _ in range(40):
        assert len(receiver.receive(timeout=DEADLINE_S).body) == 200_000
        receiver.accept()
    connection.close()


def nothing_is_ever_settled(port: int) -> None:
    """Receive all messages and disconnect without settling them, repeatedly; each next client receives them all."""
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE_S)
    sender = connection.create_sender("unsettled")
    for number in range(300):
        sender.send(Message(body=number, durable=True))
    flow = frame(FLOW, Uint(0), Uint(EVER), Uint(0), Uint(EVER), Uint(0), Uint(0), Uint(MOST_CREDIT))
    for _ in range(5):
        raw = Raw(port, opening(), begin(window=EVER), attach("r", 0, "unsettled", receives=True), flow)
        for _ in range(300):
            raw.until("transfer")
        raw.sock.close()
    receiver = connection.create_receiver("unsettled", credit=300)
    assert sorted(receiver.receive(timeout=DEADLINE_S).body for _ in range(300)) == [*range(300)]
    for _ in range(300):
        receiver.accept()
    connection.close()


def outcomes_of_everything(port: int) -> None:
    raw = Raw(port, opening(), begin(), attach("r", 0, "nothing here", receives=True))
    raw.until("attach")
    for state in (0x24, 0x25, 0x26, 0x27, 0x34, 0x77):
        for first, last in ((0, EVER), (EVER, 0), (0x7FFFFFFF, 0x80000000), (5, 4)):
            outcome = Described(Ulong(state), [])
            raw.say(*[frame(DISPOSITION, role, Uint(first), Uint(last), True, outcome) for role in (True, False)])
    with suppress(OSError):
        raw.say(encode.value([Ushort(1)]))
        hear_all(raw)


STORMS: tuple[Callable[[int], None], ...] = (
    bytes_one_by_one, links_come_and_go, links_come_and_go_unheard, sessions_come_and_go, connections_come_and_go,
    connections_do_nothing, credit_without_end, senders_die_in_the_middle, empty_transfers_without_end,
    receivers_die_in_the_middle, receivers_read_nothing, nothing_is_ever_settled, outcomes_of_everything,
)  # fmt: skip


@pytest.mark.parametrize("storm", STORMS, ids=lambda storm: storm.__name__)
def test_others_are_served_and_nothing_is_lost(  # A5, A6, A7
    running: BrokerProcess, storm: Callable[[int], None]
) -> None:
    before_bytes = resident_bytes(running)
    with Bystander(running.port, storm.__name__) as other:
        storm(running.port)
    assert running.process.poll() is None
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    receiver = connection.create_receiver(storm.__name__, credit=other.confirmed)
    for number in range(other.confirmed):
        assert receiver.receive(timeout=DEADLINE_S).body == number
        receiver.accept()
    connection.close()
    most_bytes = GROWTH_BYTES + (IDLE * GROWTH_BYTES_PER_CONNECTION if storm is connections_do_nothing else 0)
    assert resident_bytes(running) < before_bytes + most_bytes
