"""Tests of console security: login, foreign pages, slow or excessive clients, and permissions from the broker."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from cairnmq.base.accounts.guesses import FREE_FAILURES
from tests.harness.console.browser import ApiClient
from tests.harness.console.served import Served


@pytest.mark.parametrize("path", ["/overview", "/queues", "/queues/a/messages", "/session"])
def test_request_without_session_is_refused(served: Served, path: str) -> None:
    reply = ApiClient(served.port).api("GET", path)
    assert (reply.status, reply.condition) == (401, "cairnmq:login-required")


def test_guesses_at_one_address_keep_out_no_other_user(served: Served) -> None:  # A3
    """Guesses from an address end logins there neither of a user who was in before, nor of a new one."""
    client, other = ApiClient(served.port), ApiClient(served.port)
    assert client.login("root", "root-password").status == 201
    statuses = {client.login(f"guess-{number}", "guess").status for number in range(2 * FREE_FAILURES)}
    assert statuses == {401}
    served.process.wait_for(r"127\.0\.0\.1: console login of user 'guess-1' failed: wrong user name or password")
    assert client.login("root", "guess").status == 401
    assert client.login("root", "root-password").status == 201
    assert other.login("shop", "shop-password").status == 201
    for one in (client, other):
        one.api("DELETE", "/session")


def test_failed_login_is_recorded_with_the_address_of_the_browser(served: Served) -> None:  # A14
    assert ApiClient(served.port).login("m\u00adallory", "guess").status == 401
    failed = [one for one in served.audit() if one["event"] == "login.failed"]
    assert failed[-1]["user"] == "mallory"
    assert failed[-1]["address"].startswith("127.0.0.1:")


def test_change_is_recorded_with_the_address_of_the_browser(served: Served, root: ApiClient) -> None:
    assert root.api("POST", "/queues", {"name": "audited"}).status == 201
    change = next(one for one in served.audit() if one["event"] == "change" and one["name"] == "audited")
    assert change["user"] == "root"
    assert change["container"].startswith("cairnmq-console@127.0.0.1-")
    root.done("DELETE", "/queues/audited")


def test_cookie_is_for_this_site_and_not_for_scripts(served: Served) -> None:
    client = ApiClient(served.port)
    cookie = client.login("root", "root-password").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.api("DELETE", "/session").status == 204
    assert client.api("GET", "/session").status == 401, "the session has ended"


def test_read_only_user_gets_the_refusal_of_the_broker(served: Served, login: Callable[[str], ApiClient]) -> None:
    root, reader = login("root"), login("reader")
    root.done("POST", "/queues", {"name": "orders-kept"})
    assert [row["name"] for row in reader.get("/queues")["items"]] == ["orders-kept"]
    for method, path in [("DELETE", "/queues/orders-kept"), ("POST", "/queues/orders-kept/purge")]:
        reply = reader.api(method, path)
        assert (reply.status, reply.condition) == (403, "amqp:unauthorized-access")
        assert "'reader' may not" in reply.value["error"]["text"]
    denied = [one for one in served.audit() if one.get("user") == "reader" and one.get("outcome") == "denied"]
    assert {one["operation"] for one in denied} == {"DELETE", "PURGE"}
    root.done("DELETE", "/queues/orders-kept")


def test_change_without_csrf_token_is_refused(root: ApiClient) -> None:
    for headers in ({}, {"X-CSRF-Token": "guess"}):
        reply = root.request("POST", "/api/v1/queues", {"name": "forged"}, headers, csrf=False)
        assert (reply.status, reply.condition) == (403, "cairnmq:request-refused")
    assert root.get("/queues", search="forged")["total"] == 0


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8161", "127.0.0.1.evil.example", ""])
def test_foreign_host_is_refused(root: ApiClient, host: str) -> None:
    reply = root.request("GET", "/api/v1/session", None, {"Host": host})
    assert reply.status == 421


@pytest.mark.parametrize("host", ["[::1", "[::1]x", "::1]", "[::1]:80]", "[[::1]]"])
def test_host_with_wrong_brackets_is_refused(root: ApiClient, host: str) -> None:  # A10
    assert root.request("GET", "/api/v1/session", None, {"Host": host}).status == 400


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "https://127.0.0.1", "Host": "127.0.0.1"}, {"Origin": "null"},
     {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}],
)  # fmt: skip
def test_change_from_foreign_page_is_refused(root: ApiClient, headers: dict[str, str]) -> None:
    reply = root.request("POST", "/api/v1/queues", {"name": "forged"}, headers)
    assert (reply.status, reply.condition) == (403, "cairnmq:request-refused")


@pytest.mark.parametrize("path", ["/", "/css/base.css", "/api/v1/session", "/nothing", "/api/v1/nothing"])
def test_every_response_has_the_security_headers(root: ApiClient, path: str) -> None:
    headers = root.request("GET", path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    ["/../app.py", "/%2e%2e/app.py", "/css/../../app.py", "/css/%2e%2e/%2e%2e/app.py", "/..%2fapp.py",
     "//etc/passwd", "/css/..%5c..%5capp.py", "/%00", "/css"],
)  # fmt: skip
def test_static_files_have_no_way_out(served: Served, path: str) -> None:
    reply = ApiClient(served.port).request("GET", path)
    assert reply.status in (400, 404)
    assert b"import" not in reply.body


def test_large_and_malformed_bodies_are_refused(root: ApiClient) -> None:
    url = "/api/v1/queues"
    too_long = {"Content-Type": "application/json", "Content-Length": str((1 << 20) + 1)}
    assert root.request("POST", url, None, too_long).status == 413, "before the body has arrived"
    assert root.request("POST", url, {"name": "x" * 5000}).status == 400
    assert root.request("POST", url, ["a"]).status == 400
    assert root.request("POST", url, {"name": "a", "admin": True}).status == 400
    assert root.request("POST", url, {"name": 1}).status == 400
    assert root.request("POST", url, {"name": "a"}, {"Content-Type": "text/plain"}).status == 415
    deep: object = []
    for _ in range(900):
        deep = [deep]
    assert root.request("POST", url, {"name": "a", "arguments": deep}).status == 400
    assert root.request("GET", "/api/v1/queues?page=x").status == 400
    assert root.request("GET", "/api/v1/queues?per_page=100000").status == 400


def test_slow_request_is_cut_off(served: Served) -> None:
    """A connection whose request head is not complete within 10 s is closed, also if bytes arrive."""
    with socket.create_connection(("127.0.0.1", served.port), 30) as sock:
        begun_s = time.monotonic()
        sock.settimeout(1.0)
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        while time.monotonic() - begun_s < 30:
            try:
                sock.sendall(b"a")
                if not sock.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - begun_s < 20


def test_sessions_of_one_user_are_bounded(served: Served) -> None:
    """A login above the limit of sessions per user ends the session that was idle for longest."""
    clients = [ApiClient(served.port) for _ in range(17)]
    for client in clients:
        assert client.login("shop", "shop-password").status == 201
    assert clients[0].api("GET", "/session").status == 401
    for client in clients[1:]:
        assert client.api("DELETE", "/session").status == 204
