"""The events that a group delivers: batches of payloads, configurations, and events of the engine."""

from __future__ import annotations

from dataclasses import dataclass

from .member_id import MemberId


@dataclass(frozen=True, slots=True)
class EventBatch:
    """The events of one sender that arrived together: one object for the batch, not one for each event."""

    sender: MemberId
    position: int
    """The position of the first event; the others follow it."""
    payloads: list[bytes]
    seq: int
    """The number of this batch among those of its sender, from 1, without gaps.

    Acknowledgements name a sender and a number: a member that missed a batch and has not detected it yet counts
    positions wrongly, but never these numbers.
    """


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of the group from here on. It has the same position among the events for all of `members`.

    A member in `joined` is new: it received nothing of the events while it was away. A member that is not in `members`,
    or whose configuration is not `primary`, must not complete or own anything.
    """

    view: int
    """The number of the view; rises with every configuration that is delivered."""
    members: tuple[MemberId, ...]
    """The members, ordered by node."""
    joined: tuple[MemberId, ...]
    left: tuple[MemberId, ...]
    primary: bool
    """True if they are a majority of the configured members, or an operator declared them to be enough."""
    founded: bool
    """True if all of them are new; `joined` then lists all."""
    position: int
    """The position of the next event."""
    expelled: MemberId | None = None
    """The member of `left` that is still connected to the engine, and was expelled because it was silent."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum of the local daemon's cluster, in no defined order relative to the events.

    Nothing may be completed while it is false, regardless of the last configuration.
    """

    quorate: bool


@dataclass(frozen=True, slots=True)
class MemberRefused:
    """The refusal of a process: it uses another version, or a configuration that differs."""

    node: int
    pid: int
    reason: str


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """The last event: the group failed for this member.

    The local daemon ended, another process of this node joined, or the other members refused this one. Close the group;
    a new one may be created, which joins as new.
    """

    reason: str
    remedy: str = ""


Event = EventBatch | Configuration | Quorum | MemberRefused | GroupFailed
