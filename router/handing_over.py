"""From a connection to the core: what one read brought on a link is handed over as a whole, not message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..amqp import transactional
from ..amqp.link import Link
from ..channel.words import NOT_ACQUIRED, AcquiringEnd, DriverEnd, Fragment

if TYPE_CHECKING:
    from ..amqp.resuming import Resuming
    from .terminal import Terminal


def hand_over(terminal: Terminal, link: Link) -> None:
    """What *link* brought: each kind of it is one action."""
    channel = link.channel
    if link.inbox:
        fragments, link.inbox = link.inbox, []
        # what comes after the decision to leave could not be answered any more, so it is not taken
        if channel is not None and channel.driver is not None and not terminal.leaving:
            if link.resuming is not None:
                _hand_over_resuming(terminal, link, link.resuming, fragments)
            elif not link.runs:
                terminal.core.post(channel.driver.post, fragments)
            else:
                _hand_over_runs(terminal, link, channel.driver, fragments)
    if link.acquiring and channel is not None and channel.driver is not None:  # else they wait for the channel to open
        hand_over_acquiring(terminal, link, channel.driver)
    if link.provisional:
        provisional, link.provisional = link.provisional, []
        if channel is not None and channel.driver is not None:
            terminal.core.post(channel.driver.outcomes_in, terminal, provisional)
    if link.outcomes:
        outcomes, link.outcomes = link.outcomes, []
        if channel is not None and channel.driver is not None:
            terminal.core.post(channel.driver.outcomes, outcomes)
            if link.capped:
                terminal.request(link)


def hand_over_acquiring(terminal: Terminal, link: Link, driver: DriverEnd) -> None:
    """What flows on *link* said of transactions, each with the credit that it gave."""
    acquiring, link.acquiring = link.acquiring, []
    if isinstance(driver, AcquiringEnd):
        for txn_id, limit, drain in acquiring:
            terminal.core.post(driver.acquire_in, terminal, txn_id, limit, drain)
    elif any(txn_id for txn_id, _, _ in acquiring):
        terminal.engine.close_link(link, *NOT_ACQUIRED)


def _hand_over_resuming(terminal: Terminal, link: Link, resuming: Resuming, fragments: Sequence[Fragment]) -> None:
    told, resuming.arrivals = resuming.arrivals, []
    # there are fewer fragments if the last ones were too many, and thrown away
    arrivals = [(fragment, *about) for fragment, about in zip(fragments, told, strict=False)]
    for txn_id, run in transactional.runs(link, arrivals) if link.runs else ((b"", arrivals),):
        if txn_id:
            terminal.core.post(resuming.keeper.post_resuming_in, terminal, txn_id, run)
        else:
            terminal.core.post(resuming.keeper.post_resuming, run)


def _hand_over_runs(terminal: Terminal, link: Link, driver: DriverEnd, fragments: Sequence[Fragment]) -> None:
    for txn_id, run in transactional.runs(link, fragments):
        if txn_id:
            terminal.core.post(driver.post_in, terminal, txn_id, run)
        else:
            terminal.core.post(driver.post, run)
