"""Shared state of the transactions of one broker. Core only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ...amqp.ports import Outcome
from ..kernel.context import CoreContext
from ..messages.entry import Entry
from ..nodes.replication_port import Members
from .dead_letters import Returns


class TransactionLimits(NamedTuple):
    """Limits on the transactions of clients."""

    timeout_s: float = 0.0
    """A transaction that was not discharged by then is rolled back; 0 for never."""
    per_connection: int = 1000
    size_bytes: int = 256 << 20
    """Bytes in the open transactions of one connection: contents, and `ENTRY_BYTES` for each operation."""


class Claimant(Protocol):
    """A transaction that decides on messages."""

    id: bytes
    failure: tuple[str, str] | None

    @property
    def is_committed(self) -> bool: ...

    @property
    def is_prepared(self) -> bool: ...

    def has_acquired(self, entry: Entry) -> bool:
        """Return whether the message was dispatched in the transaction, without an outcome so far."""

    def recalls(self, entry: Entry) -> bool:
        """Return whether the message is being recalled from its receiver."""

    def lose(self, entry: Entry, *, lost: bool) -> bool:
        """Note that the link of the receiver is closed. Return False if the message can go back to its queue."""

    def left(self, entry: Entry) -> None:
        """Note that the receiver has settled the message."""

    def repeats(self, outcome: Outcome) -> bool:
        """Return whether the receiver only repeats the outcome that it sent in the transaction; note a settlement."""

    def forget(self, entry: Entry) -> None:
        """Drop the message, which its other holder requeues."""

    def fail(self, reason: str, refusal: str = "") -> None:
        """Roll the transaction back."""

    def lost(self) -> None:
        """Roll back a transaction that the members of a cluster are to do: the cluster is lost."""


_Transaction = TypeVar("_Transaction", bound=Claimant)


class Controller(Generic[_Transaction]):
    """The transactions of one connection; each transaction without a connection has a controller of its own."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.transactions: dict[bytes, _Transaction] = {}
        """The transactions by ID, until they are over."""


@dataclass(frozen=True, slots=True)
class TransactionContext:
    """The collaborators of every transaction."""

    core: CoreContext
    returns: Returns
    members: Members
    limits: TransactionLimits
    taken: dict[Entry, Claimant]
    """Messages whose outcomes depend on a transaction, or that one decided and that are not settled yet."""
    under_way: dict[Claimant, None]
    ended: Callable[[bytes, Any], None]
    """The callback for the end of a distributed transaction: its xid, and the transaction."""

    def settled(self, entries: Iterable[Entry]) -> None:
        """Forget messages that are settled."""
        for entry in entries:
            self.taken.pop(entry, None)
