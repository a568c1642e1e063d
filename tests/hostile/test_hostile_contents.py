"""Tests that no content of a store ends a broker, whatever kind of queue it is on, and whatever reads it."""

from __future__ import annotations

import random
import re
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from proton import Message
from proton.reactor import Copy, Selector
from proton.utils import BlockingConnection

from cairnmq.amqp.client.links import Receiver
from cairnmq.amqp.client.login import BrokerLogin
from cairnmq.amqp.client.loop import Loop
from cairnmq.amqp.client.management import Management, await_true
from cairnmq.amqp.client.wire import Wire
from cairnmq.amqp.frames import performatives as p
from cairnmq.store import open_store
from tests.fuzz.corpus import encoded_messages
from tests.fuzz.mutate import Mutator
from tests.harness.process import DEADLINE_S, BrokerProcess, broker

LAST = bytes(Message(body="the last one", properties={"kind": "last"}, durable=True).encode())
LONG = bytes(3 << 20)
FOREIGN = (
    b"", b"one cairn, please", b"\x00", b"\x00S", b"\x00Sp", b"\x00Sp\xc0", b"\x00Sp\xc0\x05\x05AAAA", b"\x00S\x99\x40",
    b"\x00Sp\xd0\xff\xff\xff\xff", b"\x00\xa3\x05hello\x40", b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x99\x45",
    b"{}", b"\x00\x00\x00\x00", b"one long cairn" + LONG,
)  # fmt: skip
"""Contents that the broker rejects if a client sends them."""
BROKEN = (
    b"\x00Sw", b"\x00Sr\xd1", b"\x00Ss\xc0\x01\xff", b"\x00St\xc1\x03\x02\xa1\xff", b"\x00Su\xb0" + LONG[:64],
    b"\x00Sp\x45\x00Sr\xc1\x20" + bytes(5), b"\x00SpE\x00Su" + LONG,
)  # fmt: skip
"""Contents that begin like a message."""
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "priority": {"priorities": True},
    "last-value": {"last-value-key": "subject"},
    "group": {"message-groups": True},
    "single": {"single-active-consumer": True},
    "ring": {"max-messages": 400, "overflow": "ring"},
    "bytes": {"max-bytes": 1 << 30},
    "ttl": {"message-ttl-ms": 1 << 40, "expiry-address": "expired"},
    "expired": {"message-ttl-ms": 1, "expiry-address": "plain"},
    "deliveries": {"max-deliveries": 2, "dead-letter-address": "dead"},
    "retries": {"max-deliveries": 9, "retry-delay-ms": 1},
    "window": {"duplicate-window": 100},
    "auto": {"auto-delete": "no-messages"},
    "exclusive": {"exclusive": True},
    "$failures:deliveries": {},
    "$duplicates:window": {},
}


READ = [name for name in KINDS if not name.startswith("$") and name not in ("expired", "last-value")]
"""Queues whose last message can be received."""


def mutations(count: int, seed: int = 7) -> list[bytes]:
    mutator, chance = Mutator(f"contents {seed}"), random.Random(seed)
    blobs = [mutator.blob(encoded_messages()) for _ in range(count)]
    return blobs + [chance.randbytes(chance.randrange(1, 60)) for _ in range(count // 4)]


def fill(store_dir: Path, contents: Sequence[bytes]) -> dict[str, list[int]]:
    """Store *contents* on a queue of each kind, as a program without a broker does; return their IDs."""
    ids: dict[str, list[int]] = {}
    with open_store(str(store_dir)) as store:
        for name, arguments in KINDS.items():
            queue = store.queue(name, arguments)
            ids[name] = [queue.put_in_pieces(_pieces(content)).result() for content in contents]
            queue.put(LAST).result()
    return ids


def _pieces(content: bytes) -> list[bytes]:
    return [content[:1_000_000], content[1_000_000:]] if len(content) > 1_000_000 else [content]


class Rejecting(Receiver):
    """Rejects each message."""

    def came(self, delivery_id: int, message: bytes, settled: bool) -> None:
        self.took(1)
        self.wire.send_frames(p.disposition(delivery_id, delivery_id, True, p.described(0x25)))
        self._then(message)


def receive_all(running: BrokerProcess, address: str) -> list[bytes]:
    """Receive until the last message arrives."""
    found: list[bytes] = []
    with closing(Wire(BrokerLogin(port=running.port, timeout_s=DEADLINE_S), f"receiver of {address}")) as wire:
        loop = Loop(wire)
        receiver = Rejecting(wire, address, address, found.append)
        wire.attach(receiver)
        await_true(wire, loop, "link", lambda: receiver.attached)
        receiver.allow(100_000)
        await_true(wire, loop, "last message", lambda: any(b"the last one" in one for one in found))
    return found


def read_out(running: BrokerProcess) -> list[str]:
    """Have management read all queues; return the answers that report a defect of the broker."""
    with closing(Wire(BrokerLogin(port=running.port, timeout_s=DEADLINE_S), "operator")) as wire:
        management = Management(wire, Loop(wire))
        answers = []
        for name in KINDS:
            about = {"type": "queue", "name": name}
            for operation, body in (
                ("PEEK", {"after": 0, "count": 1000, "body-bytes": 100}),
                ("MOVE", {"to": f"moved {name}", "count": 20}),
                ("DISCARD", {"positions": [1, 2, 14, 15]}),
                ("READ", None),
            ):
                answer = management.ask({"operation": operation, **about}, body)
                answers.append(f"{name} {operation} {answer.status} {answer.description}")
    return [answer for answer in answers if " 5" in answer]


def purge_all(running: BrokerProcess) -> None:
    with closing(Wire(BrokerLogin(port=running.port, timeout_s=DEADLINE_S), "operator")) as wire:
        management = Management(wire, Loop(wire))
        for name in [*KINDS, *(f"moved {kind}" for kind in KINDS), "dead", "expired"]:
            management.ask({"operation": "PURGE", "type": "queue", "name": name})


def select(running: BrokerProcess, address: str) -> None:
    """Receive what a selector matches, and browse the queue."""
    for number, option in enumerate((Selector("kind = 'last'"), Copy())):
        connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
        link = connection.create_receiver(address, name=str(number), options=option, credit=1)
        link.receive(timeout=DEADLINE_S)
        connection.close()


def test_message_of_a_transaction_in_doubt_is_set_aside(tmp_path: Path) -> None:  # U1
    with open_store(str(tmp_path / "data")) as store:
        queue = store.queue("plain")
        message_id = queue.put(FOREIGN[1]).result()
        queue.put(LAST).result()
        transaction = store.transaction(xid=b"xid")
        assert transaction.take(queue) is not None
        transaction.prepare().result()
    with broker(tmp_path / "data") as running:
        with closing(Wire(BrokerLogin(port=running.port, timeout_s=DEADLINE_S), "operator")) as wire:
            about = {"operation": "ROLLBACK", "type": "transaction", "name": b"xid".hex()}
            assert Management(wire, Loop(wire)).ask(about).status == 204
        assert len(receive_all(running, "plain")) == 1
        running.wait_for(f"message.malformed queue plain: message {message_id} is no AMQP message")
        assert running.stop() == 0


def test_stored_bytes_that_are_no_message_are_set_aside(tmp_path: Path) -> None:  # U1
    contents = [*FOREIGN, *BROKEN, *mutations(100)]
    ids = fill(tmp_path / "data", contents)
    for turn in range(2):
        with broker(tmp_path / "data", "--metrics-port", "0") as running:
            if turn == 0:
                select(running, "plain")
                assert read_out(running) == []
            for name in READ if turn else ():
                found = receive_all(running, name)
                assert not any(content in found for content in FOREIGN)
            lines = "\n".join(running.lines)
            for number, _ in enumerate(FOREIGN):
                assert f"queue plain: message {ids['plain'][number]} is no AMQP message" in lines
            address = running.wait_for(r"(http://[^ ]*/metrics)")[1]
            shown = urllib.request.urlopen(address, timeout=DEADLINE_S).read().decode()
            counted = re.findall(r"^cairnmq_unreadable_messages_total (\d+)", shown, re.M)
            assert int(counted[0]) >= len(FOREIGN)
            assert "internal-error" not in lines
            assert running.stop() == 0
    with broker(tmp_path / "data") as running:
        purge_all(running)
        assert running.stop() == 0
    with open_store(str(tmp_path / "data")) as store:  # a purge removes what was set aside, too
        assert not [queue.name for queue in store.queues() if len(queue) and not queue.name.startswith("$")]
