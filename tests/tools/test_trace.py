"""Tests of `cairnmq trace`: it shows the complete lifetime of a message, in order."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest
from proton import Delivery, Message

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.dequeue_reason import DequeueReason
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.acquire_records import taker
from cairnmq.store.journaled.store import JournalStore
from tests.harness.clients.peers import Peer
from tests.harness.process import CAIRNMQ, DEADLINE_S, broker
from tests.harness.store.stores import NOW_US, come_to_rest, queue

from .conftest import Dump, Result


@pytest.fixture
def trace(command: Dump) -> Dump:
    return partial(command, "trace")


def opened(path: Path, *, acquisitions: bool = False) -> JournalStore:
    options = StoreOptions(512 << 10, archive_dir=str(path / "archive"), acquisitions=acquisitions)
    store, _ = open_store(str(path / "store"), ManualClock(), options)
    store.run_inline(store.became_durable)
    return store


def told(result: Result) -> list[str]:
    return [one["event"] for one in result.records]


def encoded(number: int, **more: object) -> bytes:
    return bytes(Message(id=f"m{number}", body=b"x" * 100, properties={"order": number}, **more).encode())


def test_transactions_pieces_a_restart_and_relocation(tmp_path: Path, trace: Dump) -> None:
    store = opened(tmp_path)
    one, other = queue(store, "orders"), queue(store, "bills")
    message_id = store.put(one, encoded(1, correlation_id="c1"), NOW_US)[0]
    long = store.put(one, encoded(2) + bytes(100_000), NOW_US)[0]
    phased = store.transactions.begin(NOW_US, xid=b"\x01\x02")
    phased.enqueue(message_id, other, NOW_US)
    phased.dequeue(message_id, one, NOW_US, DequeueReason.ACCEPTED)
    phased.prepare(NOW_US)
    store.kick()
    store.close()
    store = opened(tmp_path)
    [phased] = store.transactions.in_doubt()
    phased.commit(NOW_US)
    for _ in range(90):  # most records are dead, and compaction copies the others
        store.put(one, b"stays", NOW_US)
        filler = store.put(one, bytes(60_000), NOW_US)[0]
        store.kick()
        store.dequeue(filler, one, NOW_US)
        store.kick()
    come_to_rest(store)
    back = store.transactions.begin(NOW_US)
    back.dequeue(long, one, NOW_US, DequeueReason.ACCEPTED)
    back.put(other, b"answer", NOW_US)
    back.rollback(NOW_US)
    store.purge(one, NOW_US)
    store.dequeue(message_id, other, NOW_US, DequeueReason.EXPIRED)
    store.kick()
    store.close()
    paths = tmp_path / "store", tmp_path / "archive"
    found = trace(*paths, message_id, "--json")
    assert found.status == 0, found.err
    events = told(found)
    assert events[:5] == [
        "arrived", "to be enqueued", "to be dequeued", "transaction prepared", "broker started: offered again",
    ]  # fmt: skip
    assert events[5:8] == ["enqueued", "dequeued", "transaction committed"]
    assert set(events[8:-1]) == {"relocated"}
    assert events[-1] == "dequeued"
    assert found.records[-1]["reason"] == "expired"
    assert {one["xid"] for one in found.records if "xid" in one} == {"0102"}
    assert found.objects[0]["message"]["on"] == {}
    assert found.objects[0]["message"]["properties"] == {"order": "1"}
    by_sender = [trace(*paths, *words, "--json").out for words in (
        ("--message-id", "m1"), ("--correlation-id", "c1"), ("--property", "order=1"))]  # fmt: skip
    assert set(by_sender) == {found.out}
    by_any_lsn = trace(*paths, found.records[-1]["lsn"], "--json")
    assert by_any_lsn.out == found.out
    pieces = trace(*paths, long, "--json")
    assert told(pieces)[:3] == ["arrived", "piece", "enqueued"]
    assert told(pieces)[-1] == "purged"
    assert "now: on no queue" in trace(*paths, long).out


def test_a_message_that_was_moved_is_one_with_its_copies_on_all_brokers(tmp_path: Path, trace: Dump) -> None:
    with broker(tmp_path / "data") as running, broker(tmp_path / "member") as member:
        make = ["queues", "create", "limited", "--argument", "dead-letter-address=dead"]
        command = [CAIRNMQ, "ctl", "--timeout", "60", "--url", f"127.0.0.1:{running.port}", *make]
        subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
        peer, second = Peer(running.port), Peer(member.port)  # after the command, during which heartbeats would stop
        peer.send(peer.sender("dead"), Message(id="other", body=0, durable=True))
        peer.send(peer.sender("limited"), *[Message(id=f"m{n}", body=n, durable=True) for n in range(3)])
        second.send(second.sender("copy"), Message(id="m1", body=1, durable=True))
        peer.take(peer.receiver("limited", 3), 3)[1].settle(Delivery.REJECTED)
        dead = peer.take(peer.receiver("dead", 2), 2)[1]
        assert dead.message.id == "m1"
        dead.accept()
        peer.put(peer.sender("behind it"), ["when this is durable, that is"])
        peer.cut()
        second.close()

        def events() -> Result:
            return trace(tmp_path / "data", "--message-id", "m1", "--json", "--also", tmp_path / "member")

        found = events()
        first, also = [one["message"] for one in found.objects if "message" in one]
        assert (len(first["ids"]), len(also["ids"])) == (2, 1)
        here = [one for one in found.records if one["store"] == str(tmp_path / "data")]
        assert [(one["event"], one.get("queue"), one.get("reason")) for one in here] == [
            ("arrived", "limited", None), ("dequeued", "limited", "rejected"), ("arrived", "dead", None),
            ("copied", None, None), ("transaction committed", None, None), ("transaction committed", None, None),
            ("dequeued", "dead", "accepted"),
        ]  # fmt: skip
        copy = trace(tmp_path / "data", first["ids"][1], "--json")  # the copy refers to the original
        assert copy.objects[0]["message"]["ids"] == first["ids"]
        assert "copied" in trace(tmp_path / "data", first["ids"][1]).out


def test_who_acquired_it_is_told_if_it_was_written_down(tmp_path: Path, trace: Dump) -> None:
    place = tmp_path / "data"
    with broker(place, "--journal-acquisitions") as running:
        first, second = Peer(running.port, container="depot"), Peer(running.port, container="shop")
        first.send(first.sender("orders"), *[Message(id=f"m{n}", body=n, durable=True) for n in range(3)])
        one = first.receiver("orders", 2, name="one")
        first.take(one, 2)[1].settle(Delivery.RELEASED)
        first.settle_down()
        first.close()  # this also requeues the message that is not settled
        second.take(second.receiver("orders", 2, name="two"), 2)[1].accept()
        second.put(second.sender("behind it"), ["when this is durable, that is"])
        found = trace(place, "--message-id", "m1", "--json")  # while the broker runs
        assert running.stop() == 0
    assert [(one["event"], one.get("container"), one.get("link")) for one in found.records] == [
        ("arrived", None, None), ("acquired", "depot", "one"), ("acquired", "shop", "two"), ("dequeued", None, None),
    ]  # fmt: skip
    assert found.objects[0]["message"]["acquisitions_not_written"] == []
    assert "by shop/two" in trace(place, "--message-id", "m1").out
    with broker(place) as running:  # acquisitions are not recorded without the option
        third = Peer(running.port, container="late")
        third.take(third.receiver("orders", 1, name="three"), 1)
        third.cut()
        assert running.stop() == 0
    left = trace(place, "--message-id", "m0", "--json")
    by = [one["link"] for one in left.records if one["event"] == "acquired"]
    [[begin, end]] = left.objects[0]["message"]["acquisitions_not_written"]
    opened_again = next(one["lsn"] for one in left.records if one["event"] == "broker started: offered again")
    assert "three" not in by
    assert begin <= opened_again < end
    out = trace(place, "--message-id", "m0").out
    assert f"LSN {begin} to {end}: acquisitions were not written down, or not all" in " ".join(out.split())
    assert "cairnmq ctl links list" in out


def test_acquisitions_are_followed_through_transactions_and_archives(tmp_path: Path, trace: Dump) -> None:
    """The acquisitions of one message are found among many records, each with many messages."""
    store = opened(tmp_path, acquisitions=True)
    one = queue(store, "orders")
    ids = [store.put(one, encoded(number), NOW_US)[0] for number in range(300)]
    for number in range(90):  # records that are not archived are in the log
        store.note_acquired(one, taker("c", f"l{number}"), ids[number : number + 100 : 3], NOW_US + number)
        filler = store.put(one, bytes(60_000), NOW_US)[0]
        store.kick()
        store.dequeue(filler, one, NOW_US)
        store.kick()
    come_to_rest(store)
    store.close()
    found = trace(tmp_path / "store", tmp_path / "archive", ids[60], "--json")
    handed = [(one["link"], one["time_us"]) for one in found.records if one["event"] == "acquired"]
    numbers = [number for number in range(90) if ids[60] in ids[number : number + 100 : 3]]
    assert handed == [(f"l{number}", NOW_US + number) for number in numbers]
    assert found.objects[0]["message"]["acquisitions_not_written"] == []


def test_what_is_not_there_is_told(tmp_path: Path, trace: Dump) -> None:
    store = opened(tmp_path)
    message_id = store.put(queue(store), encoded(1), NOW_US)[0]
    store.close()
    for words, says in (
        ((message_id + 1,), "no record begins there"),
        ((1 << 40,), f"LSN {1 << 40}: the log ends at LSN "),
        (("--message-id", "nobody"), "has no record of it"),
        ((), "name a store and a message"),
        (("--property", "order"), "give NAME=VALUE"),
        (("--property", "order=1", "--message-id", "m1"), "give one of"),
    ):
        found = trace(tmp_path / "store", *words)
        assert found.status in (1, 2)
        assert says in found.err
