"""A broker with users, messages and a web console, for tests of the console in a browser."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from proton import Message
from proton.utils import BlockingConnection, SyncRequestResponse

from tests.harness.console.accounts import write_users
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess

PASSWORD = "quiet-stones"
ADMIN, READER = "olga", "rita"
RULES = f"""
[[rules]]
who = ["{ADMIN}"]
may = ["*"]

[[rules]]
who = ["{READER}"]
may = ["connect", "monitor", "browse"]

[[rules]]
who = ["{READER}"]
may = ["send", "receive", "create"]
on = ["$management", "dynamic-*"]
"""
HOSTILE = "<img src=x onerror=alert(1)>"
"""A name, a key, a property and a body that the console must show as text."""
QUEUES: dict[str, dict[str, Any]] = {
    "orders": {"dead-letter-address": "orders.dead", "max-deliveries": 5, "max-messages": 10_000},
    "orders.dead": {}, "invoices": {"message-ttl-ms": 86_400_000}, "emails": {"priorities": True}, "audit": {},
    "shipping.eu": {}, "shipping.us": {"paused": True}, "stock.updates": {"last-value-key": "sku"}, HOSTILE: {},
}  # fmt: skip
BINDINGS = (
    ("shop", "orders", "order.created"), ("shop", "invoices", "order.*"), ("shop", "audit", "#"),
    ("shop", "emails", "order.created"), ("shipping", "shipping.eu", "eu.*"), ("shipping", "shipping.us", "us.*"),
    ("shop", HOSTILE, HOSTILE),
)  # fmt: skip


class Site(Protocol):
    """Running brokers that can be filled with messages."""

    def fill(self) -> None: ...

    def stop(self) -> None: ...


T = TypeVar("T", bound=Site)


@contextmanager
def filled(site: T) -> Iterator[T]:
    """Fill *site*; stop it at the end."""
    try:
        site.fill()
        yield site
    finally:
        site.stop()


class ConsoleSite:
    """A broker that can be restarted, and a console in its own process."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._users, self._rules = place / "users", place / "rules.toml"
        write_users(self._users, dict.fromkeys((ADMIN, READER), PASSWORD))
        self._rules.write_text(RULES)
        self.broker = self._start(0)
        self.port = self.broker.port
        command = [
            CAIRNMQ, "console", "--url", f"amqp://127.0.0.1:{self.port}", "--http-port", "0",
            "--store-dir", str(place / "data"), "--log-file", str(place / "log"),
        ]  # fmt: skip
        with (place / "console.log").open("w") as errors:
            self._console = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self._console.stdout is not None
        line = self._console.stdout.readline()
        assert line.startswith("web console at "), (line, (place / "console.log").read_text())
        self.url = line.split()[-1]

    def _start(self, port: int) -> BrokerProcess:
        return BrokerProcess(
            self._place / "data", "--port", str(port), "--users-file", str(self._users), "--acl-file", str(self._rules),
            "--allow-insecure-auth", within=self._with_log,
        ).ready()  # fmt: skip

    def _with_log(self, command: list[str]) -> list[str]:
        """Return a command that also writes its output to the file that the console reads."""
        return ["bash", "-c", f'exec "$@" > >(tee -a {self._place / "log"}) 2>&1', "bash", *command]

    def stop_broker(self) -> None:
        self.broker.stop()

    def start_broker(self) -> None:
        self.broker = self._start(self.port)

    def stop(self) -> None:
        self._console.terminate()
        self._console.wait(DEADLINE_S)
        assert self._console.stdout is not None
        self._console.stdout.close()
        if self.broker.process.poll() is None:
            self.broker.stop()

    @contextmanager
    def client(self) -> Iterator[BlockingConnection]:
        """Open a connection of the administrator."""
        connection = BlockingConnection(
            f"amqp://127.0.0.1:{self.port}", user=ADMIN, password=PASSWORD, allow_insecure_mechs=True
        )
        try:
            yield connection
        finally:
            connection.close()

    def fill(self) -> None:
        """Create queues, exchanges and bindings, and send messages, some of which become dead letters."""
        with self.client() as connection:
            management = SyncRequestResponse(connection, "$management")
            for name, arguments in QUEUES.items():
                create(management, "queue", name, arguments=arguments)
            for name in ("shop", "shipping"):
                create(management, "exchange", name, **{"exchange-type": "topic"})
            for exchange, queue, key in BINDINGS:
                create(management, "binding", None, exchange=exchange, queue=queue, key=key)
            sender = connection.create_sender("orders")
            for number in range(12):
                sender.send(order(number))
            connection.create_sender(HOSTILE).send(
                Message(HOSTILE, id=HOSTILE, subject=HOSTILE, properties={HOSTILE: HOSTILE}, durable=True)
            )
            for queue, count in (("invoices", 30), ("audit", 48), ("emails", 7)):
                sender = connection.create_sender(queue)
                for number in range(count):
                    sender.send(order(number))
            receiver = connection.create_receiver("orders", credit=5)
            for _ in range(5):
                receiver.receive(timeout=30)
                receiver.reject()
            receiver.close()


def order(number: int) -> Message:
    body = f'{{"order": {4711 + number}, "customer": "Anna Nordström", "total": {129.5 + number}}}'.encode()
    return Message(
        body, id=f"order-{4711 + number}", subject="order.created", content_type="application/json", durable=True,
        properties={"tenant": "acme", "attempt": number}, inferred=True,
    )  # fmt: skip


def create(management: SyncRequestResponse, type: str, name: str | None, **body: Any) -> None:
    """Create an entity. Raises `AssertionError`."""
    about = {"operation": "CREATE", "type": type, **({} if name is None else {"name": name})}
    response = management.call(Message(properties=about, body=body))
    assert response.properties["statusCode"] < 400, response.properties
