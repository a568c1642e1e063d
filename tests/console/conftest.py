"""Fixtures: one broker with a console, users and access rules for all tests of a module."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.harness.console.accounts import write_users
from tests.harness.console.browser import ApiClient
from tests.harness.console.served import Served
from tests.harness.process import DEADLINE_S, broker

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

RULES = """
[[rules]]
who = ["root"]
may = ["*"]

[[rules]]
who = ["reader"]
may = ["connect", "monitor", "browse"]

[[rules]]
who = ["shop"]
may = ["connect", "send", "receive", "browse", "monitor"]
on = ["orders*"]

[[rules]]
who = ["reader", "shop"]
may = ["send", "receive"]
on = ["$management"]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("console")
    (directory / "acl.toml").write_text(RULES)
    write_users(directory / "users", {name: f"{name}-password" for name in ("root", "reader", "shop")})
    options = (
        "--users-file", str(directory / "users"), "--acl-file", str(directory / "acl.toml"),
        "--audit-file", str(directory / "audit"), "--http-port", "0", "--archive-dir", str(directory / "archive"),
    )  # fmt: skip
    with broker(directory / "store", *options) as process:
        yield Served(process, int(process.wait_for(r"web console at http://127.0.0.1:(\d+)/")[1]), directory)


@pytest.fixture
def login(served: Served) -> Iterator[Callable[[str], ApiClient]]:
    """Yield a function that logs a user in; log out after the test."""
    clients = []

    def log_in(user: str) -> ApiClient:
        client = ApiClient(served.port)
        until_s = time.monotonic() + DEADLINE_S
        reply = client.login(user, f"{user}-password")
        while reply.status == 503 and time.monotonic() < until_s:  # the login took 10 s on a busy machine
            reply = client.login(user, f"{user}-password")
        assert reply.status == 201, reply
        clients.append(client)
        return client

    yield log_in
    for client in clients:
        client.api("DELETE", "/session")


@pytest.fixture
def root(login: Callable[[str], ApiClient]) -> ApiClient:
    """Return an administrator's session."""
    return login("root")
