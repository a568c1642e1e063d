"""The death history of a message: the queues that it left for another address, with reason, count and times.

It is in the message annotation `x-opt-deaths`, a list of maps in the order of the first deaths, with `queue`, `reason`,
`count`, `first-time` and `last-time`. `condition` and `description` are of the error of the last rejection.
`x-opt-first-death-queue` and -`reason`, and `x-opt-last-death-queue` and -`reason`, repeat its ends. Only the broker
writes it: it removes such annotations of a sender when the message arrives.

The history detects dead-letter cycles. A message that arrives at a queue which it has left before for the same reason
is in an automatic cycle, unless a client has had it since: rejected it, or failed to handle it. Such a cycle would
never end, so the message is dropped, as in RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...amqp.codec import sections
from ...amqp.codec.types import Timestamp

REJECTION, TOO_OFTEN, EXPIRY = "rejected", "delivery_limit", "expired"
"""The reasons for which a message leaves its queue for another address."""
DEATHS, LAST_REASON = "x-opt-deaths", "x-opt-last-death-reason"
WRITTEN_BY_BROKER = frozenset(
    (DEATHS, "x-opt-first-death-queue", "x-opt-first-death-reason", "x-opt-last-death-queue", LAST_REASON)
)
AUTOMATIC = {EXPIRY: (REJECTION, TOO_OFTEN), TOO_OFTEN: (REJECTION,)}
"""Reasons that no client requests, and for each the reasons that prove that a client had the message."""
MOST_COUNTED = 1 << 31
MOST_TEXT = 1024
"""Characters of a client's text in the history."""

Deaths = list[dict[Any, Any]]


def read(content: bytes) -> Deaths:
    """Return the history of a stored message. Raise `Malformed`."""
    reported = sections.annotations_of(content, sections.find(content, sections.MESSAGE_ANNOTATIONS)).get(DEATHS)
    return [dict(death) for death in reported if isinstance(death, dict)] if isinstance(reported, list) else []


def extended(
    deaths: Deaths, queue: str, reason: str, now_ms: int, error: tuple[str, str] | None = None
) -> dict[str, Any]:
    """Return the annotations of a message with history *deaths* when it leaves *queue* for *reason*.

    *error*: condition and description of the rejection.
    """
    again = next((death for death in deaths if (death.get("queue"), death.get("reason")) == (queue, reason)), None)
    if again is None:
        again = {"queue": queue, "reason": reason, "count": 0, "first-time": Timestamp(now_ms)}
        deaths = [*deaths, again]
    again["count"] = min(max(_number(again.get("count")), 0), MOST_COUNTED) + 1
    again["last-time"] = Timestamp(now_ms)
    for name, text in zip(("condition", "description"), error or ("", ""), strict=True):
        again.pop(name, None)
        if text:
            again[name] = text[:MOST_TEXT]
    first = deaths[0]
    return {
        DEATHS: deaths,
        "x-opt-first-death-queue": str(first.get("queue", "")),
        "x-opt-first-death-reason": str(first.get("reason", "")),
        "x-opt-last-death-queue": queue,
        LAST_REASON: reason,
    }


def is_cycle(deaths: Sequence[dict[Any, Any]], queue: str, target: str, reason: str) -> bool:
    """Return whether a message with history *deaths* that leaves *queue* for *reason* reaches *target* in a cycle."""
    by_clients = AUTOMATIC.get(reason)
    if by_clients is None:
        return False
    if queue == target:
        return True
    before = next((death for death in deaths if (death.get("queue"), death.get("reason")) == (target, reason)), None)
    if before is None:
        return False
    since = _number(before.get("last-time"))
    return not any(death.get("reason") in by_clients and _number(death.get("last-time")) >= since for death in deaths)


def _number(of: object) -> int:
    return int(of) if isinstance(of, int) else 0
