"""Tests of loads on real brokers: message counts, detection of errors, and reports of tests that end early."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme

from cairnmq.amqp.client.links import data_message
from cairnmq.tools.perftest.messages import Body, Table
from tests.harness.clients.peers import Peer
from tests.harness.perftest.commands import kept, measured, perftest, start
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker
from tests.harness.rabbitmq import FANOUT_ADDRESS, QUEUE_ADDRESS, TOPIC_ADDRESS, RabbitMq, denial_reason

LASTS = ("--queue-durable", "yes")
"""Option for durable queues, which are also created if another client attaches first."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("store")) as one:
        yield one


WAYS = {
    "shared": ("--qt", "2", "--npubs", "2", "--nsubs", "2", "--iterations", "2", "--headers", "2"),
    "fanout": ("--mode", "fanout", "--npubs", "2", "--nsubs", "2"),
    "topic": ("--mode", "topic", "--qt", "2", "--nsubs", "2"),
    "tx": ("--tx", "30", "--durable", "yes"),
    "async": ("--pub-tx", "30", "--sub-tx", "20", "--async-commit", "yes", "--pub-confirms", "no"),
    "settled": ("--pub-confirms", "no", "--sub-ack", "0", "--size", "24"),
    "frames": ("--size", "150000", "--unique-data", "yes", "--count", "12"),
    "one": ("--single-connection", "yes", "--npubs", "2", "--nsubs", "2", "--unique-data", "yes", "--sub-ack", "7"),
    "sync": ("--sync-publish", "yes", "--durable", "yes", "--count", "20"),
    "pauses": ("--interval-pub", "2ms", "--interval-sub", "1", "--count", "20"),
    "unheard": ("--nsubs", "0", "--queue-max-count", "1000", "--queue-durable", "yes"),
}


@pytest.mark.parametrize("way", WAYS)
def test_all_messages_are_published_and_received(running: BrokerProcess, way: str) -> None:
    found = measured(running.port, "--count", "100", "--size", "100", "--base-name", way, *WAYS[way])
    options = found["options"]
    assert found["complete"]
    assert len(found["iterations"]) == options["iterations"]
    if way == "pauses":
        assert (options["interval_pub_ms"], options["interval_sub_ms"]) == (2, 1)
    pubs = options["pubs"] * options["queues"]
    each = options["count"] * (options["queues"] if options["mode"] == "topic" else 1)
    for one in found["iterations"]:
        assert [report["messages"] for report in one["publishers"]] == [options["count"]] * pubs
        received = sum(report["messages"] for report in one["subscribers"])
        copies = 0 if not options["subs"] else options["subs"] if options["mode"] != "shared" else 1
        each_topic = each if options["mode"] == "topic" else pubs // options["pubs"] * each
        assert received == copies * options["pubs"] * each_topic
        assert one["wrong"] == {}
        assert one["accepted_us"].get("count", 0) == (pubs * options["count"] if way not in ("settled",) else 0)
        assert one["end_to_end_us"].get("count", 0) == received


def test_roles_meet_through_the_queues_of_the_broker(running: BrokerProcess) -> None:
    options = ("--base-name", "roles", "--count", "300", "--npubs", "2", "--nsubs", "2", "--iterations", "2")
    perftest(running.port, "--setup", *options)
    roles = ("--subscribe", "--subscribe", "--publish", "--publish", "--control")
    processes = [start(running.port, role, *options, "--summary") for role in roles]
    outputs = [process.communicate(timeout=2 * DEADLINE_S) for process in processes]
    assert [process.returncode for process in processes] == [0] * 5, outputs
    lines = outputs[-1][0].splitlines()
    assert len(lines) == 4
    assert lines[2] == "Averages:"
    assert all(float(figure) > 0 for line in (*lines[:2], lines[3]) for figure in line.split("\t"))


def _messages(*numbers: tuple[int, int]) -> list[bytes]:
    """Return a body for each sequence number; the second number of the pair is added to the last byte."""
    filler = Body(100).filler().tobytes()
    return [
        struct.pack("<IIQQ", 7, 0, sequence, time.time_ns()) + filler[:-1] + bytes(((filler[-1] + flaw) & 0xFF,))
        for sequence, flaw in numbers
    ]


def test_what_is_wrong_with_messages_is_counted(running: BrokerProcess) -> None:
    options = ("--base-name", "flaws", "--count", "6", "--size", "100")
    perftest(running.port, "--setup", *options)
    process = start(running.port, "--subscribe", "--control", *options, "--json")
    peer = Peer(running.port)
    start_word = peer.receiver("flaws_pub_start", 1)
    peer.send(peer.sender("flaws_ready"), data_message(b"ready"))
    assert [one.body for one in peer.take(start_word)] == [b"start"]
    bodies = _messages((0, 0), (1, 0), (1, 0), (4, 0), (2, 0), (5, 1))
    peer.send(peer.sender("flaws0"), *map(data_message, bodies))
    report = {"role": "publisher", "number": 7, "iteration": 0, "messages": 6, "begun_ns": 1, "ended_ns": 2}
    peer.send(peer.sender("flaws_pub_done"), data_message(json.dumps(report).encode()))
    output, errors = process.communicate(timeout=DEADLINE_S)
    peer.cut()
    assert process.returncode == 1, errors
    [iteration] = json.loads(output)["iterations"]
    assert iteration["wrong"] == {"lost": 2, "duplicated": 1, "reordered": 1, "altered": 1}


def test_time_begins_when_a_message_was_due(running: BrokerProcess) -> None:
    """Latency is measured from the scheduled time, so that a pause of the broker counts for all delayed messages."""
    window = 1000
    options = ("--base-name", "paced", "--rate", "1000", "--window", str(window), "--json", "--nsubs", "0", *LASTS)
    process = start(running.port, *options)
    peer = Peer(running.port)
    try:
        link = peer.receiver("paced0", 1)
        peer.take(link)  # the load has started
        running.process.send_signal(signal.SIGSTOP)
        time.sleep(0.6)  # the pause is measured
    finally:
        running.process.send_signal(signal.SIGCONT)
    try:
        link.flow(1_000_000)
        goes_on_ns, behind, sequence = time.time_ns(), 0, 0
        while not behind or sequence < behind + window:  # until outcomes of all delayed messages arrived
            _, _, sequence, due_ns = struct.unpack_from("<IIQQ", peer.take(link)[0].body)
            behind = behind or (sequence if due_ns > goes_on_ns else 0)
    finally:
        peer.cut()
        process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, errors
    [iteration] = json.loads(output)["iterations"]
    accepted = iteration["accepted_us"]
    assert accepted["max"] > 500_000
    late = "p90" if accepted["count"] <= 5000 else "p99"  # more were sent if the machine was busy
    assert accepted[late] > 100_000, f"of {accepted['count']}, 500 were due more than that before it went on"


def test_ctrl_c_gives_what_there_is(running: BrokerProcess, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    options = ("--base-name", "cut", "--rate", "500", "--window", "100", *LASTS, "--to", str(path), "--live")
    process = start(running.port, *options)
    peer = Peer(running.port)
    peer.take(peer.receiver("cut0", 500), 500)  # all but the last window have outcomes
    peer.cut()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "partial" in output
    found = kept(path)
    assert (found["complete"], found["stopped_by"]) == (False, "interrupted")
    [iteration] = found["iterations"]
    assert iteration["partial"]
    assert 0 < iteration["publishers"][0]["messages"] < 500_000


def test_broker_that_goes_away_is_told_and_the_part_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with broker(tmp_path / "store") as one:
        process = start(one.port, "--rate", "500", *LASTS, "--to", str(path), "--json")
        peer = Peer(one.port)
        peer.take(peer.receiver("perftest0", 1))
        peer.cut()
        one.stop(signal.SIGKILL)
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert f"amqp://127.0.0.1:{one.port}" in errors
    assert "Traceback" not in errors
    for found in (kept(path), json.loads(output)):
        assert not found["complete"]
        assert all(iteration["partial"] for iteration in found["iterations"])


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--durable", "maybe"), 2, "'maybe' is not one of 'yes', 'no'"),
        (("--count", "0"), 2, "--count"),
        (("--url", "http://localhost"), 2, "a URL is like amqp://host:port"),
        (("--queue-address", "{nme}"), 2, "it must have {name} in it"),
        (("--npubs", "0", "--nsubs", "0"), 2, "there is nothing to do"),
        (("--sync-publish", "yes", "--pub-confirms", "no"), 2, "it waits for confirms"),
        (("--size", "big"), 2, "--size big: invalid size"),
        (("--url", "127.0.0.1:1"), 1, "is a broker running there?"),
        (("--subscribe", "--patience", "1"), 1, "nothing has happened for 1 s"),
        (("--setup-command", "echo no such queue {name}; false"), 1, "no such queue"),
        (("--count", "5", "--to", "/dev/full"), 1, "the result can't be written: No space left on device"),
    ],
)
def test_what_can_not_be_done_is_said_in_a_line(
    running: BrokerProcess, options: tuple[str, ...], status: int, words: str
) -> None:
    output, errors = perftest(running.port, "--base-name", f"wrong{abs(hash(options))}", *options, status=status)
    assert words in " ".join(errors.split())
    assert "Traceback" not in output + errors


def test_full_disk_behind_standard_output_is_told(running: BrokerProcess) -> None:
    with open("/dev/full", "w") as full:
        command = [CAIRNMQ, "perftest", "--url", f"127.0.0.1:{running.port}", "--count", "5", "--base-name", "full"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (
        1, "cairnmq: standard output: the result can't be written: No space left on device; free space\n",
    )  # fmt: skip


def test_users_and_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "broker.pem"))
    add = [CAIRNMQ, "users", "add", "anna", "--users-file", str(tmp_path / "users")]
    subprocess.run(add, input="one stone\n", text=True, check=True, timeout=DEADLINE_S, capture_output=True)
    options = ("--users-file", str(tmp_path / "users"), "--tls-port", "0", "--tls-cert", str(tmp_path / "broker.pem"))
    with broker(tmp_path / "store", *options) as one:
        tls = one.wait_for(r" listening with TLS on 127\.0\.0\.1:(\d+)$")[1]
        url = f"amqps://127.0.0.1:{tls}"
        secure = ("--count", "50", "--user", "anna", "--url", url, "--ca", str(tmp_path / "ca.pem"))
        assert measured(one.port, *secure, CAIRNMQ_PASSWORD="one stone")["complete"]
        assert measured(one.port, "--count", "50", "--user", "anna", CAIRNMQ_PASSWORD="one stone")["complete"]
        wrong = "wrong user name or password (user 'anna'"
        for user, words in ((("--user", "anna"), wrong), ((), "requires a user name")):
            assert words in perftest(one.port, *user, status=1, CAIRNMQ_PASSWORD="no stone")[1]
        trustless = secure[:-2]
        assert "certificate is not trusted" in perftest(one.port, *trustless, status=1, CAIRNMQ_PASSWORD="one stone")[1]


def test_it_costs_less_than_a_third_of_what_the_broker_does(running: BrokerProcess, tell: Any) -> None:
    def cpu_s() -> float:
        fields = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    options = ("--base-name", "cost", "--count", "40000", "--size", "256", "--durable", "yes")
    perftest(running.port, "--setup", *options)
    before_s = cpu_s()
    [iteration] = measured(running.port, *options)["iterations"]
    broker_us = (cpu_s() - before_s) / 40_000 * 1e6
    clients_us = sum(iteration["client_cpu_us"].values())
    tell(f"perftest: {clients_us:.1f} us of CPU per message beside the broker's {broker_us:.1f}")
    assert clients_us < broker_us / 3


@pytest.mark.skipif(bool(denial_reason()), reason=denial_reason())
def test_a_broker_that_is_not_ours(tmp_path: Path) -> None:
    addresses = (
        "--queue-address", QUEUE_ADDRESS, "--topic-address", TOPIC_ADDRESS, "--fanout-address", FANOUT_ADDRESS,
        "--user", "guest",
    )  # fmt: skip
    with RabbitMq(tmp_path) as other:
        for ways in (
            ("--nsubs", "2", "--durable", "yes", "--iterations", "2"),
            ("--mode", "fanout", "--nsubs", "2", "--unique-data", "yes"),
            ("--mode", "topic", "--qt", "2", "--size", "200000", "--count", "10"),
        ):
            found = measured(other.port, "--count", "200", *addresses, *ways, CAIRNMQ_PASSWORD="guest")
            assert found["complete"]
            assert all(iteration["wrong"] == {} for iteration in found["iterations"])
        assert "wrong user name or password" in perftest(other.port, *addresses, status=1, CAIRNMQ_PASSWORD="no")[1]


@pytest.mark.parametrize("size_bytes", [64, 3000])  # one frame, several frames
def test_frames_move_to_the_next_transaction(size_bytes: int) -> None:
    def table(txn_id: bytes) -> Table:
        return Table(Body(size_bytes), 3, 1024, 1, 0, settled=False, txn_id=txn_id)

    def filled(of: Table) -> bytes:
        return bytes(of.fill(7, 0, np.arange(5)))

    moved = table(b"one, 8 B")
    assert moved.move_to(b"other 8B")
    assert filled(moved) == filled(table(b"other 8B")) != filled(table(b"one, 8 B"))
    assert not moved.move_to(b"longer than that")
    assert not table(b"").move_to(b"")


def test_unique_data_is_unique() -> None:
    numbers = np.zeros(1000, [("publisher", "<u4"), ("iteration", "<u4"), ("sequence", "<u8"), ("at_ns", "<u8")])
    numbers["sequence"] = np.arange(1000)
    numbers["publisher"] = np.arange(1000) % 3
    fillers = Body(256, unique=True).fillers(numbers)
    assert len({row.tobytes() for row in fillers}) == 1000
