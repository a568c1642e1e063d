"""Settling deliveries, in batches. On a link that is gone there is nothing to settle."""

from __future__ import annotations

from collections.abc import Iterable

from .link import Link
from .proton import ACCEPTED, REJECTED, RELEASED, Pointer, lib, set_condition


def accept(link: Link, deliveries: Iterable[Pointer]) -> None:
    """Incoming deliveries are accepted."""
    _settle(link, deliveries, ACCEPTED)


def release(link: Link, deliveries: Iterable[Pointer]) -> None:
    """Incoming deliveries are released: nobody wants them now."""
    _settle(link, deliveries, RELEASED)


def _settle(link: Link, deliveries: Iterable[Pointer], outcome: int) -> None:
    if link.closed:
        return
    update, settle = lib.pn_delivery_update, lib.pn_delivery_settle
    for delivery in deliveries:
        update(delivery, outcome)
        settle(delivery)


def reject(link: Link, deliveries: Iterable[Pointer], condition: str, description: str) -> None:
    """Incoming deliveries are rejected, and why."""
    if link.closed:
        return
    for delivery in deliveries:
        local = lib.pn_delivery_local(delivery)
        set_condition(lib.pn_disposition_condition(local), condition, description)
        lib.pn_delivery_update(delivery, REJECTED)
        lib.pn_delivery_settle(delivery)


def forget(link: Link, deliveries: Iterable[Pointer]) -> None:
    """Incoming deliveries that want no outcome are done."""
    if link.closed:
        return
    for delivery in deliveries:
        lib.pn_delivery_settle(delivery)


def confirm(link: Link, deliveries: Iterable[tuple[Pointer, int]]) -> None:
    """Outgoing deliveries are settled with the outcome their receiver gave, now that it is durable."""
    if link.closed:
        return
    for delivery, state in deliveries:
        link.unsettled.pop(delivery, None)
        lib.pn_delivery_update(delivery, state)
        lib.pn_delivery_settle(delivery)
