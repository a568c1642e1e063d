"""Tests of `cairnmq ctl definitions` and `cairnmq ctl wait`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cairnmq.cli.main import cairnmq
from cairnmq.tools.soak.servers import free_port
from tests.harness.console.accounts import write_users
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker


def ctl(running: BrokerProcess, *arguments: str, status: int = 0) -> str:
    command = ["ctl", "--timeout", "60", "--url", f"127.0.0.1:{running.port}", *arguments]
    result = CliRunner().invoke(cairnmq, command)
    assert result.exit_code == status, result
    return str(result.exception) if status else result.stdout


def exported(running: BrokerProcess) -> Any:
    return json.loads(ctl(running, "definitions", "export"))


def test_definitions_are_the_same_after_an_import_into_another_broker(tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    write_users(tmp_path / "users", {"anna": "quiet-stones"})
    write_users(tmp_path / "others", {"ben": "quiet-stones"})
    with broker(tmp_path / "one") as one:
        for words in (
            "queues create orders.dead", "queues create orders -a max-deliveries=3 -a dead-letter-address=orders.dead",
            "queues create gone --transient", "exchanges create shop --type topic",
            "exchanges bind shop orders order.#", "exchanges bind amq.topic orders all.#",
            "templates create tasks.* -a max-messages=10",
        ):  # fmt: skip
            ctl(one, *words.split())
        ctl(one, "definitions", "export", str(file), "--users-file", str(tmp_path / "users"))
        assert file.stat().st_mode & 0o077 == 0
        before = exported(one)
        without = tmp_path / "without.json"
        without.write_text(json.dumps(before))
        assert "created nothing" in ctl(one, "definitions", "import", str(without))
    assert [row["name"] for row in before["queues"]] == ["orders", "orders.dead"]
    assert len(before["bindings"]) == 2
    (tmp_path / "rules.toml").write_text('[[rules]]\nwho = ["anonymous"]\nmay = ["*"]\n')
    options = ("--users-file", str(tmp_path / "others"), "--anonymous", "--acl-file", str(tmp_path / "rules.toml"))
    with broker(tmp_path / "two", *options) as two:
        ctl(two, "definitions", "import", str(file), "--dry-run")
        assert exported(two)["queues"] == []
        ctl(two, "definitions", "import", str(file))
        assert exported(two) == before
        assert "created nothing" in ctl(two, "definitions", "import", str(file))
        assert "anna" in (tmp_path / "others").read_text()


def _other_type(document: Any) -> None:
    document["exchanges"][0]["exchange-type"] = "fanout"


def _other_arguments(document: Any) -> None:
    document["queues"][0]["arguments"] = {"max-messages": 5}


def _invalid_argument(document: Any) -> None:
    document["queues"].append({"name": "bad", "arguments": {"max-messages": "many"}})


def _unknown_key(document: Any) -> None:
    document["queues"].append({"name": "bad", "auto_delete": True})


def _unknown_queue(document: Any) -> None:
    document["bindings"].append({"exchange": "shop", "queue": "nowhere", "key": "x"})


def _twice(document: Any) -> None:
    document["queues"].append(document["queues"][0])


def _not_a_list(document: Any) -> None:
    document["exchanges"] = {}


def _bad_user(document: Any) -> None:
    document["users"] = [{"name": "eve", "verifier": "secret"}]


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (_other_type, "exchange shop"), (_other_arguments, "queue orders"), (_invalid_argument, "max-messages"),
        (_unknown_key, "auto_delete"), (_unknown_queue, "nowhere"), (_twice, "defined twice"),
        (_not_a_list, "not a list"), (_bad_user, "not a user"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_import_that_would_fail_changes_nothing(tmp_path: Path, edit: Callable[[Any], None], text: str) -> None:
    file = tmp_path / "definitions.json"
    with broker(tmp_path / "store") as running:
        ctl(running, "queues", "create", "orders")
        ctl(running, "exchanges", "create", "shop", "--type", "topic")
        before = exported(running)
        document = json.loads(json.dumps(before))
        document["queues"].append({"name": "new"})
        edit(document)
        file.write_text(json.dumps(document))
        assert text in ctl(running, "definitions", "import", str(file), status=1)
        assert exported(running) == before


def test_wait_ends_when_the_broker_is_ready(tmp_path: Path) -> None:
    port = free_port()
    command = [CAIRNMQ, "ctl", "wait", "--url", f"127.0.0.1:{port}", "--deadline"]
    done = subprocess.run([*command, "0"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "connection refused" in done.stderr
    with (
        subprocess.Popen([*command, str(DEADLINE_S)], stdout=subprocess.PIPE, text=True) as waiting,
        broker(tmp_path / "store", "--port", str(port)),
    ):
        assert waiting.communicate(timeout=DEADLINE_S)[0] == "the broker is ready\n"
        assert waiting.returncode == 0
