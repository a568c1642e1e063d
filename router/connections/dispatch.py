"""The path from a connection to the core, for links that resume and for transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from ...amqp.links import transaction_state
from ...amqp.links.link import Link
from ...amqp.ports import NOT_ACQUIRED, AcquiringEnd, DriverEnd, ResumingEnd
from .link_host import LinkHost


def hand_over_tagged(host: LinkHost, link: Link, driver: DriverEnd, fragments: Sequence[Any]) -> None:
    """Pass arrivals of a link that resumes, or in transactions, to the driver."""
    receive: Callable[..., None] = driver.receive
    receive_in: Callable[..., None] = driver.receive_in
    if link.resuming is not None:
        reported, link.resuming.arrivals = link.resuming.arrivals, []
        # there are fewer fragments if the last ones exceeded the limit, and were discarded
        fragments = [(fragment, *about) for fragment, about in zip(fragments, reported, strict=False)]
        resuming = cast(ResumingEnd, driver)
        receive, receive_in = resuming.receive_resuming, resuming.receive_resuming_in
    for txn_id, run in transaction_state.runs(link, fragments) if link.runs else ((b"", fragments),):
        if txn_id:
            host.core.post(receive_in, host, txn_id, run)
        else:
            host.core.post(receive, run)


def hand_over_acquiring(host: LinkHost, link: Link, driver: DriverEnd) -> None:
    """Pass the transactional acquisitions in flows on *link* to *driver*, each with its credit."""
    acquiring, link.acquiring = link.acquiring, []
    if isinstance(driver, AcquiringEnd):
        for txn_id, limit, drain in acquiring:
            host.core.post(driver.acquire_in, host, txn_id, limit, drain)
    elif any(txn_id for txn_id, _, _ in acquiring):
        host.engine.endpoints.close_link(link, *NOT_ACQUIRED)
