"""The group: brokers that receive the same events in the same order, and agree on the members.

The guarantees of a group, with any engine:

* **Total order.** All members deliver the same events, and the same configurations at the same position among them.
  `position` counts the events since the group was founded, and is the same number on all members.
* **Sender order.** The events of one member are delivered in the order of its `multicast` calls, without gaps.
* **Self-delivery is not replication** (rule 1 of the cluster's engine). It is possible that no other member received an
  event that came back to its sender. Confirming safety to a client needs acknowledgements of a majority of the members.
* **Incarnations** (rules 3 and 5). A process that joins, or returns after it was cut off, is a new `MemberId`. All
  members drop events of an incarnation that is not in the present configuration, so pending events of a suspended
  member have no effect. A member that loses its majority leaves at once, even if the engine never reported the loss of
  quorum.
* **Majority** (rule 4). A configuration is `primary` while it holds more than half of the configured members. When it
  no longer does, the group ends; a majority founds it again. No member of a founded group simply continues: the members
  compare their stores.
* **No event is lost undetected** (rule 6). Each sender numbers its frames. A member that misses a number leaves and
  joins as new; a sender whose events are lost by all members leaves. `Configuration` reports both. Detecting the loss
  of the last frame takes up to half a second; other events, or a configuration, may be delivered before it is detected.
* **All received bytes are checked**: checksum, version, sizes. An invalid frame counts as lost.

A group is used by one thread, which makes all calls. No call blocks, except for a connection to the local daemon in
`join`, and in a `step` that joins as new. Wrong use raises an exception; everything else is an event.
"""

from __future__ import annotations

from typing import Protocol

from ...base.errors import CairnError
from .group_events import Event
from .member_id import MemberId

MAX_PAYLOAD_BYTES = 64 * 1024
"""The maximum size of one event. Corosync lost messages of about 1 MB in tests, and none of 250 KB or less."""

BATCH_BYTES = 4096
"""The approximate size of a multicast of gathered events: events of 64 bytes are 20 times as fast that way."""

WINDOW_BYTES = 1 << 20
"""The maximum of bytes in flight before `multicast` returns False: without it, latencies of seconds were measured."""


HEARTBEAT_S = 1.0
"""The interval at which an idle member repeats its last number."""


class GroupError(CairnError):
    """A request cannot be fulfilled, or the group is not available on this host."""


class Group(Protocol):
    """A membership in a group, or a process that tries to become a member."""

    @property
    def me(self) -> MemberId | None:
        """The ID of this member; None while not in the group."""

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of events that were accepted and have not been delivered to this member."""

    def join(self, name: str) -> None:
        """Requests to join the group of that name, once. A `Configuration` with this member in `joined` confirms it.

        Raises `GroupError` if the engine is not installed, not running, or denies access.
        """

    def multicast(self, payload: bytes) -> bool:
        """Multicasts an event of at most MAX_PAYLOAD_BYTES; returns False if it was not accepted: retry later.

        The event is sent when a batch is full, or at the next `step` or `flush`. False is returned while too much is in
        flight, and outside of the group; retry at the next delivered event or configuration.
        """

    def flush(self) -> None:
        """Sends the gathered events."""

    def step(self) -> list[Event]:
        """Sends the gathered events, and returns the received ones in order.

        Call it when `fileno` is readable, and after `wait_s`.
        """

    def fileno(self) -> int:
        """Returns a descriptor that is readable when there are events to receive."""

    def wait_s(self) -> float | None:
        """Returns the longest time to wait for `fileno` before the next `step`; None for no limit."""

    def nodes(self) -> tuple[int, ...]:
        """Returns the configured nodes, as far as they are known."""

    def take_signs(self) -> set[MemberId]:
        """Returns the members that sent a frame since the last call. Each sends a heartbeat every `HEARTBEAT_S`."""

    def expel(self, member: MemberId) -> None:
        """Requests the expulsion of a silent member, as an event at one position in the order for all members.

        All members ignore the event if *member* sent anything before that position that this member has not received,
        or if the remaining members would not be a majority. An expelled member receives the expulsion before anything
        behind that position, and joins again as new.
        """

    def force(self) -> None:
        """Founds the group with the present members, even without a majority, on behalf of an operator.

        If this is done on both sides of a partition, two groups form, and one of them loses its changes.
        """

    def close(self) -> None:
        """Leaves the group and releases all resources; the other members may or may not receive events in flight.

        No other call may follow.
        """
