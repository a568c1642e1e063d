"""The bus: the port to an engine of total order, on which groups are built.

It has the shape of corosync's closed process groups. Members are processes on nodes. All members of a ring receive the
messages of that ring in the same order. A ring that breaks is followed by smaller ones, and rings merge again.

The bus does not guarantee the following; `member.GroupMember` does:

* All members of the ring receive a message that its sender received.
* A message is delivered in the ring that its sender knew.
* No message is lost.
* Processes that ended are removed from the members.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class BusAddress(NamedTuple):
    """A process on a node. A process that leaves and joins again keeps it."""

    node: int
    pid: int


class RingId(NamedTuple):
    """Drawn by the engine for each ring; the same for all in it."""

    node: int
    seq: int


@dataclass(frozen=True, slots=True)
class BusMessage:
    sender: BusAddress
    frame: bytes


@dataclass(frozen=True, slots=True)
class BusChange:
    """The members from here on: for all of them at the same place among the messages of the ring.

    When rings merge, those of another ring are first told to have left, then to have joined, also if they were there
    all the time: they heard other things meanwhile.
    """

    ring: RingId
    members: frozenset[BusAddress]
    left: frozenset[BusAddress]
    joined: frozenset[BusAddress]


@dataclass(frozen=True, slots=True)
class BusQuorum:
    """In no order with the others."""

    quorate: bool


@dataclass(frozen=True, slots=True)
class BusDied:
    """The local daemon is gone; the last event."""

    reason: str


BusEvent = BusMessage | BusChange | BusQuorum | BusDied


class Bus(Protocol):
    """One process's place on it. One thread at a time; no call blocks."""

    @property
    def address(self) -> BusAddress:
        """Known once `join` was called."""

    @property
    def configured(self) -> int:
        """The number of configured members; known once `join` was called."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Their nodes, as far as the engine's configuration tells; known once `join` was called."""

    def join(self, name: str) -> None:
        """Begin to join, and go on in `poll` until it is done."""

    def rejoin(self) -> None:
        """Leave, and begin to join as if new; what is waiting is forgotten."""

    def send(self, frame: bytes) -> bool:
        """False: not now, try again a little later; also while not joined."""

    def poll(self, limit: int) -> Iterable[BusEvent]:
        """Returns the events that have come, about *limit* at most."""

    def fileno(self) -> int: ...

    def wait_s(self) -> float | None:
        """Returns the longest wait for `fileno` before the next `poll`; None: as long as it takes."""

    def close(self) -> None:
        """Leave, at once and for ever."""
