"""Credit of links on which this side receives: granted, revoked, and messages beyond it.

A receiver requests messages up to some number. It may reduce the number while the sender, which has not received the
change, sends messages for the earlier credit. More messages then arrive than are requested, so the credit would be
negative, which AMQP cannot express; proton sends 2 ** 32 - 1 for minus one. This module therefore grants zero credit,
and deducts the excess from the next credit.
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
    link.credit = now + change


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
        link.credit = int(lib.pn_link_credit(link.pn))


def mend(link: Link) -> None:
    """Set the credit to zero if more was sent or returned than is requested. Call it before output is sent."""
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
