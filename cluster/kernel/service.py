"""Determines whether this member serves clients."""

from __future__ import annotations

from .commit_tracker import CommitTracker
from .member_state import MemberState
from .phases import BOOTSTRAPPING, OUTSIDE, SYNCHRONIZED


class Service:
    """The readiness of one member: it is synced, the group has a majority, and a majority follows."""

    def __init__(self, state: MemberState, commits: CommitTracker) -> None:
        self._state = state
        self._commits = commits

    @property
    def following(self) -> int:
        """The number of members that apply events, synced or not."""
        return len(self._state.synced | {*self._commits.floors})

    def not_serving_reason(self) -> str:
        """Returns the reason for clients; empty if this member serves them."""
        state = self._state
        if state.has_failed:
            return "this broker is no longer a member of its cluster; see its log"
        if state.phase == OUTSIDE or not state.has_majority:
            return "this broker is not connected to a majority of its cluster"
        if state.phase == BOOTSTRAPPING:
            return "the connected members of the cluster may not have all messages"
        if state.phase != SYNCHRONIZED:
            return "this broker does not have all messages of its cluster yet"
        if self.following < self._commits.majority:
            return "too few members of the cluster have all messages"
        return ""
