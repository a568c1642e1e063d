"""A client of a cluster in its own process, which connects to any member, and to the next one on failure.

    python -m tests.harness.cluster.failover_client sender|receiver|drain NAME SEED QUEUE NOTEBOOK HOST:PORT...

A sender sends each message once, and continues with new ones on its next connection; a receiver accepts most messages,
and releases or fails some. Clients record each action in the notebook before it can leave the process. They exit with
status 0 after their standard input ends: a sender when all messages on its last connection have an outcome, a receiver
when all its accepts are settled. A drain exits when no message has arrived for a while after that.
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
import time
from typing import Any, NamedTuple

from proton import Delivery, Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, ReceiverOption

from cairnmq.tools.soak.history import Answered, Confirmed, Got, Notebook, Refused, Sent, Settled

HEARTBEAT_S = 2.0
"""The time without any input after which a client leaves a member.

It grows with each failed connection, so that clients connect on slow machines, too.
"""
TICK_S = 0.05
MOST_UNCONFIRMED = 20
CREDIT = 20
QUIET_S = 4.0
"""The time that a drain waits for unexpected messages before it exits."""


class Came(NamedTuple):
    """The time just before a client connects: the broker sends all messages of this session later."""

    session: str
    at: int


class Given(NamedTuple):
    """The command-line arguments of a client."""

    role: str
    name: str
    seed: str
    queue: str
    notebook: str
    places: list[str]


def digest_of(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=6).hexdigest()


class SettledBySecond(ReceiverOption):  # type: ignore[misc]
    """A receiver option: the broker settles an outcome when it has taken effect."""

    def apply(self, receiver: Link) -> None:
        receiver.rcv_settle_mode = Link.RCV_SECOND


class Client:
    """The state of a client that outlives its connections."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.random = random.Random(f"{given.seed} {given.name}")
        self.notebook = Notebook(given.notebook)
        self.number = 0
        self.visit = 0
        """The number of the current connection."""
        self.in_vain = 0
        """The number of failed connections since the last successful one."""
        self.ending = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        sys.stdin.read()
        self.ending.set()

    def note(self, *events: Any) -> None:
        for event in events:
            self.notebook.note(event)
        self.notebook.flush()

    def run(self) -> None:
        visits = {"sender": Sending, "receiver": Receiving, "drain": Draining}
        places = self.given.places
        at = self.random.randrange(len(places))
        while True:
            self.visit += 1
            there = visits[self.given.role](self, places[at % len(places)], f"{self.given.name}/{self.visit}")
            Container(there).run()
            if there.done:
                return
            at += 1
            self.in_vain = 0 if there.let_in else self.in_vain + 1
            time.sleep(0.02 if there.let_in else 0.2)


class Visit(MessagingHandler):  # type: ignore[misc]
    """One connection, from its beginning to its end."""

    def __init__(self, client: Client, place: str, session: str) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.client = client
        self.place = place
        self.session = session
        self.link: Any = None
        self.let_in = False
        self.done = False
        self._begun_s = time.monotonic()
        self._patience_s = HEARTBEAT_S * (1 + client.in_vain)

    def on_start(self, event: Any) -> None:
        self.client.note(Came(self.session, time.monotonic_ns()))
        self.container = event.container
        self.connection = event.container.connect(
            f"amqp://{self.place}", reconnect=False, heartbeat=self._patience_s, allowed_mechs="ANONYMOUS"
        )
        self.open_link()
        event.container.schedule(TICK_S, self)

    def open_link(self) -> None:
        raise NotImplementedError

    def on_link_opened(self, event: Any) -> None:
        self.let_in = True

    def on_timer_task(self, event: Any) -> None:
        if not self.let_in and time.monotonic() - self._begun_s > self._patience_s:
            self.leave()
            return
        if self.let_in:
            self.tick()
        if not self.done:
            event.container.schedule(TICK_S, self)

    def tick(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.done = True
        self.connection.close()
        self.leave()

    def leave(self, event: Any = None) -> None:
        self.container.stop()

    on_connection_error = on_session_error = on_link_error = leave
    on_connection_closed = on_transport_error = on_transport_closed = on_disconnected = leave


class Sending(Visit):
    def open_link(self) -> None:
        self.link = self.container.create_sender(self.connection, self.client.given.queue)
        self._unconfirmed: dict[str, str] = {}

    def tick(self) -> None:
        client = self.client
        if client.ending.is_set():
            if not self._unconfirmed:
                self.finish()
            return
        room = min(self.link.credit, MOST_UNCONFIRMED - len(self._unconfirmed))
        for _ in range(min(room, client.random.choice((0, 1, 2, 5, 10)))):
            given = client.given
            client.number += 1
            body = client.random.randbytes(client.random.choice((10, 100, 1000, 20_000)))
            message = f"{given.name}:{client.number}"
            now = time.monotonic_ns()
            client.note(Sent(message, given.queue, given.name, client.number, client.visit, now, digest_of(body)))
            self._unconfirmed[message] = message
            self.link.send(Message(id=message, body=body, durable=True, first_acquirer=True), tag=message)

    def _answered(self, event: Any, answer: Any) -> None:
        if self._unconfirmed.pop(event.delivery.tag, None):
            self.client.note(answer)
        event.delivery.settle()

    def on_accepted(self, event: Any) -> None:
        self._answered(event, Confirmed(event.delivery.tag, time.monotonic_ns()))

    def on_rejected(self, event: Any) -> None:
        self._answered(event, Refused(event.delivery.tag, time.monotonic_ns(), Delivery.REJECTED))

    def on_released(self, event: Any) -> None:
        self._answered(event, Refused(event.delivery.tag, time.monotonic_ns(), Delivery.RELEASED))


class Receiving(Visit):
    takes_all = False

    def open_link(self) -> None:
        self.link = self.container.create_receiver(
            self.connection, self.client.given.queue, options=SettledBySecond()
        )
        self._held: list[tuple[str, Any]] = []
        self._unsettled = 0
        """The number of accepts that are not settled yet."""
        self._last_s = time.monotonic()

    def on_link_opened(self, event: Any) -> None:
        super().on_link_opened(event)
        self.link.flow(CREDIT)

    def on_message(self, event: Any) -> None:
        message = event.message
        marked = bool(message.delivery_count) or not message.first_acquirer
        now = time.monotonic_ns()
        body = bytes(message.body)
        self.client.note(
            Got(message.id, self.client.given.queue, self.session, 0, now, digest_of(body), marked)
        )
        self._held.append((message.id, event.delivery))
        self._last_s = time.monotonic()

    def tick(self) -> None:
        chance = self.client.random
        if self.client.ending.is_set() and not self.takes_all:
            self._answer(len(self._held))
            if not self._unsettled:
                self.finish()
            return
        if self.takes_all:
            self._answer(len(self._held))
            is_quiet = not self._unsettled and time.monotonic() - self._last_s > QUIET_S
            if is_quiet and self.client.ending.is_set():
                self.finish()
        elif chance.random() < 0.005:
            self.connection.close()  # the broker requeues unanswered messages
        elif chance.random() < 0.6:
            self._answer(chance.randint(0, len(self._held)))

    def _answer(self, count: int) -> None:
        given, chance = self.client.given, self.client.random
        for message, delivery in self._held[:count]:
            draw = 0.0 if self.takes_all else chance.random()
            outcome = "taken" if draw < 0.85 else "returned"
            self.client.note(Answered(message, given.queue, self.session, 0, time.monotonic_ns(), outcome))
            if outcome == "taken":
                delivery.update(Delivery.ACCEPTED)
                delivery.message = message
                self._unsettled += 1
                continue
            if draw < 0.93:
                delivery.update(Delivery.RELEASED)
            else:
                delivery.local.failed = True
                delivery.update(Delivery.MODIFIED)
            delivery.settle()
        del self._held[:count]
        if self.link.credit < CREDIT // 2:
            self.link.flow(CREDIT - self.link.credit)

    def on_settled(self, event: Any) -> None:
        message = getattr(event.delivery, "message", None)
        if message is not None and event.delivery.remote_state == Delivery.ACCEPTED:
            self._unsettled -= 1
            now = time.monotonic_ns()
            self.client.note(Settled(message, self.client.given.queue, self.session, 0, now))
        event.delivery.settle()


class Draining(Receiving):
    """A receiver that accepts all messages."""

    takes_all = True


def main() -> None:
    role, name, seed, queue, notebook, *places = sys.argv[1:]
    Client(Given(role, name, seed, queue, notebook, places)).run()


if __name__ == "__main__":
    main()
