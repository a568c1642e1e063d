"""Accounts at the console: spellings of a name, places of managers, removed and demoted users, and the audit trail."""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from cairnmq.base.accounts import users
from cairnmq.base.accounts.credentials import make
from cairnmq.console.session.sessions import MOST_SESSIONS, MOST_SESSIONS_OF_USER
from tests.harness.console.accounts import write_users
from tests.harness.console.browser import ApiClient
from tests.harness.console.served import Served
from tests.harness.process import DEADLINE_S, broker

from .conftest import RULES

CROWD = [f"crowd{number}" for number in range(MOST_SESSIONS // MOST_SESSIONS_OF_USER + 1)]
MANAGER = '[[rules]]\nwho = ["admin"]\nmay = ["*"]\n'
OTHERS = f'[[rules]]\nwho = {json.dumps(CROWD)}\nmay = ["connect", "send", "receive"]\non = ["$management"]\n'


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    """Yield a broker of this test alone, so that it may change users and rules."""
    (tmp_path / "acl.toml").write_text(RULES + MANAGER + OTHERS)
    write_users(tmp_path / "users", {name: f"{name}-password" for name in ("root", "admin", "shop", *CROWD)})
    options = ("--users-file", str(tmp_path / "users"), "--acl-file", str(tmp_path / "acl.toml"), "--http-port", "0")
    logs = ("--log-file", str(tmp_path / "log"), "--audit-file", str(tmp_path / "audit"), "--audit-logins")
    with broker(tmp_path / "store", *options, *logs) as process:
        yield Served(process, int(process.wait_for(r"web console at http://127.0.0.1:(\d+)/")[1]), tmp_path)


def logged_in(served: Served, name: str, user: str = "") -> ApiClient:
    """Log in, by the spelling *name* of *user*."""
    client = ApiClient(served.port)
    reply = client.login(name, f"{user or name}-password")
    assert reply.status == 201, reply
    return client


def wait_for(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def stream(client: ApiClient) -> tuple[HTTPConnection, HTTPResponse]:
    connection = HTTPConnection("127.0.0.1", client.port, timeout=DEADLINE_S)
    connection.request("GET", "/api/v1/events", headers={"Cookie": client.cookie})
    response = connection.getresponse()
    assert response.status == 200
    return connection, response


def events(response: HTTPResponse) -> Iterator[str]:
    """Yield the names of the events of a stream until it ends."""
    while line := response.readline():
        if line.startswith(b"event: "):
            yield line[7:].decode().strip()


def contents(response: HTTPResponse) -> Iterator[tuple[str, str]]:
    """Yield the names and contents of the events of a stream until it ends."""
    for name in events(response):
        yield name, response.readline().decode()


def test_spellings_of_a_name_share_the_limit_of_sessions(own: Served) -> None:  # A1
    spellings = ["shop" if not number else "s\u00ad" + "\u00ad" * number + "hop" for number in range(17)]
    clients = [logged_in(own, name, "shop") for name in spellings]
    assert len(clients) == MOST_SESSIONS_OF_USER + 1
    statuses = [client.api("GET", "/session").status for client in clients]
    assert statuses == [401] + [200] * MOST_SESSIONS_OF_USER
    assert {client.get("/session")["user"] for client in clients[1:]} == {"shop"}


def test_full_console_has_places_for_managers(own: Served) -> None:  # A1
    for name in CROWD[:-1]:
        for _ in range(MOST_SESSIONS_OF_USER):
            logged_in(own, name)
    assert ApiClient(own.port).login(CROWD[-1], f"{CROWD[-1]}-password").status == 503
    assert logged_in(own, "admin").get("/session")["user"] == "admin"


def test_wrong_password_ends_no_session(own: Served) -> None:  # A8
    clients = [logged_in(own, "shop") for _ in range(MOST_SESSIONS_OF_USER)]
    assert ApiClient(own.port).login("shop", "guess").status == 401
    assert {client.api("GET", "/session").status for client in clients} == {200}


def test_stream_and_endpoints_end_with_the_account(own: Served) -> None:  # A2
    admin, root = logged_in(own, "admin"), logged_in(own, "root")
    connection, response = stream(admin)
    assert next(events(response)) == "overview"
    root.done("DELETE", "/users/admin")
    wait_for(lambda: admin.api("GET", "/session").status == 401)
    for _ in events(response):
        pass
    connection.close()
    for path in ("/session", "/overview", "/logs", "/history/range", "/events"):
        assert admin.api("GET", path).status == 401, path


def test_demoted_user_reads_neither_log_nor_journal(own: Served) -> None:  # A2
    admin = logged_in(own, "admin")
    assert admin.api("GET", "/journal").status == 200
    demoted = '[[rules]]\nwho = ["admin"]\nmay = ["connect", "send", "receive"]\non = ["$management"]\n'
    (own.directory / "acl.toml").write_text(RULES + demoted + OTHERS)
    own.process.process.send_signal(signal.SIGHUP)
    wait_for(lambda: admin.api("GET", "/journal").status == 403)
    assert admin.api("GET", "/logs").status == 403


@pytest.mark.parametrize("change", ["demoted", "removed"])
def test_open_stream_shows_no_line_that_is_logged_after_the_account_changed(own: Served, change: str) -> None:  # A2
    admin = logged_in(own, "admin")
    log_file = own.directory / "log"

    def log_line(name: str) -> None:
        assert ApiClient(own.port).login(name, "a guess").status == 401
        wait_for(lambda: name in log_file.read_text())

    connection, response = stream(admin)
    log_line("marker-before")
    assert any("marker-before" in text for name, text in contents(response) if name == "log")
    if change == "demoted":
        demoted = '[[rules]]\nwho = ["admin"]\nmay = ["connect", "send", "receive"]\non = ["$management"]\n'
        (own.directory / "acl.toml").write_text(RULES + demoted + OTHERS)
    else:
        users.change(str(own.directory / "users"), lambda accounts: accounts.__delitem__("admin"))
    own.process.process.send_signal(signal.SIGHUP)
    wait_for(lambda: admin.api("GET", "/logs").status in (401, 403))
    log_line("marker-after")
    later = list(itertools.islice(contents(response), 4))  # the stream of a removed user ends
    connection.close()
    assert len(later) == 4 or change == "removed"
    assert not any("marker-after" in text for _, text in later)


def test_changed_password_ends_sessions(own: Served) -> None:  # A7
    shop = logged_in(own, "shop")
    path = str(own.directory / "users")
    users.change(path, lambda accounts: accounts.update(shop=make("another")))
    own.process.process.send_signal(signal.SIGHUP)
    wait_for(lambda: shop.api("GET", "/session").status == 401)
    assert ApiClient(own.port).login("shop", "another").status == 201


def test_reads_of_messages_and_replays_are_recorded(own: Served) -> None:  # A14
    root = logged_in(own, "root")
    for name in ("orders", "target"):
        root.done("POST", "/queues", {"name": name})
    begin = root.get("/history/range")["last_lsn"]
    root.done("POST", "/queues/orders/publish", {"body": "one"})
    assert len(root.get("/queues/orders/messages")["items"]) == 1
    asked = {"from": begin, "to": root.get("/history/range")["last_lsn"], "queue": "orders", "target": "target"}
    assert root.api("POST", "/history/replay", asked).status == 200
    records = [one for one in own.audit() if one.get("name") == "orders" and one["outcome"] == "done"]
    by_event = {(one["event"], one["operation"]) for one in records}
    assert {("messages.read", "PEEK"), ("messages.read", "REPLAY")} <= by_event
    assert all(one["container"].startswith("cairnmq-console@127.0.0.1-") for one in records)
