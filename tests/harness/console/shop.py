"""The sites of a busy shop for the console: clients, dead letters, history, federation.

The broker of the shop serves its own console. A second broker, a cluster of one member, is the site in Frankfurt: the
shop copies its queue `returns`, and Frankfurt lists the shop as a downstream site. The console of the shop also reads
the store in Frankfurt.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proton import Message, symbol
from proton.utils import BlockingConnection, SyncRequestResponse

from tests.harness.clients.peers import Peer
from tests.harness.clients.transacting import Control, send
from tests.harness.console import site
from tests.harness.console.accounts import write_users
from tests.harness.console.site import ADMIN, HOSTILE, PASSWORD, READER, create, order
from tests.harness.process import DEADLINE_S, BrokerProcess

SERVICES = ("checkout", "billing", "warehouse", "copier")
CLUSTER = "frankfurt"
RULES = f"""{site.RULES}
[[rules]]
who = ["checkout", "billing", "warehouse", "copier", "anonymous"]
may = ["connect", "send", "receive", "browse", "create"]
"""
QUEUES: dict[str, dict[str, Any]] = {
    "orders": {"dead-letter-address": "orders.dead", "max-deliveries": 3, "max-messages": 10_000},
    "orders.dead": {}, "orders.retry": {}, "invoices": {"message-ttl-ms": 86_400_000}, "emails": {"priorities": True},
    "audit": {}, "payments": {}, "reminders": {}, "shipping.eu": {}, "shipping.us": {"paused": True},
    "stock.updates": {"last-value-key": "sku"},
}  # fmt: skip
EXCHANGES = {"shop": "topic", "shipping": "direct", "news": "fanout"}
BINDINGS = (
    ("shop", "orders", "order.created"), ("shop", "invoices", "order.*"), ("shop", "audit", "#"),
    ("shop", "emails", "order.created"), ("shop", "payments", "payment.*"), ("shipping", "shipping.eu", "eu"),
    ("shipping", "shipping.us", "us"), ("news", "emails", ""), ("news", "audit", ""),
)  # fmt: skip
XIDS = ("transfer-2026-0815", "transfer-2026-0816")
"""Distributed transactions in doubt, besides one whose name a client chose."""
RETURNS = 25
AUDIT_MESSAGES = 900
AUDIT_BYTES = 3000
REJECTED = 6


class Shop:
    """Two brokers with clients that stay connected. `url` is the console of the shop, `remote_url` of Frankfurt."""

    def __init__(self, place: Path, name: str = HOSTILE) -> None:
        """Start both brokers. *name*: a name that a client chose for a queue, a link, a transaction and more."""
        self.place = place
        self.name, self.exchange = name, f"exchange {name}"
        self._clients: list[BlockingConnection] = []
        self._peers: list[Peer] = []
        self._started: list[BrokerProcess] = []
        write_users(place / "users", dict.fromkeys((ADMIN, READER, *SERVICES), PASSWORD))
        (place / "rules.toml").write_text(RULES)
        (place / "password").write_text(PASSWORD)
        (place / "password").chmod(0o600)
        self._remote = self._start("frankfurt", "--cluster-name", CLUSTER, "--cluster-size", "1", "--port", "0")
        self._remote_port = int(self._logged("frankfurt", r"listening on \S+:(\d+)"))
        connector = f"amqp://copier@127.0.0.1:{self._remote_port}?name=frankfurt"
        self._options = (
            "--container-size", "512K", "--connect-to", connector, "--connect-to-password-file",
            str(place / "password"), "--archive-dir", str(place / "archive"), "--journal-acquisitions",
            "--idle-timeout", "0", "--http-also", str(place / "frankfurt"),
        )  # fmt: skip
        self.broker = self._start("shop", *self._options, "--port", "0")
        self.url = self._logged("shop", r"web console at (\S+)")
        self.port = int(self._logged("shop", r"listening on \S+:(\d+)"))
        self.remote_url = self._logged("frankfurt", r"web console at (\S+)")

    def _start(self, name: str, *options: str, http_port: str = "0") -> BrokerProcess:
        found = BrokerProcess(
            self.place / name, "--users-file", str(self.place / "users"), "--acl-file", str(self.place / "rules.toml"),
            "--audit-file", str(self.place / f"{name}.audit"), "--anonymous", "--allow-insecure-auth",
            "--log-file", str(self.place / f"{name}.log"), "--http-port", http_port, *options,
        )  # fmt: skip
        self._started.append(found)
        return found

    def _logged(self, name: str, pattern: str) -> str:
        """Wait until *pattern* is in the log of a broker, and return its first group."""
        log = self.place / f"{name}.log"

        def found() -> re.Match[str] | None:
            return re.search(pattern, log.read_text()) if log.exists() else None

        until(lambda: found() is not None, f"{pattern} in {log}")
        match = found()
        assert match is not None
        return match[1]

    def restart(self) -> None:
        """Stop the broker with its console, and start both again on the same ports."""
        self.broker.stop()
        (self.place / "shop.log").rename(self.place / "shop.log.1")
        http_port = self.url.rstrip("/").rpartition(":")[2]
        self.broker = self._start("shop", *self._options, "--port", str(self.port), http_port=http_port)
        self._logged("shop", r"web console at (\S+)")

    def stop(self) -> None:
        for peer in self._peers:
            peer.cut()
        for client in self._clients:
            client.close()
        for process in self._started:
            if process.process.poll() is None:
                process.stop()

    # ---- clients

    def client(self, user: str = ADMIN, container: str | None = None) -> BlockingConnection:
        """Return a connection of *user* that stays open until the end."""
        found = self._connect(self.port, user, container)
        self._clients.append(found)
        return found

    @staticmethod
    def _connect(port: int, user: str, container: str | None = None) -> BlockingConnection:
        url = f"amqp://127.0.0.1:{port}"
        return BlockingConnection(
            url, timeout=DEADLINE_S, user=user, password=PASSWORD, allow_insecure_mechs=True, container_id=container
        )

    def fill(self) -> None:
        """Create queues and exchanges, and do a day's work on them."""
        self._fill_remote()
        connection = self.client(container="setup")
        management = SyncRequestResponse(connection, "$management")
        for name, arguments in {**QUEUES, self.name: {}}.items():
            create(management, "queue", name, arguments=arguments)
        for name, type in {**EXCHANGES, self.exchange: "topic"}.items():
            create(management, "exchange", name, **{"exchange-type": type})
        for exchange, queue, key in (*BINDINGS, (self.exchange, self.name, self.name)):
            create(management, "binding", None, exchange=exchange, queue=queue, key=key)
        create(management, "federated-queue", "returns", connector="frankfurt")
        self._sell(connection)
        self._write_audit_trail()
        self._leave_in_doubt(management)
        self._attach_services()
        self._wait_for_copy(management)

    def _fill_remote(self) -> None:
        connection = self._connect(self._remote_port, ADMIN)
        create(SyncRequestResponse(connection, "$management"), "queue", "returns", arguments={})
        sender = connection.create_sender("returns")
        for number in range(RETURNS):
            sender.send(returned(number))
        connection.close()

    def _sell(self, connection: BlockingConnection) -> None:
        """Send orders, reject some of them, and schedule reminders."""
        sender = connection.create_sender("shop")
        for number in range(24):
            sender.send(order(number))
        name = self.name
        connection.create_sender(name).send(Message(name, id=name, subject=name, properties={name: name}, durable=True))
        receiver = connection.create_receiver("orders", credit=REJECTED)
        for _ in range(REJECTED):
            receiver.receive(timeout=DEADLINE_S)
            receiver.reject()
        receiver.close()
        sender = connection.create_sender("reminders")
        for hours in range(1, 9):
            delay = {symbol("x-opt-delivery-delay"): hours * 3_600_000}
            sender.send(
                Message(f"Pay invoice {4700 + hours}.", id=f"reminder-{hours}", durable=True, annotations=delay)
            )
        sender = connection.create_sender("payments")
        for number in range(17):
            sender.send(order(number))

    def _write_audit_trail(self) -> None:
        """Fill containers of the journal, and consume all but a few old messages, which keep it."""
        peer = self._peer("audit-writer")
        sender = peer.sender("payments.log")
        lines = [Message(b"%05d " % number + b"x" * AUDIT_BYTES, durable=True) for number in range(AUDIT_MESSAGES)]
        sent = [peer.post(sender, line) for line in lines]
        peer.wait(lambda: all(one.settled for one in sent), "all lines are stored")
        receiver = peer.receiver("payments.log")
        received = peer.drain(receiver, AUDIT_MESSAGES)
        for number, one in enumerate(received):
            if number % 3 or number < AUDIT_MESSAGES // 2:
                one.accept()
        peer.settle_down()
        peer.detach(receiver)

    def _leave_in_doubt(self, management: SyncRequestResponse) -> None:
        peer = self._peer("bank")
        control = Control(peer)
        sender = peer.sender("payments")
        for number, xid in enumerate((*map(str.encode, XIDS), self.name.encode()), 1):
            txn_id = control.declare(xid)
            send(peer, sender, txn_id, *[f"transfer {number}"] * number)
            control.commit(txn_id)
            about = {"operation": "PREPARE", "type": "transaction", "name": xid.hex()}
            assert management.call(Message(properties=about)).properties["statusCode"] < 300
        send(peer, sender, control.declare(), "still open")

    def _attach_services(self) -> None:
        """Connect consumers with credit and unsettled messages, and a producer."""
        checkout = self.client("checkout", "checkout-7f9c4")
        checkout.create_sender("shop", name="order-events")
        billing = self.client("billing", "billing-1")
        receiver = billing.create_receiver("orders", credit=10, name="billing-orders")
        receiver.receive(timeout=DEADLINE_S)
        warehouse = self.client("warehouse", "warehouse-eu-2")
        warehouse.create_receiver("shipping.eu", credit=50, name="pick-list")
        self.client("warehouse", self.name).create_receiver("shipping.eu", credit=1, name=self.name)

    def _wait_for_copy(self, management: SyncRequestResponse) -> None:
        def copied() -> tuple[bool, int]:
            about = {"operation": "READ", "type": "federated-queue", "name": "returns"}
            found = management.call(Message(properties=about)).body
            return found["complete"], found["messages"]

        until(lambda: copied() == (True, RETURNS), "the copy of the queue is complete")
        connection = self._connect(self._remote_port, ADMIN)
        receiver = connection.create_receiver("returns", credit=1)
        receiver.receive(timeout=DEADLINE_S)
        receiver.accept()
        connection.close()
        until(lambda: copied() == (True, RETURNS - 1), "the copy follows the queue")

    def _peer(self, name: str) -> Peer:
        found = Peer(self.port, container=name)
        self._peers.append(found)
        return found


def returned(number: int) -> Message:
    return Message(
        f"Order {4711 + number} came back.", id=f"return-{4711 + number}", durable=True, properties={"tenant": "acme"}
    )


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until *condition* holds. Raises `AssertionError`."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)
