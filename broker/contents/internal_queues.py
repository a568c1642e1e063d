"""Ports to queues in which other queues keep records: of failed deliveries, and of message IDs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .contents import QueueContents
from .policy import Policy


class InternalQueue(Protocol):
    """A queue in which another one keeps records."""

    name: str
    queue_id: int
    arguments: Mapping[str, Any]
    policy: Policy
    is_deleting: bool

    @property
    def contents(self) -> QueueContents: ...

    def clear(self) -> int:
        """Forget its messages, which the store keeps."""


class InternalQueues(Protocol):
    """The queues of a broker by name, among them those in which other queues keep records."""

    @property
    def queues(self) -> Mapping[str, InternalQueue]: ...

    def create_queue(
        self, name: str, arguments: Mapping[str, Any], done: Callable[[InternalQueue | Exception], None]
    ) -> None:
        """Create a durable queue, or find the existing one."""

    def drop_queue(self, name: str, done: Callable[[Exception | None], None]) -> None:
        """Delete a queue, if it exists."""
