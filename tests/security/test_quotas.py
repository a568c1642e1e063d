"""Tests of user quotas with a complete broker: the limits of a user, and their independence of other users (W10)."""

from __future__ import annotations

import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from proton import Message

from cairnmq.base.errors import CairnError
from cairnmq.broker.nodes.access_control import parse as parse_access
from cairnmq.broker.users.user_accounts import BACKSTOP_BYTES
from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.mounted_disk import mounted_disk
from tests.harness.security.quotas import (
    RULES,
    account_of,
    attach_sender,
    durable,
    logged_in,
    outcomes,
    quota,
    send,
    take,
    wait_until,
)
from tests.harness.security.wire import (
    AMQP,
    ATTACH,
    CLOSE,
    DEADLINE_S,
    DETACH,
    DISPOSITION,
    FALSE,
    FLOW,
    NULL,
    OPEN,
    TRUE,
    Wire,
    attach,
    flow,
    performative,
    string,
    transfer,
    uint,
    wired,
)

from .conftest import PASSWORDS, StartBroker


@pytest.fixture
def start(start_broker: StartBroker, users_file: str) -> Callable[..., RunningBroker]:
    def start(acl: str, **options: object) -> RunningBroker:
        return start_broker(acl=acl, users_file=users_file, anonymous=False, insecure_auth=True, **options)

    return start


def attach_refused(wire: Wire, handle: int, address: str) -> str:
    """Attach a sending link to *address* and return the error of its refusal."""
    wire.say(attach(f"refused {handle}", handle, address, sends=True))
    return repr(wire.until(DETACH)[1])


@pytest.mark.parametrize("others", ["ben"])
def test_a_quota_of_links(start: Callable[..., RunningBroker], others: str) -> None:  # W10
    running = start(quota(max_links=2))
    with logged_in(running, "anna") as anna, logged_in(running, "anna") as again, logged_in(running, others) as ben:
        anna.attach("one", 0, "a", sends=True)
        again.attach("two", 0, "a", sends=True)
        reason = attach_refused(anna, 1, "a")
        assert "amqp:resource-limit-exceeded" in reason
        assert "user 'anna'" in reason
        assert "2 of 2 links" in reason
        assert "max-links" in reason
        for handle in range(3):
            ben.attach(f"ben {handle}", handle, "a", sends=True)


def test_a_quota_of_connections(start: Callable[..., RunningBroker]) -> None:  # W10
    """The error names user, number and remedy; only open connections of the user count."""
    running = start(quota(max_connections=2))
    with logged_in(running, "anna") as first, logged_in(running, "anna"), logged_in(running, "ben"):
        with wired(running.port) as third:
            assert third.scram("anna", PASSWORDS["anna"]) == 0
            third.send(AMQP)
            assert third.read(8) == AMQP
            third.say(performative(OPEN, string("raw")))
            while (found := third.next())[0] != CLOSE:
                pass
            reason = found[2]
        assert b"amqp:resource-limit-exceeded" in reason
        assert b"user 'anna' has 2 of 2 connections (max-connections); close some, or have max-connections" in reason
        first.say(performative(CLOSE))
        while first.next()[0] != CLOSE:
            pass
        wait_until(lambda: account_of(running, "anna").connections == 1)
        with logged_in(running, "anna"):
            pass


@pytest.mark.parametrize("kind", ["on first use", "dynamic", "subscriptions"])
def test_a_quota_of_queues(start: Callable[..., RunningBroker], kind: str) -> None:  # W10
    running = start(quota(max_queues=3))
    with logged_in(running, "anna") as anna, logged_in(running, "ben") as ben:
        for handle in range(3):
            anna.attach(f"make {handle}", handle, f"queue {handle}", sends=True)
        if kind == "on first use":
            reason = attach_refused(anna, 3, "queue 3")
        elif kind == "dynamic":
            anna.say(attach_dynamic("dynamic", 3))
            reason = repr(anna.until(DETACH)[1])
        else:
            anna.say(attach("subscribed", 3, "amq.topic/news", sends=False))
            reason = repr(anna.until(DETACH)[1])
        assert "amqp:resource-limit-exceeded" in reason
        assert "user 'anna'" in reason
        assert "3 of 3 queues" in reason
        anna.attach("there", 4, "queue 0", sends=True)
        ben.attach("ben", 0, "queue 3", sends=True)
        anna.attach("ben's", 5, "queue 3", sends=True)


def test_queues_asked_for_at_once_count(start: Callable[..., RunningBroker]) -> None:  # W10
    """Queues that are still being created in SQLite count towards the quota."""
    running = start(quota(max_queues=5), store_kind="journal")
    with logged_in(running, "anna") as anna:
        anna.say(*[attach(f"make {number}", number, f"queue {number}", sends=True) for number in range(50)])
        refused = made = 0
        while refused + made < 50:
            code, fields, _ = anna.next()
            refused += code == DETACH
            made += code == FLOW and len(fields) >= 7
        assert (made, refused) == (5, 45)


def test_a_queue_counts_until_it_is_deleted(start: Callable[..., RunningBroker]) -> None:  # W10
    running = start(quota(max_queues=1))
    with logged_in(running, "anna") as anna:
        for number in range(3):
            anna.say(attach_dynamic(f"own {number}", number))
            anna.until(ATTACH)
            anna.say(performative(DETACH, uint(number), TRUE))
            anna.until(DETACH)


def attach_dynamic(name: str, handle: int) -> bytes:
    dynamic = performative(0x28, NULL, uint(0), NULL, uint(0), TRUE)
    return performative(ATTACH, string(name), uint(handle), TRUE, NULL, NULL, dynamic, performative(0x29, string("me")))


@pytest.mark.parametrize("kind", ["whole", "long", "relayed"])
def test_message_for_too_many_queues_is_rejected(start: Callable[..., RunningBroker], kind: str) -> None:
    """A message for too many queues is added to none of the queues; a user with another quota may send the message."""
    running = start(quota(max_queues_per_message=3))
    with logged_in(running, "anna") as anna, logged_in(running, "ben") as ben:
        for handle in range(4):
            ben.say(attach(f"subscription {handle}", handle, "amq.topic/news", sends=False), flow(handle, 10))
            ben.until(ATTACH)
        address = None if kind == "relayed" else "amq.topic/news"
        body = "x" * (400_000 if kind == "long" else 10)
        content = bytes(Message(body, durable=True, address="amq.topic/news").encode())
        for wire, handle in ((anna, 0), (ben, 9)):
            if address is None:
                ends = performative(0x28, string("me")), performative(0x29)
                relay = string("relay"), uint(handle), FALSE, NULL, NULL
                wire.say(performative(ATTACH, *relay, *ends, NULL, NULL, uint(0)))
            else:
                wire.say(attach("send", handle, address, sends=True))
            wire.until(ATTACH)
        send_long(anna, 0, content, 0)
        _, outcome = anna.until(DISPOSITION)
        assert b"amqp:resource-limit-exceeded" in outcome
        assert b"user 'anna' would be put on 4 queues, 3 are allowed (max-queues-per-message)" in outcome
        assert all(queue.messages == 0 for queue in running._broker.nodes.queues.values())
        send_long(ben, 0, content, 9)
        assert all(outcomes(ben, 1))


def send_long(wire: Wire, number: int, content: bytes, handle: int) -> None:
    """Send a message in frames of limited length."""
    parts = [content[at : at + 8000] for at in range(0, len(content), 8000)]
    last = len(parts) - 1
    wire.say(*[transfer(number, part, handle=handle, more=at < last) for at, part in enumerate(parts)])


# ---- durable bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store_kind", ["memory", "journal", "sql"])
def test_durable_bytes_over_the_quota_wait(start: Callable[..., RunningBroker], store_kind: str) -> None:  # W10
    """Messages in flight beyond the limit are stored or wait for dequeues, and are not rejected."""
    limit, count, size, senders = 200_000, 400, 20_000, 3
    running = start(quota(max_durable_bytes=limit), store_kind=store_kind)
    with ExitStack() as stack:
        ben = stack.enter_context(logged_in(running, "ben"))
        wires = [stack.enter_context(logged_in(running, "anna")) for _ in range(senders)]
        for wire in wires:
            attach_sender(wire, "a")
        threads = [threading.Thread(target=send, args=(wire, range(count), durable("x" * size))) for wire in wires]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: "anna" in running._broker.core.users.by_name and account_of(running, "anna").is_blocked)
            account = account_of(running, "anna")
            assert limit <= account.durable_bytes < limit + BACKSTOP_BYTES
            attach_sender(ben, "b")
            send(ben, range(10), durable("y" * size))
            assert all(outcomes(ben, 10))
            assert account.is_blocked
            take(ben, "a", senders * count)
        finally:
            for thread in threads:
                thread.join()
        for wire in wires:
            assert all(outcomes(wire, count))
        wait_until(lambda: account.durable_bytes == 0)
        assert not account.is_blocked


def test_a_message_that_never_fits_is_rejected(start: Callable[..., RunningBroker]) -> None:  # W10
    running = start(quota(max_durable_bytes=50_000))
    with logged_in(running, "anna") as anna:
        attach_sender(anna, "a")
        send(anna, range(1), durable("x" * 30_000))
        assert all(outcomes(anna, 1))
        take(anna, "a", 1)
        send(anna, range(1, 2), durable("x" * 50_001))
        _, body = anna.until(DISPOSITION)
        assert b"amqp:resource-limit-exceeded" in body
        assert b"user 'anna' may have 50000 durable bytes (max-durable-bytes)" in body


def test_bytes_are_charged_to_their_owner_after_a_start(tmp_path: Path, users_file: str) -> None:  # W10
    """After a restart, stored bytes are charged to the owner of the queue, regardless of the sender."""
    (tmp_path / "acl.toml").write_text(quota(max_durable_bytes=50_000))
    options = BrokerOptions(
        str(tmp_path / "store"),
        router=RouterOptions(port=0, users_file=users_file, anonymous=False, insecure_auth=True),
        acl_file=str(tmp_path / "acl.toml"),
    )
    running = RunningBroker(options)
    try:
        with logged_in(running, "anna") as anna, logged_in(running, "ben") as ben:
            anna.attach("anna", 0, "a", sends=True)
            attach_sender(ben, "a")
            send(ben, range(3), durable("x" * 20_000))
            assert all(outcomes(ben, 3))
            wait_until(lambda: account_of(running, "anna").is_blocked)
            charged_bytes = account_of(running, "anna").durable_bytes
            assert charged_bytes > 60_000
            assert account_of(running, "ben").durable_bytes == 0
    finally:
        running.stop()
    running = RunningBroker(options)
    try:
        wait_until(lambda: account_of(running, "anna").durable_bytes == charged_bytes)
        with logged_in(running, "ben") as ben:
            attach_sender(ben, "a")
            wait_until(lambda: len(account_of(running, "anna").blocked) == 1)
            take(ben, "a", 1)
            while len(ben.until(FLOW)[0]) < 7:
                pass
    finally:
        running.stop()


@pytest.mark.parametrize("how", ["purged", "deleted"])
def test_purged_and_deleted_queues_free_their_bytes(start: Callable[..., RunningBroker], how: str) -> None:  # W10
    running = start(quota(max_durable_bytes=50_000), store_kind="journal")
    with logged_in(running, "anna") as anna, logged_in(running, "ben") as ben:
        anna.attach("other", 1, "other", sends=True)
        attach_sender(anna, "a")
        send(anna, range(3), durable("x" * 20_000))
        assert all(outcomes(anna, 3))
        wait_until(lambda: account_of(running, "anna").is_blocked)
        manage(ben, "PURGE" if how == "purged" else "DELETE", "queue", "a")
        wait_until(lambda: account_of(running, "anna").durable_bytes == 0)
        wait_until(lambda: not account_of(running, "anna").is_blocked)


def manage(wire: Wire, operation: str, kind: str, name: str) -> None:
    """Send a request to management and wait for its outcome."""
    properties = {"operation": operation, "type": kind, "name": name}
    request = Message(id=1, reply_to="answers", properties=properties, body={})
    attach_sender(wire, "answers", handle=4)
    attach_sender(wire, "$management", handle=5)
    send(wire, range(1), bytes(request.encode()), handle=5)
    assert all(outcomes(wire, 1))


def test_a_changed_quota_counts_with_the_reload(start: Callable[..., RunningBroker], tmp_path: Path) -> None:  # W10
    running = start(quota(max_links=1, max_durable_bytes=50_000))
    with logged_in(running, "anna") as anna:
        attach_sender(anna, "a")
        send(anna, range(3), durable("x" * 20_000))
        assert all(outcomes(anna, 3))
        wait_until(lambda: account_of(running, "anna").is_blocked)
        assert "1 of 1 links" in attach_refused(anna, 1, "a")
        (tmp_path / "acl.toml").write_text(quota(max_links=2, max_durable_bytes="1MiB"))
        running.reload()
        wait_until(lambda: not account_of(running, "anna").is_blocked)
        anna.attach("another", 2, "a", sends=True)


def test_a_wrong_quota_is_refused_with_its_place(tmp_path: Path) -> None:
    for limits, reason in (
        ({"max_queus": 1}, "there is no limit 'max-queus'; there are max-connections, max-links, max-queues"),
        ({"max_queues": -1}, "max-queues is -1; it is a number from 0 to"),
        ({"max_queues": True}, "max-queues is True; it is a number from 0 to"),
        ({"max_disk_share": 101}, "max-disk-share is 101; it is a number from 0 to 100"),
        ({"core_share": 0}, "core-share is 0; it is a number from 1 to 1000"),
        ({"max_durable_bytes": "1GBx"}, "invalid size '1GBx' (examples: 512K, 64MiB, 1GB)"),
    ):
        text = quota(**limits).replace("True", "true")
        with pytest.raises(CairnError) as caught:
            parse_access(text.encode(), "acl.toml")
        assert str(caught.value).startswith("acl.toml, quota 1: ")
        assert reason in str(caught.value)


@pytest.mark.parametrize("size", [("512K", 512 << 10), ("64MiB", 64 << 20), ("1GB", 1 << 30), ("7", 7)])
def test_sizes_in_quotas(size: tuple[str, int]) -> None:
    access = parse_access(quota(max_durable_bytes=size[0]).encode(), "acl.toml")
    assert access.quotas.of("anna").max_durable_bytes == size[1]
    assert access.quotas.of("ben").max_durable_bytes == 0


# ---- messages per second ---------------------------------------------------------------------------------------------


def test_messages_per_second_are_paced(start: Callable[..., RunningBroker]) -> None:  # W10
    """Credit is granted at the permitted rate, which all links of a user share, and no message is rejected."""
    rate, count = 200, 500
    running = start(quota(max_messages_per_second=rate))
    with logged_in(running, "anna") as anna, logged_in(running, "anna") as again:
        begun_s = time.monotonic()
        sent = 0
        senders = [Sender(anna, "a"), Sender(again, "a")]
        while sent < count:
            for sender in senders:
                sender.wait_for_credit()
                sender.send(durable("x"))
                sent += 1
        passed_s = time.monotonic() - begun_s
        assert count <= rate * (passed_s + 1) + 1, "the first second is free"
        for sender in senders:
            assert all(outcomes(sender.wire, 1))


class Sender:
    """A sending link that waits for credit before each message."""

    def __init__(self, wire: Wire, address: str) -> None:
        self.wire = wire
        self.sent = self.limit = 0
        attach_sender(wire, address)

    def wait_for_credit(self) -> None:
        while self.sent >= self.limit:
            fields, _ = self.wire.until(FLOW)
            if len(fields) >= 7:
                assert isinstance(fields[5], int)
                assert isinstance(fields[6], int)
                self.limit = fields[5] + fields[6]

    def send(self, content: bytes) -> None:
        self.wire.say(transfer(self.sent, content))
        self.sent += 1


# ---- disk -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 64 MiB."""
    with mounted_disk(tmp_path / "disk", "size=64m") as place:
        yield place


def test_one_user_does_not_fill_the_disk(disk: Path, users_file: str) -> None:  # W10
    """Without a quota, the sender that fills the disk waits, other users can store, and consuming lets it continue."""
    options = BrokerOptions(
        str(disk / "store"),
        router=RouterOptions(port=0, users_file=users_file, anonymous=False, insecure_auth=True),
    )
    count, size = 1000, 60_000
    running = RunningBroker(options)
    try:
        with logged_in(running, "anna") as anna, logged_in(running, "ben") as ben:
            attach_sender(anna, "hog")
            sender = threading.Thread(target=send, args=(anna, range(count), durable("x" * size)))
            sender.start()
            try:
                wait_until(
                    lambda: "anna" in running._broker.core.users.by_name and account_of(running, "anna").is_blocked
                )
                attach_sender(ben, "victim")
                send(ben, range(100), durable("y" * 1000))
                assert all(outcomes(ben, 100))
                assert account_of(running, "anna").is_blocked
                assert shutil.disk_usage(disk).free > 8 << 20
                take(ben, "hog", count)
            finally:
                sender.join()
            assert all(outcomes(anna, count)), "the hog waited, and nothing of it was rejected"
    finally:
        running.stop()


def test_disk_alarm_leaves_its_reserve_to_all(disk: Path, tmp_path: Path, users_file: str) -> None:  # W10
    """On a full disk, the alarm is raised, no user can store, all users can receive, and all continue afterwards.

    No message is stored in the reserve for dequeues, and no message is lost. Ben may use the complete disk: with a
    smaller share, Ben's messages beyond the share would be held without an answer before the alarm is raised.
    """
    access = tmp_path / "access"
    access.write_text(RULES + '[[quotas]]\nwho = ["ben"]\nmax-disk-share = 100\n')
    options = BrokerOptions(
        str(disk / "store"),
        router=RouterOptions(port=0, users_file=users_file, anonymous=False, insecure_auth=True),
        acl_file=str(access),
        metrics_port=0,
    )
    running = RunningBroker(options)
    filler, count, size = disk / "filler", 1000, 60_000

    def alarm() -> bool:
        with urllib.request.urlopen(running.metrics_url, timeout=DEADLINE_S) as page:
            return 'cairnmq_alarm{resource="disk"} 1' in page.read().decode()

    def fill() -> None:
        with open(filler, "ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 16))

    try:
        with logged_in(running, "anna") as anna, logged_in(running, "ben") as ben:
            attach_sender(anna, "hog")
            attach_sender(ben, "victim")
            send(ben, range(10), durable("y" * 1000))
            assert all(outcomes(ben, 10))
            sender = threading.Thread(target=send, args=(anna, range(count), durable("x" * size)))
            sender.start()
            try:
                wait_until(
                    lambda: "anna" in running._broker.core.users.by_name and account_of(running, "anna").is_blocked
                )
                assert not alarm(), "a hog alone does not bring it about"
                number, accepted = 10, 10
                while not alarm():  # uses up containers that the broker created before or reclaims meanwhile
                    fill()
                    send(ben, range(number, number + 10), durable("y" * size))
                    number, accepted = number + 10, accepted + sum(outcomes(ben, 10))
                stored_bytes = account_of(running, "anna").durable_bytes
                take(ben, "victim", accepted)
                wait_until(lambda: account_of(running, "ben").durable_bytes == 0)
                assert account_of(running, "anna").durable_bytes <= stored_bytes
                filler.unlink()
                wait_until(lambda: not alarm())
                send(ben, range(number, number + 10), durable("y" * 1000))
                assert all(outcomes(ben, 10))
                take(ben, "hog", count, handle=10)
            finally:
                filler.unlink(missing_ok=True)
                sender.join()
            assert all(outcomes(anna, count)), "the hog waited, and nothing of it was rejected"
    finally:
        running.stop()
