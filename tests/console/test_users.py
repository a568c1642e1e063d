"""Tests of the endpoints by which administrators add, change and remove users of the broker's users file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.console.accounts import write_users
from tests.harness.console.browser import ApiClient, Reply, encoded
from tests.harness.console.served import Served
from tests.harness.process import broker


def names(client: ApiClient) -> dict[str, bool]:
    return {one["name"]: one["has-account"] for one in client.get("/users", per_page=100)["items"]}


def error_of(reply: Reply) -> tuple[int, str]:
    """Return the status and the invalid field of an error."""
    return reply.status, reply.value["error"]["field"]


def test_user_is_added_changed_and_removed(served: Served, root: ApiClient) -> None:
    assert root.done("POST", "/users", {"name": "ben", "password": "first"}) == {"name": "ben"}
    assert names(root)["ben"]
    assert error_of(root.api("POST", "/users", {"name": "ben", "password": "again"})) == (409, "name")
    users, described = root.get("/users"), root.get("/openapi.json")
    assert users["accounts"] == {"can_change": True, "denial_reason": None}
    answer = described["paths"]["/users"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    schemas = pytest.importorskip("jsonschema")
    schemas.validate(users, {**answer, "components": described["components"]})
    with pytest.raises(schemas.ValidationError, match="accounts"):
        schemas.validate({**users, "accounts": {}}, {**answer, "components": described["components"]})
    assert "first" not in (served.directory / "users").read_text()
    ben = ApiClient(served.port)
    assert ben.login("ben", "first").status == 403, "the account is valid, and the rules deny management"
    root.done("PATCH", "/users/ben", {"password": "second"})
    assert ApiClient(served.port).login("ben", "first").status == 401
    assert ApiClient(served.port).login("ben", "second").status == 403
    assert root.done("DELETE", "/users/ben") == {"closed": 0}
    assert "ben" not in names(root)
    assert root.api("DELETE", "/users/ben").status == 404
    assert root.api("PATCH", "/users/ben", {"password": "third"}).status == 404
    changes = [one for one in served.audit() if one.get("type") == "user" and one["outcome"] == "done"]
    assert [one["operation"] for one in changes] == ["CREATE", "UPDATE", "DELETE"]
    assert {one["name"] for one in changes} == {"ben"}
    assert "first" not in (served.directory / "audit").read_text()


def test_session_of_a_removed_user_ends(served: Served, root: ApiClient) -> None:
    shop = ApiClient(served.port)
    assert shop.login("shop", "shop-password").status == 201
    assert root.done("DELETE", "/users/shop")["closed"] >= 1
    reply = shop.api("GET", "/queues/any")
    assert (reply.status, reply.condition) in ((401, "cairnmq:login-required"), (503, "cairnmq:broker-unavailable"))
    reply = shop.api("GET", "/queues/any")
    assert (reply.status, reply.condition) == (401, "cairnmq:login-required")
    root.done("POST", "/users", {"name": "shop", "password": "shop-password"})


def test_own_account_is_kept(root: ApiClient) -> None:
    reply = root.api("DELETE", "/users/root")
    assert reply.status == 409
    assert "log in as another user" in reply.value["error"]["text"]


@pytest.mark.parametrize("name", ["", "a b", "a:b", "#a", "*", "anonymous", "a\nroot:x", "x" * 256, "e\u0301"])
def test_invalid_name_is_refused(root: ApiClient, name: str) -> None:
    assert error_of(root.api("POST", "/users", {"name": name, "password": "any"})) == (400, "name")


def test_invalid_password_is_refused(root: ApiClient) -> None:
    for password in ("", "\u0007", "x" * 1025):
        assert error_of(root.api("POST", "/users", {"name": "new", "password": password})) == (400, "password")
    assert error_of(root.api("POST", "/users", {"name": "new"})) == (400, "password")
    assert error_of(root.api("PATCH", "/users/root", {"password": ""})) == (400, "password")


def test_users_are_for_administrators(served: Served, login: Callable[[str], ApiClient]) -> None:
    reader = login("reader")
    before = (served.directory / "users").read_bytes()
    for method, path, body in [
        ("POST", "/users", {"name": "mallory", "password": "any"}),
        ("PATCH", "/users/root", {"password": "mine"}),
        ("DELETE", f"/users/{encoded('root')}", None),
    ]:
        assert reader.api(method, path, body).status == 403
    listed = reader.get("/users")
    assert "has-account" not in listed["items"][0], "names of accounts are not listed"
    assert not listed["accounts"]["can_change"]
    assert "'reader' may not manage" in listed["accounts"]["denial_reason"]
    assert (served.directory / "users").read_bytes() == before


def test_broker_without_a_users_file_says_how_to_get_one(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--http-port", "0") as process:
        client = ApiClient(int(process.wait_for(r"web console at http://127.0.0.1:(\d+)/")[1]))
        assert client.login().status == 201
        reply = client.api("POST", "/users", {"name": "ben", "password": "any"})
        assert (reply.status, reply.condition) == (501, "amqp:not-implemented")
        assert "--users-file" in reply.value["error"]["text"]
        assert "--users-file" in client.get("/users")["accounts"]["denial_reason"]


def test_accounts_are_not_changed_without_access_rules(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {"anna": "first", "mallory": "second"})
    before = (tmp_path / "users").read_bytes()
    with broker(tmp_path / "store", "--users-file", str(tmp_path / "users"), "--http-port", "0") as process:
        client = ApiClient(int(process.wait_for(r"web console at http://127.0.0.1:(\d+)/")[1]))
        assert client.login("mallory", "second").status == 201
        for method, path, body in [
            ("POST", "/users", {"name": "ben", "password": "any"}),
            ("PATCH", "/users/anna", {"password": "mine"}),
            ("DELETE", "/users/anna", None),
        ]:
            reply = client.api(method, path, body)
            assert (reply.status, "--acl-file" in reply.value["error"]["text"]) == (403, True), reply
        assert "--acl-file" in client.get("/users")["accounts"]["denial_reason"]
    assert (tmp_path / "users").read_bytes() == before
