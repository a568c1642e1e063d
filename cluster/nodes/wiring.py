"""Changes of the wiring, which all members apply at the same place in the order.

A client's change is multicast by `change` and applied by each member in its own SQL. The events behind it wait until it
is written, so that a queue exists when its first message arrives (D58). While the disk is full the change is tried
again: flow control holds clients meanwhile, and ends this member if the others are enough. Core only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...base.errors import DiskError, DiskFull, SqlDenied, SqlReadOnly, SqlUnreachable, StoreInUse, UnusableConnect
from ..kernel import events
from ..kernel.context import MemberContext
from ..kernel.local_messages import NOTHING, LocalEvent
from ..replication.flow_control import FlowControl
from .cluster_nodes import ClusterNodes, NameConflict

ONLY_HERE = (DiskError, SqlDenied, SqlReadOnly, SqlUnreachable, StoreInUse, NameConflict, UnusableConnect)
"""The reasons why one member cannot apply a change. An invalid change fails on all members alike."""
TRY_AGAIN_S = 1.0
"""The interval of retries while the disk is full."""


class WiringChanges:
    """The changes of the wiring, as one member sends and applies them."""

    def __init__(self, context: MemberContext, nodes: ClusterNodes, flow: FlowControl) -> None:
        self._state = context.state
        self._timers = context.timers
        self._broadcaster = context.broadcaster
        self._commits = context.commits
        self._inbox = context.inbox
        self._fail = context.fail
        self._nodes = nodes
        self._flow = flow

    def change(self, about: dict[str, Any], done: Callable[[Any], None]) -> None:
        """Has all members apply a change; while this member is outside the group *done* is never called."""
        self._broadcaster.send(events.control("change", change=about), NOTHING._replace(answered=done))

    def apply(self, position: int, change: dict[str, Any], local: LocalEvent | None) -> None:
        """Applies a change; the inbox is stalled until it is written."""
        state = self._state
        self._inbox.stall()
        of = self._commits.now

        def try_it() -> None:
            if not state.has_failed:
                self._nodes.do(change, done)

        def done(result: Any) -> None:
            if isinstance(result, DiskFull) and not state.is_alone:
                self._flow.unwritten = f"{result.place}: {result.reason}"
                self._timers.after(TRY_AGAIN_S, try_it)
                return
            self._flow.unwritten = ""
            self._inbox.resume()
            if isinstance(result, ONLY_HERE) and not (state.is_alone and isinstance(result, (DiskFull, NameConflict))):
                self._fail(f"a change of the wiring failed: {result}", "correct the cause, and start this broker again")
                return
            if local is not None and local.answered is not None:
                answered = local.answered
                self._commits.when_safe(position, lambda: answered(result), of=of)

        try_it()
