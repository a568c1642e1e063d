"""A broker that loses messages: CairnMQ behind a proxy that accepts some messages without forwarding them.

Run as `python -m tests.harness.perftest.losing_broker PORT STORE_DIR`.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from random import Random
from socket import create_connection, create_server, socket

from cairnmq.amqp.codec.types import Uint
from cairnmq.amqp.frames import performatives as p
from cairnmq.amqp.frames.frame_runs import Transfer, is_transfer, read_transfer
from cairnmq.tools.soak.servers import free_port

ONE_IN = 60
MAIN = "from cairnmq.cli.main import main; main()"


class Frames:
    """A parser that splits a stream into frames; protocol headers at the beginning count as frames."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[bytes]:
        self._held += data
        found = []
        while len(self._held) >= 8:
            size = 8 if self._held.startswith(b"AMQP") else int.from_bytes(self._held[:4])
            if len(self._held) < size:
                break
            found.append(self._held[:size])
            self._held = self._held[size:]
        return found


class Thief:
    """A filter of the frames to one client, which selects messages to lose."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._in_message = False

    def wants(self, frame: bytes) -> Transfer | None:
        """Return the header of the transfer if its message is to be lost, else None."""
        if not is_transfer(frame):
            return None
        head = read_transfer(frame)
        begins, self._in_message = not self._in_message, head.more
        complete = begins and not head.more and not head.settled
        return head if complete and not self._random.randrange(ONE_IN) else None


def on_channel(frame: bytes, like: bytes) -> bytes:
    return frame[:6] + like[6:8] + frame[8:]


def down(broker: socket, client: socket, thief: Thief) -> None:
    frames = Frames()
    while data := broker.recv(65536):
        for frame in frames.feed(data):
            head = thief.wants(frame)
            if head is not None:
                number = Uint(head.delivery_id or 0)
                broker.sendall(on_channel(p.frame(p.DISPOSITION, True, number, None, True, p.ACCEPTED_STATE), frame))
                tag = frame[head.tag_at : head.tag_end]
                fields = (Uint(head.handle), number, tag, Uint(0), False, False, None, None, None, True)
                frame = on_channel(p.frame(p.TRANSFER, *fields), frame)  # an aborted delivery: the session counts it
            client.sendall(frame)


def up(client: socket, broker: socket) -> None:
    while data := client.recv(65536):
        broker.sendall(data)


def forward(ends: tuple[socket, socket], how: object, *more: object) -> None:
    try:
        how(*ends, *more)  # type: ignore[operator]
    except OSError:
        pass
    for end in ends:
        end.close()


def main() -> None:
    port, store = int(sys.argv[1]), sys.argv[2]
    inner = free_port()
    broker = subprocess.Popen([sys.executable, "-c", MAIN, "broker", "--port", str(inner), "--store-dir", store])
    while broker.poll() is None:
        try:
            create_connection(("127.0.0.1", inner)).close()
            break
        except OSError:
            time.sleep(0.05)
    random = Random(1)
    with create_server(("127.0.0.1", port)) as listener:
        while True:
            client = listener.accept()[0]
            to_broker = create_connection(("127.0.0.1", inner))
            threading.Thread(target=forward, args=((client, to_broker), up), daemon=True).start()
            arguments = (to_broker, client), down, Thief(random)
            threading.Thread(target=forward, args=arguments, daemon=True).start()


if __name__ == "__main__":
    main()
