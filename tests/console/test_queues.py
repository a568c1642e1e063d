"""Tests of the endpoints of queues and messages."""

from __future__ import annotations

from tests.harness.console.browser import ApiClient, encoded


def test_queue_is_created_changed_listed_and_deleted(root: ApiClient) -> None:
    name = "orders/ä <b>&?#%2F"
    made = root.done("POST", "/queues", {"name": name, "arguments": {"max-messages": 10}})
    assert made["arguments"]["max-messages"] == 10
    path = f"/queues/{encoded(name)}"
    assert root.get(path)["name"] == name
    assert root.done("PATCH", path, {"arguments": {"max-messages": 20}})["arguments"]["max-messages"] == 20
    listed = root.get("/queues", search="ORDERS/", sort="name", per_page=10)
    assert [row["name"] for row in listed["items"]] == [name]
    assert root.api("POST", "/queues", {"name": name, "arguments": {"max-messages": 1}}).status == 409
    root.done("DELETE", path)
    reply = root.api("GET", path)
    assert (reply.status, reply.condition) == (404, "amqp:not-found")


def test_unknown_endpoint_and_method_are_errors_of_the_api(root: ApiClient) -> None:
    assert root.api("GET", "/nothing").condition == "amqp:not-found"
    assert root.api("GET", "/queues/").condition == root.request("GET", "/api/none").condition == "amqp:not-found"
    allowed_of = {("PUT", "/queues"): "GET, HEAD, POST", ("PATCH", "/session"): "DELETE, GET, HEAD, POST"}
    for (method, path), allowed in allowed_of.items():
        reply = root.api(method, path)
        assert (reply.status, reply.condition) == (405, "amqp:not-allowed")
        assert ", ".join(sorted(reply.headers["allow"].split(", "))) == allowed
        assert f"/api/v1{path} has no method {method}" in reply.value["error"]["text"]
