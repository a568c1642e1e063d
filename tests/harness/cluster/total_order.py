"""Properties of the events that members of a group received, under any faults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cairnmq.cluster.group.group_events import Configuration, Event, EventBatch
from cairnmq.cluster.group.member_id import MemberId

Said = tuple[int, MemberId, bytes]
"""Position, sender, payload."""


@dataclass
class Part:
    """The events that one member received from one configuration to the next."""

    configuration: Configuration
    said: list[Said] = field(default_factory=list)
    next: Configuration | None = None
    out: bool = False
    """True if a later configuration of the member is not primary."""


def parts(events: Iterable[Event]) -> list[Part]:
    found: list[Part] = []
    for event in events:
        if isinstance(event, Configuration):
            if found:
                found[-1].next = event
            found.append(Part(event))
        elif isinstance(event, EventBatch):
            assert found, "an event before the first configuration"
            found[-1].said += [
                (event.position + index, event.sender, payload) for index, payload in enumerate(event.payloads)
            ]
    out = False
    for part in reversed(found):
        part.out = out
        out |= not part.configuration.primary
    return found


def check(lives: Sequence[Iterable[Event]]) -> None:
    """Check the order guarantees within each log and between each two logs of members."""
    logs = [parts(events) for events in lives]
    received: dict[tuple[int, tuple[MemberId, ...]], list[Part]] = {}
    for log in logs:
        for part in log:
            _check_part(part)
            if part.configuration.primary:
                received.setdefault((part.configuration.view, part.configuration.members), []).append(part)
        for before, after in pairwise(log):
            assert after.configuration.view > before.configuration.view
    for same in received.values():
        # Members with a common next configuration received the same events; a partitioned member may have received
        # fewer events, or some that only it received.
        stayed = [part for part in same if part.next is not None and part.next.primary]
        for one, other in pairwise(stayed):
            if one.configuration.position != other.configuration.position:
                continue  # checked with the previous configuration
            if one.next is not None and other.next is not None and one.next.view == other.next.view:
                if one.next.position != other.next.position:  # a lost event that was not detected yet
                    assert one.out or other.out
                else:
                    assert one.said == other.said
                    assert one.next.members == other.next.members


def _check_part(part: Part) -> None:
    configuration = part.configuration
    assert list(configuration.members) == sorted(configuration.members)
    assert len({member.node for member in configuration.members}) == len(configuration.members)
    assert set(configuration.joined) <= set(configuration.members)
    assert not set(configuration.left) & set(configuration.members)
    if configuration.founded:
        assert configuration.joined == configuration.members
    assert [position for position, _, _ in part.said] == list(
        range(configuration.position, configuration.position + len(part.said))
    )
    assert part.configuration.primary or not part.said, "events outside of a group"
    assert {sender for _, sender, _ in part.said} <= set(configuration.members), "an event of one who is not in"


def by_sender(events: Iterable[Event], sender: MemberId) -> list[bytes]:
    mine = [event for event in events if isinstance(event, EventBatch) and event.sender == sender]
    return [payload for event in mine for payload in event.payloads]
