"""Each endpoint of the HTTP API, from its description, for each kind of user, against what the access rules permit."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.base.accounts import users
from tests.harness.console.accounts import write_users
from tests.harness.console.browser import ApiClient, Reply
from tests.harness.console.served import Served
from tests.harness.process import DEADLINE_S, broker

from .conftest import RULES

SECRET = "secret-thing"
"""In the name of each entity and content that only the administrator may see."""
NOBODY = 'who = ["nobody", "fallen"]\nmay = ["connect", "send", "receive"]\non = ["$management"]\n'
DENIED = '["monitor", "browse", "send", "receive", "configure", "create"]'
OPERATOR = (
    f'[[rules]]\nwho = ["operator"]\nmay_not = {DENIED}\non = ["secret-*"]\n'
    '[[rules]]\nwho = ["operator"]\nmay = ["connect", "monitor", "browse", "send", "receive", "configure", "create"]\n'
)
DEMOTED = f"{RULES}{OPERATOR}[[rules]]\n{NOBODY}"
FIRST = f'{RULES}{OPERATOR}[[rules]]\nwho = ["fallen", "removed"]\nmay = ["*"]\n[[rules]]\n{NOBODY}'
OPEN = {"GET /openapi.json", "GET /session", "POST /session", "DELETE /session"}
"""Operations on the session itself, and the description."""
NEEDS_MANAGE = {
    "GET /journal", "GET /logs", "GET /configuration", "POST /users", "PATCH /users/{name}", "DELETE /users/{name}",
    "DELETE /connections/{id}", "DELETE /links/{id}", "POST /transactions/{id}/decide", "DELETE /transactions/{id}",
    "GET /history/contents", "GET /history/difference",
}  # fmt: skip
"""Operations that management over AMQP, or the console's own data, permit to administrators only."""
REFUSED = (403, 404)
VALUES: dict[str, Any] = {
    "name": SECRET, "queue": SECRET, "target": SECRET, "exchange": SECRET, "password": "a long password", "body": "x",
    "at": "end", "from": "1", "to": "end", "action": "delete", "ids": [1], "user": "root", "message_id": SECRET,
    "arguments": {}, "exchange-type": "fanout", "commit": True, "key": "", "reason": "none",
}  # fmt: skip


class Asked(NamedTuple):
    """One operation of the description."""

    method: str
    path: str
    operation: dict[str, Any]

    @property
    def text(self) -> str:
        return f"{self.method} {self.path}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("authority")
    (place / "acl.toml").write_text(FIRST)
    names = ("root", "reader", "operator", "nobody", "fallen", "removed")
    write_users(place / "users", {name: f"{name}-password" for name in names})
    options = ("--users-file", str(place / "users"), "--acl-file", str(place / "acl.toml"), "--http-port", "0")
    with broker(place / "store", *options, "--log-file", str(place / "log"), "--allow-insecure-auth") as process:
        served = Served(process, int(process.wait_for(r"web console at http://127.0.0.1:(\d+)/")[1]), place)
        root = logged_in(served, "root")
        root.done("POST", "/queues", {"name": SECRET})
        root.done("POST", "/exchanges", {"name": f"{SECRET}-exchange", "exchange-type": "fanout"})
        root.done("POST", "/bindings", {"exchange": f"{SECRET}-exchange", "queue": SECRET})
        connection = BlockingConnection(
            f"127.0.0.1:{process.port}", timeout=DEADLINE_S, user="root", password="root-password",
        )  # fmt: skip
        connection.create_sender(SECRET).send(Message(SECRET, id=SECRET, correlation_id=SECRET, durable=True))
        yield served
        connection.close()


def logged_in(served: Served, user: str) -> ApiClient:
    client = ApiClient(served.port)
    reply = client.login(user, f"{user}-password")
    assert reply.status == 201, reply
    return client


@pytest.fixture(scope="module")
def clients(guarded: Served) -> dict[str, ApiClient]:
    """Return a session of each kind of user; the accounts of two have changed since their logins."""
    found = {name: logged_in(guarded, name) for name in ("reader", "operator", "nobody", "fallen", "removed")}
    assert found["fallen"].get("/logs")["items"]
    users.change(str(guarded.directory / "users"), lambda accounts: accounts.__delitem__("removed"))
    (guarded.directory / "acl.toml").write_text(DEMOTED)
    guarded.process.process.send_signal(signal.SIGHUP)
    until_s = time.monotonic() + DEADLINE_S
    while (found["fallen"].api("GET", "/logs").status, found["removed"].api("GET", "/logs").status) != (403, 401):
        assert time.monotonic() < until_s
    return {**found, "stranger": ApiClient(guarded.port)}


def description(served: Served) -> list[Asked]:
    paths = json.loads(ApiClient(served.port).request("GET", "/api/v1/openapi.json").body)["paths"]
    return [Asked(method.upper(), path, one) for path, methods in paths.items() for method, one in methods.items()]


def send(client: ApiClient, asked: Asked) -> Reply:
    """Send a complete request for the operation, about the administrator's entities."""
    parameters = [one for one in asked.operation.get("parameters", ()) if one.get("in") == "query"]
    query = {
        one["name"]: VALUES[one["name"]] for one in parameters
        if one["name"] in VALUES and (one.get("required") or one["name"] in ("queue", "message_id", "user"))
    }  # fmt: skip
    content = asked.operation.get("requestBody", {}).get("content", {}).get("application/json")
    body = None
    if content is not None:
        body = {name: VALUES[name] for name in content["schema"].get("properties", ()) if name in VALUES}
        if "/publish" in asked.path:
            body = {"body": "x"}
    ids = {"name": SECRET, "id": f"{SECRET}-exchange%2F{SECRET}%2F" if "/bindings" in asked.path else "1"}
    path = re.sub(r"\{(\w+)\}", lambda found: ids.get(found[1], "1"), asked.path)
    return client.api(asked.method, path, body, **query)


def test_no_endpoint_answers_without_a_session(guarded: Served, clients: dict[str, ApiClient]) -> None:  # A5
    """Strangers and removed users get 401 from every operation but those of the session itself."""
    for user in ("stranger", "removed"):
        for asked in description(guarded):
            if asked.text not in OPEN:
                assert send(clients[user], asked).status == 401, (user, asked.text)


@pytest.mark.parametrize("user", ["nobody", "fallen", "operator"])
def test_no_answer_shows_what_the_rules_hide(guarded: Served, clients: dict[str, ApiClient], user: str) -> None:  # A5
    """No status, name or text depends on entities and messages that the rules hide from the user."""
    for asked in description(guarded):
        if asked.text in OPEN or asked.path == "/events":
            continue
        reply = send(clients[user], asked)
        assert reply.status < 500, (asked.text, reply)
        if asked.method != "GET":
            assert reply.status in REFUSED, (asked.text, reply)
        shown = reply.body.decode().replace(f"{SECRET}'", "").replace(f"id={SECRET}", "")
        at = shown.find(SECRET)
        assert reply.status != 200 or at < 0, (asked.text, shown[max(0, at - 80) : at + 80])


@pytest.mark.parametrize("user", ["reader", "nobody", "fallen", "operator"])
def test_operations_of_administrators_are_refused(
    guarded: Served, clients: dict[str, ApiClient], user: str
) -> None:  # A5
    for asked in description(guarded):
        if asked.text in NEEDS_MANAGE:
            client = clients[user]
            without_queue = Asked(asked.method, asked.path, {**asked.operation, "parameters": [
                one for one in asked.operation.get("parameters", ()) if one.get("name") != "queue"
            ]})  # fmt: skip
            assert send(client, without_queue).status in (403, 404), (asked.text, send(client, without_queue))


def test_reader_changes_nothing(guarded: Served, clients: dict[str, ApiClient]) -> None:  # A5
    for asked in description(guarded):
        if asked.method != "GET" and asked.text not in OPEN:
            reply = send(clients["reader"], asked)
            assert reply.status in REFUSED or "reader' may not" in reply.body.decode(), (asked.text, reply)
    root = logged_in(guarded, "root")
    assert root.get(f"/queues/{SECRET}")["messages"] == 1
    assert f"{SECRET}-exchange" in [one["name"] for one in root.get("/exchanges")["items"]]


def test_administrator_gets_an_answer_of_each_operation(guarded: Served) -> None:  # A5
    """The requests of these tests are complete: none is refused for its form."""
    root = logged_in(guarded, "root")
    for asked in description(guarded):
        if asked.method == "GET" and asked.text not in OPEN and asked.path != "/events":
            reply = send(root, asked)
            assert reply.status in (200, 404, 409, 501), (asked.text, reply)
            assert reply.status != 404 or "{id}" in asked.path or "{position}" in asked.path or "{name}" in asked.path
