"""A replay of a range: the messages that arrived on a queue are sent to the broker again, as the user of a session.

The broker treats the reader as a client of that user: access rules, quotas and its share of the core apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Timer
from typing import Any

from ...amqp.client.login import BrokerLogin
from ...base.clock import SystemClock
from ...base.errors import CairnError
from ...tools.history.history_view import HistoryView
from ...tools.inspect.point_in_time import check_order, parse_point_in_time
from ...tools.load.bulk_sender import BulkSender, SendResult
from ...tools.load.replayed_messages import ReplayedMessages
from .places import paths_of, queues_named

RATE_PER_S = 2000.0
TIME_S = 40.0
"""The time of one replay; the response names the LSN that continues it."""
MOST_REFUSED = 20


def replay(asked: Mapping[str, Any]) -> Any:
    """Send the messages that arrived on a queue between two points in time to an address."""
    with HistoryView(paths_of(asked), holds=False) as past:
        now_us = SystemClock().wall_us()
        first, end = (past.history.lsn_of(parse_point_in_time(str(asked[key]), now_us)) for key in ("from", "to"))
        check_order("from, to", first, end)
        wanted = queues_named(past, asked["queue"])
        messages = ReplayedMessages(past, first, end, wanted, asked["target"], rate=RATE_PER_S, count=asked["count"])
        try:
            required = "" if asked["create"] else asked["target"]
            sent = _send(BulkSender(BrokerLogin(**asked["login"]), iter(messages), lambda done: None, required))
        finally:
            messages.close()
        if sent.failure and not sent.outcomes:
            raise CairnError("replay", sent.failure)
        next_lsn = messages.next_lsn if sent.next_token is None else sent.next_token
        failed = [{"lsn": lsn, "text": text} for lsn, text in sent.refused[:MOST_REFUSED]]
        return {
            "sent": sent.accepted, "refused": sent.outcomes.total() - sent.accepted, "failed": failed, "next": next_lsn,
            "complete": next_lsn is None and sent.is_complete, "remarks": [*past.all_remarks(), *messages.faults()],
        }  # fmt: skip


def _send(run: BulkSender) -> SendResult:
    timer = Timer(TIME_S, run.interrupt)
    timer.start()
    try:
        return run.run()
    finally:
        timer.cancel()
