"""Tests of `cairnmq replay` and `as-of --resend` between real brokers: identical bytes, order, confirms, resumption."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from cairnmq.amqp.client.login import BrokerLogin
from cairnmq.amqp.client.management import require_node
from cairnmq.amqp.client.wire import LinkRefused
from cairnmq.base.errors import BrokerError
from cairnmq.tools.load.bulk_sender import BulkSender, OutgoingMessage
from tests.harness.clients.peers import Peer
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Yield a broker with the queue `orders`."""
    with broker(tmp_path_factory.mktemp("broker") / "store") as started:
        cairnmq("ctl", "--url", f"127.0.0.1:{started.port}", "queues", "create", "orders")
        yield started


def cairnmq(*arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [CAIRNMQ, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def taken(port: int, queue: str, number: int) -> list[bytes]:
    """Receive and accept *number* messages of a queue, check that it has no more, and return their contents."""
    peer = Peer(port)
    link = peer.receiver(queue, number)
    received = peer.take(link, number)
    assert not peer.drain(link, 1)
    for one in received:
        one.accept()
    peer.settle_down()
    found = [one.content for one in received]
    peer.close()
    return found


def bare(contents: list[bytes]) -> list[tuple[Any, Any]]:
    """Return the message ID and the body of each message, which brokers do not change."""
    messages = []
    for content in contents:
        message = Message()
        message.decode(content)
        messages.append((message.id, bytes(message.body) if isinstance(message.body, memoryview) else message.body))
    return messages


def test_arrivals_come_again(tmp_path: Path) -> None:
    with broker(tmp_path / "one", "--archive-dir", str(tmp_path / "archive")) as one, broker(tmp_path / "two") as two:
        for name in ("left", "right"):
            ctl = ("ctl", "--timeout", "60", "--url", f"127.0.0.1:{one.port}")
            cairnmq(*ctl, "queues", "create", name)
            cairnmq(*ctl, "exchanges", "bind", "amq.fanout", name)
        peer = Peer(one.port)  # connects after the commands, during which it would send no keep-alives
        sender = peer.sender("orders")
        sizes = [10, 70_000, 200_000, 10, 0, 1000]
        sent = [Message(id=f"m{n}", body=bytes([n]) * size, durable=True) for n, size in enumerate(sizes)]
        peer.send(sender, *sent)
        fan = [Message(id=f"f{n}", body=n, durable=True) for n in range(3)]
        peer.send(peer.sender("amq.fanout"), *fan)
        for received in peer.take(peer.receiver("orders", 6), 6):
            received.accept()
        peer.settle_down()
        peer.close()
        expected = bare([message.encode() for message in sent])
        to = f"amqp://127.0.0.1:{two.port}"
        told = json.loads(
            cairnmq("replay", tmp_path / "one", tmp_path / "archive", "--to", to, "--speed", "max", "--json").stdout
        )["sent"]
        assert (told["accepted"], told["complete"], told["faults"]) == (12, True, [])
        assert bare(taken(two.port, "orders", 6)) == expected
        assert len(taken(two.port, "left", 3)) == len(taken(two.port, "right", 3)) == 3
        lines = cairnmq("dump", tmp_path / "one", "--json", "--type", "start", "--queue", "orders").stdout.splitlines()
        *found, _ = map(json.loads, lines)
        third = found[1]["lsn"]  # the fourth message sent: long messages are not listed
        again = ("replay", tmp_path / "one", "--to", f"{to}/elsewhere", "--queue", "orders", "--from-lsn", third)
        resend_again = ("as-of", tmp_path / "one", "end", "--resend", f"{to}/elsewhere")
        remedy = "create it first, or permit that with --create (HTTP API: create)"
        refusal = f"cairnmq: sending: elsewhere: there is no such queue or exchange; {remedy}; accepted: 0 messages\n"
        for refused in (cairnmq(*again, status=1), cairnmq(*resend_again, status=1)):
            assert refused.stderr == refusal
        queues = cairnmq("ctl", "--url", f"127.0.0.1:{two.port}", "queues", "list", "--json").stdout
        assert "elsewhere" not in queues
        cairnmq(*again, "--create", "--count", "2", "--rate", "1000")
        assert bare(taken(two.port, "elsewhere", 2)) == expected[3:5]
        # messages dequeued after this point in time are on the queue as of it, and can be sent again
        moment = found[-1]["lsn"] + 1
        resend = ("as-of", tmp_path / "one", moment, "--queue", "orders", "--resend", to, "--json")
        told = json.loads(cairnmq(*resend, "--skip", 1).stdout.splitlines()[-1])["sent"]
        assert told["accepted"] == 5
        assert bare(taken(two.port, "orders", 5)) == expected[1:]


def test_create_is_limited_by_auto_create(tmp_path: Path) -> None:
    with broker(tmp_path / "one") as one, broker(tmp_path / "two", "--auto-create", "orders*") as two:
        peer = Peer(one.port)
        peer.put(peer.sender("orders"), range(2))
        peer.close()
        url = f"amqp://127.0.0.1:{two.port}"
        command = ("replay", tmp_path / "one", "--speed", "max", "--create", "--to")
        refused = cairnmq(*command, f"{url}/elsewhere", status=1)
        assert "there is no queue 'elsewhere', and it is not created automatically" in refused.stderr
        cairnmq(*command, f"{url}/orders-again")
        assert len(taken(two.port, "orders-again", 2)) == 2


@pytest.mark.parametrize(
    ("address", "exists"),
    [
        ("orders", True), ("queue://orders", True), ("amq.topic", True), ("amq.topic/a.b", True), ("topic://any", True),
        ("order", False), ("queue://order", False), ("amq.topics/a.b", False), ("/orders", False),
    ],
)  # fmt: skip
def test_node_that_is_required(running: BrokerProcess, address: str, exists: bool) -> None:
    expected = nullcontext() if exists else pytest.raises(BrokerError, match="there is no such queue or exchange")
    with expected:
        require_node(BrokerLogin(port=running.port), "test", address)


def test_node_is_not_required_of_a_user_without_management(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text('[[rules]]\nwho = ["*"]\nmay = ["connect", "send", "create"]\non = ["order*"]\n')
    with broker(tmp_path / "store", "--acl-file", str(tmp_path / "rules")) as started:
        require_node(BrokerLogin(port=started.port), "test", "orders")


def test_node_is_required_of_a_user_whose_quota_of_links_is_used_up(tmp_path: Path) -> None:
    """An exhausted link quota is reported; only access rules may leave the target unchecked."""
    (tmp_path / "rules").write_text('[[rules]]\nwho = ["*"]\nmay = ["*"]\n\n[[quotas]]\nwho = ["*"]\nmax-links = 1\n')
    with broker(tmp_path / "store", "--acl-file", str(tmp_path / "rules")) as started:
        with pytest.raises(LinkRefused, match=r"\$management: amqp:resource-limit-exceeded: ") as caught:
            require_node(BrokerLogin(port=started.port), "test", "misspelled")
        assert caught.value.condition == "amqp:resource-limit-exceeded"


def test_a_dry_run_sends_nothing(tmp_path: Path) -> None:
    with broker(tmp_path / "one") as one:
        peer = Peer(one.port)
        for queue, number in (("orders", 3), ("news", 1)):
            peer.send(peer.sender(queue), *[Message(body=n, durable=True) for n in range(number)])
        peer.close()
    command = ("replay", tmp_path / "one", "--to", "amqp://anna@127.0.0.1:1", "--dry-run")
    done = cairnmq(*command)
    assert (done.stdout, done.stderr) == ("would send 3 messages to orders\nwould send 1 message to news\n", "")
    some = ("--queue", "orders", "--count", "2", "--json")
    assert json.loads(cairnmq(*command, *some).stdout) == [{"address": "orders", "messages": 2}]
    assert cairnmq(*command, "--from-lsn", "1000000000").stdout == "would send 0 messages\n"
    reversed_range = cairnmq(*command, "--from-lsn", "3000", "--to-lsn", "2000", status=2).stderr
    reason = "the second point in time is before the first; exchange them"
    assert reversed_range == f"cairnmq: --from-lsn 3000 --to-lsn 2000: {reason}\n"
    mixed = (*command, "--from-lsn", "1000000000", "--to-time", "0s")
    assert cairnmq(*mixed).stdout == "would send 0 messages\n"


def test_an_interrupted_replay_goes_on_where_it_says(tmp_path: Path) -> None:
    with broker(tmp_path / "one") as one, broker(tmp_path / "two") as two:
        peer = Peer(one.port)
        peer.put(peer.sender("orders"), range(300))
        peer.close()
        command = ["replay", str(tmp_path / "one"), "--to", f"amqp://127.0.0.1:{two.port}"]
        running = subprocess.Popen(  # at a low rate, so that the command does not end before the signal
            [CAIRNMQ, *command, "--rate", "10"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        watching = Peer(two.port)
        watching.take(watching.receiver("orders", 5, copy=True), 5)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=DEADLINE_S)
        assert running.returncode == 1, (out, err)
        accepted = int(re.findall(r"accepted: (\d+)", out)[0])
        assert 5 <= accepted < 300
        [go_on] = re.findall(r"--from-lsn (\d+) continues there", err)
        cairnmq(*command, "--speed", "max", "--from-lsn", go_on)
        watching.close()
        assert [message.body for message in map(_decoded, taken(two.port, "orders", 300))] == list(range(300))


def test_spacing_is_kept_and_can_be_changed(tmp_path: Path) -> None:
    with broker(tmp_path / "one") as one, broker(tmp_path / "two") as two:
        peer = Peer(one.port)
        sender = peer.sender("orders")
        peer.put(sender, ["first"])
        begun_s = time.monotonic()
        peer.wait(lambda: time.monotonic() - begun_s > 2)
        peer.put(sender, ["second"])
        peer.close()
        command = ("replay", tmp_path / "one", "--to", f"amqp://127.0.0.1:{two.port}", "--json", "--speed")
        seconds = {speed: json.loads(cairnmq(*command, speed).stdout)["sent"]["seconds"] for speed in ("1x", "4x")}
        assert seconds["1x"] >= 2 > 0.5 <= seconds["4x"]


def test_a_broker_that_goes_away_or_refuses(tmp_path: Path) -> None:
    with broker(tmp_path / "one") as one:
        peer = Peer(one.port)
        peer.put(peer.sender("orders"), range(50))
        peer.close()
        command = ["replay", str(tmp_path / "one"), "--to"]
        with broker(tmp_path / "two") as two:
            url = f"amqp://127.0.0.1:{two.port}"
            refused = cairnmq(*command, f"{url}/$management/nothing", "--create", "--speed", "max", status=1)
            assert "the broker refuses it" in refused.stderr
            running = subprocess.Popen(
                [CAIRNMQ, *command, url, "--rate", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            watching = Peer(two.port)
            watching.take(watching.receiver("orders", 2, copy=True), 2)
            watching.close()
            two.stop(signal.SIGKILL)
            _, err = running.communicate(timeout=DEADLINE_S)
            assert running.returncode == 1
            assert re.search(r"accepted: \d+ messages?; --from-lsn \d+ continues there", err)
        removed = cairnmq(*command, url, status=1)
        reason = "can't be reached: connection refused; is a broker running there?"
        assert removed.stderr == f"cairnmq: sending: {url}: {reason}; accepted: 0 messages\n"


def _decoded(content: bytes) -> Any:
    message = Message()
    message.decode(content)
    return message


def test_sending_may_take_longer_than_the_timeout_of_an_answer(
    running: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cairnmq.tools.load.bulk_sender.SILENCE_S", 2.0)
    content, end_s = Message(body="dropped: nothing is bound").encode(), time.monotonic() + 3
    numbers = takewhile(lambda _: time.monotonic() < end_s, count())
    source = (OutgoingMessage(number, "amq.topic/nothing", content) for number in numbers)
    sent = BulkSender(BrokerLogin(port=running.port), source, lambda done: None).run()
    assert (sent.failure, sent.is_complete) == ("", True)
    assert sent.seconds > 2
