"""Tests of the endpoints of all console pages with a real broker and real traffic."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import pytest

from cairnmq.console.api.sync_latency import SyncLatency
from tests.harness.console.browser import ApiClient, encoded
from tests.harness.console.served import Served
from tests.harness.process import DEADLINE_S

from .http_page import PAGE, page


def publish(client: ApiClient, queue: str, body: str, **more: object) -> None:
    reply = client.done("POST", f"/queues/{encoded(queue)}/publish", {"body": body, **more})
    assert reply == {"outcome": "accepted"}


def positions(client: ApiClient, queue: str) -> list[int]:
    return [one["position"] for one in client.get(f"/queues/{encoded(queue)}/messages")["items"]]


@pytest.fixture
def queue(root: ApiClient) -> str:
    """Create an empty queue with a name that needs encoding, and return the name."""
    name = "orders/<script>alert(1)</script>"
    root.api("DELETE", f"/queues/{encoded(name)}")
    root.done("POST", "/queues", {"name": name})
    return name


def test_overview_has_figures_and_samples(root: ApiClient, queue: str) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not (found := root.get("/overview"))["totals"].get("queues"):
        assert time.monotonic() < until_s, "the next sample has the queue"
    assert found["broker"]["version"]
    assert found["samples"][-1]["messages"] == found["totals"]["messages"]
    assert found["disk"]["free_bytes"] > 0
    assert root.get(f"/queues/{encoded(queue)}/rates")["items"] is not None


def test_messages_are_shown_without_being_consumed(root: ApiClient, queue: str) -> None:
    publish(root, queue, "<b>first</b>", properties={"message-id": "m-1"}, application_properties={"color": "red"})
    publish(root, queue, "//8=", encoding="base64", key="a.b", content_type="application/octet-stream")
    path = f"/queues/{encoded(queue)}"
    first, second = root.get(f"{path}/messages")["items"]
    assert first["body"] == "<b>first</b>"
    assert first["properties"]["message-id"] == "m-1"
    assert first["application-properties"] == {"color": "red"}
    assert (second["body"], second["body-encoding"]) == ("//8=", "base64")
    assert second["properties"]["subject"] == "a.b"
    assert root.get(f"{path}/messages/{first['position']}")["body"] == "<b>first</b>"
    assert root.api("GET", f"{path}/messages/999999").status == 404
    for text in ("RED", "m-1", "FIRST"):
        assert [one["position"] for one in root.get(f"{path}/messages", search=text)["items"]] == [first["position"]]
    assert root.get(f"{path}/messages", search="nothing like it")["items"] == []
    assert root.get(path)["messages"] == 2
    assert root.done("POST", f"{path}/purge") == {"purged": 2}


def test_selected_messages_are_moved_and_the_rest_stays_in_order(root: ApiClient, queue: str) -> None:
    root.done("POST", "/queues", {"name": "orders-moved"})
    for number in range(5):
        publish(root, queue, str(number))
    path = f"/queues/{encoded(queue)}"
    there = positions(root, queue)
    found = root.done(
        "POST", f"{path}/messages/actions", {"action": "move", "ids": [there[3], there[1]], "target": "orders-moved"}
    )
    assert found == {"done": 2, "failed": []}
    assert [one["body"] for one in root.get(f"{path}/messages")["items"]] == ["0", "2", "4"]
    assert [one["body"] for one in root.get("/queues/orders-moved/messages")["items"]] == ["1", "3"]
    again = root.done(
        "POST", f"{path}/messages/actions", {"action": "move", "ids": [there[1]], "target": "orders-moved"}
    )
    assert again["done"] == 0
    assert again["failed"]
    assert root.get(path)["unsettled"] == 0
    deleted = root.done("POST", f"{path}/messages/actions", {"action": "delete", "ids": [there[2], there[3]]})
    assert deleted["done"] == 1
    assert [one["body"] for one in root.get(f"{path}/messages")["items"]] == ["0", "4"]
    assert root.done("POST", f"{path}/move", {"target": "orders-moved", "count": 1}) == {"moved": 1}
    assert root.get(path)["messages"] == 1
    root.done("DELETE", "/queues/orders-moved")


def test_move_creates_no_target_unless_asked(root: ApiClient, queue: str) -> None:
    publish(root, queue, "one")
    path = f"/queues/{encoded(queue)}"
    ids = positions(root, queue)
    selected = {"action": "move", "ids": ids, "target": "orders-nowhere"}
    for address, body in (("move", {"target": "orders-nowhere"}), ("messages/actions", selected)):
        refused = root.api("POST", f"{path}/{address}", body)
        assert (refused.status, b"there is no queue or exchange 'orders-nowhere'" in refused.body) == (404, True)
    assert root.api("GET", "/queues/orders-nowhere").status == 404
    assert root.done("POST", f"{path}/messages/actions", {**selected, "create": True}) == {"done": 1, "failed": []}
    assert root.get("/queues/orders-nowhere")["messages"] == 1
    root.done("DELETE", "/queues/orders-nowhere")


def test_retry_into_a_deleted_queue_keeps_the_message(root: ApiClient, queue: str) -> None:
    root.done("POST", "/queues", {"name": "orders-short-lived", "arguments": {
        "message-ttl-ms": 1, "expiry-address": queue
    }})  # fmt: skip
    publish(root, "orders-short-lived", "late")
    deadline = time.monotonic() + DEADLINE_S
    while not (there := positions(root, queue)):
        assert time.monotonic() < deadline, "the message did not expire"
    (position,) = there
    root.done("DELETE", "/queues/orders-short-lived")
    path, asked = f"/queues/{encoded(queue)}/messages/actions", {"action": "retry", "ids": [position]}
    found = root.done("POST", path, asked)
    text = "1 message not moved: there is no queue or exchange 'orders-short-lived'"
    assert found == {"done": 0, "failed": [{"id": None, "text": text}]}
    assert positions(root, queue) == [position]
    assert root.done("POST", path, {**asked, "create": True})["done"] == 1
    root.done("DELETE", "/queues/orders-short-lived")


def test_retry_without_origin_is_reported(root: ApiClient, queue: str) -> None:
    publish(root, queue, "never dead-lettered")
    (position,) = positions(root, queue)
    found = root.done("POST", f"/queues/{encoded(queue)}/messages/actions", {"action": "retry", "ids": [position]})
    assert found["done"] == 0
    assert "not dead-lettered" in found["failed"][0]["text"]


def test_reach_is_what_a_message_reaches(root: ApiClient, queue: str) -> None:
    root.done("POST", "/exchanges", {"name": "news", "exchange-type": "topic"})
    bound = root.done("POST", "/bindings", {"exchange": "news", "queue": queue, "key": "sport.#"})
    assert root.get("/exchanges/news/reach", key="sport.tennis")["items"] == [queue]
    assert root.get("/exchanges/news/reach", key="weather")["items"] == []
    root.done("POST", "/exchanges/news/publish", {"body": "15:40", "key": "sport.tennis"})
    assert root.get(f"/queues/{encoded(queue)}")["messages"] == 1
    assert root.get("/bindings", queue=queue)["total"] == 1
    root.done("DELETE", f"/bindings/{encoded(bound['identity'])}")
    assert root.get("/bindings", queue=queue)["total"] == 0
    root.done("DELETE", "/exchanges/news")


def test_publishing_needs_the_right_to_send(login: Callable[[str], ApiClient], root: ApiClient, queue: str) -> None:
    reader = login("reader")
    reply = reader.api("POST", f"/queues/{encoded(queue)}/publish", {"body": "no"})
    assert reply.status in (403, 409)
    assert "may not send" in reply.value["error"]["text"]
    assert root.get(f"/queues/{encoded(queue)}")["messages"] == 0
    assert reader.get("/queues")["total"] >= 1, "the session goes on"


def test_connection_is_closed_and_console_says_so(login: Callable[[str], ApiClient], root: ApiClient) -> None:
    login("shop")
    (found,) = [one for one in root.get("/connections")["items"] if one["user"] == "shop"]
    until_s = time.monotonic() + DEADLINE_S
    links: list[dict[str, Any]] = []
    while len(links) < 2 or not all(one["open"] for one in links):
        links = root.get("/links", connection=found["identity"])["items"]
        assert time.monotonic() < until_s, "the links of the session are open"
    assert {one["role"] for one in links if one["credit"] is not None} == {"sender", "receiver"}
    assert found["idle-seconds"] >= 0
    root.done("DELETE", f"/connections/{encoded(found['identity'])}", reason="maintenance")
    while any(one["user"] == "shop" for one in root.get("/connections")["items"]):
        assert time.monotonic() < until_s, "the connection ends when its client has answered"


def test_other_pages_have_data(root: ApiClient) -> None:
    assert root.get("/transactions")["items"] == []
    assert root.get("/cluster") == {"enabled": False, "members": []}
    assert set(root.get("/federation")) >= {"federated_queues", "downstreams", "connectors", "routers"}
    assert "root" in [one["name"] for one in root.get("/users")["items"]]
    assert all(one["allowed"] for one in root.get("/access", user="root")["may"])
    shop = {one["action"]: one["allowed"] for one in root.get("/access", user="shop", name="orders-1")["may"]}
    assert shop["send"]
    assert not shop["delete"]
    options = {one["name"]: one for one in root.get("/configuration", per_page=1000)["items"]}
    assert options["http-port"]["source"] == "command line"
    assert root.api("GET", "/logs").status == 501


def test_pages_for_administrators_are_refused_to_others(login: Callable[[str], ApiClient]) -> None:
    reader = login("reader")
    for path in ("/configuration", "/logs", "/journal", "/history/contents?at=end", "/access?user=root"):
        reply = reader.api("GET", path)
        assert (path, reply.status) == (path, 403)


def test_history_shows_the_life_of_a_message(root: ApiClient, queue: str) -> None:
    publish(root, queue, "remembered", properties={"message-id": "life-1"})
    before = root.get("/history/range")
    assert before["first_lsn"] < before["last_lsn"]
    path = f"/queues/{encoded(queue)}"
    root.done("POST", f"{path}/purge")
    then = root.get("/history/contents", at=before["last_lsn"], queue=queue)
    assert [one["message_id"] for one in then["items"]] == ["life-1"]
    assert root.get("/history/contents", at="end", queue=queue)["items"] == []
    changed = root.get("/history/difference", **{"from": before["last_lsn"], "to": "end", "queue": queue})
    assert [(one["change"], one["message_id"]) for one in changed["items"]] == [("removed", "life-1")]
    (life,) = root.get("/history/trace", message_id="life-1", queue=queue)["messages"]
    assert root.get("/history/trace", message_id="life-1")["messages"] == [life]
    assert life["events"][0]["text"] == f"{life['message']['size']} bytes"
    root.done("POST", "/queues", {"name": "another"})
    assert root.get("/history/trace", message_id="life-1", queue="another")["messages"] == []
    root.done("DELETE", "/queues/another")
    assert len(life["events"]) >= 2
    assert {event["queue"] for event in life["events"]} >= {queue}
    assert root.api("GET", "/history/trace", message_id="nobody").value["messages"] == []
    assert root.api("GET", "/history/contents", at="yesterday").status == 409


def test_difference_names_messages_as_the_description_states(root: ApiClient, queue: str) -> None:
    schemas = pytest.importorskip("jsonschema")
    publish(root, queue, "leaves", properties={"message-id": "leaves-1"})
    begin = root.get("/history/range")["last_lsn"]
    root.done("POST", f"/queues/{encoded(queue)}/purge")
    publish(root, queue, "arrives", properties={"message-id": "<i>arrives-1</i>"})
    publish(root, queue, "has no ID")
    changed = root.get("/history/difference", **{"from": begin, "to": "end", "queue": queue})
    found = [(one["change"], one["message_id"]) for one in changed["items"]]
    assert found == [("added", "<i>arrives-1</i>"), ("added", None), ("removed", "leaves-1")]
    described = root.get("/openapi.json")["paths"]
    for path, answer in (
        ("/history/difference", changed),
        ("/history/contents", root.get("/history/contents", at="end", queue=queue)),
    ):
        content = described[path]["get"]["responses"]["200"]["content"]["application/json"]
        schemas.validate(answer, content["schema"])
        assert "message_id" in content["schema"]["properties"]["items"]["items"]["required"]


def test_replay_sends_the_messages_of_a_range_again(root: ApiClient, queue: str) -> None:
    root.done("POST", "/queues", {"name": "replayed"})
    publish(root, queue, "before")
    begin = root.get("/history/range")["last_lsn"]
    for number in range(3):
        publish(root, queue, f"in {number}", application_properties={"number": number})
    end = root.get("/history/range")["last_lsn"]
    publish(root, queue, "after")
    asked = {"from": begin, "to": end, "queue": queue, "target": "replayed"}
    found = root.done("POST", "/history/replay", asked)
    assert (found["sent"], found["refused"], found["next"], found["complete"]) == (3, 0, None, True)
    items = root.get("/queues/replayed/messages")["items"]
    assert [one["body"] for one in items] == ["in 0", "in 1", "in 2"]
    assert [one["application-properties"]["number"] for one in items] == [0, 1, 2]
    found = root.done("POST", "/history/replay", {**asked, "from": str(begin), "count": 1})
    assert (found["sent"], found["complete"]) == (1, False)
    assert root.done("POST", "/history/replay", {**asked, "from": found["next"]})["sent"] == 2
    misspelled = {**asked, "target": "replaid"}
    refused = root.api("POST", "/history/replay", misspelled)
    assert refused.status == 409
    assert "replaid: there is no such queue or exchange" in refused.value["error"]["text"]
    assert root.api("GET", "/queues/replaid").status == 404
    assert root.done("POST", "/history/replay", {**misspelled, "create": True})["sent"] == 3
    root.done("DELETE", "/queues/replaid")
    root.done("DELETE", "/queues/replayed")


def test_replay_needs_the_rights_to_browse_and_to_send(
    login: Callable[[str], ApiClient], root: ApiClient, queue: str
) -> None:
    publish(root, queue, "not for all")
    asked = {"from": 0, "to": "end", "queue": queue, "target": queue}
    reply = login("reader").api("POST", "/history/replay", asked)
    assert reply.status == 409
    assert "may not send" in reply.value["error"]["text"]
    root.done("POST", "/queues", {"name": "secret"})
    reply = login("shop").api("POST", "/history/replay", {**asked, "queue": "secret", "target": "orders-1"})
    assert (reply.status, reply.condition) == (403, "amqp:unauthorized-access")
    assert root.get(f"/queues/{encoded(queue)}")["messages"] == 1
    assert root.api("POST", "/history/replay", {**asked, "from": {}}).status == 400
    assert root.api("POST", "/history/replay", {**asked, "target": ""}).status == 400
    assert root.api("POST", "/history/replay", {**asked, "from": "end", "to": 0}).status == 409
    root.done("DELETE", "/queues/secret")


def test_overview_has_the_latency_of_syncs(root: ApiClient, queue: str) -> None:
    publish(root, queue, "durable")
    until_s = time.monotonic() + DEADLINE_S
    while not root.get("/overview")["fsync"]:
        assert time.monotonic() < until_s, "the next sample shows the sync"
    found = root.get("/overview")
    assert found["fsync"]["count"] >= 1
    assert 0 < found["fsync"]["p50_ms"] <= found["fsync"]["p99_ms"]
    assert any(one["fsync_ms"] for one in found["samples"])


def test_latency_of_syncs_is_that_of_the_last_interval() -> None:
    syncs = SyncLatency()
    store = {"journal-fsync-bounds": [0.001, 0.01], "journal-fsync-counts": [10, 0, 0], "journal-fsync-seconds": 0.005}
    assert syncs.add(store) == 0.5
    assert (syncs.latest["p50_ms"], syncs.latest["p99_ms"]) == (0.5, 0.99)
    assert syncs.add(store) is None, "no sync since"
    assert syncs.latest["count"] == 10
    assert syncs.add({**store, "journal-fsync-counts": [10, 4, 0], "journal-fsync-seconds": 0.025}) == 5.0
    assert syncs.latest["p50_ms"] == 5.5
    assert syncs.add({**store, "journal-fsync-counts": [0, 0, 2], "journal-fsync-seconds": 4.0}) == 2000.0
    assert syncs.latest["p99_ms"] == 10.0, "the last bound; and the broker has started again"
    assert SyncLatency().add({}) is None, "a store without a journal"


def test_journal_map_has_containers_and_commands(root: ApiClient, served: Served) -> None:
    root.done("POST", "/queues", {"name": "keeps-the-log"})
    publish(root, "keeps-the-log", "first of all")
    found = root.get("/journal")
    assert found["containers"]
    assert found["used_bytes"] >= found["live_bytes"]
    commands = {one["command"]: one["text"] for one in found["explanation"] if one.get("command")}
    url = f"amqp://127.0.0.1:{served.process.port}"
    assert commands[f"cairnmq ctl --url {url} queues purge keeps-the-log"] == "To release the oldest container:"  # U6
    assert commands[f"cairnmq ctl --url {url} queues peek keeps-the-log"] == "To see what holds the oldest container:"
    released = [one for one, text in commands.items() if "release" in text]
    assert released
    assert not any("peek" in one for one in released)
    root.done("DELETE", "/queues/keeps-the-log")


def test_events_arrive(root: ApiClient, served: Served) -> None:
    connection = HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("GET", "/api/v1/events", headers={"Cookie": root.cookie})
    response = connection.getresponse()
    assert response.getheader("content-type", "").startswith("text/event-stream")
    lines = [response.readline() for _ in range(4)]
    assert b"event: overview\n" in lines
    connection.close()


def test_page_lists_what_the_server_accepts(root: ApiClient) -> None:
    """The page lists each method, query parameter and body key, which errors for unknown names also list."""
    known = re.compile(r"unknown (?:query parameter|key) 'surprise' \(known: (.*)\)")
    described = root.get("/openapi.json")["paths"]
    methods: dict[str, set[str]] = defaultdict(set)
    for method, path, cell in re.findall(r"^\| ([A-Z]+) \| `(/[^`]+)` \| [^|]* \| (.*) \|$", PAGE.read_text(), re.M):
        methods[path].add(method)
        place = "/api/v1" + re.sub(r"\{\w+\}", "nothing", path)
        accepted: set[str] = set()
        refusals = []
        if path != "/session" or method == "GET":
            refusals.append(root.request(method, f"{place}?surprise=1"))
        if "requestBody" in described[path][method.lower()]:
            refusals.append(root.request(method, place, {"surprise": 1}))
        for reply in refusals:
            assert reply.status == 400, (method, path, reply)
            (names,) = known.findall(reply.value["error"]["text"])
            accepted |= set(names.split(", ")) - {"none"}
        assert accepted == set(re.findall(r"`([^`]+)`", cell)), (method, path)
    assert methods == {path: {method.upper() for method in each} for path, each in described.items()}
    for path in methods:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            place = re.sub(r"\{\w+\}", "nothing", path)
            if any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one), place) for one in methods if method in methods[one]):
                continue
            reply = root.request(method, f"/api/v1{place}")
            allowed = set(reply.headers["allow"].split(", ")) - {"HEAD"}
            assert (reply.status, allowed) == (405, methods[path]), (method, path)


def test_description_is_valid_and_complete(root: ApiClient) -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    found = ApiClient(root.port).get("/openapi.json")
    validator.validate(found)
    assert PAGE.read_text() == page(), "python -m tests.console.http_page writes the table"
