"""Tests of dequeue reasons, which are stored in the flags of dequeue records, from all writers to all readers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from proton import Delivery, Message

from cairnmq.journal.format.record import TABLE, Flag, RecordType
from cairnmq.store import open_store
from cairnmq.store.contract.dequeue_reason import DequeueReason, reason_of
from cairnmq.store.embedded.library import Store
from cairnmq.store.message_map.bulk_apply import apply_all
from cairnmq.store.message_map.state import State
from tests.harness.clients.peers import Peer
from tests.harness.process import CAIRNMQ, DEADLINE_S, broker
from tests.harness.store.stores import NOW_US, SIZE, Disk, put, queue
from tests.tools.conftest import Dump


def reasons(path: Path) -> dict[str, list[str | None]]:
    """Return the reasons of the dequeues of each queue, in order."""
    done = subprocess.run(
        [CAIRNMQ, "dump", str(path), "--json", "--type", "dequeue"], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str | None]] = {}
    *records, end = map(json.loads, done.stdout.splitlines())
    assert end["end"]["corrupt"] == 0
    for record in records:
        assert not [name for name in record["flags"] if name.startswith("flag-")]
        found.setdefault(record["queue"], []).append(record.get("reason"))
    return found


def test_broker_records_dequeue_reasons(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as running:
        url = f"amqp://127.0.0.1:{running.port}"

        def ctl(*words: str) -> None:
            command = [CAIRNMQ, "ctl", "--timeout", "60", "--url", url, *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
            assert done.returncode == 0, done.stderr

        ctl("queues", "create", "dead")
        with_limits = ("--argument", "dead-letter-address=dead", "--argument", "max-deliveries=1")
        ctl("queues", "create", "limited", *with_limits)
        ctl("queues", "create", "ring", "--argument", "max-messages=1", "--argument", "overflow=ring")
        ctl("queues", "create", "newest", "--argument", "last-value-key=subject")
        ctl("queues", "create", "short", "--argument", "message-ttl-ms=1")
        peer = Peer(running.port)
        for name in ("plain", "settled", "moved", "limited"):
            peer.put(peer.sender(name), ["one", "two"])
        plain = peer.receiver("plain", 2)
        first, second = peer.take(plain, 2)
        first.accept()
        second.settle(Delivery.REJECTED)
        peer.take(peer.receiver("settled", 2, settled=True), 2)
        limited = peer.receiver("limited", 2)
        first, second = peer.take(limited, 2)
        first.settle(Delivery.REJECTED)
        second.settle(Delivery.MODIFIED, failed=True)
        peer.put(peer.sender("ring"), ["old", "new"])
        peer.send(peer.sender("newest"), *[Message(body=n, subject="same", durable=True) for n in range(2)])
        peer.put(peer.sender("short"), ["gone"])
        peer.take(peer.receiver("dead", 2), 2)
        ctl("queues", "create", "elsewhere")
        ctl("queues", "move", "moved", "elsewhere", "--count", "1")
        peer.settle_down()
        expected = {
            "plain": ["accepted", "rejected"], "settled": ["accepted", "accepted"], "moved": ["moved"],
            "limited": ["rejected", "delivery-limit"], "ring": ["overflow"], "newest": ["replaced"],
            "short": ["expired"],
        }  # fmt: skip
        peer.wait(lambda: reasons(tmp_path / "data") == expected, "all reasons")
        peer.close()


def test_client_transaction_records_dequeue_reasons(dump: Dump, tmp_path: Path) -> None:
    with open_store(str(tmp_path / "store")) as store:
        assert isinstance(store, Store)
        orders = store.queue("orders")
        orders.put_all([b"1", b"2", b"3"]).result()
        message = orders.take()
        assert message is not None
        message.accept().result()
        with store.transaction() as both:
            both.take(orders)
            both.put(orders, b"4")
        with store.transaction(xid=b"x") as phased:
            phased.take(orders)
            phased.prepare().result()
            phased.commit().result()
    found = dump(tmp_path / "store", "--json", "--type", "dequeue").records
    assert [(one["flags"], one.get("reason")) for one in found] == [
        (["delete"], "accepted"), (["delete"], "accepted"), (["prepared"], "accepted"), (["delete"], "accepted"),
    ]  # fmt: skip
    assert "dequeue+delete+accepted" in dump(tmp_path / "store", "--summary").out


@pytest.mark.parametrize("reason", list(DequeueReason))
def test_relocation_and_recovery_keep_dequeue_reasons(reason: DequeueReason) -> None:
    disk = Disk()
    store, _ = disk.open()
    one, other = queue(store, "a"), queue(store, "b")
    ids = [put(store, one) for _ in range(6)]
    store.enqueue(ids[0], other, NOW_US)
    store.dequeue(ids[0], one, NOW_US, reason)
    store.dequeue(ids[1], one, NOW_US, reason)
    store.dequeue_all(ids[2:5], one, NOW_US, reason)
    store.kick()
    said = [read.head for read in disk.records() if read.head.type == RecordType.DEQUEUE]
    assert {reason_of(head.flags) for head in said} == {reason}
    assert {head.flags & 0x1F for head in said} == {0, Flag.DELETE}
    again, _ = disk.open()  # recovery reads these records correctly
    assert {key: list(ids) for key, ids in again.messages().items()} == {one: ids[5:], other: ids[:1]}


def test_transactions_with_reasons_are_taken_in_at_once() -> None:
    disk = Disk()
    store, _ = disk.open()
    on = queue(store)
    ids = [put(store, on) for _ in range(40)]
    tx = store.transactions.begin(NOW_US)
    tx.dequeue_all(ids[:20], on, NOW_US, DequeueReason.ACCEPTED)
    tx.put(on, b"new", NOW_US)
    tx.commit(NOW_US)
    store.kick()
    reads = disk.records()
    lsns = np.array([read.lsn for read in reads], np.uint64)
    assert apply_all(State(SIZE), lsns, np.array([tuple(read.head) for read in reads], TABLE))
