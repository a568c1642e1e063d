"""Tests of a broker on a completely full disk: draining, kills and restarts, and producers without credit."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message

from tests.harness.clients.peers import Peer, Received
from tests.harness.mounted_disk import mounted_disk
from tests.harness.process import broker

CREDIT = 40
BODY_BYTES = 20_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the mount point of a file system of 24 MiB."""
    with mounted_disk(tmp_path / "disk", "size=24m") as place:
        yield place


def fill_to_the_last_byte(path: Path) -> None:
    """Fill the disk until no byte is free, including space that the broker frees after a failed container creation."""
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
        while shutil.disk_usage(path.parent).free:
            with suppress(OSError):
                file.write(bytes(4096))


def body(number: int) -> bytes:
    return f"{number:08d}".encode() + bytes([number % 256]) * BODY_BYTES


def publish_until_refused(peer: Peer, senders: list[Any]) -> list[list[int]]:
    """Send by all senders in turn until a message is refused, then until no credit is left.

    Return the numbers of the accepted messages for each sender.
    """
    accepted: list[list[int]] = [[] for _ in senders]
    number = 0
    while True:
        which = number % len(senders)
        delivery = peer.post(senders[which], Message(body=body(number), durable=True))
        outcome_of(peer, delivery)
        if delivery.remote_state != Delivery.ACCEPTED:
            break
        accepted[which].append(number)
        number += 1
    while True:
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition.name == "amqp:resource-limit-exceeded"
        assert "left on the disk" in delivery.remote.condition.description
        link = next((link for link in senders if link.credit), None)
        if link is None:
            return accepted
        delivery = peer.post(link, Message(body=body(number), durable=True))
        outcome_of(peer, delivery)


def outcome_of(peer: Peer, delivery: Any) -> None:
    peer.wait(lambda: delivery.remote_state, "an outcome")


def accept_for_sure(peer: Peer, received: Received) -> None:
    received.delivery.update(Delivery.ACCEPTED)
    peer.wait(lambda: received.delivery.settled, "the accept to be confirmed")


def drain(peer: Peer, address: str, count: int) -> list[int]:
    """Receive and accept *count* messages, check that the queue has no more, and return their numbers."""
    receiver = peer.receiver(address)
    numbers: list[int] = []
    while len(numbers) < count:
        receiver.flow(min(50, count - len(numbers)))
        for received in peer.take(receiver, min(50, count - len(numbers))):
            numbers.append(int(received.body[:8]))
            assert bytes(received.body) == body(numbers[-1])
            received.accept()
        peer.settle_down()
    assert peer.drain(receiver, 1) == []
    peer.detach(receiver)
    return numbers


def journal_bytes(store: Path) -> int:
    total = 0
    for path in (store / "journal").iterdir():
        with suppress(FileNotFoundError):  # deleted in the meantime
            total += path.stat().st_size
    return total


@pytest.mark.parametrize("kills", [0, 8])
def test_a_full_disk_is_drained_and_service_resumes(disk: Path, kills: int) -> None:
    """Messages of two queues alternate, so that no container becomes empty early: compaction must use the reserve."""
    store, filler = disk / "store", disk / "filler"
    with broker(store, "--credit", str(CREDIT)) as running:
        peer = Peer(running.port)
        senders = [peer.sender("a"), peer.sender("b")]
        accepted = publish_until_refused(peer, senders)
        assert sum(map(len, accepted)) * BODY_BYTES > 8 << 20
        fill_to_the_last_byte(filler)
        if not kills:
            assert drain(peer, "a", len(accepted[0])) == accepted[0]
            assert drain(peer, "b", len(accepted[1])) == accepted[1]
            peer.settle_down()
            peer.wait(lambda: journal_bytes(store) < 12 << 20, "containers to be given back")
            resume(peer, senders, filler)
            assert running.stop() == 0
            return
        running.stop(signal.SIGKILL)
    taken: list[int] = []
    for _ in range(kills):  # each run confirms a dequeue, so that each makes progress
        fill_to_the_last_byte(disk / f"filler-{len(taken)}")
        with broker(store, "--credit", str(CREDIT)) as running:
            peer = Peer(running.port)
            receiver = peer.receiver("a", 1)
            received = peer.take(receiver)[0]
            accept_for_sure(peer, received)
            taken.append(int(received.body[:8]))
            running.stop(signal.SIGKILL)
    assert taken == accepted[0][:kills]
    with broker(store, "--credit", str(CREDIT)) as running:
        peer = Peer(running.port)
        senders = [sender_without_credit(peer, address) for address in ("a", "b")]
        peer.settle_down()
        assert [sender.credit for sender in senders] == [0, 0]
        assert drain(peer, "b", len(accepted[1])) == accepted[1]
        assert drain(peer, "a", len(accepted[0]) - kills) == accepted[0][kills:]
        for other in disk.glob("filler-*"):
            other.unlink()
        resume(peer, senders, filler)
        assert running.stop() == 0


def resume(peer: Peer, senders: list[Any], filler: Path) -> None:
    """Free space, wait until all senders have credit again, and check that a message is accepted."""
    filler.unlink()
    peer.wait(lambda: all(sender.credit == CREDIT for sender in senders), "the credit to come back")
    delivery = peer.post(senders[0], Message(body=body(1), durable=True))
    peer.wait(lambda: delivery.remote_state == Delivery.ACCEPTED, "the message to be accepted")


def test_a_long_message_that_meets_a_full_disk_gives_its_space_back(disk: Path) -> None:
    """The message is rejected after its last transfer, and the space of its stored part is reclaimed."""
    store = disk / "store"
    with broker(store, "--credit", str(CREDIT)) as running:
        peer = Peer(running.port)
        sender = peer.sender("long")
        delivery = peer.post(sender, Message(body=bytes(40 << 20), durable=True))
        peer.wait(lambda: delivery.remote_state, "an outcome")
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition.name == "amqp:resource-limit-exceeded"
        peer.wait(lambda: sender.credit == CREDIT, "the credit to come back, and so the space")
        delivery = peer.post(sender, Message(body=b"short", durable=True))
        peer.wait(lambda: delivery.remote_state == Delivery.ACCEPTED, "the message to be accepted")
        assert running.stop() == 0


def test_a_queue_that_can_not_be_made_is_refused_to_that_client_only(disk: Path) -> None:
    with broker(disk / "store") as running:
        peer = Peer(running.port)
        sender = peer.sender("there")
        delivery = peer.post(sender, Message(body=b"kept", durable=True))
        peer.wait(lambda: delivery.remote_state == Delivery.ACCEPTED, "the message to be accepted")
        fill_to_the_last_byte(disk / "filler")
        refused = Peer(running.port)
        assert refused.refusal(sender_without_credit(refused, "not there")) == "amqp:resource-limit-exceeded"
        assert [received.body for received in peer.take(peer.receiver("there", 1))] == [b"kept"]
        (disk / "filler").unlink()
        assert refused.sender("not there either").credit
        assert running.stop() == 0


def sender_without_credit(peer: Peer, address: str) -> Any:
    """Return a sender that is attached or refused, without waiting for credit."""
    return peer.attach(peer.session.sender(address), address)


def test_a_limit_that_no_one_sees_is_met_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """A limit that `statvfs` does not show, such as a quota (here: of file sizes), rejects messages until lifted."""
    store = tmp_path / "data"
    with broker(store, "--credit", str(CREDIT)) as running:
        peer = Peer(running.port)
        sender = peer.sender("q")
        peer.put(sender, [b"first"])
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, ((1 << 20) - 512, resource.RLIM_INFINITY))
        accepted = 1
        while True:
            delivery = peer.post(sender, Message(body=bytes(60_000), durable=True))  # never fills a container exactly
            outcome_of(peer, delivery)
            if delivery.remote_state != Delivery.ACCEPTED:
                break
            accepted += 1
        assert delivery.remote.condition.name == "amqp:resource-limit-exceeded"
        assert "no space left" in delivery.remote.condition.description
        peer.wait(lambda: not list((store / "journal").glob("*.new")), "what could not be made to be gone")
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        peer.wait(lambda: sender.credit == CREDIT, "the credit to come back")
        peer.put(sender, [b"last"])
        bodies = [bytes(received.body) for received in peer.take(peer.receiver("q", accepted + 1), accepted + 1)]
        assert (bodies[0], bodies[-1], len(bodies)) == (b"first", b"last", accepted + 1)
        assert running.stop() == 0


@pytest.mark.parametrize("how", ["removed", "moved", "emptied"])
def test_a_store_directory_that_goes_away_ends_the_broker(tmp_path: Path, how: str) -> None:
    store = tmp_path / "data"
    with broker(store) as running:
        if how == "removed":
            while store.exists():  # the broker creates and renames files meanwhile
                shutil.rmtree(store, ignore_errors=True)
        elif how == "moved":
            store.rename(tmp_path / "elsewhere")
        else:
            for path in (store / "journal").iterdir():
                path.unlink(missing_ok=True)
        assert running.wait() == 1
        running.wait_for("it was removed, replaced or unmounted while it was written to; .*restart the broker")


def test_an_unmounted_store_ends_the_broker(disk: Path) -> None:
    with broker(disk / "store") as running:
        subprocess.run(["umount", "-l", str(disk)], check=True)
        try:
            assert running.wait() == 1
            running.wait_for("removed, replaced or unmounted")
        finally:
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], check=True)
