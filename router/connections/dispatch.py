"""The path from a connection to the core, for links that resume and for transactions."""

from __future__ import annotations

from collections.abc import Sequence

from ...amqp.links import transaction_state
from ...amqp.links.link import Link
from ...amqp.links.resume_state import ResumeState
from ...amqp.ports import NOT_ACQUIRED, AcquiringEnd, DriverEnd, Fragment
from .link_host import LinkHost


def hand_over_tagged(host: LinkHost, link: Link, driver: DriverEnd, fragments: Sequence[Fragment]) -> None:
    """Pass arrivals of a link that resumes, or in transactions, to the driver."""
    if link.resuming is not None:
        _hand_over_resuming(host, link, link.resuming, fragments)
    else:
        _hand_over_runs(host, link, driver, fragments)


def hand_over_acquiring(host: LinkHost, link: Link, driver: DriverEnd) -> None:
    """Pass the transactional acquisitions in flows on *link* to *driver*, each with its credit."""
    acquiring, link.acquiring = link.acquiring, []
    if isinstance(driver, AcquiringEnd):
        for txn_id, limit, drain in acquiring:
            host.core.post(driver.acquire_in, host, txn_id, limit, drain)
    elif any(txn_id for txn_id, _, _ in acquiring):
        host.engine.endpoints.close_link(link, *NOT_ACQUIRED)


def _hand_over_resuming(host: LinkHost, link: Link, resuming: ResumeState, fragments: Sequence[Fragment]) -> None:
    told, resuming.arrivals = resuming.arrivals, []
    # there are fewer fragments if the last ones exceeded the limit, and were discarded
    arrivals = [(fragment, *about) for fragment, about in zip(fragments, told, strict=False)]
    for txn_id, run in transaction_state.runs(link, arrivals) if link.runs else ((b"", arrivals),):
        if txn_id:
            host.core.post(resuming.keeper.receive_resuming_in, host, txn_id, run)
        else:
            host.core.post(resuming.keeper.receive_resuming, run)


def _hand_over_runs(host: LinkHost, link: Link, driver: DriverEnd, fragments: Sequence[Fragment]) -> None:
    for txn_id, run in transaction_state.runs(link, fragments):
        if txn_id:
            host.core.post(driver.receive_in, host, txn_id, run)
        else:
            host.core.post(driver.receive, run)
