"""Credit of links on which this side receives: given, taken back, and what comes beyond it.

A receiver wants messages up to some number. It may want fewer than before, while the sender, who has not heard of that,
sends what was wanted before. Then more comes than is wanted now: that is credit of less than nothing, which AMQP has
no way to say, and proton says 2 ** 32 - 1 where it is one less. So this says none, and what came is made up for by what
is asked for next.
"""

from __future__ import annotations

from .link import MORE, Link
from .proton import lib

MOST_EXTRA = 10_000
"""Messages that may come unasked on a link that this side has asked for; see `is_kept`."""


def ask(link: Link, more: int) -> None:
    """Want so many messages more than before, or fewer if negative."""
    now = int(lib.pn_link_credit(link.pn)) - int(lib.pn_link_queued(link.pn))
    wanted = now - link.unwanted + more
    change = max(wanted, 0) - now
    link.unwanted = max(-wanted, 0)
    link.taken_back = max(link.taken_back - change, min(wanted, 0))
    lib.pn_link_flow(link.pn, change)


def mend(link: Link) -> None:
    """If more has come, or credit came back, than is wanted: say no credit. To be called before anything is sent."""
    if (link.taken_back or link.asked) and lib.pn_link_credit(link.pn) < lib.pn_link_queued(link.pn):
        ask(link, 0)


def is_kept(link: Link) -> bool:
    """Whether the sender keeps to its credit. If not, what was too much is taken out of the inbox.

    One that this side connects to may send some more. RabbitMQ (3.10) does: when it hears of other credit, it does not
    count what is on its way from its queue to its session.
    """
    excess = -int(lib.pn_link_credit(link.pn)) - link.taken_back
    if excess <= (MOST_EXTRA if link.asked else 0):
        mend(link)
        return True
    while excess and link.inbox:
        excess -= not link.inbox.pop()[2] & MORE
    return False
