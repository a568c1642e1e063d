"""The broker's log in JSON: one object a line, whatever is in a message, and nothing of it is lost."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.cli.store.log import JsonFormatter, TextFormatter
from tests.process import CAIRNMQ, DEADLINE_S, broker


@given(text=st.text(), queue=st.text())
def test_a_line_is_one_object(text: str, queue: str) -> None:
    record = logging.LogRecord("cairnmq.x", logging.WARNING, "x.py", 1, "about %s", (text,), None)
    record.queue = queue
    line = JsonFormatter().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["message"], told["queue"], told["level"]) == (f"about {text}", queue, "warning")
    assert told["time"].endswith("+00:00")
    assert "connection" not in told


def test_a_broker_logs_so(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--log-format", "json", "-v") as running:
        with socket.create_connection(("127.0.0.1", running.port), timeout=DEADLINE_S) as sock:
            host, port = sock.getsockname()
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            line = running.wait_for(r"not an AMQP 1\.0 protocol header")
        told = json.loads(line.string)
        assert told["connection"] == f"{host}:{port}"
        assert told["level"] == "info"
        assert (told["event"], told["reason"], told["mechanism"]) == ("login.failed", "protocol", "none")


def test_every_line_of_a_broker_is_json(tmp_path: Path) -> None:  # usability 10
    """From its start to its end, on both streams, also where the start finds something to recover."""
    for _ in range(2):
        with broker(tmp_path / "store", "--log-format", "json") as running:
            assert running.stop() == 0
        told = [json.loads(line) for line in running.lines]
        assert {"time", "level", "message", "logger"} <= set.intersection(*map(set, told))
        events = [one.get("event") for one in told]
        assert {"broker.listening", "broker.storing", "broker.recovered"} <= set(events)
        assert events[-2:] == ["broker.stopping", "broker.stopped"]


def test_the_error_that_ends_a_start_is_json(tmp_path: Path) -> None:
    rules = tmp_path / "nope"
    done = subprocess.run(
        [CAIRNMQ, "broker", "--store-dir", str(tmp_path / "store"), "--log-format", "json", "--acl-file", str(rules)],
        capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert (told[-1]["event"], told[-1]["level"]) == ("broker.failed", "error")
    assert f"{rules}: can't be read" in told[-1]["message"]


def test_a_broker_without_a_reader_stops_in_order(tmp_path: Path) -> None:
    """As with `| head -1`."""
    command = [CAIRNMQ, "broker", "--store-dir", str(tmp_path / "store"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"listening on ")
        process.stdout.close()
        process.send_signal(signal.SIGTERM)
        assert (process.wait(DEADLINE_S), process.stderr.read()) == (0, b"")


@given(text=st.text(), cause=st.text())
def test_no_text_from_outside_starts_a_line_or_controls_a_terminal(text: str, cause: str) -> None:  # W12
    for form in (TextFormatter(), JsonFormatter()):
        record = logging.LogRecord("cairnmq.x", logging.WARNING, "x.py", 1, "%s", (text,), None)
        record.connection = text
        assert form.format(record).isprintable()
        try:
            raise ValueError(cause)
        except ValueError:
            record.exc_info = sys.exc_info()
        first, *more = form.format(record).split("\n")
        assert first.isprintable()
        assert all(line.startswith("    ") and line.isprintable() for line in more)
