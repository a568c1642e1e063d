"""The client of management that `cairnmq ctl` is made of: one connection, one request after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from os import getpid
from socket import gethostname
from typing import TYPE_CHECKING, Any

from ...amqp.codec.types import Symbol
from ...base.texts import bytes_words, text_in
from .ctl_rejection import rejection

if TYPE_CHECKING:
    from ...amqp.client.login import BrokerLogin
    from ...amqp.client.management import Management
    from ...amqp.client.wire import Wire

PAGE_ROWS = 1000


class SilentMembers:
    """Members of a cluster that are not included in a report."""

    def __init__(self) -> None:
        self.silent: dict[str, None] = {}
        """The members that did not answer in time."""
        self.missing = 0
        """The number of members that are not connected."""

    def __str__(self) -> str:
        texts = [f"member {member} did not answer in time" for member in self.silent]
        if self.missing:
            texts.append(f"{self.missing} of its members {'is' if self.missing == 1 else 'are'} not connected")
        return "; ".join(texts)


class ManagementClient:
    """A connection to a broker's management, made when it is first needed."""

    def __init__(self, where: Callable[[], BrokerLogin], timeout_s: float) -> None:
        """*where* is called at the first request: it may ask for a password."""
        self._where = where
        self._timeout_s = timeout_s
        self._wire: Wire | None = None
        self._management: Management | None = None

    def ask(
        self, operation: str, type: str, name: str | None = None, body: Mapping[str, Any] | None = None, **more: Any
    ) -> Any:
        """Return the body of the answer. Raises the `CairnError` of `rejection` for a rejected request."""
        given = {"operation": operation, "type": type, "name": name, **more}
        properties = {key: value for key, value in given.items() if value is not None}
        answer = self._connected().ask(properties, None if body is None else dict(body))
        if answer.status >= 400:
            subject = more.get("entityType", type)
            raise rejection(operation, subject, name, body, answer.status, str(answer.description))
        return answer.body

    def rows(
        self, type: str, unheard: SilentMembers | None = None, *, internal: bool = False
    ) -> Iterator[dict[str, Any]]:
        """All of that type, page by page; the broker's own only with *internal*.

        With *unheard*, which collects the silent members, those of all members of a cluster, each with its `member`.
        """
        offset: int | None = 0
        more: dict[str, Any] = {"count": PAGE_ROWS}
        if unheard is not None:
            more = {"scope": "cluster", "timeout-ms": int(min(60, self._timeout_s / 2) * 1000)}
        if internal:
            more["internal"] = True
        while offset is not None:
            found = self.ask("QUERY", "org.amqp.management", entityType=type, offset=offset, **more)
            if unheard is not None:
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
            yield from ({**one, "body-text": _body_text(one.get("body"), body_bytes)} for one in found["messages"])
            count -= len(found["messages"])
            after = found["next"]

    def close(self) -> None:
        """Close the connection; the next request makes another one."""
        if self._wire is not None:
            self._wire.close()
        self._wire = self._management = None

    def _connected(self) -> Management:
        if self._management is None:
            from ...amqp.client.loop import Loop  # with numpy: help and completion do without
            from ...amqp.client.management import Management
            from ...amqp.client.wire import Wire

            self._wire = Wire(self._where(), f"cairnmq-ctl@{gethostname()}-{getpid()}")
            self._management = Management(self._wire, Loop(self._wire))
        return self._management


def _body_text(body: Any, body_bytes: int) -> str | None:
    """The text of a body of which so many bytes were asked for; None if it is no text."""
    if isinstance(body, bytes | bytearray | memoryview):
        return text_in(bytes(body), is_cut=len(body) == body_bytes)
    return body if isinstance(body, str) and not isinstance(body, Symbol) else None


def readable(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of `ManagementClient.peek` for people: its body as text, or how many bytes it has and which."""
    body, text = message.get("body"), message["body-text"]
    if text is None and isinstance(body, bytes | bytearray | memoryview):
        text = bytes_words(bytes(body))
    return {**message, "body": body if text is None else text}
