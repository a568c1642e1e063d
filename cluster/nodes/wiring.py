"""Changes of the wiring, which all members apply at the same place in the order.

A client's change is multicast (`ClusterNodes.order`), and applied by each member in its own SQL. The events behind it
wait until it is written, so that a queue exists when its first message arrives (D58). While the disk is full the change
is tried again: flow control holds clients meanwhile, and ends this member if the others are enough. Core only.
"""

from __future__ import annotations

from typing import Any

from ...base.errors import DiskError, DiskFull, SqlDenied, SqlReadOnly, SqlUnreachable, StoreInUse, UnusableConnect
from ..kernel.context import MemberContext
from ..kernel.local_messages import LocalEvent
from ..replication.flow_control import FlowControl
from .cluster_nodes import ClusterNodes, NameConflict

ONLY_HERE = (DiskError, SqlDenied, SqlReadOnly, SqlUnreachable, StoreInUse, NameConflict, UnusableConnect)
"""The reasons why one member cannot apply a change. An invalid change fails on all members alike."""
TRY_AGAIN_S = 1.0
"""The interval of retries while the disk is full."""


def apply_change(
    context: MemberContext, nodes: ClusterNodes, flow: FlowControl, position: int, change: dict[str, Any],
    local: LocalEvent | None,
) -> None:  # fmt: skip
    """Applies a change of the wiring on one member; the inbox is stalled until it is written."""
    state = context.state
    context.inbox.stall()
    of = context.commits.now

    def try_it() -> None:
        if not state.has_failed:
            nodes.do(change, done)

    def done(result: Any) -> None:
        if isinstance(result, DiskFull) and not state.is_alone:
            flow.unwritten = f"{result.place}: {result.reason}"
            context.timers.after(TRY_AGAIN_S, try_it)
            return
        flow.unwritten = ""
        context.inbox.resume()
        if isinstance(result, ONLY_HERE) and not (state.is_alone and isinstance(result, (DiskFull, NameConflict))):
            reason = f"a change of the wiring failed: {result}"
            context.fail(reason, "correct the cause, and start this broker again")
            return
        if local is not None and local.answered is not None:
            answered = local.answered
            context.commits.when_safe(position, lambda: answered(result), of=of)

    try_it()
