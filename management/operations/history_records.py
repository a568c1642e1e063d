"""The AUDIT operation: the web console records that a user reads the history of a queue, or replays its messages."""

from __future__ import annotations

from ...broker.nodes.access_control import BROWSE
from ..protocol.call import Call
from ..protocol.entity import Operation
from ..protocol.request import BAD_REQUEST, Refusal, number, shown, text

HISTORY, REPLAY = "HISTORY", "REPLAY"
ALL = "*"
"""The name for all queues."""


def audit_operation() -> Operation:
    """Return the operation AUDIT of queues."""
    return Operation(
        "AUDIT", ("action", "messages"),
        "Records in the audit trail that the caller reads the history of the queue (`action` HISTORY; the name `*` "
        "stands for all queues), or sends its messages again (REPLAY), and their number. For the web console.",
        _audit,
    )  # fmt: skip


def _audit(call: Call) -> None:
    asked, name = call.asked(), call.name()
    action = text(asked, "action")
    if action not in (HISTORY, REPLAY):
        raise Refusal(BAD_REQUEST, f"unknown action {shown(action)}; use {HISTORY} or {REPLAY}")
    if name != ALL:
        call.check(BROWSE, name)
    call.recorded_as = action
    call.reads_messages = True
    call.messages = number(asked, "messages", 1 << 62, 1 << 62) if "messages" in asked else None
    call.answer({})
