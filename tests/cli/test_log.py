"""The broker's log in JSON: one object a line, whatever is in a message, and nothing of it is lost."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.cli.log import JsonFormatter
from tests.process import DEADLINE_S, broker


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
