"""Tests that execute the examples of README.md, the reference and the explanations; each exception has a reason.

tests/docs executes the other pages, except blocks with the comment `<!-- not executed: REASON -->`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.harness.process import CAIRNMQ, DEADLINE_S, broker
from tests.readme_blocks import DOCS, ROOT, Block, blocks_of, readme, section

PAGES = (ROOT / "README.md", *sorted((DOCS / "reference").glob("*.md")), *sorted((DOCS / "explanation").glob("*.md")))
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PASSWORD = "one stone"
EXECUTED = {
    ("README.md", "Quick start"): "here, tests/fresh_machine",
    ("README.md", "Develop CairnMQ itself"): ".ci/run",
    ("reference/clients.md", "Python: Qpid Proton"): "here, tests/fresh_machine",
    ("reference/clients.md", "Lost connections"): "here",
    ("reference/clients.md", "Rejected messages"): "here",
    ("reference/management.md", "Requests"): "here",
    ("reference/python.md", "Examples"): "tests/docs/test_pages.py",
    ("reference/python.md", "Errors"): "tests/docs/test_pages.py",
    ("reference/python.md", "Figures of the journal"): "tests/docs/test_pages.py",
    ("reference/python.md", "Journals as Arrow tables"): "tests/docs/test_pages.py",
    ("reference/stores.md", "Simulation of crashes"): "tests/recovery/test_simulated_store.py",
}
"""Tests that execute the sh and python blocks of a section."""
_OTHER_HOSTS = "it names brokers on other hosts; test_pages.py checks its options"
_LATER = "it depends on a store and an archive of the reader; test_pages.py checks its options"
NOT_EXECUTED = {
    ("reference/analysis.md", "Analysis of a journal with Spark"): "it names a Spark master; tests/analysis",
    ("explanation/cluster.md", "Start a cluster"): "it needs corosync; tests/cluster",
    ("explanation/cluster.md", "The group"): "an excerpt with an ellipsis; tests/cluster uses the class",
    ("explanation/cluster.md", "The lab"): "it needs corosync on several addresses; tests/cluster/test_lab.py",
    ("reference/export.md", "Export records to data lakes"): f"{_LATER}; tests/export",
    ("reference/export.md", "Where it is written"): "for other programs; tests/export reads with each",
    ("reference/routing.md", "Passthrough addresses"): f"{_LATER}; tests/router",
    ("reference/routing.md", "Connections to other containers"): _OTHER_HOSTS,
    ("reference/routing.md", "Auto-links"): _OTHER_HOSTS,
    ("reference/routing.md", "Networks of brokers"): "two brokers; tests/router/test_between_brokers.py",
    ("reference/history.md", "trace: the lifetime of a message"): _LATER,
    ("reference/history.md", "as-of: queues at a point in time"): _LATER,
    ("reference/history.md", "replay: send arrived messages again"): _LATER,
    ("reference/history.md", "dump, load: a journal as lines"): _LATER,
    ("reference/perftest.md", "Load tests and soak tests"): "ten minutes long; tests/perftest runs both with less",
    ("reference/perftest.md", "Other brokers"): "for a RabbitMQ; tests/perftest/test_load.py runs it with one",
    ("reference/perftest.md", "Soak of another broker"): "for a RabbitMQ; tests/perftest/test_soak.py has one",
    ("reference/federation.md", "Federation"): _OTHER_HOSTS,
    ("reference/federation.md", "Queues of a cluster"): _OTHER_HOSTS,
    ("reference/spark.md", "Journals in Spark"): "an excerpt for a session that exists; tests/spark",
    ("reference/spark.md", "Data loss"): "an excerpt for a session that exists; tests/spark/test_first_offset.py",
    ("reference/spark.md", "Streams"): "a query that does not end; tests/spark/test_exactly_once.py",
    ("reference/spark.md", "Sidecars"): "an excerpt for a session that exists; tests/sidecars",
    ("reference/stores.md", "Queue definitions on a server"): "it needs PostgreSQL; tests/cli/test_wiring_on_server.py",
    ("reference/stores.md", "All in SQL"): "it needs a PostgreSQL server; tests/cli/test_stores.py",
    ("reference/stores.md", "A store of your own"): "a skeleton for another package; tests/store derives the class",
    ("reference/store-tools.md", "sql"): f"{_LATER}; tests/tools/test_sql.py",
}
"""Reasons why the blocks of a section are not executed unchanged."""
_COMMAND = re.compile(r"(?:venv/bin/)?(?:cairnmq|pip) ", re.M)


def executable(block: Block) -> bool:
    return block.language in ("sh", "python") or (not block.language and bool(_COMMAND.match(block.text)))


def python(text: str, port: int, place: Path, **environment: str) -> str:
    """Run a program written for the default port with another port, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", text.replace("127.0.0.1:5672", f"127.0.0.1:{port}")],
        capture_output=True, text=True, timeout=DEADLINE_S, cwd=place, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def page(name: str) -> list[Block]:
    return [block for block in BLOCKS if block.page == name and block.language == "python"]


@pytest.fixture
def login(tmp_path: Path) -> Mapping[str, str]:
    command = [CAIRNMQ, "users", "add", "anna", "--users-file", str(tmp_path / "users")]
    subprocess.run(command, input=f"{PASSWORD}\n", text=True, check=True, timeout=DEADLINE_S, capture_output=True)
    return {"CAIRNMQ_PASSWORD": PASSWORD}


def test_every_example_is_executed_or_says_why_not() -> None:
    known = {**EXECUTED, **NOT_EXECUTED}
    found = {(block.page, block.section) for block in BLOCKS if executable(block)}
    assert sorted(found - set(known)) == [], "execute it in a test and name that in EXECUTED"
    assert sorted(set(known) - found) == [], "no such example any more"


def test_management_example_can_be_repeated(tmp_path: Path) -> None:  # usability 5: failed if the queue existed
    [program] = page("reference/management.md")
    with broker(tmp_path / "data") as running:
        first, again = (python(program.text, running.port, tmp_path) for _ in range(2))
        assert first.splitlines()[0].startswith("201 ")
        assert "'max-messages': 1000" in first
        assert again.splitlines()[0].split()[0].isdigit()
        assert "int32" not in first + again
        python(program.text.replace('"max-messages": 1000', '"max-messages": 7'), running.port, tmp_path)


def test_python_clients_log_in(tmp_path: Path, login: Mapping[str, str]) -> None:
    plain, secured, *_ = page("reference/clients.md")
    certificates = section("how-to/tls-and-users.md", "Create certificates for tests")
    for line in (line for block in certificates for line in block.commands):
        subprocess.run(line, shell=True, check=True, timeout=DEADLINE_S, cwd=tmp_path, capture_output=True)
    options = ("--users-file", str(tmp_path / "users"), "--tls-port", "0", "--tls-cert", str(tmp_path / "broker.pem"))
    with broker(tmp_path / "data", *options) as running:
        port = running.wait_for(r" listening with TLS on 127\.0\.0\.1:(\d+)$")[1]
        for _ in range(2):
            assert python(plain.text, running.port, tmp_path, **login) == "hello\n"
        program = secured.text.replace("localhost:5671", f"localhost:{port}")
        assert python(program, running.port, tmp_path, **login) == "connected\n"


def test_python_client_ends_with_one_line_without_a_broker(tmp_path: Path) -> None:
    program = page("reference/clients.md")[2]
    with broker(tmp_path / "data") as running:
        for is_stopped, text in ((False, "no message within a second\n"), (True, "; is the broker running?\n")):
            if is_stopped:
                running.stop()
            code = program.text.replace("127.0.0.1:5672", f"127.0.0.1:{running.port}")
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)
            assert (done.returncode, done.stderr.count("\n"), done.stderr.endswith(text)) == (1, 1, True), done.stderr


def test_python_clients_see_why_a_message_is_rejected(tmp_path: Path) -> None:  # usability 13: only 37 was shown
    program = page("reference/clients.md")[3].text
    with broker(tmp_path / "data") as running:
        [create] = section("reference/clients.md", "Rejected messages")[0].commands
        options = ("--url", f"127.0.0.1:{running.port}", "--timeout", "60")  # usability 18: options after the command
        ask = [CAIRNMQ, *create.split()[1:], *options]
        subprocess.run(ask, check=True, timeout=DEADLINE_S, capture_output=True)
        [shown] = [one.text for one in BLOCKS if one.page == "reference/clients.md" and one.language == "text"]
        assert python(program, running.port, tmp_path) == shown


def test_first_program_leaves_nothing_behind(tmp_path: Path) -> None:  # usability 4, U4
    [program] = readme("Quick start", "python")
    with broker(tmp_path / "data") as running:
        for _ in range(2):
            assert python(program.text, running.port, tmp_path) == "cairn 1\ncairn 2\n"
        ask = [CAIRNMQ, "ctl", "--timeout", "60", "--url", f"127.0.0.1:{running.port}", "queues", "list"]
        listed = subprocess.run(ask, capture_output=True, text=True, timeout=DEADLINE_S).stdout
        [row] = [line for line in listed.splitlines() if line.startswith("orders ")]
        assert row.split()[2] == "0"
