"""The client of management that `cairnmq ctl` is made of: one connection, one request after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click
from proton import Message, ProtonException, SSLDomain, symbol
from proton.utils import BlockingConnection, SyncRequestResponse

from ..base.errors import CairnError

ADDRESS = "$management"
PASSWORD = "CAIRNMQ_PASSWORD"
PAGE_ROWS = 1000
SCHEMES = ("amqp", "amqps")


class Where(NamedTuple):
    """Which broker, and as whom."""

    url: str
    user: str | None = None
    ca: str | None = None
    timeout_s: float = 10.0


class Client:
    """A connection to a broker's management, made when it is first needed."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._connection: Any = None
        self._calls: Any = None

    def ask(
        self, operation: str, type: str, name: str | None = None, body: Mapping[str, Any] | None = None, **more: Any
    ) -> Any:
        """The body of the answer. Raises `CairnError` with what the broker says, if it refuses."""
        given = {"operation": operation, "type": type, "name": name, **more}
        properties = {key: value for key, value in given.items() if value is not None}
        request = Message(properties=properties, body=None if body is None else dict(body))
        place = f"{operation.lower()} {type}" + (f" {name}" if name else "")
        try:
            answer = self._connected().call(request)
        except ProtonException as error:
            raise CairnError(self._where.url, f"the broker does not answer: {error}") from error
        status = int(answer.properties["statusCode"])
        if status >= 400:
            raise CairnError(place, f"{answer.properties['statusDescription']} ({status})")
        return answer.body

    def rows(self, type: str) -> Iterator[dict[str, Any]]:
        """All of that type, page by page."""
        offset: int | None = 0
        while offset is not None:
            found = self.ask("QUERY", "org.amqp.management", entityType=type, offset=offset, count=PAGE_ROWS)
            for row in found["results"]:
                yield dict(zip(found["attributeNames"], row, strict=True))
            offset = found["next"]

    def peek(self, queue: str, count: int, body_bytes: int) -> Iterator[dict[str, Any]]:
        """The first *count* messages of a queue."""
        after: int | None = 0
        while after is not None and count > 0:
            asked = {"after": after, "count": min(count, PAGE_ROWS), "body-bytes": body_bytes}
            found = self.ask("PEEK", "queue", queue, asked)
            yield from found["messages"]
            count -= len(found["messages"])
            after = found["next"]

    def close(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except ProtonException:
                pass  # what was to be done is done

    def _connected(self) -> Any:
        if self._calls is not None:
            return self._calls
        where = self._where
        url = where.url if "://" in where.url else f"amqp://{where.url}"
        parts = _checked(url)
        options: dict[str, Any] = {"timeout": where.timeout_s}
        if where.user is not None:
            password = os.environ.get(PASSWORD)
            if password is None:
                password = click.prompt(f"password of {where.user}", hide_input=True, err=True)
            options |= {"user": where.user, "password": password}
        if parts.scheme == "amqps":
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            if where.ca is not None:
                domain.set_trusted_ca_db(where.ca)
            options["ssl_domain"] = domain
        try:
            self._connection = BlockingConnection(url, **options)
            self._calls = SyncRequestResponse(self._connection, ADDRESS)
        except (ProtonException, OSError) as error:
            remedy = "is a broker running there? say where with --url"
            if "amqp:unauthorized-access" in str(error):
                remedy = f"say who asks with --user, and the password with {PASSWORD} in the environment"
            raise CairnError(where.url, f"can't be reached: {error}", remedy) from error
        return self._calls


def _checked(url: str) -> Any:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise click.UsageError(f"--url {url}: {error}") from error
    if parts.scheme not in SCHEMES or not parts.hostname or port == 0 or parts.password is not None:
        raise click.UsageError(f"--url is like amqp://host:port or amqps://host:port, and has no password: {url}")
    return parts


def plain(value: Any) -> Any:
    """A value of AMQP's as JSON has it: bytes and other things as texts."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, symbol):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value)
