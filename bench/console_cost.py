"""Benchmark of the CPU time of a broker per durable message, without and with open sessions of the console.

`python -m bench.console_cost [QUEUES]` alternates rounds without sessions and with five sessions of different users,
each with an event stream and a list of queues that is read every 2 s. Messages arrive at a fixed rate.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from cairnmq.amqp.client.login import BrokerLogin
from cairnmq.amqp.client.loop import Loop
from cairnmq.amqp.client.management import Management
from cairnmq.amqp.client.wire import Wire
from cairnmq.amqp.codec import encode
from cairnmq.tools.load.bulk_sender import BulkSender, OutgoingMessage
from tests.harness.console.accounts import write_users
from tests.harness.console.browser import ApiClient
from tests.harness.process import BrokerProcess, broker

SESSIONS = 5
ROUNDS = 4
RATE_PER_S = 500
SECONDS = 12
_DURABLE = encode.described(0x70, encode.value([True]))
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main(queues: int) -> None:
    """Measure with the given number of *queues*."""
    with tempfile.TemporaryDirectory() as place:
        users = Path(place) / "users"
        write_users(users, {f"user-{number}": "secret" for number in range(SESSIONS)})
        options = ("--users-file", str(users), "--http-port", "0", "--max-queues-per-user", "0")
        with broker(Path(place) / "store", *options) as process:
            port = int(process.wait_for(r"web console at http://127.0.0.1:(\d+)/")[1])
            _create(process, queues)
            _round_us(process)
            without, with_sessions = [], []
            for _ in range(ROUNDS):
                without.append(_round_us(process))
                with _sessions(port):
                    with_sessions.append(_round_us(process))
                print(f"{queues} queues: {without[-1]:.0f} us per message, {with_sessions[-1]:.0f} us with sessions")
            pairs = [b - a for a, b in zip(without, with_sessions, strict=True)]
            extra = statistics.median(pairs)
            share = extra * RATE_PER_S / 1e6
            median = statistics.median(without)
            print(f"{queues} queues: median {median:.0f} us, {extra:+.0f} us with {SESSIONS} sessions")
            print(f"{queues} queues: the sessions use {100 * share:.1f}% of a processor in the broker")


def _create(process: BrokerProcess, queues: int) -> None:
    wire = Wire(BrokerLogin(port=process.port, user="user-0", password="secret", timeout_s=600), "creator")
    loop = Loop()
    loop.add(wire, [])
    management = Management(wire, loop)
    for number in range(queues):
        about = {"operation": "CREATE", "type": "queue", "name": f"queue-{number:05d}"}
        assert management.ask(about, {"durable": False}).status == 201
    assert management.ask({"operation": "CREATE", "type": "queue", "name": "load"}, {}).status == 201
    wire.close()


def _round_us(process: BrokerProcess) -> float:
    """Send messages for one round and return the CPU time of the broker per message in microseconds."""
    message = _DURABLE + encode.described(0x75, encode.value(b"x" * 1024))
    source = (OutgoingMessage(number, "load", message, number / RATE_PER_S) for number in range(RATE_PER_S * SECONDS))
    login = BrokerLogin(port=process.port, user="user-0", password="secret", timeout_s=60)
    before_s = _cpu_s(process.process.pid)
    sent = BulkSender(login, source, lambda done: None).run()
    assert sent.is_complete, sent.failure
    return 1e6 * (_cpu_s(process.process.pid) - before_s) / sent.accepted


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


@contextmanager
def _sessions(port: int) -> Iterator[None]:
    over = threading.Event()
    threads = [threading.Thread(target=_browse, args=(port, f"user-{number}", over)) for number in range(SESSIONS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _browse(port: int, user: str, over: threading.Event) -> None:
    client = ApiClient(port)
    assert client.login(user, "secret").status == 201
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/api/v1/events", headers={"Cookie": client.cookie})
    assert connection.getresponse().status == 200
    while not over.wait(2.0):
        assert client.api("GET", "/queues", sort="messages", order="desc").status == 200
    connection.close()
    client.api("DELETE", "/session")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
