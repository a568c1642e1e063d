"""Tests of the broker's log formats: one complete record per line, whatever the message contains."""

from __future__ import annotations

import ast
import json
import logging
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.accounts import audit
from cairnmq.cli.common.log import JsonFormatter, LogfmtFormatter, TextFormatter
from tests.harness.process import CAIRNMQ, DEADLINE_S, broker
from tests.harness.router.joined import until
from tests.structure.modules import MODULES

from .log_page import PAGE, SECTIONS, page

TEXT_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) ([a-z.-]+) \S.*")
METHODS = ("warning", "error", "exception", "critical", "log")
"""Methods of a logger that may log at WARNING or above."""
PAIR = re.compile(r'([a-z_-]+)=("(?:[^"\\]|\\.)*"|[^" =]+)(?: |$)')


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
            line = running.wait_for("an HTTP request came to the AMQP port")
        told = json.loads(line.string)
        assert told["connection"] == f"{host}:{port}"
        assert told["level"] == "info"
        assert (told["event"], told["reason"], told["mechanism"]) == ("login.failed", "protocol", "none")


def test_every_line_of_a_broker_is_json(tmp_path: Path) -> None:  # usability 10
    """With `--log-format json`, all lines from start to end are JSON objects, also during recovery."""
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
    assert (done.returncode, done.stdout) == (2, "")
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert (told[-1]["event"], told[-1]["level"]) == ("broker.failed", "error")
    assert f"{rules}: can't be read" in told[-1]["message"]


def test_a_broker_without_a_reader_stops_in_order(tmp_path: Path) -> None:
    """A broker whose output pipe is closed, as with `| head -1`, stops without an error."""
    command = [CAIRNMQ, "broker", "--store-dir", str(tmp_path / "store"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().partition(b" listening on ")[1]
        process.stdout.close()
        process.send_signal(signal.SIGTERM)
        assert (process.wait(DEADLINE_S), process.stderr.read()) == (0, b"")


@given(text=st.text(), cause=st.text())
def test_no_text_from_outside_starts_a_line_or_controls_a_terminal(text: str, cause: str) -> None:  # W12
    for form in (TextFormatter(), JsonFormatter(), LogfmtFormatter()):
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


def parsed(line: str) -> dict[str, str]:
    """Return the names and values of a logfmt line."""
    assert "".join(match[0] for match in PAIR.finditer(line)) == line
    return {name: json.loads(value) if value.startswith('"') else value for name, value in PAIR.findall(line)}


@given(text=st.text(), queue=st.text())
def test_logfmt_line_has_pairs_that_give_the_values_back(text: str, queue: str) -> None:
    record = logging.LogRecord("cairnmq.x.y", logging.WARNING, "x.py", 1, "%s", (text,), None)
    record.queue = queue
    told = parsed(LogfmtFormatter().format(record))
    assert (told["message"], told["queue"], told["level"], told["event"]) == (text, queue, "warning", "x")


def test_every_line_has_time_level_and_event(tmp_path: Path) -> None:
    """Every line of the text and logfmt formats has a time, a level and an event."""
    with broker(tmp_path / "text", "-v") as running:
        socket.create_connection(("127.0.0.1", running.port), timeout=DEADLINE_S).close()
        assert running.stop() == 0
    events = [match[2] for line in running.lines if (match := TEXT_LINE.fullmatch(line))]
    assert len(events) == len(running.lines)
    assert events[0] == "broker.listening"
    assert events[-2:] == ["broker.stopping", "broker.stopped"]
    with broker(tmp_path / "logfmt", "--log-format", "logfmt") as running:
        assert running.stop() == 0
    assert [parsed(line)["event"] for line in running.lines] == [
        "broker.listening", "broker.storing", "broker.recovered", "broker.store-created", "broker.stopping",
        "broker.stopped",
    ]  # fmt: skip


def test_log_file_has_all_lines_and_may_be_rotated(tmp_path: Path) -> None:
    path, rotated = tmp_path / "log", tmp_path / "log.1"
    command = [CAIRNMQ, "broker", "--store", "memory", "--port", "0", "--log-file", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        until(lambda: path.exists() and " broker.recovered " in path.read_text(), "the broker to start")
        path.rename(rotated)
        process.send_signal(signal.SIGTERM)
        assert (process.wait(DEADLINE_S), process.stdout.read()) == (0, "")
    assert " broker.listening " in rotated.read_text()
    assert [line.split()[2] for line in path.read_text().splitlines()] == ["broker.stopping", "broker.stopped"]


def test_error_that_ends_a_start_is_in_the_file_and_on_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    command = [CAIRNMQ, "broker", "--store-dir", "/proc/x", "--log-file", str(path), "--log-level", "error"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("cairnmq: ")
    assert path.read_text().split(" ", 2)[1:][0] == "ERROR"
    assert path.read_text().partition(" broker.failed ")[2] == done.stderr.removeprefix("cairnmq: ")


def test_log_file_that_can_not_be_written_is_one_line(tmp_path: Path) -> None:
    command = [CAIRNMQ, "broker", "--store", "memory", "--log-file", str(tmp_path / "no" / "log")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (
        2,
        f"cairnmq: --log-file {tmp_path}/no/log: can't be written: No such file or directory; name a file in a "
        "directory of this user\n",
    )


def test_less_severe_lines_than_the_level_are_left_out(tmp_path: Path) -> None:
    command = [CAIRNMQ, "broker", "--store-dir", "/proc/x", "--log-level", "warning", "--log-format", "logfmt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert parsed(line)["event"] == "broker.failed"


def literals(name: ast.expr, *scopes: ast.AST) -> list[ast.Dict]:
    """Return the dictionaries that the first of the *scopes* with such assignments assigns to *name*."""
    for scope in scopes:
        found = []
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign):
                target = node.targets[0]
                pairs = (
                    zip(target.elts, node.value.elts, strict=True)
                    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                    else [(target, node.value)]
                )
                found += [of for to, of in pairs if ast.unparse(to) == ast.unparse(name) and isinstance(of, ast.Dict)]
        if found:
            return found
    return []


def has_event(call: ast.Call, *scopes: ast.AST) -> bool:
    """Return whether a call of a logger gives the record an event."""
    extra = next((one.value for one in call.keywords if one.arg == "extra"), ast.Dict([], []))
    found = [extra] if isinstance(extra, ast.Dict) else literals(extra, *scopes)
    return bool(found) and all("event" in (ast.unparse(key).strip("'") for key in one.keys if key) for one in found)


def calls_without_event(tree: ast.Module) -> list[int]:
    """Return the lines of calls of loggers that may log at WARNING or above, and name no event."""
    found = {}
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))]
    for scope in scopes:  # a nested function follows its outer function
        for node in ast.walk(scope):
            match node:
                case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in METHODS:
                    if re.search(r"(?:^|[._])log(?:ger|_of)?$|getLogger", ast.unparse(of)):
                        found[node.lineno] = has_event(node, scope, tree)
    return sorted(line for line, has_one in found.items() if not has_one)


def test_call_without_event_is_found() -> None:
    source = """
about = {"queue": 1}
def one():
    text, event = "x", {"event": "a.b"}
    log.warning(text, extra=event)
    self._log.error("x", extra={**about, "event": "a.b"})
    log.info("x")
def two():
    log.warning("x")
    logging.getLogger("x").exception("x", extra=about)
    event = {"queue": 1}
    log.log(level, "x", extra=event)
"""
    assert calls_without_event(ast.parse(source)) == [9, 10, 12]


def test_every_warning_of_the_product_has_an_event() -> None:
    texts = {str(path): text for path in MODULES.values() if "log" in (text := path.read_text())}
    found = {path: lines for path, text in texts.items() if (lines := calls_without_event(ast.parse(text)))}
    assert len(texts) > 100
    assert not found, "give the record an event by `extra`, and describe it in tests/cli/log_page.py"


def test_page_lists_every_event_of_the_code() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.cli.log_page`"
    names = [name for events in SECTIONS.values() for name in events]
    assert len(names) == len({*names})
    used = {audit.LOGIN, audit.LOGIN_FAILED, audit.CHANGE, audit.CHANGE_REFUSED, audit.SUPPRESSED}
    for path in MODULES.values():
        used |= {*re.findall(r'(?:"event": |announce\(\s*|_say\()"([a-z-]+\.[a-z-]+)"', path.read_text())}
    assert used == {*names}
