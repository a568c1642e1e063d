"""Tests of the trace of a message across two brokers, one of which has a federated queue of the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection, SyncRequestResponse

from cairnmq.console.history.places import labels_of
from tests.harness.clients.peers import Peer
from tests.harness.console.accounts import write_users
from tests.harness.console.browser import ApiClient
from tests.harness.console.own_process import console_process
from tests.harness.console.site import create
from tests.harness.process import DEADLINE_S, broker

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

RULES = """
[[rules]]
who = ["root"]
may = ["*"]

[[rules]]
who = ["shop", "guest"]
may = ["connect", "send", "receive"]
on = ["$management"]

[[rules]]
who = ["shop"]
may = ["browse", "monitor"]
on = ["orders*"]
"""
RETURNS = "orders.returns"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Yield the port of a console at the downstream site that also reads the store of the upstream site."""
    directory = tmp_path_factory.mktemp("sites")
    write_users(directory / "users", {name: f"{name}-password" for name in ("root", "shop", "guest")})
    (directory / "acl.toml").write_text(RULES)
    (directory / "nothing").mkdir()
    with ExitStack() as stack:
        source = stack.enter_context(broker(directory / "frankfurt"))
        copy = stack.enter_context(
            broker(
                directory / "shop", "--users-file", str(directory / "users"), "--acl-file", str(directory / "acl.toml"),
                "--allow-insecure-auth", "--connect-to", f"amqp://127.0.0.1:{source.port}?name=frankfurt",
            )
        )  # fmt: skip
        _send_at_source(source.port)
        _copy_queue(copy.port)
        options = ["--url", f"amqp://127.0.0.1:{copy.port}", "--store-dir", str(directory / "shop")]
        for name in ("frankfurt", "nothing"):
            options += ["--also", str(directory / name)]
        yield stack.enter_context(console_process(*options))


def _send_at_source(port: int) -> None:
    peer = Peer(port)
    for queue, name in ((RETURNS, "m1"), ("private", "m1"), ("private", "only there")):
        peer.send(peer.sender(queue), Message(id=name, body=name, correlation_id=f"c-{name}", durable=True))
    peer.close()


def _copy_queue(port: int) -> None:
    url = f"amqp://127.0.0.1:{port}"
    connection = BlockingConnection(
        url, timeout=DEADLINE_S, user="root", password="root-password", allow_insecure_mechs=True
    )
    with closing(connection):
        create(SyncRequestResponse(connection, "$management"), "federated-queue", RETURNS, connector="frankfurt")


@pytest.fixture
def login(port: int) -> Callable[[str], ApiClient]:
    def log_in(user: str) -> ApiClient:
        client = ApiClient(port)
        assert client.login(user, f"{user}-password").status == 201
        return client

    return log_in


def stores(found: Any) -> list[str | None]:
    return [life["store"] for life in found["messages"]]


def traced(client: ApiClient, count: int, **criterion: str) -> Any:
    """Wait until the trace has *count* lifetimes, and return it."""
    until_s = time.monotonic() + DEADLINE_S
    while len((found := client.get("/history/trace", **criterion))["messages"]) != count:
        assert time.monotonic() < until_s, found
    return found


def test_trace_joins_the_lifetimes_of_both_sites(login: Callable[[str], ApiClient]) -> None:
    schemas = pytest.importorskip("jsonschema")
    root = login("root")
    found = traced(root, 3, message_id="m1")
    assert stores(found) == [None, "frankfurt", "frankfurt"]
    assert all(event["store"] == life["store"] for life in found["messages"] for event in life["events"])
    here, there, private = [{event["queue"] for event in life["events"]} - {None} for life in found["messages"]]
    assert (here, there, private) == ({RETURNS}, {RETURNS}, {"private"})
    assert found["found"] == 3
    assert traced(root, 3, correlation_id="c-m1") == found
    by_id = traced(root, 3, id=found["messages"][0]["message"]["ids"][0])
    assert by_id == found
    [remark] = found["remarks"]
    assert remark.startswith("nothing: ")
    answers = root.get("/openapi.json")["paths"]["/history/trace"]["get"]["responses"]
    schemas.validate(found, answers["200"]["content"]["application/json"]["schema"])


def test_message_of_the_other_site_only_is_for_administrators(login: Callable[[str], ApiClient]) -> None:
    assert stores(traced(login("root"), 1, message_id="only there")) == ["frankfurt"]
    for user in ("shop", "guest"):
        found = login(user).get("/history/trace", message_id="only there")
        assert (found["messages"], found["found"], found["remarks"]) == ([], 0, [])


def test_user_sees_the_queues_that_the_rules_of_this_broker_name(login: Callable[[str], ApiClient]) -> None:
    traced(login("root"), 3, message_id="m1")
    found = login("shop").get("/history/trace", message_id="m1")
    assert stores(found) == [None, "frankfurt"]
    assert {event["queue"] for life in found["messages"] for event in life["events"]} <= {RETURNS, None}
    assert not any("left out" in one for one in found["remarks"])  # A5


def test_user_without_the_right_to_browse_learns_of_no_message(login: Callable[[str], ApiClient]) -> None:
    traced(login("root"), 3, message_id="m1")
    known, unknown = (login("guest").api("GET", "/history/trace", message_id=name) for name in ("m1", "no such"))
    assert (known.status, known.body) == (unknown.status, unknown.body)
    assert known.value == {"messages": [], "found": 0, "remarks": []}
    assert ApiClient(login("guest").port).api("GET", "/history/trace", message_id="m1").status == 401


def test_label_is_the_shortest_end_of_a_path_that_is_unique(tmp_path: Path) -> None:
    own = "/var/lib/cairnmq"
    others = ["/mnt/frankfurt/cairnmq", "/mnt/berlin", "/srv/berlin/", "/mnt/a/x/data", "/mnt/b/x/data", own]
    assert labels_of(others, own) == {
        "frankfurt/cairnmq": others[0], "mnt/berlin": others[1], "srv/berlin": others[2], "a/x/data": others[3],
        "b/x/data": others[4],
    }  # fmt: skip
    assert labels_of(["data", "data/"], "/other") == {"data": "data/"}
