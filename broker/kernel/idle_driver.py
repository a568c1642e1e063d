"""The base of drivers of links, which ignores all actions of the peer. Core only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...amqp.ports import Fragment, Outcome


class IdleDriver:
    """A driver whose subclasses override only the actions that its peer may take (`channel.ports.DriverEnd`)."""

    def receive(self, fragments: Sequence[Fragment]) -> None:
        """Ignore messages of a peer that receives."""

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        """Ignore messages in a transaction of a peer that receives."""

    def request(self, limit: int, drain: bool) -> None:
        """Ignore the credit of a peer that sends."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Ignore outcomes where no message was forwarded."""

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """Ignore outcomes in a transaction where no message was forwarded."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """Ignore the end of a link on which nothing depends."""
