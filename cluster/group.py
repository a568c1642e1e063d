"""The group: brokers that hear the same events in the same order, and agree on who is among them.

What a group promises, whichever engine carries it:

* **Total order.** All members deliver the same events, and the same configurations at the same place among them.
  `position` counts the events since the group was founded and is the same number for everyone.
* **Sender order.** The events of one member come in the order in which it gave them to `multicast`, none left out.
* **Self-delivery is not replication** (rule 1 of the cluster's engine). An event that came back may have been seen by
  nobody else, ever. What a client is told to be safe needs acknowledgements of a majority of the members.
* **Incarnations** (rules 3 and 5). Whoever joins, or comes back after it was cut off, is a new `MemberId`. Events of an
  incarnation that is not in the present configuration are dropped by all members alike: what a paused member still
  wanted to say about the world as it was is heard by nobody. Whoever lost its majority is out at once, also if the
  engine never told it that it is not quorate.
* **Majority** (rule 4). A configuration is `primary` while it holds more than half of the configured members. Where
  that ends, the group ends; a majority founds it anew. A founded group has no member that just goes on: its members
  compare what they have.
* **No event is lost without being missed** (rule 6). Every sender numbers what it sends. Who misses a number leaves
  and joins as new; a sender whose events are lost to all leaves itself. `Configuration` tells both. It takes up to
  half a second to miss the last one, and other events, or a configuration, may come before it is missed.
* **Every byte that comes in is checked**: checksum, version, sizes. What is wrong counts as lost.

A group belongs to one thread at a time, which calls everything. No call blocks, but for a connection to the local
daemon in `join`, and in the `step` that joins as new. Errors of use are exceptions, everything else is an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..base.errors import CairnError

MAX_PAYLOAD_BYTES = 64 * 1024
"""Of one event. Corosync was seen to lose messages of about 1 MB, none of 250 KB or below."""

BATCH_BYTES = 4096
"""Events are gathered to about so many bytes per multicast: 64-byte events are 20 times as fast that way."""

WINDOW_BYTES = 1 << 20
"""So much may be under way before `multicast` says try again: without a bound, latency was seen to reach seconds."""


class GroupError(CairnError):
    """The group can't do what was asked, or can't be had here at all."""


class MemberId(NamedTuple):
    """One membership of one process, never used again."""

    node: int
    """The number of its machine; there is at most one member on each, and the newer one wins."""
    pid: int
    incarnation: int
    """Drawn anew whenever it joins or comes back."""

    def __str__(self) -> str:
        return f"{self.node}/{self.pid}/{self.incarnation:x}"


@dataclass(frozen=True, slots=True)
class Messages:
    """Events of one sender that came together. One object for the batch, not one for each event."""

    sender: MemberId
    position: int
    """Of the first; the others follow."""
    payloads: list[bytes]
    seq: int
    """The number of this batch among those of its sender, from 1, none left out. What acknowledges events names sender
    and number: one who has missed something and does not know it yet counts positions wrongly, but never these."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Who is in the group from here on. It stands at the same place among the events for all of `members`.

    With oneself in `joined`, one is new: nothing of what happened while one was away was heard. With oneself not in
    `members`, or not `primary`, nothing may be completed nor owned.
    """

    view: int
    """Rises with every configuration that is heard."""
    members: tuple[MemberId, ...]
    """In the order of their nodes."""
    joined: tuple[MemberId, ...]
    left: tuple[MemberId, ...]
    primary: bool
    """They are a majority of the configured members, or an operator said that they are enough."""
    founded: bool
    """All of them are new; `joined` holds all."""
    position: int
    """Of the next event."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """What the local daemon believes of its own cluster; it comes when it comes, in no order with the events.

    Nothing may be completed while it is false, whatever the last configuration says.
    """

    quorate: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A process wants to be in the group and can't: another version, or something else that has to be alike."""

    node: int
    pid: int
    reason: str


@dataclass(frozen=True, slots=True)
class Died:
    """The group can't go on: the local daemon died, another process took this one's place, or the others don't let this
    one in. It was the last event.

    Close it; a new one may be made, which joins as new.
    """

    reason: str
    remedy: str = ""


Event = Messages | Configuration | Quorum | Refused | Died


class Group(Protocol):
    """A membership in a group, or the way to one."""

    @property
    def me(self) -> MemberId | None:
        """Who I am; None while not in the group."""
        ...

    @property
    def in_flight_bytes(self) -> int:
        """Accepted, and not yet delivered to myself."""
        ...

    def join(self, name: str) -> None:
        """Ask to be in the group of that name, once. A `Configuration` with me in `joined` says that I am.

        GroupError where the engine is not installed, not running, or does not let us.
        """
        ...

    def multicast(self, payload: bytes) -> bool:
        """Give an event of at most MAX_PAYLOAD_BYTES to all members. False: try again later, nothing was taken.

        It is sent when a batch is full, or at the next `step` or `flush`. False while too much is under way, and while
        not in the group; the next events that are heard, or the next configuration, are the time to try again.
        """
        ...

    def flush(self) -> None:
        """Send now what was gathered."""
        ...

    def step(self) -> list[Event]:
        """Send what was gathered, take what has come, in order. To be called when `fileno` is readable, and after
        `wait_s`."""
        ...

    def fileno(self) -> int:
        """A descriptor that is readable when there is something to take."""
        ...

    def wait_s(self) -> float | None:
        """How long to wait for `fileno` at most before the next `step`; None: as long as it takes."""
        ...

    def force(self) -> None:
        """An operator's word: who is here now is enough to found the group, majority or not.

        Two sides of a partition that are both told so become two groups, of which one loses what it did.
        """
        ...

    def close(self) -> None:
        """Be out of the group, and let go of everything: what is under way may be heard by the others, or not.

        No other call may follow.
        """
        ...
