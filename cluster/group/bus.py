"""The bus: the port to a total-order engine, on which groups are built.

It is modeled on the closed process groups of corosync. Members are processes on nodes. All members of a ring receive
the messages of that ring in the same order. When a ring breaks, smaller rings follow it; rings can merge again.

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

from .group_events import Quorum


class BusAddress(NamedTuple):
    """A process on a node. The address does not change when the process leaves and joins again."""

    node: int
    pid: int


class RingId(NamedTuple):
    """The ID of a ring, assigned by the engine and equal on all members of the ring."""

    node: int
    seq: int


@dataclass(frozen=True, slots=True)
class BusMessage:
    sender: BusAddress
    frame: bytes


@dataclass(frozen=True, slots=True)
class BusChange:
    """A change of the members. All members receive it at the same position among the messages of the ring.

    When rings merge, the members of the other ring are first reported as left and then as joined, even if they never
    stopped: they received other messages meanwhile.
    """

    ring: RingId
    members: frozenset[BusAddress]
    left: frozenset[BusAddress]
    joined: frozenset[BusAddress]


@dataclass(frozen=True, slots=True)
class BusDied:
    """The last event: the connection to the local daemon failed."""

    reason: str


BusEvent = BusMessage | BusChange | Quorum | BusDied


class Bus(Protocol):
    """The membership of one process on the bus. Not thread-safe; no call blocks."""

    @property
    def address(self) -> BusAddress:
        """The address of this process; known after `join`."""

    @property
    def configured(self) -> int:
        """The number of configured members; known after `join`."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The configured nodes, as far as the engine's configuration lists them; known after `join`."""

    def join(self, name: str) -> None:
        """Starts to join; `poll` completes the join."""

    def rejoin(self) -> None:
        """Leaves, and starts to join as a new process; unsent frames are discarded."""

    def send(self, frame: bytes) -> bool:
        """Sends a frame; returns False if the bus cannot accept it now or is not joined. Retry a little later."""

    def poll(self, limit: int) -> Iterable[BusEvent]:
        """Returns the events that were received, about *limit* at most."""

    def fileno(self) -> int: ...

    def wait_s(self) -> float | None:
        """Returns the longest time to wait for `fileno` before the next `poll`; None for no limit."""

    def close(self) -> None:
        """Leaves immediately and permanently."""
