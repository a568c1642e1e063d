"""The events that a group delivers: batches of payloads, configurations, and what concerns the engine."""

from __future__ import annotations

from dataclasses import dataclass

from .member_id import MemberId


@dataclass(frozen=True, slots=True)
class EventBatch:
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
    """The members of the group from here on. It stands at the same place among the events for all of `members`.

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
    expelled: MemberId | None = None
    """The one of `left` that is still connected to the engine, and was expelled because it was silent."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum of the local daemon's own cluster; it comes in no order with the events.

    Nothing may be completed while it is false, whatever the last configuration says.
    """

    quorate: bool


@dataclass(frozen=True, slots=True)
class MemberRefused:
    """A process wants to be in the group and can't: another version, or something else that has to be alike."""

    node: int
    pid: int
    reason: str


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """The group can't go on: the local daemon died, another process took this one's place, or the others don't let this
    one in. It was the last event.

    Close it; a new one may be made, which joins as new.
    """

    reason: str
    remedy: str = ""


Event = EventBatch | Configuration | Quorum | MemberRefused | GroupFailed
