"""Logs why this member serves no clients: the phase, the progress and the remedy. Core only."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...base.texts import counted
from ..kernel.context import MemberContext
from ..kernel.phases import BOOTSTRAPPING, BUFFERING, DISCARDING, OUTSIDE, REQUESTING, SYNCHRONIZED, TRANSFERRING

log = logging.getLogger(__name__)

LONG_S = 10.0
"""The delay of the first line: starts of all members and view changes end before, unless the transfer is large."""
AGAIN_S = 60.0
"""The interval at which the line is repeated, with the present progress."""

_WAIT = "Wait: no action is needed"


class NotServingLog:
    """The log of one member's reasons to serve no clients."""

    def __init__(
        self, context: MemberContext, bootstrap_remedy: Callable[[], str], transfer_progress: Callable[[], str]
    ) -> None:
        """*bootstrap_remedy*: describes the action to take during a bootstrap; *transfer_progress*: of a transfer."""
        self._context = context
        self._bootstrap_remedy = bootstrap_remedy
        self._transfer_progress = transfer_progress
        self._turn = 0

    def begin(self) -> None:
        """Begins to wait: no client is served from here on; it is logged if that lasts."""
        self._turn += 1
        now_s = self._context.clock.monotonic_s()
        self._context.timers.after(LONG_S, self._look, self._turn, now_s)

    def _look(self, turn: int, since_s: float) -> None:
        state = self._context.state
        reason = self._context.service.not_serving_reason()
        if turn != self._turn or not reason or state.has_failed:
            return
        phase, remedy = self.explanation()
        log.warning(
            "cluster %s: no clients were served here for %.0f s: %s (phase: %s; %s). %s",
            state.name, self._context.clock.monotonic_s() - since_s, reason, state.phase_name, phase, remedy,
            extra={"event": "cluster.not-serving"},
        )  # fmt: skip
        self._context.timers.after(AGAIN_S, self._look, turn, since_s)

    def explanation(self) -> tuple[str, str]:
        """Returns an explanation of the phase, with its progress, and the remedy."""
        state = self._context.state
        here, missing = self._members()
        if state.phase == OUTSIDE or not state.has_majority:
            if len(state.members) > state.size // 2 and state.phase != OUTSIDE:
                return f"{here}; corosync here has no quorum", "See `corosync-quorumtool` and corosync's log"
            return f"{here}; {missing}", (
                "Start the brokers that are missing, and see their logs and corosync's; only if a majority is lost for "
                "good, start this one with --cluster-force: messages that only the others have are then lost"
            )
        if state.phase == BOOTSTRAPPING:
            return f"{here}; {missing}", self._bootstrap_remedy() or _WAIT
        if state.phase in (DISCARDING, REQUESTING, BUFFERING):
            return "this member compares its store with the others", _WAIT
        if state.phase == TRANSFERRING:
            return self._transfer_progress(), f"{_WAIT}, unless this number does not increase for minutes"
        if state.phase == SYNCHRONIZED:
            behind = self._context.commits.majority - self._context.service.following
            members = counted(behind, "more member")
            return f"{members} must be up to date", f"{_WAIT}; the logs of the others show their progress"
        return here, _WAIT

    def _members(self) -> tuple[str, str]:
        """Describes the connected nodes and the missing ones."""
        state = self._context.state
        nodes = [member.node for member in state.members] if state.me is not None else []
        configured = self._context.group.nodes()
        lacking = [node for node in configured if node not in nodes]
        here = f"{len(nodes)} of {state.size} members are connected"
        if nodes:
            here += f", nodes {', '.join(map(str, nodes))}"
        if lacking:
            return here, f"missing: nodes {', '.join(map(str, lacking))}"
        return here, f"{state.size - len(nodes)} are missing"
