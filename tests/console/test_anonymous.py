"""Tests of the console of a broker without users (U6): it needs no login on this machine, and opens nothing else."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest

from tests.harness.console.accounts import write_users
from tests.harness.console.browser import ApiClient
from tests.harness.process import DEADLINE_S, broker

ANONYMOUS = "cairnmq:anonymous-login"


def request(port: int, method: str, headers: dict[str, str], body: str = "") -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    connection.request(method, "/api/v1/session", body, headers)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    return answer.status, found


def test_console_of_broker_without_users_needs_no_login_on_this_machine(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--http-port", "0") as running:
        port = int(running.wait_for(r"web console at http://127\.0\.0\.1:(\d+)/")[1])
        client = ApiClient(port)
        assert client.api("GET", "/session").condition == ANONYMOUS
        assert client.api("GET", "/queues").status == 401
        assert client.login("", "").status == 201
        assert client.api("GET", "/queues").status == 200

        own = {"Content-Type": "application/json"}
        for headers, status in (
            ({"Host": "attacker.example"}, 421),  # DNS rebinding
            ({"Host": f"attacker.example:{port}", "Origin": f"http://attacker.example:{port}"}, 421),
            ({"Origin": "http://attacker.example"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Content-Type": "text/plain"}, 415),  # a form of another page, which the browser sends without asking
        ):
            found = request(port, "POST", own | headers, "{}")
            assert found[0] == status, (headers, found)


@pytest.mark.parametrize("options", [("--users-file", "users"), ("--users-file", "users", "--anonymous"),
                                     ("--http-host", "proxied.example"),
                                     ("--http-listen", "0.0.0.0", "--http-insecure")])  # fmt: skip
def test_console_requires_a_login_otherwise(tmp_path: Path, options: tuple[str, ...]) -> None:
    write_users(tmp_path / "users", {"anna": "quiet-stones"})
    given = [str(tmp_path / "users") if word == "users" else word for word in options]
    with broker(tmp_path / "store", "--http-port", "0", *given) as running:
        port = int(running.wait_for(r"web console at http://[\d.]+:(\d+)/")[1])
        assert ApiClient(port).api("GET", "/session").condition == "cairnmq:login-required"
