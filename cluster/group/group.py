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

from typing import Protocol

from ...base.errors import CairnError
from .group_events import Event
from .member_id import MemberId

MAX_PAYLOAD_BYTES = 64 * 1024
"""Of one event. Corosync was seen to lose messages of about 1 MB, none of 250 KB or below."""

BATCH_BYTES = 4096
"""Events are gathered to about so many bytes per multicast: 64-byte events are 20 times as fast that way."""

WINDOW_BYTES = 1 << 20
"""So much may be under way before `multicast` says try again: without a bound, latency was seen to reach seconds."""


HEARTBEAT_S = 1.0
"""A member that has nothing to say repeats its last number that often."""


class GroupError(CairnError):
    """The group can't do what was asked, or can't be had here at all."""


class Group(Protocol):
    """A membership in a group, or the way to one."""

    @property
    def me(self) -> MemberId | None:
        """The ID of this member; None while not in the group."""

    @property
    def in_flight_bytes(self) -> int:
        """Accepted, and not yet delivered to myself."""

    def join(self, name: str) -> None:
        """Ask to be in the group of that name, once. A `Configuration` with me in `joined` says that I am.

        GroupError where the engine is not installed, not running, or does not let us.
        """

    def multicast(self, payload: bytes) -> bool:
        """Give an event of at most MAX_PAYLOAD_BYTES to all members. False: try again later, nothing was taken.

        It is sent when a batch is full, or at the next `step` or `flush`. False while too much is under way, and while
        not in the group; the next events that are heard, or the next configuration, are the time to try again.
        """

    def flush(self) -> None:
        """Send now what was gathered."""

    def step(self) -> list[Event]:
        """Send what was gathered, take what has come, in order. To be called when `fileno` is readable, and after
        `wait_s`."""

    def fileno(self) -> int:
        """A descriptor that is readable when there is something to take."""

    def wait_s(self) -> float | None:
        """Returns the longest wait for `fileno` before the next `step`; None: as long as it takes."""

    def nodes(self) -> tuple[int, ...]:
        """The configured nodes, as far as they are known."""

    def take_signs(self) -> set[MemberId]:
        """Members that were heard since the last call, this one included. Each repeats itself every `HEARTBEAT_S`."""

    def expel(self, member: MemberId) -> None:
        """Have a silent member leave the group, as an event at one place in the order for all members.

        Ignored by all alike if *member* says anything before that place that is not heard here yet, or if those who are
        left would be no majority. A member that was expelled learns it before anything that stands behind that place;
        it joins again as new.
        """

    def force(self) -> None:
        """An operator's word: who is here now is enough to found the group, majority or not.

        Two sides of a partition that are both told so become two groups, of which one loses what it did.
        """

    def close(self) -> None:
        """Be out of the group, and let go of everything: what is under way may be heard by the others, or not.

        No other call may follow.
        """
