"""A real broker that is killed, and clients that record its confirmations: the reference for a reader's results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from proton import Message, ProtonException
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from cairnmq.tools.soak.servers import free_port
from tests.harness.process import BrokerProcess

CONTAINER = 512 << 10
BODY = bytes(30_000)
DEADLINE_S = 450


def wait_for(what: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


class Broker:
    """A broker process that restarts on the same port."""

    def __init__(self, store: Path, *options: str) -> None:
        self.port = free_port()
        self._store, self._options = store, options
        self.start()

    def start(self) -> None:
        options = ("--port", str(self.port), "--container-size", str(CONTAINER), *self._options)
        self.process = BrokerProcess(self._store, *options).ready()

    def kill_and_restart(self) -> None:
        self.process.process.kill()
        self.process.wait()
        self.start()

    def stop(self) -> None:
        """Kill the process if it still runs."""
        if self.process.process.poll() is None:
            self.process.process.kill()
            self.process.wait()


class Clients:
    """A producer and a consumer of one broker, which reconnect until stopped; one message in ten stays on a queue."""

    def __init__(self, port: int, is_far_ahead: Callable[[], bool] = lambda: False) -> None:
        """Start the clients.

        *is_far_ahead*: returns whether a slow reader is far behind; the rate is then limited to ten messages a second.
        """
        self.confirmed: list[int] = []
        """The numbers of confirmed messages in the order of sending, which are their AMQP message-ids."""
        self._port, self._is_far_ahead = port, is_far_ahead
        self._number = 0
        self._failed: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def staying(self) -> list[int]:
        return [number for number in self.confirmed if number % 10 == 0]

    def goes_on(self) -> bool:
        """Return True, or raise the error that ended the clients."""
        if self._failed is not None:
            raise AssertionError("the clients ended") from self._failed
        return True

    def come_on(self) -> None:
        """Wait for 20 more confirmations, whose blocks show that all messages confirmed before are durable."""
        goal = len(self.confirmed) + 20
        wait_for(lambda: self.goes_on() and len(self.confirmed) >= goal)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._work()
                except (ProtonException, OSError):
                    self._stop.wait(0.05)  # the broker was killed, and does not listen yet
        except BaseException as error:
            self._failed = error
            raise

    def _work(self) -> None:
        connection = BlockingConnection(f"127.0.0.1:{self._port}", timeout=60)
        try:
            senders = {name: connection.create_sender(name) for name in ("passing", "staying")}
            self._go_on(senders, connection.create_receiver("passing", credit=10))
        finally:
            connection.close()

    def _go_on(self, senders: dict[str, BlockingSender], receiver: BlockingReceiver) -> None:
        while not self._stop.is_set():
            if self._is_far_ahead():
                self._stop.wait(0.1)
            number, self._number = self._number, self._number + 1  # never sent again, confirmed or not
            stays = number % 10 == 0
            message = Message(id=str(number), body=BODY, durable=True)
            senders["staying" if stays else "passing"].send(message)
            self.confirmed.append(number)
            if not stays:
                receiver.receive(timeout=60)
                receiver.accept()
