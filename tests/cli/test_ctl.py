"""Tests of the command `cairnmq ctl` against a real broker."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.base.errors import CairnError
from cairnmq.cli.main import cairnmq
from cairnmq.tools.soak.servers import free_port
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("ctl") / "store") as started:
        yield started


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [CAIRNMQ, "ctl", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, **environment}
    )


def ctl(running: BrokerProcess, *arguments: str, status: int = 0, environment: dict[str, str] | None = None) -> str:
    if not status:  # in this process, which is faster
        command = ["ctl", "--timeout", "60", "--url", f"127.0.0.1:{running.port}", *arguments]
        result = CliRunner().invoke(cairnmq, command, env=environment)
        assert (result.exit_code, result.stderr) == (0, ""), result
        return result.stdout
    done = run("--timeout", "60", "--url", f"amqp://127.0.0.1:{running.port}", *arguments)
    assert done.returncode == status, done
    assert "Traceback" not in done.stderr
    return done.stderr


def document(running: BrokerProcess, *arguments: str) -> Any:
    return json.loads(ctl(running, "--json", *arguments))


def send(running: BrokerProcess, address: str, *bodies: Any) -> None:
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    sender = connection.create_sender(address)
    for body in bodies:
        sender.send(Message(body=body, durable=True, properties={"n": 1}, id="m"))
    connection.close()


def test_queues_come_are_looked_at_and_go(running: BrokerProcess) -> None:
    assert ctl(running, "queues", "create", "orders", "-a", "max-messages=1000") == "created queue orders\n"
    send(running, "orders", "one", "two", {"three": b"\xff"})
    [line] = [line for line in ctl(running, "queues", "list").splitlines() if line.startswith("orders")]
    assert re.split("  +", line)[:6] == ["orders", "no consumers", "3", "3", "0", "0"]
    [found] = document(running, "queues", "list", "--like", "ord*")
    assert (found["name"], found["arguments"]) == ("orders", {"max-messages": 1000})
    assert document(running, "queues", "show", "orders") == {**found, "type": "queue"}
    messages = document(running, "queues", "peek", "orders", "--count", "2")
    assert [message["body"] for message in messages] == ["one", "two"]
    assert [message["body-text"] for message in messages] == ["one", "two"]
    assert messages[0]["application-properties"] == {"n": 1}
    assert "three" in ctl(running, "queues", "peek", "orders")
    assert document(running, "queues", "move", "orders", "others", "--count", "1", "--create")["moved"] == 1
    assert ctl(running, "queues", "purge", "orders", "--yes") == "purged 2 messages from queue orders\n"
    refused = ctl(running, "queues", "delete", "others", "--if-empty", "--yes", status=1)
    assert "has 1 message (409); purge it, or leave out if-empty" in refused
    assert ctl(running, "queues", "delete", "others", "--yes") == "deleted queue others\n"
    ctl(running, "queues", "delete", "orders", "--yes")


def test_move_creates_no_queue_unless_asked(running: BrokerProcess) -> None:
    """A move to an unknown queue or exchange is an error without `--create`, also for a dry run."""
    send(running, "waiting", "one", "two")
    for target in ("nope", "nope/key"):
        expected = (
            f"cairnmq: move queue waiting: there is no queue or exchange '{target}' (404); create it first, or give "
            "--create\n"
        )
        for dry_run in ((), ("--dry-run",)):
            assert ctl(running, "queues", "move", "waiting", target, *dry_run, status=1) == expected
    missing_source = "cairnmq: move queue none: not found (404); see cairnmq ctl queues list\n"
    assert ctl(running, "queues", "move", "none", "nope", status=1) == missing_source
    would = "would move 2 messages from queue waiting to nope\n"
    assert ctl(running, "queues", "move", "waiting", "nope", "--create", "--dry-run") == would
    names = {one["name"]: one["messages"] for one in document(running, "queues", "list")}
    assert (names["waiting"], "nope" in names) == (2, False)
    assert document(running, "queues", "move", "waiting", "nope", "--create")["moved"] == 2
    assert document(running, "queues", "show", "nope")["messages"] == 2
    for name in ("waiting", "nope"):
        ctl(running, "queues", "delete", name, "--yes")


def test_long_requests_are_split_into_the_frames_that_the_broker_takes(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--max-frame-size", "512") as started:
        long = {"dead-letter-address": "d" * 200, "expiry-address": "e" * 200}
        ctl(started, "queues", "create", "q", *[word for pair in long.items() for word in ("-a", "=".join(pair))])
        assert document(started, "queues", "show", "q")["arguments"] == long


def test_exchanges_bindings_and_templates(running: BrokerProcess) -> None:
    ctl(running, "queues", "create", "inbox", "--transient")
    ctl(running, "exchanges", "create", "news", "--type", "topic")
    bound = ctl(running, "exchanges", "bind", "news", "inbox", "eu.#", "-a", "x-selector=n = 1")
    assert bound == "bound inbox to news with key eu.#\n"
    send(running, "news/eu.paris", "found")
    [binding] = document(running, "bindings", "list")
    assert binding["arguments"] == {"x-selector": "n = 1"}
    assert document(running, "queues", "show", "inbox")["messages"] == 1
    assert "news" in ctl(running, "exchanges", "list")
    ctl(running, "exchanges", "unbind", "news", "inbox", "eu.#", "--yes")
    assert document(running, "bindings", "list") == []
    ctl(running, "exchanges", "delete", "news", "--yes")
    ctl(running, "templates", "create", "small.*", "-a", "max-messages=1")
    ctl(running, "templates", "update", "small.*", "-a", "max-messages=2", "-a", "overflow=ring")
    [template] = document(running, "templates", "list")
    assert template["arguments"] == {"max-messages": 2, "overflow": "ring"}
    ctl(running, "templates", "delete", "small.*", "--yes")
    assert document(running, "templates", "list") == []


def test_clients_are_told_and_closed(running: BrokerProcess) -> None:
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    connection.create_sender("orders", name="out")
    [link] = [link for link in document(running, "links", "list") if link["name"] == "out"]
    assert link["address"] == "orders"
    identity = link["connection"]
    assert document(running, "connections", "show", identity)["links"] == 1
    ctl(running, "connections", "close", identity, "--reason", "lunch", "--yes")
    while identity in [one["identity"] for one in document(running, "connections", "list")]:
        pass  # the worker closes the connection after the response; the test's timeout limits the wait


def test_broker_store_and_transactions(running: BrokerProcess) -> None:
    assert document(running, "broker")["version"]
    assert "journal-flushes" in ctl(running, "store")
    assert document(running, "transactions", "list") == []


def test_names_do_not_steer_the_terminal(running: BrokerProcess) -> None:
    name = "evil\x1b[2J\nqueue"
    send(running, name, "x")
    assert "\x1b" not in ctl(running, "queues", "list")
    assert document(running, "queues", "show", name)["name"] == name
    rows = csv.DictReader(io.StringIO(ctl(running, "queues", "list", "--output", "csv"), newline=""))
    assert "evil\\x1b[2J\nqueue" in [row["name"] for row in rows]
    ctl(running, "queues", "delete", name, "--yes")


def test_help_where_there_is_nothing_to_do(running: BrokerProcess) -> None:
    done = run()
    assert "queues" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "purge" in run("queues", "--help").stdout


@pytest.mark.parametrize(
    "arguments",
    [("nonsense",), ("queues", "show"), ("queues", "create", "q", "-a", "novalue"), ("--url", "http://x", "broker"),
     ("--url", "amqp://me:secret@host", "broker"), ("queues", "peek", "q", "--count", "0")],
)  # fmt: skip
def test_wrong_arguments_are_status_2(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_what_the_broker_refuses_is_one_line_and_status_1(running: BrokerProcess) -> None:
    missing = "cairnmq: show queue none: not found (404); see cairnmq ctl queues list\n"
    assert ctl(running, "queues", "show", "none", status=1) == missing
    refused = ctl(running, "queues", "create", "q", "-a", "max-messages=-1", status=1)
    assert refused.count("\n") == 1
    assert "max-messages" in refused


MISTAKES = {
    "queues delete nope --yes": "delete queue nope: not found (404); see cairnmq ctl queues list",
    "queues purge nope --yes": "purge queue nope: not found (404); see cairnmq ctl queues list",
    "queues purge nope --dry-run": "show queue nope: not found (404); see cairnmq ctl queues list",
    "queues set nope -a paused=true": "change queue nope: not found (404); see cairnmq ctl queues list",
    "queues peek nope": "browse queue nope: not found (404); see cairnmq ctl queues list",
    "queues create nope -a max-messages=abc": "create queue nope: max-messages is 'abc' (400); use a number",
    "queues create amq.topic": "create queue amq.topic: the name is in use by an exchange (409); use another name",
    "queues create $x": (
        "create queue $x: names of queues that begin with $ or dynamic- are reserved for the broker (400); use another"
    ),
    "exchanges delete amq.topic --yes": "delete exchange amq.topic: predeclared exchanges can't be deleted (409)",
    "exchanges create amq.topic --type fanout": (
        "create exchange amq.topic: it already exists with other attributes (409); delete it first"
    ),
    "exchanges create nope --type odd": (
        "create exchange nope: unknown type 'odd' (400); there are direct, fanout, topic, headers"
    ),
    "exchanges unbind amq.topic a b --yes": (
        "delete binding amq.topic/a/b: not found (404); see cairnmq ctl bindings list"
    ),
    "exchanges bind nope a": "create binding: there is no exchange 'nope' (404); create it first",
    "templates update nope": "change template nope: not found (404); see cairnmq ctl templates list",
    "connections close 99 --yes": "close connection 99: not found (404); see cairnmq ctl connections list",
    "transactions commit aabb --yes": (
        "commit transaction aabb: there is no such transaction, or it is over (404); see cairnmq ctl transactions list"
    ),
    "transactions rollback aabb --yes": (
        "roll back transaction aabb: there is no such transaction, or it is over (404); see cairnmq ctl "
        "transactions list"
    ),
    "transactions cancel aabb --yes": (
        "cancel transaction aabb: there is no such transaction, or it is over (404); see cairnmq ctl transactions list"
    ),
    "connectors create nope odd": (
        "create connector nope: invalid URL (409); use amqp://user@host:port or amqps://..., percent-encoded"
    ),
    "federated-queues create amq.topic c": (
        "create federated-queue amq.topic: there is one of that name (409); choose another name, or delete that one"
    ),
    "federated-queues promote nope --yes": (
        "promote federated-queue nope: not found (404); see cairnmq ctl federated-queues list"
    ),
    "cluster": "show cluster: this broker is not a member of a cluster (start it with --cluster-name) (404)",
    "queues list --cluster": (
        "list queue: this broker is not a member of a cluster (start it with --cluster-name) (404)"
    ),
}


def test_rejection_names_its_subject_once(running: BrokerProcess) -> None:
    found = {}
    for mistake in MISTAKES:
        command = ["ctl", "--timeout", "60", "--url", f"127.0.0.1:{running.port}", *mistake.split()]
        result = CliRunner().invoke(cairnmq, command)
        assert isinstance(result.exception, CairnError), (mistake, result)
        found[mistake] = str(result.exception)
    assert found == MISTAKES


@pytest.mark.parametrize("option", ["--url", "--user", "--ca", "--timeout"])
def test_an_option_of_ctl_without_its_value_is_named(option: str) -> None:
    result = CliRunner().invoke(cairnmq, ["ctl", "queues", "list", option])
    assert (result.exit_code, f"Option '{option}' requires an argument." in result.stderr) == (2, True), result


def test_no_broker_is_one_line_and_status_1() -> None:
    port = free_port()
    done = run("broker", CAIRNMQ_URL=f"amqp://127.0.0.1:{port}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"cairnmq: amqp://127.0.0.1:{port}: can't be reached: " in done.stderr


def test_who_is_sent_away_is_told_why_and_not_that_nobody_is_there(tmp_path: Path) -> None:
    """A redirected client, as by a cluster member without a majority, reports the reason of the close."""
    with broker(tmp_path / "store", "--redirect-to", "localhost:7777") as there:
        done = run("--url", f"127.0.0.1:{there.port}", "broker")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"cairnmq: amqp://127.0.0.1:{there.port}: the broker closed the connection: " in done.stderr
    assert "is a broker running" not in done.stderr
    assert "Condition(" not in done.stderr


def test_a_silent_peer_is_given_up_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        done = run("--timeout", "0.5", "--url", f"amqp://127.0.0.1:{port}", "broker")
    url = f"amqp://127.0.0.1:{port}"
    assert (done.returncode, done.stderr) == (
        1, f"cairnmq: {url}: no answer to the AMQP header within 0.5 s; is it the port of a broker?\n"
    )  # fmt: skip


def test_password_without_a_terminal_is_asked_for_in_one_line() -> None:
    """Without a terminal and with standard input at its end, a missing password is a one-line error."""
    environment = {name: value for name, value in os.environ.items() if name != "CAIRNMQ_PASSWORD"}
    done = subprocess.run(
        [CAIRNMQ, "ctl", "--user", "anna", "queues", "list"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        start_new_session=True, env=environment, timeout=DEADLINE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "cairnmq: user 'anna': no password given; set CAIRNMQ_PASSWORD, or name a --password-file\n"


def test_head_is_no_trouble(running: BrokerProcess) -> None:
    command = f"{CAIRNMQ} ctl --url amqp://127.0.0.1:{running.port} --json store | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_it_logs_in(tmp_path: Path) -> None:
    users = str(tmp_path / "users")
    command = [CAIRNMQ, "users", "add", "--users-file", users, "anna"]
    subprocess.run(command, input="secret-Pw1\nsecret-Pw1\n", text=True, timeout=DEADLINE_S, check=True)
    with broker(tmp_path / "store", "--users-file", users) as guarded:
        asked = ("--url", f"127.0.0.1:{guarded.port}", "--json", "--user", "anna", "connections", "list")
        done = run(*asked, CAIRNMQ_PASSWORD="secret-Pw1")
        assert [one["user"] for one in json.loads(done.stdout)] == ["anna"]
        for arguments in (asked, (*asked[:3], "queues", "list")):
            refused = run(*arguments, CAIRNMQ_PASSWORD="not-her-Pw1")
            assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
            assert "--user" in refused.stderr
            assert "not-her-Pw1" not in refused.stderr


def test_password_is_read_from_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAIRNMQ_PASSWORD", raising=False)
    users, file, wrong = str(tmp_path / "users"), tmp_path / "password", tmp_path / "wrong"
    command = [CAIRNMQ, "users", "add", "--users-file", users, "anna"]
    subprocess.run(command, input="secret-Pw1\nsecret-Pw1\n", text=True, timeout=DEADLINE_S, check=True)
    for path, password in ((file, "secret-Pw1\n"), (wrong, "not-her-Pw1\n")):
        path.write_text(password)
        path.chmod(0o600)
    with broker(tmp_path / "store", "--users-file", users) as guarded:
        asked = ("--url", f"anna@127.0.0.1:{guarded.port}", "queues", "list")
        right, false = str(file), str(wrong)
        for arguments, environment, status in (
            ((*asked, "--password-file", right), {}, 0),
            (("--password-file", right, *asked), {"CAIRNMQ_PASSWORD": "x", "CAIRNMQ_PASSWORD_FILE": false}, 0),
            (asked, {"CAIRNMQ_PASSWORD_FILE": right}, 0),
            (asked, {"CAIRNMQ_PASSWORD": "secret-Pw1", "CAIRNMQ_PASSWORD_FILE": false}, 0),
            (asked, {"CAIRNMQ_PASSWORD_FILE": false}, 1),
        ):
            assert run(*arguments, **environment).returncode == status, (arguments, environment)
        file.chmod(0o644)
        refused = run(*asked, "--password-file", right)
    assert refused.returncode == 2
    reason = "others may read or change it (mode 0644)"
    assert refused.stderr == f"cairnmq: password file {file}: {reason}; chmod 600 {file}\n"


def test_dry_run_shows_changed_arguments(running: BrokerProcess) -> None:
    ctl(running, "queues", "create", "kept", "-a", "max-messages=7")
    change = ("-a", "max-messages=9", "-a", "paused=true", "--unset", "max-bytes")
    shown = ctl(running, "queues", "set", "kept", *change, "--dry-run")
    assert shown == "would change queue kept: max-messages from 7 to 9, paused from unset to True\n"
    assert document(running, "queues", "show", "kept")["arguments"] == {"max-messages": 7}
    ctl(running, "templates", "create", "kept.*", "-a", "max-messages=7", "-a", "paused=true")
    shown = ctl(running, "templates", "update", "kept.*", "-a", "max-messages=8", "--dry-run")
    assert shown == "would change template kept.*: max-messages from 7 to 8, paused from True to unset\n"
    assert document(running, "templates", "show", "kept.*")["arguments"] == {"max-messages": 7, "paused": True}
    ctl(running, "templates", "delete", "kept.*", "--yes")


def test_all_members_of_a_cluster(running: BrokerProcess, tmp_path: Path) -> None:  # D54
    for command in (("queues", "list", "--cluster"), ("cluster",)):  # row 20
        assert "this broker is not a member of a cluster (start it with --cluster-name)" in ctl(
            running, *command, status=1
        )
    with broker(tmp_path / "store", "--cluster-name", "ctl", "--cluster-size", "1") as member:
        member.wait_for("this member has all messages")
        ctl(member, "queues", "create", "orders")
        [queue] = document(member, "queues", "list", "--cluster", "--like", "orders")
        me = document(member, "cluster")["me"]
        assert (queue["member"], queue["name"], queue["messages"]) == (me, "orders", 0)
        assert document(member, "queues", "list", "--cluster", "--like", "x*") == []
        [line] = ctl(member, "cluster", "--cluster").splitlines()[1:]
        assert line.split()[:3] == [me, "synchronized", "yes"]
        shown = ctl(member, "cluster")  # B6: a row for each member, no lists
        assert re.search(r"^ *1 +(127\.0\.0\.1:\d+)? +synchronized +0 +\d+ +[0-9a-f]+ +yes", shown, re.MULTILINE)
        assert "[" not in shown
        [row] = document(member, "cluster")["member-states"]
        assert (row["node"], row["state"], row["this-one"]) == (1, "synchronized", True)
        assert {one["member"] for one in document(member, "connections", "list", "--cluster")} == {me}


@pytest.mark.parametrize(
    "words",
    [
        ["queues", "show", "a\udcff"], ["queues", "create", "wide", "--argument", "dead-letter-address=\udcff"],
        ["queues", "create", "wide", "--argument", f"max-messages={10**30}"],
        ["queues", "create", "wide", "--argument", f"max-messages={-(10**30)}"],
        ["queues", "move", "orders", "other", "--count", str(10**30)],
    ],
    ids=["name", "argument", "large number", "small number", "count"],
)  # fmt: skip
def test_value_that_amqp_cannot_encode_is_status_2(running: BrokerProcess, words: list[str]) -> None:
    errors = ctl(running, *words, status=2).splitlines()
    assert len(errors) == 1 or errors[0].startswith("Usage: "), errors
    assert "invalid UTF-8" in errors[-1] or str(10**30) in errors[-1]


def test_lists_are_sorted_filtered_and_limited_to_columns(running: BrokerProcess) -> None:
    for name, count in (("funny-sorted", 1), ("many-sorted", 3), ("tiny-sorted", 0)):
        ctl(running, "queues", "create", name)
        send(running, name, *map(str, range(count)))
    given = ("queues", "list", "--like", "*y-sorted", "--filter", "messages>0", "--columns", "name,messages")
    assert [line.split() for line in ctl(running, *given, "--sort", "-messages").splitlines()] == [
        ["name", "messages"], ["many-sorted", "3"], ["funny-sorted", "1"]
    ]  # fmt: skip
    rows = ctl(running, *given, "--sort", "messages", "--output", "csv").splitlines()
    assert rows == ["name,messages", "funny-sorted,1", "many-sorted,3"]
    assert [one["name"] for one in document(running, *given, "--filter", "held-bytes<1MiB", "--sort", "name")] == [
        "funny-sorted", "many-sorted"
    ]  # fmt: skip
    for option in (("--columns", "size"), ("--sort", "size"), ("--filter", "size>1")):
        refused = ctl(running, "queues", "list", *option, status=2)
        assert "size: no such attribute (attributes: name, " in refused
    assert "not ATTRIBUTE, operator" in ctl(running, "queues", "list", "--filter", "messages", status=2)
    assert "invalid size" in ctl(running, "queues", "list", "--filter", "messages>many", status=2)
    for name in ("funny-sorted", "many-sorted", "tiny-sorted"):
        ctl(running, "queues", "delete", name, "--yes")


def test_watched_list_is_repeated_until_interrupted(running: BrokerProcess) -> None:
    call = [CAIRNMQ, "ctl", "--url", f"127.0.0.1:{running.port}", "queues", "list", "--watch=0.5s", "--columns", "name"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        heads = 0
        while heads < 3:
            heads += watching.stdout.readline() == "name\n"
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=DEADLINE_S)
    assert (watching.returncode, errors) == (130, "cairnmq: interrupted\n")


def test_tables_of_people_fit_a_terminal_of_80_columns(running: BrokerProcess) -> None:  # U5
    """Also with long names, addresses and times; a value in a row is complete or ends with an ellipsis."""
    name = "payments." + "x" * 210
    send(running, name, "one", {"long": "body " * 40})
    connection = BlockingConnection(f"127.0.0.1:{running.port}")
    connection.create_receiver(name, credit=1)
    for words in (
        ("connections", "list"), ("links", "list"), ("sessions", "list"), ("queues", "list"), ("queues", "peek", name),
        ("queues", "show", name), ("users", "list"), ("broker",), ("store",), ("exchanges", "list"),
    ):  # fmt: skip
        shown = ctl(running, *words, environment={"COLUMNS": "80"})
        assert max(map(len, shown.splitlines())) <= 80, shown
    addresses = [one["name"] for one in document(running, "connections", "list")]
    shown = ctl(running, "connections", "list", environment={"COLUMNS": "80"})
    assert addresses[0] in shown, "an address is not folded"
    assert name in ctl(running, "queues", "list", "--raw", environment={"COLUMNS": "80"})
    connection.close()
    ctl(running, "queues", "delete", name, "--yes")


@pytest.mark.parametrize(
    "words",
    [("queues", "purge", "kept"), ("queues", "delete", "kept"), ("exchanges", "delete", "amq.topic"),
     ("connections", "close", "1"), ("transactions", "rollback", "0b")],
    ids=" ".join,
)  # fmt: skip
def test_destructive_command_needs_yes_without_a_terminal(running: BrokerProcess, words: tuple[str, ...]) -> None:
    send(running, "kept", "one")
    messages = document(running, "queues", "show", "kept")["messages"]
    assert "no confirmation, and no terminal to ask on; give --yes" in ctl(running, *words, status=2)
    assert document(running, "queues", "show", "kept")["messages"] == messages


def test_name_of_a_group_of_ctl_is_suggested() -> None:  # U8
    done = subprocess.run([CAIRNMQ, "queues", "list"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert "No such command 'queues'. Did you mean 'ctl queues'?" in done.stderr
