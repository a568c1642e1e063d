"""Tests of `cairnmq send` and `cairnmq receive` against a real broker."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proton import Message, symbol
from proton.utils import BlockingConnection

from cairnmq.amqp.codec import sections
from cairnmq.tools.load.message_fields import body_of, message_fields
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("send") / "store") as started:
        yield started


def run(running: BrokerProcess, *arguments: str, body: bytes = b"", status: int = 0) -> bytes:
    """Run a command with *body* as its standard input; return its output, or its errors if it is to fail."""
    command = [CAIRNMQ, *arguments, "--url", f"amqp://127.0.0.1:{running.port}"]
    done = subprocess.run(command, input=body, capture_output=True, timeout=DEADLINE_S)
    assert done.returncode == status, done
    assert b"Traceback" not in done.stderr
    return done.stderr if status else done.stdout


def test_text_is_sent_and_received(running: BrokerProcess) -> None:
    assert run(running, "send", "texts", "one cairn, please") == b"sent 1 message to texts\n"
    assert run(running, "receive", "texts") == b"one cairn, please\n"
    assert b"no messages on texts" in run(running, "receive", "texts", status=1)


def test_sent_message_is_what_a_client_library_receives(running: BrokerProcess) -> None:
    run(
        running, "send", "whole", "text", "-p", "n=7", "-p", "yes=true", "-p", 'digits="8"', "--id", "m-1",
        "--subject", "s", "--reply-to", "r", "--correlation-id", "c", "--content-type", "text/plain", "--group", "g",
        "--priority", "6", "--ttl", "1h", "--annotation", "x-opt-note=hello",
    )  # fmt: skip
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    receiver = connection.create_receiver("whole")
    message = receiver.receive()
    receiver.accept()
    connection.close()
    assert (message.body, message.properties) == ("text", {"n": 7, "yes": True, "digits": "8"})
    assert (message.id, message.subject, message.reply_to, message.correlation_id) == ("m-1", "s", "r", "c")
    assert (message.content_type, message.group_id, message.priority) == ("text/plain", "g", 6)
    assert (message.durable, message.annotations[symbol("x-opt-note")]) == (True, "hello")
    assert 0 < message.ttl <= 3600  # the rest of it


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=4000))
def test_bytes_are_received_unchanged(running: BrokerProcess, content: bytes) -> None:
    run(running, "send", "bytes", body=content)
    assert run(running, "receive", "bytes", "--bytes") == content


def test_file_larger_than_a_frame_is_received_unchanged(running: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content := os.urandom(5 << 20))
    run(running, "send", "files", "--file", str(tmp_path / "file"))
    assert run(running, "receive", "files", "--bytes", "--count", "1") == content


def test_each_line_is_a_message_and_more_than_the_credit_arrive_in_order(running: BrokerProcess) -> None:
    lines = b"".join(b"%d\n" % number for number in range(350))
    assert run(running, "send", "lines", "--lines", body=lines) == b"sent 350 messages to lines\n"
    assert run(running, "receive", "lines", "--count", "2") == b"0\n1\n"
    assert run(running, "receive", "lines") == lines.removeprefix(b"0\n1\n")


def test_json_has_the_fields_of_a_message(running: BrokerProcess) -> None:
    run(running, "send", "json", "-p", "n=1", "--subject", "s", "--count", "2", body=b"\xff\x00")
    found = [json.loads(line) for line in run(running, "receive", "json", "--json").splitlines()]
    assert len(found) == 2
    for one in found:
        assert base64.b64decode(one["body"]) == b"\xff\x00"
        assert (one["body-encoding"], one["application-properties"]) == ("base64", {"n": 1})
        assert (one["properties"], one["durable"]) == ({"subject": "s"}, True)


def test_terminal_controls_in_a_body_are_escaped(running: BrokerProcess) -> None:
    run(running, "send", "hostile", "a\x1b[31mb\nc")
    assert run(running, "receive", "hostile") == b"a\\x1b[31mb\\nc\n"


def test_message_is_not_removed_unless_it_was_printed(running: BrokerProcess) -> None:
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    connection.create_sender("maps").send(Message(body={"a": 1}, durable=True))
    connection.close()
    assert b"use --json" in run(running, "receive", "maps", "--bytes", status=2)
    assert json.loads(run(running, "receive", "maps", "--json"))["body"] == {"a": 1}


def test_follow_waits_for_messages_and_ends_with_ctrl_c(running: BrokerProcess) -> None:
    url = f"amqp://127.0.0.1:{running.port}"
    command = ["env", "--default-signal=INT", CAIRNMQ, "receive", "followed", "--follow", "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as following:
        assert following.stdout is not None
        for body in ("one", "two"):
            run(running, "send", "followed", body)
            assert following.stdout.readline() == f"{body}\n".encode()
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=DEADLINE_S)
    assert (following.returncode, errors) == (130, b"cairnmq: interrupted\n")
    run(running, "receive", "followed", status=1)  # both were accepted


def test_rejected_message_is_reported_with_the_reason_of_the_broker(running: BrokerProcess) -> None:
    run(running, "ctl", "queues", "create", "short", "-a", "max-messages=1", "-a", "overflow=reject")
    run(running, "send", "short", "fits")
    assert b"send to short: rejected" in run(running, "send", "short", "does not fit", status=1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["send", "q", "body", "--file", "x"], b"not both"),
        (["send", "q", "--file", "/nowhere"], b"/nowhere: can't be read"),
        (["send", "q", "body", "-p", "novalue"], b"--property novalue: not KEY=VALUE"),
        (["send", "q", "--lines", "--count", "2"], b"not both"),
        (["receive", "q", "--json", "--bytes"], b"not both"),
    ],
)
def test_wrong_call_is_refused_with_the_reason(running: BrokerProcess, arguments: list[str], text: bytes) -> None:
    assert text in run(running, *arguments, status=2)


@pytest.mark.parametrize("arguments", [["send", "q", "body"], ["receive", "q"]], ids=" ".join)
def test_absent_broker_is_reported_in_one_line(arguments: list[str]) -> None:
    done = subprocess.run([CAIRNMQ, *arguments, "--url", "amqp://127.0.0.1:1"], capture_output=True, timeout=DEADLINE_S)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"is a broker running there?" in done.stderr


@pytest.mark.parametrize("body", ["text", b"bytes", ["a", 1], {"a": [1]}, None, 5, True])
def test_body_is_decoded_as_the_client_library_encodes_it(body: object) -> None:
    encoded = bytes(Message(body=body).encode())
    assert sections.index(encoded).end == len(encoded)
    assert body_of(encoded) == body
    json.dumps(message_fields(encoded))
