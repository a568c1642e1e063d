"""A client of the HTTP API with the cookie and the CSRF token of one session, like a browser."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.harness.process import DEADLINE_S


class Reply(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    """Values by name in lower case; of several headers with the same name, the last one."""
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)

    @property
    def condition(self) -> str:
        condition: str = self.value["error"]["condition"]
        return condition


class ApiClient:
    """A session, each of whose requests uses a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = ""
        self.csrf = ""

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, *, csrf: bool = True
    ) -> Reply:
        """Send a request to *path*, which must be encoded."""
        sent = {"Content-Type": "application/json"} if body is not None else {}
        if self.cookie:
            sent["Cookie"] = self.cookie
        if csrf and method != "GET":
            sent["X-CSRF-Token"] = self.csrf
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {**sent, **(headers or {})})
            response = connection.getresponse()
            found = {key.lower(): value for key, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def api(self, method: str, path: str, body: Any = None, **query: Any) -> Reply:
        """Send a request to the API."""
        text = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
        return self.request(method, f"/api/v1{path}{'?' if text else ''}{text}", body)

    def get(self, path: str, **query: Any) -> Any:
        """Return the value of a successful request."""
        return self.done("GET", path, **query)

    def done(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Return the value of a request that must succeed; None if it has none."""
        reply = self.api(method, path, body, **query)
        assert reply.status < 300, (method, path, reply.status, reply.body)
        return json.loads(reply.body) if reply.body else None

    def login(self, user: str | None = None, password: str = "") -> Reply:
        """Log in, and keep the session if that succeeds."""
        reply = self.api("POST", "/session", {"user": user, "password": password})
        if reply.status == 201:
            self.cookie = reply.headers["set-cookie"].partition(";")[0]
            self.csrf = reply.value["csrf"]
        return reply


def encoded(name: str) -> str:
    """Return a name as a segment of a path."""
    return quote(name, safe="")
