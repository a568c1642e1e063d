"""The client of management that `cairnmq ctl` is made of: one connection, one request after the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from proton import Message, ProtonException, SSLDomain, symbol
from proton.utils import BlockingConnection, ConnectionClosed, SyncRequestResponse

from ..base.errors import CairnError
from .where import PASSWORD, checked_url, password_of

ADDRESS = "$management"
PAGE_ROWS = 1000

_DESCRIPTION = re.compile(r"Condition\('[^']*', (['\"])(.*?)\1[,)]")
"""What a broker said, as proton puts it."""


class Where(NamedTuple):
    """Which broker, and as whom."""

    url: str
    user: str | None = None
    ca: str | None = None
    timeout_s: float = 10.0


class Unheard:
    """Members of a cluster of which a report tells nothing."""

    def __init__(self) -> None:
        self.silent: dict[str, None] = {}
        """They did not answer in time."""
        self.missing = 0
        """How many are not there."""

    def __str__(self) -> str:
        told = [f"member {member} did not answer in time" for member in self.silent]
        if self.missing:
            told.append(f"{self.missing} of its members {'is' if self.missing == 1 else 'are'} not there")
        return "; ".join(told)


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

    def rows(self, type: str, *, internal: bool = False) -> Iterator[dict[str, Any]]:
        """All of that type, page by page; the broker's own only with *internal*."""
        offset: int | None = 0
        flags: dict[str, Any] = {"internal": True} if internal else {}
        while offset is not None:
            found = self.ask("QUERY", "org.amqp.management", entityType=type, offset=offset, count=PAGE_ROWS, **flags)
            for row in found["results"]:
                yield dict(zip(found["attributeNames"], row, strict=True))
            offset = found["next"]

    def rows_of_all(
        self, type: str, unheard: Unheard, *, internal: bool = False
    ) -> Iterator[dict[str, Any]]:
        """The same of all members of a cluster, each with its `member`; *unheard* is told of those that say nothing."""
        offset: int | None = 0
        more: dict[str, Any] = {"scope": "cluster", "timeout-ms": int(min(60, self._where.timeout_s / 2) * 1000)}
        if internal:
            more["internal"] = True
        while offset is not None:
            found = self.ask("QUERY", "org.amqp.management", entityType=type, offset=offset, **more)
            unheard.silent.update(dict.fromkeys(found["silent"]))
            unheard.missing = found["missing"]
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
        url, parts = checked_url(where.url)
        options: dict[str, Any] = {"timeout": where.timeout_s}
        if where.user is not None:
            options |= {"user": where.user, "password": password_of(where.user)}
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
            elif isinstance(error, ConnectionClosed) and error.condition:
                told = _DESCRIPTION.search(str(error))  # the connection itself has forgotten it by now
                reason = f"the broker there closed the connection: {told[2] if told else error.condition}"
                raise CairnError(where.url, reason, "ask where clients are served, or see its log") from error
            raise CairnError(where.url, f"can't be reached: {error}", remedy) from error
        return self._calls


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
