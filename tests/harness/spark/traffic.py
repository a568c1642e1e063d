"""A real broker that is killed, and clients that note what it confirmed: the truth about what a reader has to find."""

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
    """A broker process on a port of its own, that comes back there."""

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
        """At the end, however that came."""
        if self.process.process.poll() is None:
            self.process.process.kill()
            self.process.wait()


class Clients:
    """A producer and a consumer of one broker: nine of ten messages pass, each tenth stays. They come back for ever."""

    def __init__(self, port: int, is_far_ahead: Callable[[], bool] = lambda: False) -> None:
        """*is_far_ahead*: of a slow reader; then ten messages a second are sent, and no more."""
        self.confirmed: list[int] = []
        """Numbers of messages, which are their AMQP message-ids, in the order of sending."""
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
        """True; raises what ended them."""
        if self._failed is not None:
            raise AssertionError("the clients ended") from self._failed
        return True

    def come_on(self) -> None:
        """Until what was confirmed before is known to be durable: the block behind a block says so."""
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
                    self._stop.wait(0.05)  # it was killed, and is not there yet
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
