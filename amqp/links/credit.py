"""Credit of links on which this side receives: given, taken back, and what comes beyond it.

A receiver wants messages up to some number. It may want fewer than before, while the sender, who has not heard of that,
sends what was wanted before. Then more comes than is wanted now: that is credit of less than nothing, which AMQP has
no way to say, and proton says 2 ** 32 - 1 where it is one less. So this says none, and what came is made up for by what
is asked for next.
"""

from __future__ import annotations

from ..native.proton_ffi import lib
from .link import Link
from .values import MORE

MOST_EXTRA = 10_000
"""Messages that may come unasked on a link that this side has asked for; see `is_kept`."""


def ask(link: Link, more: int) -> None:
    """Request *more* messages than before, or fewer if negative."""
    now = int(lib.pn_link_credit(link.pn)) - int(lib.pn_link_queued(link.pn))
    wanted = now - link.excess_messages + more
    change = max(wanted, 0) - now
    link.excess_messages = max(-wanted, 0)
    link.revoked_credit = max(link.revoked_credit - change, min(wanted, 0))
    lib.pn_link_flow(link.pn, change)


def grant(link: Link, credit: int) -> None:
    """Allow the peer to send *credit* more messages: now, or when it has settled those that were sent."""
    if link.awaiting_peer_settle:
        now = max(0, credit - (len(link.awaiting_peer_settle) - link.deferred_credit))
        link.deferred_credit += credit - now
        credit = now
    if link.closed:
        return
    if link.excess_messages:
        ask(link, credit)
    else:
        lib.pn_link_flow(link.pn, credit)


def mend(link: Link) -> None:
    """If more has come, or credit came back, than is wanted: say no credit. To be called before anything is sent."""
    if (link.revoked_credit or link.is_locally_initiated) and lib.pn_link_credit(link.pn) < lib.pn_link_queued(link.pn):
        ask(link, 0)


def is_kept(link: Link) -> bool:
    """Return whether the sender keeps to its credit. If not, remove the excess messages from the inbox.

    On a link that this side opened, the peer may send up to `MOST_EXTRA` messages more. RabbitMQ (3.10) does: when it
    receives other credit, it does not count messages on their way from its queue to its session.
    """
    excess = -int(lib.pn_link_credit(link.pn)) - link.revoked_credit
    if excess <= (MOST_EXTRA if link.is_locally_initiated else 0):
        if link.revoked_credit or link.is_locally_initiated:
            mend(link)
        return True
    while excess and link.inbox:
        excess -= not link.inbox.pop()[2] & MORE
    return False
